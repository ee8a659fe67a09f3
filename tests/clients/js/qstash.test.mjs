// @upstash/qstash, unmodified, over its whole surface, against one queue and a real handler.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after, before, beforeEach, test } from "node:test";
import * as qstash from "@upstash/qstash";
import { advance, connection, idle, now, recorder, reset, startHandler } from "./queue-support.mjs";
import { named, testParameters } from "./surface.mjs";

const { Client, Receiver, QstashError, QstashDailyRatelimitError, SignatureError } = qstash;
const client = new Client({ ...connection, retry: false, enableTelemetry: false });
const keys = {
  currentSigningKey: process.env.QSTASH_CURRENT_SIGNING_KEY,
  nextSigningKey: process.env.QSTASH_NEXT_SIGNING_KEY,
};
const receiver = new Receiver(keys);
const surface = recorder(
  {
    client,
    urlGroups: client.urlGroups,
    dlq: client.dlq,
    messages: client.messages,
    schedules: client.schedules,
    flowControl: client.flowControl,
    queue: client.queue({ queueName: "fifo" }),
    workflow: client.workflow,
    receiver,
  },
  {
    ...named(
      "the client's own transport",
      "client.http urlGroups.http dlq.http messages.http schedules.http flowControl.http queue.http workflow.http",
    ),
    "receiver.verifyWithKey": "private in the type definitions; verify() calls it",
    "receiver.verifyBodyAndUrl": "private in the type definitions; verify() calls it",
  },
);
let handler;

before(async () => {
  handler = await startHandler();
});
after(() => handler.close());
beforeEach(async () => {
  await reset();
  handler.clear();
});

const everySetting = () => ({
  headers: { "X-Own": "1" },
  method: "PUT",
  callback: `${handler.url}/callback`,
  failureCallback: `${handler.url}/failure`,
  retries: 1,
  retryDelay: "1000 * (1 + retried)",
  timeout: "30s",
  label: ["one", "two"],
  redact: { body: true, header: ["X-Own"] },
  flowControl: { key: "flow", parallelism: 2, rate: 10, period: "1m" },
});

test("publish with every setting, seen at the destination and in the records", async () => {
  handler.statuses.push(500, 200, 500, 200, 200);
  const { messageId } = await client.publish({
    url: `${handler.url}/job?x=1`,
    body: "raw",
    delay: "10s",
    ...everySetting(),
  });
  const message = await client.messages.get(messageId);
  assert.equal(message.url, `${handler.url}/job?x=1`);
  assert.equal(message.maxRetries, 1);
  assert.equal(message.notBefore - message.createdAt, 10_000);
  assert.match(message.body, /^REDACTED:/);
  assert.match(message.header["X-Own"][0], /^REDACTED:/);
  assert.deepEqual(message.labels, ["one", "two"]);
  assert.equal(message.flowControlKey, "flow");
  await idle();
  const tries = handler.at("/job");
  assert.deepEqual(
    tries.map((one) => [one.method, one.body, one.headers["x-own"], one.headers["upstash-retried"]]),
    [
      ["PUT", "raw", "1", "0"],
      ["PUT", "raw", "1", "1"],
    ],
  );
  assert.equal(handler.at("/callback").length, 2);
  const failure = JSON.parse(handler.at("/failure")[0].body);
  assert.equal(failure.sourceMessageId, messageId);
  const { messages } = await client.dlq.listMessages();
  assert.equal(messages[0].dlqId, failure.dlqId);
  assert.equal(messages[0].retryDelayExpression, "1000 * (1 + retried)");
  assert.equal(messages[0].responseStatus, 500);
});

test("publishJSON, numbers for durations, not before", async () => {
  await client.publishJSON({ url: `${handler.url}/job`, body: { a: [1, "ä"] }, delay: 5, timeout: 9 });
  const notBefore = Math.floor((await now()) / 1000) + 3600;
  await client.publishJSON({ url: `${handler.url}/later`, body: {}, notBefore });
  assert.equal(await advance("59m"), 1);
  assert.deepEqual(JSON.parse(handler.at("/job")[0].body), { a: [1, "ä"] });
  assert.equal(handler.at("/job")[0].headers["content-type"], "application/json");
  assert.equal(await advance("1m"), 1);
});

test("escapes in the URL survive", async () => {
  await client.publish({ url: `${handler.url}/a%20b/c%2Fd?x=%2F` });
  await idle();
  assert.equal(handler.requests[0].url, "/a%20b/c%2Fd?x=%2F");
});

test("deduplication", async () => {
  const url = `${handler.url}/one`;
  const first = await client.publish({ url, body: "a", deduplicationId: "id" });
  const again = await client.publish({ url, body: "b", deduplicationId: "id" });
  assert.equal(again.messageId, first.messageId);
  assert.equal(again.deduplicated, true);
  await client.publish({ url, body: "c", contentBasedDeduplication: true });
  assert.ok((await client.publish({ url, body: "c", contentBasedDeduplication: true })).deduplicated);
});

test("URL groups", async () => {
  const groups = client.urlGroups;
  assert.equal(client.topics.constructor, groups.constructor);
  await groups.addEndpoints({
    name: "group",
    endpoints: [{ url: `${handler.url}/a`, name: "first" }, { url: `${handler.url}/b` }],
  });
  assert.deepEqual(
    (await groups.list()).map((one) => one.name),
    ["group"],
  );
  const results = await client.publishJSON({ urlGroup: "group", body: {} });
  assert.equal(results.length, 2);
  await idle();
  assert.deepEqual(handler.requests.map((one) => one.url).sort(), ["/a", "/b"]);
  await groups.removeEndpoints({ name: "group", endpoints: [{ name: "first" }] });
  assert.deepEqual(
    (await groups.get("group")).endpoints.map((one) => one.url),
    [`${handler.url}/b`],
  );
  await groups.delete("group");
  await assert.rejects(groups.get("group"), (error) => error.status === 404);
});

test("batches", async () => {
  const results = await client.batch([
    { url: `${handler.url}/raw`, body: "x", headers: { "X-A": "1" } },
    { url: `${handler.url}/fifo`, queueName: "fifo", method: "GET" },
  ]);
  assert.equal(results.length, 2);
  await client.batchJSON([{ url: `${handler.url}/json`, body: { a: 1 } }]);
  await idle();
  assert.equal(handler.at("/raw")[0].headers["x-a"], "1");
  assert.equal(handler.at("/fifo")[0].method, "GET");
  assert.deepEqual(JSON.parse(handler.at("/json")[0].body), { a: 1 });
});

test("cancelling", async () => {
  const publish = () => client.publish({ url: `${handler.url}/never`, delay: "1h", label: "mine" });
  const ids = [];
  for (let index = 0; index < 9; index++) ids.push((await publish()).messageId);
  const { messages } = client;
  assert.deepEqual(await messages.cancel(ids[0]), { cancelled: 1 });
  assert.deepEqual(await messages.cancel([ids[0], ids[1], ids[2]]), { cancelled: 2 });
  await messages.delete(ids[3]);
  assert.equal(await messages.deleteMany([ids[4]]), 1);
  assert.deepEqual(await messages.cancel({ filter: { label: "other" } }), { cancelled: 0 });
  assert.deepEqual(await messages.cancel({ filter: { label: ["mine", "other"] } }), { cancelled: 4 });
  await publish();
  assert.equal(await messages.deleteAll(), 1);
  assert.equal((await messages.cancel({ all: true })).cancelled, 0);
  await idle();
  assert.equal(handler.requests.length, 0);
});

test("filters of messages, logs and dead letters", async () => {
  const flowControl = { key: "flow", parallelism: 1 };
  await client.publish({ url: `${handler.url}/later`, delay: "1h", flowControl });
  handler.statuses.push(500);
  await client.publish({ url: `${handler.url}/now`, retries: 0, flowControl });
  await advance("1s");
  const shared = { fromDate: (await now()) - 5000, toDate: new Date(await now()), callerIp: "127.0.0.1", flowControlKey: ["flow", "x"] };
  const { host } = new URL(handler.url);
  const { logs } = await client.logs({ filter: { ...shared, host, path: "/now", state: "FAILED" } });
  assert.equal(logs.length, 1);
  assert.equal((await client.dlq.listMessages({ filter: shared })).messages.length, 1);
  const elsewhere = { ...shared, host: "other.test" };
  assert.deepEqual(await client.messages.cancel({ filter: elsewhere }), { cancelled: 0 });
  assert.deepEqual(await client.messages.cancel({ filter: { ...shared, host: [host], path: "/later" } }), { cancelled: 1 });
});

test("queues", async () => {
  const queue = client.queue({ queueName: "fifo" });
  await queue.upsert({ parallelism: 2, paused: true });
  assert.equal((await queue.get()).paused, true);
  assert.equal((await queue.get()).parallelism, 2);
  await queue.pause();
  // The parallelism of a queue takes the place of flow control.
  const { flowControl: _, ...settings } = everySetting();
  await queue.enqueue({ url: `${handler.url}/x`, body: "one", ...settings });
  await queue.enqueueJSON({ url: `${handler.url}/x`, body: { two: 2 } });
  assert.equal((await queue.get()).lag, 2);
  await idle();
  assert.equal(handler.requests.length, 0);
  await queue.resume();
  await idle();
  assert.deepEqual(
    handler.at("/x").map((one) => one.body),
    ["one", '{"two":2}'],
  );
  assert.equal((await queue.list()).length, 1);
  await queue.delete();
  assert.equal((await queue.list()).length, 0);
});

test("schedules", async () => {
  // A second after a tick: a later one would leave a message that waits when the pause comes.
  await advance(`${301 - Math.floor(((await now()) / 1000) % 300)}s`);
  const { scheduleId } = await client.schedules.create({
    destination: `${handler.url}/tick`,
    cron: "*/5 * * * *",
    body: "tick",
    scheduleId: "mine",
    delay: 10,
    queueName: "fifo",
    ...everySetting(),
  });
  assert.equal(scheduleId, "mine");
  const schedule = await client.schedules.get("mine");
  assert.equal(schedule.cron, "*/5 * * * *");
  assert.equal(schedule.retries, 1);
  assert.equal(schedule.isPaused, false);
  await advance("5m10s");
  assert.equal(handler.at("/tick").length, 1);
  assert.equal(handler.at("/tick")[0].headers["upstash-schedule-id"], "mine");
  await client.schedules.pause({ schedule: "mine" });
  await advance("1h");
  assert.equal(handler.at("/tick").length, 1);
  await client.schedules.resume({ schedule: "mine" });
  assert.equal((await client.schedules.list()).length, 1);
  await client.schedules.delete("mine");
  await assert.rejects(client.schedules.get("mine"), QstashError);
});

test("logs", async () => {
  const { messageId } = await client.publish({ url: `${handler.url}/x`, label: "mine" });
  await idle();
  const { logs } = await client.logs({ filter: { messageId } });
  assert.equal(logs[0].state, "DELIVERED");
  assert.equal(logs.at(-1).state, "CREATED");
  const page = await client.logs({ count: 1 });
  assert.equal(page.logs.length, 1);
  assert.ok(page.cursor);
  assert.equal((await client.logs({ cursor: page.cursor })).logs[0].state, "ACTIVE");
  const { events } = await client.events({ filter: { state: "DELIVERED", label: "mine" } });
  assert.equal(events.length, 1);
  assert.equal((await client.logs({ messageIds: [messageId] })).logs.length, logs.length);
});

test("dead letters", async () => {
  for (let index = 0; index < 5; index++) {
    handler.statuses.push(500);
    await client.publish({ url: `${handler.url}/x${index}`, retries: 0, body: "text" });
    await idle();
  }
  const page = await client.dlq.listMessages({ count: 3 });
  assert.equal(page.messages.length, 3);
  const rest = await client.dlq.listMessages({ cursor: page.cursor });
  assert.equal(rest.messages.length, 2);
  assert.equal(rest.cursor, undefined);
  const ids = [...page.messages, ...rest.messages].map((one) => one.dlqId);
  const filtered = await client.dlq.listMessages({
    filter: { url: `${handler.url}/x1`, responseStatus: 500 },
  });
  assert.deepEqual(
    filtered.messages.map((one) => one.body),
    ["text"],
  );
  assert.equal((await client.dlq.listMessages({ dlqIds: [ids[0]] })).messages.length, 1);
  handler.clear();
  const { responses, cursor } = await client.dlq.retry(ids[0]);
  assert.equal(responses.length, 1);
  assert.equal(cursor, undefined);
  await idle();
  assert.equal(handler.at("/x0").length, 1);
  assert.deepEqual(await client.dlq.delete(ids[1]), { deleted: 1 });
  await assert.rejects(client.dlq.delete(ids[1]), QstashError);
  assert.equal((await client.dlq.deleteMany({ dlqIds: [ids[2]] })).deleted, 1);
  await assert.rejects(client.dlq.delete({ filter: { nonsense: "1" } }), QstashError);
  assert.equal((await client.dlq.delete({ all: true })).deleted, 2);
});

test("flow control", async () => {
  await client.publish({
    url: `${handler.url}/x`,
    flowControl: { key: "key", parallelism: 3, rate: 2, period: "10s" },
  });
  const flow = client.flowControl;
  assert.equal((await flow.get("key")).parallelismMax, 3);
  await flow.pause("key");
  await idle();
  assert.equal(handler.requests.length, 0);
  await flow.resume("key");
  await idle();
  assert.equal(handler.requests.length, 1);
  await flow.pin("key", { parallelism: 7, rate: 8, period: 9 });
  assert.equal((await flow.get("key")).isPinnedRate, true);
  await flow.unpin("key", { parallelism: true, rate: true });
  assert.equal((await flow.get("key")).isPinnedParallelism, false);
  await flow.resetRate("key");
  assert.equal((await flow.getGlobalParallelism()).parallelismCount, 0);
});

test("a language model that somebody stands in for", async () => {
  const messages = [{ role: "user", content: "hi" }];
  const provider = qstash.upstash();
  const model = "meta-llama/Meta-Llama-3-8B-Instruct";
  const answer = await client.chat().create({ provider, model, messages });
  assert.equal(answer.choices[0].message.content, "hello");
  const parts = [];
  for await (const part of await client.chat().create({ provider, model, messages, stream: true })) {
    parts.push(part.choices[0].delta.content);
  }
  assert.deepEqual(parts, ["hel"]);
  const callback = `${handler.url}/callback`;
  await client.publishJSON({ api: { name: "llm" }, callback, body: { model, messages } });
  await idle();
  const [{ body }] = handler.at("/callback");
  const told = JSON.parse(Buffer.from(JSON.parse(body).body, "base64").toString());
  assert.equal(told.choices[0].message.content, "hello");
});

test("the receiver", async () => {
  await client.publish({ url: `${handler.url}/x?y=1`, body: "text" });
  await idle();
  const signature = handler.requests[0].headers["upstash-signature"];
  assert.equal(await receiver.verify({ signature, body: "text", url: `${handler.url}/x?y=1` }), true);
  const upstashRegion = handler.requests[0].headers["upstash-region"];
  assert.equal(await receiver.verify({ signature, body: "text", clockTolerance: 5, upstashRegion }), true);
  await assert.rejects(receiver.verify({ signature, body: "other" }), SignatureError);
  await assert.rejects(
    receiver.verify({ signature, body: "text", url: `${handler.url}/other` }),
    SignatureError,
  );
});

test("errors are those the client knows", async () => {
  const stranger = new Client({ ...connection, token: "wrong", retry: false });
  await assert.rejects(stranger.queue().list(), /unable to authenticate: invalid token/);
  await assert.rejects(client.publish({ url: "ftp://x" }), /invalid scheme/);
  assert.ok(QstashDailyRatelimitError);
});

test("cancelling a workflow run", async () => {
  const headers = { Authorization: `Bearer ${connection.token}`, "Upstash-Delay": "1h" };
  const response = await fetch(`${connection.baseUrl}/v2/trigger/${handler.url}/flow`, { method: "POST", headers });
  const { workflowRunId } = await response.json();
  assert.equal(await client.workflow.cancel(workflowRunId), true);
  await assert.rejects(client.workflow.cancel("wfr_none"), /not found/);
});

test("no public method is left out", () => {
  surface.check();
});

testParameters({
  declarations: readdirSync(new URL("node_modules/@upstash/qstash", import.meta.url))
    .filter((file) => /^client-.*\.d\.ts$/.test(file))
    .map((file) => `@upstash/qstash/${file}`),
  fields: 100,
  notPassed: {
    ...named(
      "a field of an answer",
      "bodyBase64 callerIP cancelled createdAt deduplicated deleted details dlqId endpointName error eventType events",
      "isPaused isPinnedParallelism isPinnedRate labels lag lastScheduleStates lastScheduleTime limit logs maxRetries",
      "nextDeliveryTime nextScheduleTime parallelismCount parallelismMax rateCount rateMax ratePerSecond ratePeriod",
      "ratePeriodStart remaining reset responseBody responseBodyBase64 responseHeader responses retryDelayExpression time",
      "timestamp topicName updatedAt waitListSize",
    ),
    ...named(
      "a field of the language model's answer",
      "bytes choices completion_tokens created delta finish_reason id index logprob message object prompt_tokens",
      "system_fingerprint total_tokens usage",
    ),
    ...named(
      "an option that the client hands to the language model",
      "analytics frequency_penalty logit_bias logprobs max_tokens n organization owner presence_penalty prompt provider",
      "response_format seed stop stream system temperature top_logprobs top_p type user",
    ),
    ...named(
      "part of the client's own transport",
      "appendHeaders http keepalive parseResponseAsJson query request requestStream route telemetryHeaders",
    ),
    ...named(
      "a setting of the client",
      "backend backoff baseUrl currentSigningKey devMode enableTelemetry nextSigningKey retry token",
    ),
    ...named(
      "of the workflows that @upstash/workflow has replaced",
      "callBody callHeaders callMethod callType callUrl concurrent debug env executingStep executor failureFunction failureUrl",
      "initialPayload initialPayloadParser logLevel logOutput onStepFinish out planStepCount qstashClient rawInitialPayload",
      "receiver requestPayload sleepFor sleepUntil stepCount stepId stepName stepType steps targetStep verbose verify",
      "workflowRunId",
    ),
    ...named("an older name that the client rejects or no longer has", "topic"),
    ...named("a function that a type of the client names", "create publishJSON batchJSON"),
  },
});
