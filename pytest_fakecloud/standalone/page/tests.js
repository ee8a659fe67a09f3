// A recorded call as a test: its set-up, the call by a client of the service, the move of the clock, and an assertion of the answer.

import {ask, query} from "./api.js";
import {literal} from "./control.js";
import {prefixOf} from "./copying.js";
import {publishOf, requestTo} from "./sending.js";

// JSON as it was sent: in `decoded`, strings that contain JSON are objects.
const sentJson = (text) => { try { return JSON.parse(text); } catch { return undefined; } };

// -- which calls a test can make again --
// The channel of a PUBLISH, and how many subscribers got its message.
function subscribersOf({data, response}) {
  const [line] = data.words ?? [];
  if (!/^PUBLISH$/i.test(line?.[0])) return ["", 0];
  const read = sentJson(response.body), many = read?.result ?? read;
  return [line[1], typeof many === "number" ? many : 0];
}
// The URLs to which a request publishes messages, with those of its callbacks.
function destinationsOf({data, request}) {
  const [, target] = /^POST \/v2\/(?:publish|enqueue\/[^/]+)\/(\S+)/.exec(request.line) ?? [], isBatch = /^POST \/v2\/batch/.test(request.line);
  const messages = isBatch ? sentJson(request.body) ?? [] : target ? [{destination: target, headers: Object.fromEntries(request.headers)}] : [];
  return [...new Set(messages.flatMap(({destination, headers = {}}) => [destination, ...Object.entries(headers).filter(([name]) => /^upstash-callback$/i.test(name)).map(([, url]) => url)]))];
}
// Commands whose reply depends on more than the data of their keys, which is what a test sets up.
const OF_SERVER = /^(KEYS|SCAN|DBSIZE|RANDOMKEY|INFO|TIME|CLIENT|CONFIG|COMMAND|ACL|FUNCTION|FCALL|FCALL_RO|SCRIPT|EVALSHA|EVALSHA_RO|PUBSUB|SPUBLISH|P?SUBSCRIBE|P?UNSUBSCRIBE|MONITOR|MULTI|EXEC|WATCH|HELLO|AUTH|SELECT|WAIT|LASTSAVE|SLOWLOG|LATENCY|MEMORY|CLUSTER|SEARCH\.\w+|FT\.\w+)$/i, MOST_SUBSCRIBERS = 100;
const CREATES = /^POST \/v2\/(publish|enqueue|batch|schedules\/|queues$|topics\/)/;
// Why no test of a recorded call or delivery would be honest, as a sentence; empty if one can be written.
export function whyNoTest(fake, row) {
  const {data, faults, request, response} = row, isDelivery = row.kind === "attempt", [fault] = faults, sent = `${request?.line} ${JSON.stringify(request?.headers)} ${request?.body}`, words = data.words;
  if (!request || request.cut || response?.cut) return "Only a part of the call was recorded, so no test can make it again.";
  if (fault && (isDelivery || row.ok || row.outcome !== "answered")) return `No test of this call: the injected fault ${fault.description} does not show in an answer that a test could compare.`;
  if (data.run || /upstash-workflow-/i.test(sent) || row.subjects.some(({kind}) => kind === "run")) return "No test of this call: it belongs to a workflow run. A test of it starts the workflow.";
  if (isDelivery) return row.status === null && data.error !== "ConnectionRefusedError" ? `No test of this delivery: it got no answer that a test could set up (${row.text.answer}).` : "";
  if (!response || row.outcome !== "answered") return "No test of this call: it has no answer.";
  if (!words && !requestTo(fake, row)) return "No test of this call: its request was not recorded.";
  if (fault || row.status === 401 && response.line !== "reply") return "";
  if (/^(\d+ )?(NOAUTH|NOPERM|WRONGPASS) /.test(row.text.answer)) return "No test of this call: its answer depends on the user of the connection, who was not recorded.";
  if (`${request.line} ${request.body}`.includes("***")) return "No test of this call: secrets in it were not recorded.";
  const reads = words?.find(([name]) => OF_SERVER.test(name));
  if (reads) return `No test of this call: the reply of ${reads[0].toUpperCase()} depends on more than the data of keys, which is what a test would set up.`;
  if (words?.some(([name]) => /^PUBLISH$/i.test(name)) && (words.length > 1 || subscribersOf(row)[1] > MOST_SUBSCRIBERS)) return "No test of this call: its reply depends on subscribers, and the test would need too many of them.";
  if (fake.fixture === "broker" && row.status < 400) return "No test of this call: its answer depends on the records and offsets of the broker.";
  if (fake.fixture !== "queue" || row.status >= 300) return "";
  if (!CREATES.test(request.line)) return "No test of this call: its answer depends on what the queue held.";
  return destinationsOf(row).every((url) => /^https?:/.test(url)) ? "" : "No test of this call: it publishes to a URL group or an API, which the test does not have.";
}

// -- what a test does, as data --
// {fake, now, setup: [command], steps: [{words, reply | error}], status} of a database connection; {fake, now, setup: [request], request,
// status, answer, text} of HTTP calls; {fake, now, request, url, code} of a delivery. `answer` is undefined if it differs each time. Calls
// also have the injected `fault` [status, body] that answered, the `channel` with its `subscribers`, and the URLs that get a message.
const iso = (us) => new Date(us / 1000).toISOString();
const words = (value) => value.map(String);
const MAKERS = {
  string: (key, value) => ["SET", key, value], list: (key, value) => ["RPUSH", key, ...value], set: (key, value) => ["SADD", key, ...value],
  hash: (key, value) => ["HSET", key, ...Object.entries(value).flat()], zset: (key, value) => ["ZADD", key, ...Object.entries(value).flatMap(([member, score]) => [score, member])],
  "ReJSON-RL": (key, value) => ["JSON.SET", key, "$", JSON.stringify(value)],
};
export function remade([key, {type, value, expires}]) {
  const make = MAKERS[type];
  if (!make) throw new Error(`The test would need the key ${key}, a ${type}, which cannot be written in one command.`);
  return [words(make(key, value)), ...expires ? [["PEXPIREAT", key, String(Date.parse(expires.replace(" UTC", "Z").replace(" ", "T")))]] : []];
}
// Commands that read the keys that a call changed, with their replies: the answer of a write says little about the data.
const READERS = {
  string: (key, value) => [["GET", key], String(value)], list: (key, value) => [["LRANGE", key, "0", "-1"], words(value)], set: (key, value) => [["SCARD", key], value.length],
  hash: (key, value) => [["HGETALL", key], words(Object.entries(value).flat())], zset: (key, value) => [["ZRANGE", key, "0", "-1"], Object.entries(value).sort(([one, score], [other, than]) => score - than || (one < other ? -1 : 1)).map(([member]) => member)],
};
async function checksOf({number, data}, fake) {
  const {changes} = await ask("GET", `/journal/${number}/changes`), changed = data.words.some(([name]) => RANDOM.test(name)) ? [] : changes ?? [];
  return changed.filter(({fake: name, section}) => name === fake.name && section === "keys").slice(0, 10).flatMap(({item, after}) => {
    if (after === null) return [{words: ["EXISTS", item], reply: 0}];
    const value = after.type === "string" || typeof after.value !== "string" ? after.value : sentJson(after.value), isOrdered = Array.isArray(value) || !Object.keys(Object(value)).some((name) => /^\d+$/.test(name)) || typeof value === "string";
    // Of long values only the beginning is known, and JavaScript changes the order of numbers that name fields.
    if (!Object.hasOwn(READERS, after.type) || !isOrdered || value === undefined || /, checksum [0-9a-f]{8}|\\x/.test(JSON.stringify([item, value]))) return [];
    const [line, reply] = READERS[after.type](item, value);
    return [{words: line, reply}];
  });
}
// A reply as RESP2 has it: a map is a list of names and values.
const flat = (reply) => reply === true ? 1 : reply === false ? 0 : Array.isArray(reply) ? reply.map(flat) : reply && typeof reply === "object" ? Object.entries(reply).flatMap((pair) => pair.map(flat)) : reply;
const hasFraction = (reply) => Array.isArray(reply) ? reply.some(hasFraction) : typeof reply === "number" && !Number.isInteger(reply);
function repliesOf({data, ok, response}) {
  const read = sentJson(response.body) ?? response.body;
  if (response.line === "reply") return [ok ? {reply: flat(read)} : {error: String(read)}];
  return [read].flat().slice(0, data.words.length).map(({result, error}) => error === undefined ? {reply: flat(result)} : {error});
}
// The reply of these differs each time.
const RANDOM = /^(SPOP|SRANDMEMBER|HRANDFIELD|ZRANDMEMBER)$/i;
const VOLATILE = /messageId|workflowRunId|scheduleId|^id$|createdAt|timestamp/i;
const isVolatile = (value, name = "") => VOLATILE.test(name) || value !== null && typeof value === "object" && Object.entries(value).some(([key, inner]) => isVolatile(inner, Array.isArray(value) ? "" : key));

export async function testOf(row, fakes) {
  const isDelivery = row.kind === "attempt", fake = fakes.find(({name}) => name === (isDelivery ? row.fake : row.peer)), now = iso(row.at_us);
  const before = (section, items) => ask("GET", `/journal/${row.number}/data${query({section, items: JSON.stringify(items)})}`).then((found) => Object.entries(found.items));
  if (isDelivery) return {kind: "delivery", fake, now, request: publishOf(row), url: row.data.url, code: row.status};
  const {words: lines} = row.data, isKv = fake.fixture === "kv_server" && lines, hasReply = row.response.line === "reply", {body} = row.response, read = sentJson(body), answered = read !== null && typeof read === "object" ? read : undefined;
  const [fault] = row.faults, isRejected = fault || row.status === 401, [channel, subscribers] = isRejected ? ["", 0] : subscribersOf(row), made = {fake, now, status: row.status, channel, subscribers, urls: row.status < 300 ? destinationsOf(row) : []};
  // What the fault answered, which is an error reply with the code ERR on a database connection.
  if (fault) made.fault = [row.status, hasReply ? String(read).replace(/^ERR /, "") : body];
  const keys = isKv && !isRejected ? row.subjects.filter(({kind}) => kind === "key").map(({name}) => name) : [], commands = keys.length ? (await before("keys", keys)).flatMap(remade) : [];
  const checks = keys.length ? await checksOf(row, fake) : [];
  if (isKv && hasReply) {
    const replies = repliesOf(row);
    return {...made, kind: "commands", setup: commands, steps: [...lines.map((line, at) => ({words: line, ...hasFraction(replies[at]?.reply) || RANDOM.test(line[0]) ? {} : replies[at]})), ...checks]};
  }
  const request = requestTo(fake, row), setup = commands.map(asRequest);
  // The credentials were not recorded: those of a rejected call were wrong or missing.
  if (row.status === 401 && !fault) request.headers.Authorization = !row.request.headers.some(([name]) => /^authorization$/i.test(name)) ? "" : fake.fixture === "broker" ? `Basic ${btoa("wrong:wrong")}` : "Bearer wrong-token";
  if (fake.fixture === "vector_index" && !isRejected) {
    const namespace = row.subjects.find(({kind}) => kind === "namespace")?.name ?? "", records = (await before(namespace ? `namespace ${namespace}` : "default namespace", [])).map(([, {state, ...record}]) => record);
    if (records.some(({vector}) => typeof vector === "string")) throw new Error("The vectors of this namespace are too long for the text of a test.");
    if (records.length) setup.push({method: "POST", target: `/upsert${namespace ? `/${encodeURIComponent(namespace)}` : ""}`, headers: {}, body: JSON.stringify(records)});
  }
  const differs = fake.fixture === "queue" && isVolatile(answered) || isKv && lines.some(([name]) => RANDOM.test(name));
  return {...made, kind: "request", setup, request, checks: checks.map(({words: line, reply}) => ({...asRequest(line), status: 200, answer: {result: reply}})), answer: differs ? undefined : answered, text: answered === undefined && body ? body : undefined};
}
const asRequest = (line) => ({method: "POST", target: "/", headers: {}, body: JSON.stringify(line)});

// -- pytest --
// The stream of a channel, of which each reader is a subscriber.
const subscribe = ({channel}) => `/subscribe/${encodeURIComponent(channel)}`;
// Clients remove some codes from the beginning of errors.
const withoutCode = (error) => error.replace(/^[A-Z]+ /, "");
const py = (value) => literal(value), lines = (all, indent) => all.map((line) => line && indent + line).join("\n");
function pytest(test, name) {
  // A fake with a name of its own has no fixture: the test starts it.
  const {fixture, name: own} = test.fake, isFixture = own === fixture, variable = isFixture ? fixture : own.replace(/\W/g, "_");
  const prepared = [...test.status === 401 && !test.fault ? [`fakecloud.allow("refused", fake=${py(own)})`] : [], ...test.fault ? [`${variable}.faults.respond(${test.fault.map(py).join(", ")}, times=1)`] : [], ...(test.urls ?? []).map((url) => `${variable}.destinations.respond(${py(url)}, 200)`),
    ...test.subscribers ? [`subscribers = [requests.get(${variable}.url + ${py(subscribe(test))}, headers={**${variable}.headers, "Accept": "text/event-stream"}, stream=True) for _ in range(${test.subscribers})]`] : []];
  const ended = test.subscribers ? ["for subscriber in subscribers:", "    subscriber.close()"] : [], body = {
    commands: () => [
      `client = redis.Redis.from_url(${variable}.database_url, protocol=2, decode_responses=True)`, "client.response_callbacks.clear()  # replies as the server sends them",
      ...test.setup.map((command) => `client.execute_command(${command.map(py).join(", ")})`), ...prepared,
      ...test.steps.flatMap(({words: line, reply, error}) => {
        const call = `client.execute_command(${line.map(py).join(", ")})`;
        return error !== undefined ? ["with pytest.raises(redis.RedisError) as raised:", `    ${call}`, `assert ${py(withoutCode(error))} in str(raised.value)`] : [reply === undefined ? call : `assert ${call} == ${py(reply)}`.replace(" == None", " is None")];
      }), ...ended, "client.close()"],
    request: () => [...test.setup.map((each) => pyRequest(each, variable)), ...prepared, `answer = ${pyRequest(test.request, variable)}`, `assert answer.status_code == ${test.status}`, ...test.text === undefined ? [] : [`assert answer.text == ${py(test.text)}`], ...test.answer === undefined ? [] : [`assert answer.json() == ${py(test.answer)}`],
      ...test.checks.map((check) => `assert ${pyRequest(check, variable)}.json() == ${py(check.answer)}`), ...test.urls.length ? [`${variable}.run_until_idle()`, `delivered = {attempt.url for attempt in ${variable}.attempts() if attempt.status == 200}`, `assert delivered >= {${test.urls.map(py).join(", ")}}`] : [], ...ended],
    delivery: () => [test.code === null ? `${variable}.destinations.respond(${py(test.url)}, ConnectionRefusedError())` : `${variable}.destinations.respond(${py(test.url)}, ${test.code})`,
      `${variable}.client().message.publish(url=${py(test.url)}, body=${py(test.request.body ?? "")}, headers=${py(test.request.headers)}, retries=0)`, "fakecloud.clock.advance(\"1s\")", `(attempt,) = ${variable}.attempts()`, `assert attempt.status ${test.code === null ? "is None" : `== ${test.code}`}`],
  }[test.kind]();
  const imports = {commands: ["import pytest", "import redis", ...test.subscribers ? ["import requests"] : []], request: ["import pytest", "import requests"], delivery: ["import pytest"]}[test.kind];
  return `${imports.join("\n")}\n\n\n@pytest.mark.fakecloud(now=${py(test.now)}, clock="frozen")\ndef test_${name}(fakecloud${isFixture ? `, ${fixture}` : ""}):\n${lines(isFixture ? body : [`${variable} = fakecloud.${fixture}(name=${py(own)})`, ...body], "    ")}\n`;
}
const pyRequest = ({method, target, headers, body}, fixture) => `requests.request(${py(method)}, ${fixture}.url + ${py(target)}, headers={**${fixture}.headers${Object.entries(headers).map(([key, value]) => `, ${py(key)}: ${py(value)}`).join("")}}${body ? `, data=${py(body)}.encode()` : ""})`;

// -- Vitest, with the helper of the guide --
const GUIDES = "https://pytest-fakecloud.github.io/pytest-fakecloud/guides/", NEEDS = `// Needs vitest.config.js beside it: ${GUIDES}javascript.html\n`;
const js = JSON.stringify, ADDRESS = {vector_index: ["UPSTASH_VECTOR_REST_URL", "UPSTASH_VECTOR_REST_TOKEN"], queue: ["QSTASH_URL", "QSTASH_TOKEN"], kv_server: ["UPSTASH_REDIS_REST_URL", "UPSTASH_REDIS_REST_TOKEN"], broker: ["UPSTASH_KAFKA_REST_URL"]};
const VECTOR = {upsert: (body) => `index.upsert(${js(body)}`, query: (body) => `index.query(${js(body)}`, delete: (body) => `index.delete(${js(body)}`, fetch: (body) => `index.fetch(${js(body)}`};
// The call of the official client for a request to a vector index or a queue, or null if it has no method for it.
function official({fake, request}) {
  const [, route, namespace] = /^\/(\w+)(?:\/(.*))?$/.exec(request.target) ?? [], read = () => { try { return JSON.parse(request.body); } catch { return undefined; } };
  if (fake.fixture === "vector_index" && Object.hasOwn(VECTOR, route) && read() !== undefined) return `${VECTOR[route](read())}${namespace ? `, { namespace: ${js(decodeURIComponent(namespace))} }` : ""})`;
  const url = fake.fixture === "queue" && request.method === "POST" && request.target.startsWith("/v2/publish/") ? request.target.slice(12) : "";
  return url.startsWith("http") ? `client.publish({ url: ${js(url)}, body: ${js(request.body ?? "")}, headers: ${js(request.headers)} })` : null;
}
const addressOf = (fake) => [...ADDRESS[fake.fixture], ...fake.fixture === "broker" ? ["UPSTASH_KAFKA_REST_USERNAME", "UPSTASH_KAFKA_REST_PASSWORD"] : []].map((variable) => prefixOf(fake) + variable);
function vitest(test, name) {
  const prefix = prefixOf(test.fake);
  const move = `  await clock.freeze();\n  await clock.moveTo(${js(test.now)});\n`, named = js(test.fake.name), [address, token, password] = addressOf(test.fake), isBroker = test.fake.fixture === "broker";
  const bare = ({method: verb, target, headers, body}, rest = "") => `fetch(process.env.${address} + ${js(target)}, { ${verb === "GET" ? "" : `method: ${js(verb)}, `}headers: { ${Object.entries({...headers.Authorization === undefined && {Authorization: isBroker ? `\`Basic \${btoa(\`\${process.env.${token}}:\${process.env.${password}}\`)}\`` : `\`Bearer \${process.env.${token}}\``}, ...Object.fromEntries(Object.entries(headers).map(([key, value]) => [key, js(value)]))}).map(([key, value]) => `${/^\w+$/.test(key) ? key : js(key)}: ${value}`).join(", ")} }${body ? `, body: ${js(body)}` : ""}${rest} })`;
  const prepared = `${test.fault ? `  await faults.inject(${named}, "respond", { args: ${js(test.fault)}, times: 1 });\n` : ""}${(test.urls ?? []).map((url) => `  await control("POST", ${js(`/fakes/${encodeURIComponent(test.fake.name)}/destinations`)}, { url: ${js(url)}, answer: 200 });\n`).join("")}`
    + (test.subscribers ? `  const subscribers = new AbortController();\n  for (let many = 0; many < ${test.subscribers}; many++) await ${bare({method: "GET", target: subscribe(test), headers: {Accept: "text/event-stream"}}, ", signal: subscribers.signal")};\n` : "");
  const ended = test.subscribers ? "  subscribers.abort();\n" : "", members = ["clock", ...test.fault ? ["faults"] : [], ...test.urls?.length ? ["call", "control"] : []].sort().join(", ");
  if (test.kind === "commands") {
    const call = (line) => `redis.call(${line.map(js).join(", ")})`, steps = test.steps.map(({words: line, reply, error}) => error !== undefined ? `  await expect(${call(line)}).rejects.toThrow(${js(withoutCode(error))});\n` : reply === undefined ? `  await ${call(line)};\n` : `  expect(await ${call(line)}).toEqual(${js(reply)});\n`);
    return `${NEEDS}import Redis from "ioredis";\nimport { ${members} } from "pytest-fakecloud";\nimport { expect, test } from "vitest";\n\ntest("${name}", async () => {\n  const redis = new Redis(process.env.${prefix}REDIS_URL);\n${move}${test.setup.map((line) => `  await ${call(line)};\n`).join("")}${prepared}${steps.join("")}${ended}  redis.disconnect();\n});\n`;
  }
  if (test.kind === "delivery") return `${NEEDS}import { Client } from "@upstash/qstash";\nimport { call, clock, control } from "pytest-fakecloud";\nimport { expect, test } from "vitest";\n\ntest("${name}", async () => {\n${move}  await control("POST", ${js(`/fakes/${encodeURIComponent(test.fake.name)}/destinations`)}, { url: ${js(test.url)}, answer: ${test.code === null ? '"refuse"' : test.code} });\n  await new Client(${prefix && `{ baseUrl: process.env.${prefix}QSTASH_URL, token: process.env.${prefix}QSTASH_TOKEN }`}).publish({ url: ${js(test.url)}, body: ${js(test.request.body ?? "")}, headers: ${js(test.request.headers)}, retries: 0 });\n  await call(${js(test.fake.name)}, "run_until_idle");\n  const [attempt] = await call(${js(test.fake.name)}, "attempts");\n  expect(attempt.status).toBe(${test.code});\n});\n`;
  const method = test.status < 300 && official(test);
  const client = {vector_index: ['import { Index } from "@upstash/vector";\n', `  const index = new Index(${prefix && `{ url: process.env.${address}, token: process.env.${token} }`});\n`], queue: ['import { Client } from "@upstash/qstash";\n', `  const client = new Client(${prefix && `{ baseUrl: process.env.${address}, token: process.env.${token} }`});\n`]}[test.fake.fixture];
  const calls = method ? `  const answer = await ${method};\n${test.answer === undefined ? test.fake.fixture === "queue" ? "  expect(answer.messageId).toMatch(/^msg_/);\n" : "" : /^index\.(upsert|query|fetch|delete)/.test(method) ? `  expect(answer).toEqual(${js(test.answer.result)});\n` : ""}`
    : `  const answer = await ${bare(test.request)};\n  expect(answer.status).toBe(${test.status});\n${test.answer === undefined ? "" : `  expect(await answer.json()).toEqual(${js(test.answer)});\n`}${test.text === undefined ? "" : `  expect(await answer.text()).toBe(${js(test.text)});\n`}`;
  const delivered = test.urls.length ? `  await call(${named}, "run_until_idle");\n  const attempts = await call(${named}, "attempts");\n  expect(attempts.filter(({ status }) => status === 200).map(({ url }) => url)).toEqual(expect.arrayContaining(${js(test.urls)}));\n` : "";
  return `${NEEDS}${method ? client[0] : ""}import { ${members} } from "pytest-fakecloud";\nimport { expect, test } from "vitest";\n\ntest("${name}", async () => {\n${method ? client[1] : ""}${move}${test.setup.map((each) => `  await ${bare(each)};\n`).join("")}${prepared}${calls}${test.checks.map((check) => `  expect(await (await ${bare(check)}).json()).toEqual(${js(check.answer)});\n`).join("")}${delivered}${ended}});\n`;
}

// -- Go, with the helper of the guide and the REST API of the service --
function go(test, name) {
  if (test.kind === "delivery") return null;
  const [address, token, password] = addressOf(test.fake), isKv = test.kind === "commands";
  const requests = isKv ? [...test.setup.map((line) => ({line})), ...test.steps.map(({words: line, reply, error}) => ({line, status: error === undefined ? 200 : test.status, answer: error !== undefined ? undefined : reply === undefined ? undefined : {result: reply}}))].map(({line, ...rest}) => ({method: "POST", target: "/", headers: {}, body: js(line), ...rest})) : [...test.setup, {...test.request, status: test.status, answer: test.answer}, ...test.checks];
  const rows = requests.map(({method, target, headers, body, status = 200, answer}) => `\t\t{${js(method)}, ${js(target)}, map[string]string{${Object.entries(headers).map(([key, value]) => `${js(key)}: ${js(value)}`).join(", ")}}, ${js(body ?? "")}, ${status}, ${answer === undefined ? '""' : js(js(answer))}},\n`).join("");
  const authorize = password ? `request.SetBasicAuth(env[${js(token)}], env[${js(password)}])` : `request.Header.Set("Authorization", "Bearer "+env[${js(token)}])`;
  const post = (path, body) => `\task(t, env, "POST", ${js(path)}, ${body}, nil)\n`, at = `/fakes/${encodeURIComponent(test.fake.name)}`, {urls = []} = test;
  const prepared = `${test.fault ? post(`${at}/faults`, `map[string]any{"kind": "respond", "args": []any{${test.fault.map(js).join(", ")}}, "times": 1}`) : ""}${urls.map((url) => post(`${at}/destinations`, `map[string]any{"url": ${js(url)}, "answer": 200}`)).join("")}`
    + (test.subscribers ? `\tfor range make([]int, ${test.subscribers}) {\n\t\tsubscriber, _ := http.NewRequest("GET", env[${js(address)}]+${js(subscribe(test))}, nil)\n\t\tsubscriber.Header.Set("Authorization", "Bearer "+env[${js(token)}])\n\t\tsubscriber.Header.Set("Accept", "text/event-stream")\n\t\tstream, err := http.DefaultClient.Do(subscriber)\n\t\tif err != nil {\n\t\t\tt.Fatal(err)\n\t\t}\n\t\tdefer stream.Body.Close()\n\t}\n` : "");
  const delivered = urls.length ? `\tvar attempts struct {\n\t\tValue []struct {\n\t\t\tURL    string\n\t\t\tStatus int\n\t\t}\n\t}\n\task(t, env, "POST", "/call", map[string]any{"object": ${js(test.fake.name)}, "name": "run_until_idle"}, nil)\n\task(t, env, "POST", "/call", map[string]any{"object": ${js(test.fake.name)}, "name": "attempts"}, &attempts)\n\tdelivered := map[string]bool{}\n\tfor _, attempt := range attempts.Value {\n\t\tdelivered[attempt.URL] = delivered[attempt.URL] || attempt.Status == 200\n\t}\n\tfor _, url := range []string{${urls.map(js).join(", ")}} {\n\t\tif !delivered[url] {\n\t\t\tt.Error(url, attempts)\n\t\t}\n\t}\n` : "";
  return `// Needs newCloud and ask of fakecloud_test.go beside it: ${GUIDES}go.html\npackage shop\n\nimport (\n\t"encoding/json"\n\t"io"\n\t"net/http"\n\t"reflect"\n\t"strings"\n\t"testing"\n)\n\nfunc Test${name.replace(/(^|_)(\w)/g, (_, __, letter) => letter.toUpperCase())}(t *testing.T) {\n\tenv := newCloud(t)\n\task(t, env, "POST", "/clock", map[string]any{"action": "freeze"}, nil)\n\task(t, env, "POST", "/clock", map[string]any{"action": "move_to", "to": ${js(test.now)}}, nil)\n${prepared}\tfor _, call := range []struct {\n\t\tmethod, target string\n\t\theaders        map[string]string\n\t\tbody           string\n\t\tstatus         int\n\t\tanswer         string\n\t}{\n${rows}\t} {\n\t\trequest, err := http.NewRequest(call.method, env[${js(address)}]+call.target, strings.NewReader(call.body))\n\t\tif err != nil {\n\t\t\tt.Fatal(err)\n\t\t}\n\t\t${authorize}\n\t\tfor name, value := range call.headers {\n\t\t\trequest.Header.Set(name, value)\n\t\t}\n\t\tresponse, err := http.DefaultClient.Do(request)\n\t\tif err != nil {\n\t\t\tt.Fatal(err)\n\t\t}\n\t\ttext, _ := io.ReadAll(response.Body)\n\t\tresponse.Body.Close()\n\t\tif response.StatusCode != call.status {\n\t\t\tt.Fatalf("%s: %d %s", call.body, response.StatusCode, text)\n\t\t}\n\t\tvar expected, answer any\n\t\tif call.answer != "" && json.Unmarshal([]byte(call.answer), &expected) == nil {\n\t\t\tif json.Unmarshal(text, &answer) != nil || !reflect.DeepEqual(expected, answer) {\n\t\t\t\tt.Errorf("%s: expected %s, got %s", call.body, call.answer, text)\n\t\t\t}\n\t\t}\n\t}\n${delivered}}\n`;
}
export const WRITERS = {pytest, Vitest: vitest, Go: go};
export const nameOf = (row) => row.operation.toLowerCase().replace(/\W+/g, "_").replace(/^_|_$/g, "") || "call";
