"use strict";

// What a person can do to a fake: each form sends one request, as a client would, and shows its answer.
const path = (handle, rest = "") => `/handles/${encodeURIComponent(handle.name)}${rest}`;
const send = (handle, method, target, body, headers) => ask("POST", path(handle, "/requests"), {method, target, body, headers});
const json = (text, what) => {
  try { return JSON.parse(text); } catch (error) { throw new Error(`${what} is not JSON (${error.message}): ${short(text, 80)}`); }
};

let made = 0;
function form(title, button, fields, act) {
  const inputs = {}, out = el("div", {class: "out", role: "status"});
  const parts = fields.map(({name, label, options, note, value, wide, kind, needed, list}) => {
    const id = `field${++made}`;
    const field = options ? el("select", {id, name}, ...options.map((one) => el("option", {value: one}, one || "any")))
      : kind === "area" ? el("textarea", {id, name, rows: 2, placeholder: note, required: needed})
      : el("input", {id, name, type: kind || "text", placeholder: note, required: needed, autocomplete: "off", spellcheck: "false", list: list ? id + "list" : null});
    if (value !== undefined) field.value = value;
    inputs[name] = field;
    const known = list ? el("datalist", {id: id + "list"}) : null;
    if (known) field.addEventListener("focus", () => known.replaceChildren(...list().map((one) => el("option", {value: one}))));
    return el("div", {class: wide ? "field wide" : "field"}, el("label", {for: id}, label), field, known);
  });
  const values = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]));
  const made_ = el("form", {class: "act", "aria-label": title, onsubmit: async (event) => {
    event.preventDefault();
    out.replaceChildren();
    try { out.replaceChildren(...[await act(values(), inputs)].flat().filter((one) => one != null)); }
    catch (error) { out.replaceChildren(el("p", {class: "bad"}, error.message)); }
    soon();
  }}, el("h2", {}, title), el("div", {class: "fields"}, ...parts, el("button", {type: "submit"}, button)), out);
  return made_;
}

// An answer as it came; what is JSON is laid out.
function shown(answer) {
  if (answer.broken) return el("p", {class: "fault"}, `The connection broke: ${answer.broken}.`);
  let text = answer.body;
  try { text = JSON.stringify(JSON.parse(text), null, 1); } catch { /* It is no JSON. */ }
  return [el("span", {class: answer.status < 400 ? "ok" : "bad"}, String(answer.status)),
    el("pre", {tabindex: 0, "aria-label": "answer"}, text.length > 20000 ? text.slice(0, 20000) + "…" : text)];
}

// A line as a shell reads it: words, with quotes around what has spaces.
function words(line) {
  const found = [];
  let word = null, quote = "";
  for (let place = 0; place < line.length; place++) {
    const one = line[place];
    if (quote) {
      if (one === quote) quote = "";
      else if (one === "\\" && quote === '"' && place + 1 < line.length) word += line[++place];
      else word += one;
    } else if (one === '"' || one === "'") { quote = one; word ??= ""; }
    else if (/\s/.test(one)) { if (word !== null) found.push(word); word = null; }
    else word = (word ?? "") + one;
  }
  if (quote) throw new Error(`a quote ${quote} is never closed`);
  if (word !== null) found.push(word);
  return found;
}

const said = [];
function command(handle) {
  let place = said.length;
  const made_ = form("Run a command", "Run", [{name: "line", label: "command", note: "SET greeting \"hello you\" EX 60", wide: true, needed: true}],
    async ({line}, {line: input}) => {
      const answer = await send(handle, "POST", "/", words(line));
      said.push(line); place = said.length; input.value = "";
      return [el("p", {class: "mono soft"}, line), ...[shown(answer)].flat()];
    });
  const input = made_.querySelector("input");
  input.addEventListener("keydown", (event) => {
    const step = {ArrowUp: -1, ArrowDown: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    place = Math.max(0, Math.min(said.length, place + step));
    input.value = said[place] ?? "";
  });
  return made_;
}

const numbers = (text) => json(/^\s*\[/.test(text) ? text : `[${text}]`, "the vector");
const space = {name: "namespace", label: "namespace", note: "default"};
const inside = (name) => name ? "/" + encodeURIComponent(name) : "";
function found(answer) {
  if (answer.broken || answer.status >= 400) return shown(answer);
  return table(["id", "score", "metadata", "data"], JSON.parse(answer.body).result, (one) => [one.id, one.score, short(one.metadata ?? "", 200), short(one.data ?? "", 200)]);
}
const topics = (handle) => () => (seen[handle.name]?.topics || []).map((topic) => topic.name);

const acts = {
  kv_server: (handle) => [command(handle)],
  vector_index: (handle) => [
    form("Query", "Query", [{name: "by", label: "by", options: ["vector", "text"]}, {name: "what", label: "vector or text", note: "0.1, 0.2", wide: true, needed: true},
      {name: "most", label: "at most", kind: "number", value: "5"}, {name: "filter", label: "filter", note: "genre = 'drama'"}, space],
    async ({by, what, most, filter, namespace}) => found(await send(handle, "POST", (by === "text" ? "/query-data" : "/query") + inside(namespace),
      {...(by === "text" ? {data: what} : {vector: numbers(what)}), topK: Number(most), includeMetadata: true, includeData: true, ...(filter ? {filter} : {})}))),
    form("Upsert", "Upsert", [{name: "id", label: "id", needed: true}, {name: "by", label: "from", options: ["vector", "text"]}, {name: "what", label: "vector or text", note: "0.1, 0.2", wide: true, needed: true},
      {name: "metadata", label: "metadata", note: "{\"genre\": \"drama\"}"}, space],
    async ({id, by, what, metadata, namespace}) => shown(await send(handle, "POST", (by === "text" ? "/upsert-data" : "/upsert") + inside(namespace),
      {id, ...(by === "text" ? {data: what} : {vector: numbers(what)}), ...(metadata ? {metadata: json(metadata, "metadata")} : {})})))],
  broker: (handle) => [
    form("Produce", "Produce", [{name: "topic", label: "topic", needed: true, list: topics(handle)}, {name: "value", label: "value", wide: true}, {name: "key", label: "key"}, {name: "partition", label: "partition", kind: "number", note: "by key"}],
      async ({topic, value, key, partition}) => shown(await send(handle, "POST", "/produce", {topic, value, ...(key ? {key} : {}), ...(partition ? {partition: Number(partition)} : {})}))),
    form("Consume", "Consume", [{name: "group", label: "group", value: "console", needed: true}, {name: "instance", label: "instance", value: "one", needed: true},
      {name: "topic", label: "topic", needed: true, list: topics(handle)}, {name: "from", label: "a new group begins at", options: ["earliest", "latest"]}],
    async ({group, instance, topic, from}) => {
      const answer = await send(handle, "GET", `/consume/${[group, instance, topic].map(encodeURIComponent).join("/")}`, "", {"Kafka-Auto-Offset-Reset": from});
      if (answer.broken || answer.status >= 400) return shown(answer);
      const records = JSON.parse(answer.body);
      return records.length ? table(["partition", "offset", "key", "value"], records, (one) => [one.partition, one.offset, one.key, short(one.value, 300)]) : el("p", {}, "no new records");
    })],
  queue: (handle) => [form("Publish", "Publish", [{name: "to", label: "destination", note: "https://app.example/hook", wide: true, needed: true},
      {name: "body", label: "body", kind: "area", wide: true}, {name: "type", label: "content type", value: "application/json"},
      {name: "delay", label: "delay", note: "10m"}, {name: "retries", label: "retries", kind: "number"}, {name: "queue", label: "in queue"}],
    async ({to, body, type, delay, retries, queue}) => shown(await send(handle, "POST", (queue ? `/v2/enqueue/${encodeURIComponent(queue)}/` : "/v2/publish/") + encodeURI(to).replaceAll("%25", "%"), body, {
      ...(type ? {"Content-Type": type} : {}), ...(delay ? {"Upstash-Delay": delay} : {}), ...(retries ? {"Upstash-Retries": retries} : {})})))],
};
const anything = (handle) => el("details", {}, el("summary", {}, "Any request"), form("Any request", "Send",
  [{name: "method", label: "method", options: ["GET", "POST", "PUT", "PATCH", "DELETE"]}, {name: "target", label: "path", value: "/", wide: true, needed: true}, {name: "body", label: "body", kind: "area", wide: true}],
  async ({method, target, body}) => shown(await send(handle, method, target, body))));

// -- faults ---------------------------------------------------------------------------------------

const examples = {answer: "503", delay: '"2s"', truncate: "10", random: "0.5, 503", sequence: "[503, 503]", rate_limit: '2, "1s"', down: ""};
function faultForm(handle, kinds) {
  const made_ = form("Add a fault", "Add", [{name: "kind", label: "fault", options: kinds}, {name: "args", label: "with", note: examples[kinds[0]] || "nothing"},
    {name: "times", label: "times", kind: "number", note: "always"}, {name: "by", label: "only", options: ["", "route", "command", "topic"]}, {name: "which", label: "which", note: "SET"}],
  async ({kind, args, times, by, which}) => {
    await ask("POST", path(handle, "/faults"), {kind, args: json(`[${args}]`, "what a fault is given"), ...(times ? {times: Number(times)} : {}), ...(by && which ? {[by]: which} : {})});
    return el("p", {class: "ok"}, "added");
  });
  const [kind, args] = [made_.querySelector("select"), made_.querySelector("input")];
  kind.addEventListener("change", () => { args.placeholder = examples[kind.value] || "nothing"; });
  return made_;
}
function faultList(handle, faults) {
  if (!faults.length) return [el("p", {class: "soft"}, "no faults")];
  return [table(["fault", "hits", "", ""], faults, (one) => [one.text, one.hits, one.active ? "active" : "used up",
    act("Remove", `Remove the fault ${one.text}`, () => ask("DELETE", path(handle, `/faults/${one.id}`)))])];
}
function act(text, label, work) {
  return el("button", {type: "button", "aria-label": label, onclick: () => attempt(async () => { await work(); await refresh(); })}, text);
}

// -- asking before what cannot be undone ------------------------------------------------------------

function confirmed(question, button) {
  return new Promise((done) => {
    const dialog = el("dialog", {"aria-labelledby": "question", onclose: () => { dialog.remove(); done(dialog.returnValue === "yes"); }},
      el("form", {method: "dialog"}, el("p", {id: "question"}, question), el("div", {class: "tools"},
        el("button", {value: "yes", class: "danger"}, button), el("button", {value: "no", autofocus: true}, "Cancel"))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// -- environment ----------------------------------------------------------------------------------

const environment = () => Object.assign({}, ...state.handles.map((handle) => handle.env));
const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";
const environments = {
  "Copy .env": (env) => Object.entries(env).map(([name, value]) => `${name}=${/^[\w.:/@+=-]*$/.test(value) ? value : JSON.stringify(value)}\n`).join(""),
  "Copy for a shell": (env) => Object.entries(env).map(([name, value]) => `export ${name}=${quoted(value)}\n`).join(""),
  "Copy for PowerShell": (env) => Object.entries(env).map(([name, value]) => `$env:${name} = '${value.replaceAll("'", "''")}'\n`).join(""),
  "Copy as JSON": (env) => JSON.stringify(env, null, 1),
};
