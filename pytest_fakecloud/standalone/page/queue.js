// Pages of a queue: messages, dead letters, schedules, workflow runs, queues, URL groups, flow control.
import {about, act, both, breaksJson, code, copyButton, count, done, el, emptied, empty, facts, fine, form, head, isAhead, json, laidOut, link, micros, moment, move, number, own, pill, plainly, removal, short, soft, span, table, title, tools, unescaped, unfold, when, words} from "./dom.js";
import {ask, change, item, list, path, sendWell} from "./api.js";
import {hasFailed, lasted, withoutScheme} from "./elements.js";
import {spansElement} from "./spans.js";
import {recorded, undoOf, undoable, versionsElement} from "./history.js";
import {entries} from "./journal.js";
import {ListPage} from "./lists.js";

const STATES = {delivered: "good", dead_lettered: "bad", cancelled: "", pending: "wait", in_flight: "wait", success: "good", failed: "bad", canceled: "", started: "wait"};
// A run that sleeps or waits does nothing until then, so it does not look like one that runs.
const state = (one) => one.state === "started" && isAhead(one.until) ? pill("waiting", "asleep") : pill(one.state === "started" ? "running" : words(one.state), own(STATES, one.state));
const running = (one) => one.paused ? pill("paused") : pill("active", "good");
const pausing = ({paused}, name, fake, where) => { const text = paused ? "Resume" : "Pause"; return act(text, `${text} ${name}`, undoable(fake, `${paused ? "Resumed" : "Paused"} ${name}.`, () => sendWell(fake, "POST", `${where}/${text.toLowerCase()}`))); };
const deletion = (text, noun, name, page, where) => removal(text, `Delete ${name}`, undoable(page.fake, `Deleted the ${noun} ${name}.`, async () => { await sendWell(page.fake, "DELETE", where); location.hash = page.address(); }), {question: `Delete the ${noun} ${name}?`});
const at = (fake, tab, id) => link(["fake", fake.name, tab, id]);
const status = (one) => one.status == null ? (one.attempts ? "no answer" : "") : el("span", {class: one.status < 300 ? "ok" : "bad"}, String(one.status));
const next = (one) => one.next ? when(one.next) : one.state === "in_flight" ? "now" : one.waits_for ? `waits for ${one.waits_for}` : "";
const several = (name, ids) => "?" + ids.map((id) => `${name}=${encodeURIComponent(id)}`).join("&");
const target = (url) => encodeURI(url).replaceAll("%25", "%");
const headers = (label, given) => { const rows = Array.isArray(given) ? given : Object.entries(given).map(([name, all]) => [name, [all].flat().join(", ")]); return rows.length ? table(label, ["header", "value"], rows, (pair) => pair) : soft("None."); };
const body = (one, label) => [one.body ? code(laidOut(one.body), label) : soft("The body is empty."), one.is_whole === false ? soft("The body is longer than what is shown.") : null];

// -- messages --
// Returns the question before a schedule or a queue with the name of another replaces it.
const replaces = (fake, name, field, noun) => async (values) => values[field] && (await list(fake, name, {search: values[field], limit: 500})).items.some((one) => one[field] === values[field]) && `The ${noun} ${values[field]} exists. Overwrite it?`, ofField = (field) => (values) => `Overwrite ${values[field]}`;
// A form that publishes a message. `again` is a message whose fields the form starts with; it can take the place of its dead letter.
const FORWARD = "Upstash-Forward-", OWN_FIELDS = {type: "Content-Type", delay: "Upstash-Delay", retries: "Upstash-Retries", label: "Upstash-Label", callback: "Upstash-Callback"};
function publish(fake, again) {
  const before = again?.publish_headers ?? {"Content-Type": "application/json"}, isOwn = ([name]) => Object.values(OWN_FIELDS).includes(name);
  const redacted = again?.redacted_headers ?? [];
  let first, said;
  const [forwarded, others] = [true, false].map((whether) => Object.entries(before).filter((pair) => !isOwn(pair) && pair[0].startsWith(FORWARD) === whether).map(([name, value]) => [whether ? name.slice(FORWARD.length) : name, value]));
  const own_ = (name, label, rest) => ({name, label, value: before[OWN_FIELDS[name]], ...rest}), asJson = (pairs) => pairs.length ? JSON.stringify(Object.fromEntries(pairs)) : "";
  return form(again ? "Edit and send again" : "Publish a message", again ? "Send again" : "Publish", [
    {name: "to", label: "destination", note: "https://app.example/hook", value: again?.url, wide: true, needed: true},
    {name: "body", label: "body", kind: "area", value: again?.body, wide: true}, own_("type", "content type"),
    {name: "headers", label: "headers to forward, as JSON", note: '{"X-Trace": "7"}', value: asJson([...forwarded, ...redacted.map((name) => [name, ""])]), wide: true},
    own_("delay", "delay", {note: "10m"}), own_("retries", "retries", {kind: "number"}), own_("label", "label"), {name: "queue", label: "in queue", value: again?.settings.queue}, own_("callback", "callback URL"),
    {name: "others", label: "other headers of the queue, as JSON", note: '{"Upstash-Timeout": "30s"}', value: asJson(others), wide: true},
    ...again?.dlq_id ? [{name: "letter", label: "the dead letter", options: [{value: "keep", label: "stays"}, {value: "delete", label: "is deleted once the message is published"}]}] : []],
  async ({to, body: text, headers: more, queue, others: rest, letter, ...fields}, inputs) => {
    const named = (typed, what, prefix = "") => Object.entries(typed ? json(typed, what) : {}).map(([name, value]) => [prefix + name, String(value)]);
    const missing = redacted.filter((name) => named(more, "The headers").some(([typed, value]) => typed === name && !value));
    if (missing.length) throw new Error(`The queue redacts ${missing.join(", ")}. Enter the value in the headers to forward, or remove the header.`);
    const given = [...named(rest, "The other headers"), ...Object.entries(OWN_FIELDS).map(([name, header]) => [header, fields[name]]).filter(([, value]) => value), ...named(more, "The headers", FORWARD)];
    const made = [await sendWell(fake, "POST", (queue ? `/v2/enqueue/${encodeURIComponent(queue)}/` : "/v2/publish/") + target(to), text, Object.fromEntries(given), again && lastAttempt(fake, again.public_id)?.number)].flat();
    first = change.row;
    if (again) inputs.to.closest("details").open = false; else { emptied(inputs, "body", "label", "delay"); inputs.body.focus(); }
    if (letter === "delete") await discard(fake, [again.dlq_id]);
    // The page of the new message shows whether it is delivered.
    if (again) location.hash = at(fake, "messages", made[0].messageId);
    said = ["Published ", made.map((one) => el("a", {href: at(fake, "messages", one.messageId)}, one.messageId)), letter ? `; the dead letter is ${letter === "delete" ? "deleted" : "kept"}.` : "."].flat();
    return done(said.map((part) => part.cloneNode?.(true) ?? part));
  }, {open: false, undo: () => undoOf(fake, () => first)(change.row, said), overwrites: ({body: text}) => again && breaksJson(again.body, text, "The body"), confirms: () => "Send it as it is"});
}

const messageColumns = ["message", "state", "to", "attempts", "last answer", "next attempt", "body"];
// Lists show addresses without the scheme, so that the path is in sight.
const address = ({method, url}) => el("bdi", {class: "address", title: `${method} ${url}`}, short(`${method} ${withoutScheme(url)}`, 90));
// By which messages one was repeated, as links.
const repeated = ({message, public_id: id, retries = []}, {fake, page: {resends}}) => [["resent", resends[message ?? id] ?? []], ["retried", retries]].flatMap(([how, ids]) => ids.map((id) => el("span", {class: "soft nowrap"}, `${how} as `, el("a", {href: at(fake, "messages", id), title: id}, endOf(id)), " ")));
const messageRow = (one, page) => [when(one.created), state(one), address(one), `${one.attempts} of ${one.most_attempts}`, status(one), next(one), [repeated(one, page), short([one.label, one.step ? `${one.step}${one.result && ` → ${plainly(one.result)}`}` : plainly(one.preview), one.run && `run ${endOf(one.run)}`].filter(Boolean).join(" · "), 140)].flat(2)];
const endOf = (id) => id.length > 12 ? `…${id.slice(-6)}` : id;

function messageDetail(one, page) {
  const {fake} = page, name = one.public_id, pending = one.state === "pending", toMessage = (id) => id && el("a", {href: at(fake, "messages", id)}, id);
  return [el("h2", {}, `${one.method} `, el("span", {class: "mono"}, one.url)),
    facts({state: state(one), id: el("span", {class: "mono"}, name), published: moment(one.created), "next attempt": one.next ? moment(one.next) : next(one), about: toMessage(one.about), "retry of": toMessage(one.retry_of), "retried as": one.retries.map((id) => [toMessage(id), " "]), "resent as": one.resent_as.map((id) => [toMessage(id), " "]), "resent from": toMessage(one.resent_from), run: one.run && el("a", {href: at(fake, "runs", one.run)}, one.run), "dead letter": one.dlq_id && el("a", {href: at(fake, "dead-letters", one.dlq_id)}, one.dlq_id), ...linked(fake, one.settings)}),
    tools(pending && one.next ? act("Deliver now", `Deliver ${name} now`, undoable(fake, "It is due now.", () => recorded(fake, `deliver ${name} now`, () => ask("POST", path(fake, `/messages/${encodeURIComponent(one.id)}/deliver`), {})))) : null,
      pending ? removal("Cancel…", `Cancel ${name}`, undoable(fake, `Cancelled ${name}.`, () => sendWell(fake, "DELETE", `/v2/messages/${encodeURIComponent(name)}`)), {question: "Cancel this message? It will not be delivered.", no: "Keep"}) : null,
      one.dlq_id ? act("Retry", `Retry ${name}`, () => retryOne(fake, one.dlq_id)) : one.state === "failed" ? soft(`Its dead letter was ${one.letter_expired_at ? `removed by its age at ${both(one.letter_expired_at)} UTC` : "retried or deleted"}, so it cannot be retried.`) : null,
      copyButton(name, "Copy id", "Copy id"), copyButton(one.body, "Copy body", "Copy body")),
    one.state === "delivered" ? null : adviceOn(fake, name), one.is_whole === false || one.run ? null : publish(fake, one),
    head(count(one.attempts.length, "attempt")), one.attempts.length || one.next ? attemptSpans(one) : soft("Not attempted yet."),
    head("Body"), ...body(one, "body"), head("Headers"), headers("headers", one.headers), versionsElement(fake, "messages", one.id),
    one.callbacks.length ? [head("Callbacks"), table("callbacks", ["callback", "state", "to"], one.callbacks, (each) => [el("a", {href: at(fake, "callbacks", each.id)}, both(each.created)), state(each), each.url])] : null,
  ].flat();
}
const NAMED = {queue: "queues", "URL group": "url-groups", schedule: "schedules", "flow control": "flow-control"};
const linked = (fake, given) => Object.fromEntries(Object.entries(given).map(([name, value]) => [name, own(NAMED, name) ? el("a", {href: at(fake, NAMED[name], value)}, value) : value]));
// What to do about the last attempt of a message, if it has failed and Activity has its row.
const lastAttempt = (fake, id) => entries.list.findLast((one) => one.rules.is_sent && one.fake === fake.name && one.data.message_id === id);
function adviceOn(fake, id) {
  const row = lastAttempt(fake, id), place = el("div");
  if (row && hasFailed(row)) Promise.all([import("./row.js"), import("./destinations.js")]).then(([{advice}, {destinationForms}]) => place.replaceChildren(...[advice(row, []), row.data.error === "UnstubbedDestinationError" ? destinationForms(fake, new URL(row.data.url).origin) : null].filter(Boolean)), () => {});
  return place;
}
const isGood = ({status: answered}) => answered >= 200 && answered < 300;
function attemptSpans(one) {
  let until = micros(one.created);
  const kind = one.kind === "message" ? "delivery" : "callback", wait = (to, number_) => until < to ? [{kind: number_ > 1 ? "wait" : "sleep", from: until, to}] : [];
  const rows = one.attempts.map((each) => {
    const from = micros(each.at), to = from + Math.round((each.took ?? 0) * 1e6), failed = !isGood(each), before = wait(from, each.number);
    until = to;
    return {name: `Attempt ${each.number}`, key: `attempt ${each.number}`, note: `${short(String(ended(each)), 80)} · ${fine(each.at)}${each.took ? ` · ${lasted(each.took * 1e6)}` : ""}`, failed, spans: [...before, {kind, from, to, failed}], content: [each.waited ? soft(`After ${span(each.waited * 1e6)} (${each.why}).`) : null, answerOf(each)]};
  });
  if (one.next) rows.push({name: "Next attempt", note: both(one.next), spans: [...wait(micros(one.next), one.attempts.length + 1), {kind: "planned", from: micros(one.next), to: micros(one.next)}]});
  return spansElement("attempts", rows, {start: micros(one.created)});
}
const ended = (one) => one.exception ?? one.status ?? one.state, answerOf = (one) => [one.faults.length ? el("p", {class: "fault"}, `Fault: ${one.faults.join(", ")}`) : null, one.exception ? code(one.exception, `error of attempt ${one.number}`) : null,
  one.status == null ? null : [el("h4", {}, "Answer"), ...body(one, `answer to attempt ${one.number}`), headers(`headers of the answer to attempt ${one.number}`, one.headers)]];

const messages = {
  list: "messages", noun: "message", facet: "state", hasItem: true, key: (one) => one.id, columns: messageColumns, aside: ["attempts", "last answer", "next attempt"], fields: ["created", "state", "url", "attempts", "status", "next", "preview"], row: messageRow, searchNote: "Search id, URL, label, body",
  tools: (fake) => publish(fake), detail: messageDetail,
  moreFilters: true, filters: [{name: "since", label: "published since (UTC)", type: "datetime-local"}, {name: "until", label: "published before (UTC)", type: "datetime-local"},
    {name: "status", label: "status of the last answer", note: "503 or 5xx"}, {name: "label", label: "label", note: "mail"}, {name: "url", label: "part of the URL", note: "/hook"},
    {name: "queue", label: "queue", list: "queues"}, {name: "group", label: "URL group", list: "url-groups"}, {name: "schedule", label: "schedule", list: "schedules"}, {name: "flow", label: "flow-control key", list: "flow-control"}],
  bulk: [{text: "Cancel", isRisky: true, no: "Keep", undone: "Cancelled", work: (fake, ids) => sendWell(fake, "DELETE", "/v2/messages" + several("messageIds", ids)), among: "pending", applies: (one) => one.state === "pending", note: "Those that are still pending will not be delivered."}],
  empty: () => empty("No messages yet.", "A message appears when your application publishes one. Publish one above to try.", "Deliveries go to loopback addresses; for others start the server with --forward https://app.example=http://127.0.0.1:3000."),
};
const callbacks = {
  ...messages, list: "callbacks", noun: "callback", tools: undefined,
  empty: () => empty("No callbacks yet.", "The queue publishes one when a message that names a callback URL is delivered, or runs out of retries."),
};

// -- dead letters --
const retry = (fake, ids) => sendWell(fake, "POST", "/v2/dlq/retry" + several("dlqIds", ids)), discard = (fake, ids) => sendWell(fake, "DELETE", "/v2/dlq" + several("dlqIds", ids));
async function retryOne(fake, id) {
  const {responses: [{messageId}]} = await retry(fake, [id]);
  location.hash = at(fake, "messages", messageId);
  undoOf(fake)(change.row, "Retried. This is the new message, whose state is below.");
}
const letters = {
  list: "dead-letters", noun: "dead letter", item: letterWithAnswer, key: (one) => one.id, columns: ["since", "to", "attempts", "last answer", "body"], aside: ["attempts"], fields: ["at", "url", "attempts", "status", "preview"],
  row: (one, page) => [when(one.at), address(one), number(one.attempts), [one.status == null && one.reason ? "" : status(one), " ", el("span", {class: "soft"}, short(one.reason, 60)), " ", repeated(one, page)].flat(), short(one.preview, 60)],
  moreFilters: true, filters: messages.filters, searchNote: messages.searchNote,
  bulk: [{text: "Retry", undone: "Retried", work: retry}, {text: "Delete", isRisky: true, undone: "Deleted", work: discard, note: "The notice that follows can undo it."}],
  empty: () => empty("No dead letters.", "A message appears here when it runs out of retries. Retry it once its destination works."),
  detail: (one, page) => [el("h2", {}, `${one.method} `, el("span", {class: "mono"}, one.url)), facts({since: moment(one.at), attempts: number(one.attempts), "last answer": status(one), message: el("a", {href: at(page.fake, "messages", one.message)}, one.message), "resent as": (page.page.resends[one.message] ?? []).map((id) => [el("a", {href: at(page.fake, "messages", id)}, id), " "]), id: el("span", {class: "mono"}, one.id)}),
    tools(act("Retry", `Retry ${one.id}`, () => retryOne(page.fake, one.id)), removal("Delete…", `Delete ${one.id}`, undoable(page.fake, "Deleted the dead letter.", async () => { await discard(page.fake, [one.id]); location.hash = page.address(); }), {question: "Delete this dead letter?"})),
    adviceOn(page.fake, one.message), one.sent && one.sent.is_whole !== false && !one.sent.run ? publish(page.fake, {...one.sent, dlq_id: one.id}) : null,
    one.sent?.attempts.length ? [attemptSpans(one.sent), answerOf(one.sent.attempts.at(-1))] : null, head("Body"), code(laidOut(one.preview), "body")],
};

// A dead letter with its message, if that is still kept.
async function letterWithAnswer(fake, id) {
  const {items} = await list(fake, "dead-letters", {search: decodeURIComponent(id)}), one = items.find((each) => each.id === decodeURIComponent(id));
  return one ? {...one, sent: await item(fake, "messages", encodeURIComponent(one.message)).catch(() => null)} : null;
}

// -- schedules --
const nameOfSchedule = ({destination, cron}) => `${destination}, ${cron}`;
// A form that creates a schedule, or overwrites `one` by the request that creates it with the same id.
const scheduleForm = (fake, one) => { const {"Upstash-Retries": retries_, ...rest} = one?.publish_headers ?? {}; return form(one ? "Edit…" : "Create a schedule", one ? "Overwrite" : "Create", [{name: "to", label: "destination", note: "https://app.example/nightly", value: one?.destination, wide: true, needed: true}, {name: "cron", label: "cron", note: "0 3 * * *", value: one?.cron, needed: true}, {name: "id", label: "id", note: "generated", value: one?.id, fixed: Boolean(one)}, {name: "retries", label: "retries", kind: "number", value: retries_}, {name: "body", label: "body", kind: "area", value: one?.body, wide: true}, {name: "others", label: "other headers, as JSON", note: '{"Upstash-Timeout": "30s"}', value: one ? JSON.stringify({...rest, ...Object.fromEntries(one.redacted_headers.map((name) => [FORWARD + name, ""]))}) : undefined, wide: true}],
  async ({to, cron, id, body: text, retries, others}, inputs) => { const more = others ? json(others, "The other headers") : {}, empty_ = Object.keys(more).filter((name) => more[name] === ""); if (empty_.length) throw new Error(`The queue redacts ${empty_.join(", ")}. Enter the value, or remove the header.`); const made = await sendWell(fake, "POST", `/v2/schedules/${target(to)}`, text, {...more, "Upstash-Cron": cron, ...retries && {"Upstash-Retries": retries}, ...id && {"Upstash-Schedule-Id": id}}); if (!one) emptied(inputs, "to", "cron", "id", "body"); return done(one ? "Overwrote " : "Created ", el("a", {href: at(fake, "schedules", made.scheduleId)}, nameOfSchedule({destination: to, cron})), "."); }, {open: false, undo: undoOf(fake), overwrites: one ? undefined : replaces(fake, "schedules", "id", "schedule"), confirms: ofField("id")}); };
const schedules = {
  list: "schedules", noun: "schedule", key: (one) => one.id, columns: ["to", "state", "runs", "next run", "cron", "schedule"], aside: ["cron", "schedule"], fields: ["destination", "paused", null, "next", "cron", "id"],
  row: (one) => [address({method: one.method ?? "", url: one.destination}), running(one), one.cron_words || one.cron, one.paused ? "none" : both(one.next[0]), one.cron, one.id],
  tools: (fake) => scheduleForm(fake),
  empty: () => empty("No schedules yet.", "Create one above. A schedule publishes a message at each time of its cron expression, as the clock moves."),
  detail: (one, page) => {
    const where = `/v2/schedules/${encodeURIComponent(one.id)}`, {fake} = page, name = nameOfSchedule(one);
    return [title(withoutScheme(name)), facts({state: running(one), id: el("span", {class: "mono"}, one.id), runs: one.cron_words, cron: el("span", {class: "mono"}, one.cron), to: one.destination, "last run": one.last_run ? moment(one.last_run) : "none yet", error: one.error && el("span", {class: "bad"}, one.error)}),
      tools(itsMessages(fake, "schedule", one.id), act("Run now", `Run ${name} now`, undoable(fake, ({messages: ids, error}) => error ?? ["Published ", ids.map((id) => [el("a", {href: at(fake, "messages", id)}, id), " "])].flat(2), () => recorded(fake, `run the schedule ${name} (${one.id})`, () => ask("POST", path(fake, `/schedules/${encodeURIComponent(one.id)}/run`), {})))), pausing(one, name, fake, where),
        deletion("Delete…", "schedule", name, page, where)), one.is_whole ? scheduleForm(fake, one) : soft("Its body is longer than what is shown, so it cannot be edited here."),
      head("Next runs"), one.paused ? soft("None while it is paused.") : el("ul", {}, one.next.map((run) => el("li", {}, moment(run)))), head("Body"), ...body(one, "body")];
  },
};

// -- workflow runs --
const doing = ({now, until}) => now ? `${now}${until ? ` until ${until.slice(5, 16).replace("T", " ")}` : ""}` : "";
const runs = {
  list: "runs", noun: "run", facet: "state", facetNames: {started: "running or waiting"}, item: runWithViolations, key: (one) => one.id, columns: ["started", "workflow", "run", "state", "took", "steps", "input", "now, or last results"], wraps: true, aside: ["run", "took", "steps"], fields: ["created", "url", "id", "state", null, "steps", "preview", "result"],
  row: (one) => [when(one.created), address({method: "", url: one.url}), el("span", {class: "nowrap end", title: one.id}, endOf(one.id)), state(one), one.completed ? about(micros(one.completed) - micros(one.created)) : "", number(one.steps), short(plainly(one.preview), 40), [[one.parent && `rerun of ${endOf(one.parent)}`, one.children.length ? `rerun as ${short(one.children.map(endOf).join(", "), 30)}` : "", plainly(doing(one) || one.result || one.results)].filter(Boolean).join(" · ")]],
  tools: (fake) => form("Start a run", "Start", [{name: "to", label: "workflow URL", note: "http://127.0.0.1:3000/api/workflow", wide: true, needed: true}, {name: "input", label: "input", kind: "area", wide: true}],
    async ({to, input}, inputs) => { const made = await trigger(fake, to, input); emptied(inputs, "input"); return done("Started ", el("a", {href: at(fake, "runs", made.workflowRunId)}, made.workflowRunId), "."); }, {open: false, undo: undoOf(fake)}),
  empty: () => empty("No workflow runs yet.", "A run appears when your application triggers a workflow. Start one above with the URL of a workflow that you serve."),
  detail: (one, {fake}) => {
    const {record} = one, records = new Map(one.recorded.map((step) => [step.message, step])), toRun = (id) => el("a", {href: at(fake, "runs", id)}, id);
    const again = (text, where) => act(text, `${text} ${one.id}`, async () => { const [made] = [await sendWell(fake, "POST", `/v2/workflows/dlq/${where}/${encodeURIComponent(one.dlq_id)}`)].flat(); location.hash = at(fake, "runs", made.workflowRunId); undoOf(fake)(change.row, `${text}: this is the new run.`); });
    return [title(withoutScheme(one.url)), facts({state: state(one), [one.state === "failed" ? "error" : "now"]: doing(one), run: el("span", {class: "mono"}, one.id), "dead letter": one.dlq_id && el("a", {href: at(fake, "dead-letters", one.dlq_id)}, one.dlq_id), started: moment(one.created), took: one.completed ? span(micros(one.completed) - micros(one.created)) : "", label: record.label, "rerun of": one.parent && toRun(one.parent), "rerun as": one.children.length ? one.children.map((id) => [toRun(id), " "]) : ""}),
      one.violations.map(({kind, text}) => el("div", {class: "banner bad"}, el("b", {}, `${words(kind)}: the run may not continue.`), el("p", {}, text))),
      one.steps.filter(({event, wait_ends: ends}) => event && ends).map(({event, wait_ends: ends}) => form(`Waits for the event ${event}`, "Notify", [{name: "data", label: `event data, as JSON; without it the wait ends at ${both(ends)}`, note: '{"clicked": true}', wide: true}],
        async ({data}) => { if (data) json(data, "The event data"); await sendWell(fake, "POST", `/v2/notify/${encodeURIComponent(event)}`, data); return done("Notified."); }, {undo: undoOf(fake)})),
      tools(one.until ? act("Move there", `Move there: ${one.now} until ${one.until}`, () => move({action: "move_to", to: one.until})) : null, one.state === "started" ? removal("Cancel…", `Cancel ${one.id}`, undoable(fake, `Cancelled ${one.id}.`, () => sendWell(fake, "DELETE", `/v2/workflows/runs/${encodeURIComponent(one.id)}`)), {question: "Cancel this run? Its steps stop where they are.", no: "Keep"}) : null,
        one.dlq_id ? [again("Resume", "resume"), again("Restart", "restart")] : one.state === "failed" ? soft("Its dead letter has ended, so it cannot be resumed or restarted.") : null,
        one.input_is_whole ? act("Run again", `Run again ${one.id}`, async () => { const made = await trigger(fake, one.url, one.input, one.publish_headers); location.hash = at(fake, "runs", made.workflowRunId); undoOf(fake)(change.row, "Started with the same input: this is the new run."); }, {question: one.redacted_headers.length ? `Run again without ${one.redacted_headers.join(", ")}? The queue redacts their values, so they cannot be sent again.` : null}) : null,
        copyButton(one.id, "Copy id", "Copy id"), copyButton(JSON.stringify(record, null, 2), "Copy as JSON", "Copy as JSON")),
      el("div", {class: "side-by-side"}, el("div", {}, head("Input"), one.input ? code(laidOut(one.input), "input") : soft("The run was started without input.")),
        el("div", {}, head(one.state === "failed" ? "Error" : "Result"), one.response ? code(laidOut(one.response), "result") : soft(one.completed ? "The run returned no result." : "The run has not ended."))),
      one.compared_with ? comparison(one, fake) : null, head(count(one.steps.length, one.parent ? "further step" : "step")), one.steps.length ? spansElement("steps", one.steps.flatMap((step, at_) => [step.group && step.group !== one.steps[at_ - 1]?.group ? {name: `${number(one.steps.filter(({group}) => group === step.group).length)} in parallel`, spans: []} : [], stepRow(step, records, fake, one)].flat()), {start: micros(one.created)}) : soft("No step has begun yet."),
    ].flat(2);
  },
};
// The parts of a run beside those of its parent, or of the run of the same workflow before it. Those that differ are first and marked.
const comparison = ({id, compared_with: other, compared: parts, parent, children}, fake) => el("details", {class: "form", open: Boolean(parent) || children.length > 0, "data-key": `compared runs ${id}`}, el("summary", {}, parent ? "Compared with the parent run" : children.length ? "Compared with its last rerun" : "Compared with the run before"), el("p", {}, el("a", {href: at(fake, "runs", other)}, other), `: ${count(parts.filter(({differs}) => differs).length, "difference")}${parts.some(({now, differs}) => now === null && !differs) ? " so far" : ""}.`), table("compared runs", ["step", "then", "now"], parts.toSorted((one, another) => another.differs - one.differs), ({name, message, taken, then, now, differs}) => [[message ? el("a", {href: at(fake, "messages", message), onclick: (event) => { const part = document.querySelector(`details[data-key=${CSS.escape(`step ${message} ${name}`)}]`); if (part) { event.preventDefault(); unfold(part); } }}, name) : name, taken ? el("span", {class: "soft"}, ` ${taken}`) : null].filter(Boolean), ...[then, now].map((value) => value === null ? el("span", {class: "soft"}, now === null && !differs ? "not yet" : "–") : el(differs ? "mark" : "span", {}, short(unescaped(value), 120)))]));
// The result of a step, after that of the parent run if they differ.
const changed = ({result = "", original}, most) => original ? `${short(original, most)} → ${short(result, most)}` : result;
// The header keeps the queue from asking which client serves the URL, because only the client for JavaScript answers that.
const trigger = (fake, url, input, headers_ = {"Content-Type": "application/json"}) => sendWell(fake, "POST", `/v2/trigger/${target(url)}`, input, {...headers_, "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1"});
async function runWithViolations(fake, id) {
  const [run, violations] = await Promise.all([item(fake, "runs", id), ask("GET", "/violations")]);
  return {...run, violations: violations.filter(({facts: {fake: name, run_id: about}}) => name === fake.name && about === run.id)};
}
// A step of a run: its spans, and below it its errors, its input and its result. The error of the last try is in sight.
// With another result, or with the step run again, which gets another input: that of the run, or the result of the step `before`. The new run is another one.
function rerunForm(step, text, fake, run, before) {
  const start = async (changes) => { const made = await recorded(fake, `rerun ${run.id} from ${step.name}`, () => ask("POST", path(fake, `/runs/${encodeURIComponent(run.id)}/rerun`), {message: step.message, ...changes})); location.hash = at(fake, "runs", made.id); scrollTo(0, 0); undoOf(fake)(change.row, ["This run goes on from ", el("a", {href: at(fake, "runs", run.id)}, run.id), ". What the step did to data the first time stays."]); };
  const given = before ? before.result : run.input ?? "", isKnown = before ? !/^(Sleep|Wait)/.test(before.type) : run.input_is_whole, changed_ = (input) => before ? {results: {[before.message]: input}} : {input};
  return form(`Rerun from ${short(step.name, 60)}`, "Rerun", [{name: "how", label: "go on with", options: [...text ? [{value: "result", label: "the result below, without the step"}] : [], {value: "again", label: "the step run again"}]}, ...text ? [{name: "result", label: "result of the step", kind: "area", value: text, wide: true}] : [], ...isKnown ? [{name: "input", label: before ? `input of the step, the result of ${short(before.name, 60)}` : "input of the run", kind: "area", value: given, wide: true}] : []],
    ({how, result, input}, inputs) => start(how === "again" ? {again: true, ...input !== undefined && input !== given && changed_(input)} : {...result !== text && {result}}).then(() => { inputs.how.closest("details").open = false; }), {open: false, copied: false, overwrites: ({result = text, input = given}) => breaksJson(text, result, "The result") ?? breaksJson(given, input, "The input"), confirms: () => "Rerun as it is"});
}
function stepRow(step, records, fake, run) {
  // The message of a step without a type is that of the step before it.
  const record = step.type && records.get(step.message) || {}, {result: text = "", original, sent, answered} = record, before = records.get(step.input_of), isOfRun = !before || before.type === "Initial", input = sent || (isOfRun ? run.input : before.result);
  const spans = step.spans.map(({kind, start, end, failed}) => ({kind, from: micros(start), to: micros(end), failed})), errors = step.errors.map((error) => [`Try ${error.number} at ${fine(error.at)}: ${error.status ?? "no answer"}`, laidOut(error.reason)]);
  const took = spans.reduce((sum, {from, to}) => sum + to - from, 0), beside = changed(record, 40);
  return {name: short(step.name, 120), key: `step ${step.message} ${step.name}`, failed: step.state === "failed", spans, depth: step.group ? 1 : 0, error: step.state === "done" ? "" : step.errors.at(-1)?.cause,
    note: [step.event ? `waits for ${step.event}` : step.calls && step.calls !== step.name ? step.calls : "", took ? span(took) : "", step.tries > 1 ? `${step.tries} tries` : "", [input && input !== text && !/^(Sleep|Wait)/.test(step.type) && short(unescaped(input), 32), beside && step.state === "done" && !/^Sleep/.test(step.type) && `→ ${beside === text ? short(unescaped(text), 40) : beside}`].filter(Boolean).join(" "), step.state === "pending" ? "pending" : ""].filter(Boolean).join(" · "),
    content: [facts({type: step.type, message: el("a", {href: at(fake, "messages", step.message)}, step.message), tries: `${step.tries} of ${step.retries + 1}`, calls: step.calls, answered, "waits for event": step.event, "wait ends": both(step.wait_ends)}),
      errors.map(([about_, reason]) => [el("h4", {class: "bad"}, about_), code(reason, `error of ${about_} of ${step.name}`)]), input ? [el("h4", {}, sent ? "Input" : isOfRun ? "Input, that of the run" : `Input, the result of ${before.name}`), code(laidOut(input), "input of the step")] : null,
      original ? [el("h4", {}, "Result in the original run"), code(laidOut(original), "result in the original run")] : null, text ? [el("h4", {}, "Result"), code(laidOut(text), "result of the step")] : null, step.state === "done" && !step.group ? rerunForm(step, step.type === "Wait" ? "" : text, fake, run, isOfRun ? null : before) : null]};
}

// -- queues, URL groups, flow control --
const itsMessages = (fake, filter, name) => el("a", {class: "button", href: link(["fake", fake.name, "messages"], {[filter]: name})}, "Its messages");
const held = (fake, ids) => ids.length ? el("ol", {}, ids.map((id) => el("li", {}, el("a", {class: "mono", href: at(fake, "messages", id)}, id)))) : soft("No messages are waiting.");
const queues = {
  list: "queues", noun: "queue", key: (one) => one.name, columns: ["queue", "state", "parallelism", "messages"], fields: ["name", "paused", "parallelism", "lag"],
  row: (one) => [one.name, running(one), number(one.parallelism), number(one.lag)],
  tools: (fake) => form("Create a queue", "Create", [{name: "name", label: "name", needed: true}, {name: "parallelism", label: "parallelism", kind: "number", value: "1"}], async ({name, parallelism}, inputs) => { await sendWell(fake, "POST", "/v2/queues", {queueName: name, parallelism: Number(parallelism)}); emptied(inputs, "name"); return done("Created ", el("a", {href: at(fake, "queues", name)}, name), "."); }, {open: false, undo: undoOf(fake), overwrites: replaces(fake, "queues", "name", "queue"), confirms: ofField("name")}),
  empty: () => empty("No queues yet.", "A queue delivers its messages in order. It appears when your application enqueues a message, or create one above."),
  detail: (one, page) => {
    const where = `/v2/queues/${encodeURIComponent(one.name)}`;
    return [title(one.name), facts({state: running(one), parallelism: number(one.parallelism), messages: number(one.lag)}),
      tools(itsMessages(page.fake, "queue", one.name), pausing(one, one.name, page.fake, where),
        deletion("Delete…", "queue", one.name, page, where)), head("Waiting, in order"), held(page.fake, one.waiting)];
  },
};
const groups = {
  list: "url-groups", noun: "URL group", about: (one) => [null, one.name], key: (one) => one.name, columns: ["group", "endpoints"], fields: ["name"],
  row: (one) => [one.name, one.endpoints.map((each) => each.url).join("\n")],
  tools: (fake) => form("Add an endpoint", "Add", [{name: "group", label: "group", needed: true}, {name: "url", label: "URL", needed: true, wide: true}, {name: "name", label: "name of the endpoint"}],
    async ({group, url, name}, inputs) => { await sendWell(fake, "POST", `/v2/topics/${encodeURIComponent(group)}/endpoints`, {endpoints: [{url, ...(name ? {name} : {})}]}); emptied(inputs, "url", "name"); return done("Added to ", el("a", {href: at(fake, "url-groups", group)}, group), "."); }, {open: false, undo: undoOf(fake), overwrites: async ({group, name}) => name && (await list(fake, "url-groups", {search: group, limit: 500})).items.some((one) => one.name === group && one.endpoints.some((each) => each.name === name)) && `The endpoint ${name} of ${group} exists. Overwrite it?`, confirms: ofField("name")}),
  empty: () => empty("No URL groups yet.", "A message that is published to a group goes to each of its endpoints. Add the first endpoint above."),
  detail: (one, page) => [title(one.name), table("endpoints", ["name", "URL", ""], one.endpoints, (each) => [each.name ?? "", each.url, removal("Remove", `Remove ${each.url}`, undoable(page.fake, `Removed ${each.url}.`, () => sendWell(page.fake, "DELETE", `/v2/topics/${encodeURIComponent(one.name)}/endpoints`, {endpoints: [each.name ? {name: each.name} : {url: each.url}]})))]),
    tools(itsMessages(page.fake, "group", one.name), deletion("Delete group…", "URL group", one.name, page, `/v2/topics/${encodeURIComponent(one.name)}`))],
};
const flow = {
  list: "flow-control", noun: "key", key: (one) => one.key, columns: ["key", "state", "waiting", "parallelism", "rate"], fields: ["key", "paused", "waits", "active", "started"],
  row: (one) => [one.key, running(one), one.waits ? el("span", {class: "fault"}, number(one.waits)) : "0", `${one.active} of ${one.parallelism ?? "∞"}`, one.rate == null ? "no limit" : `${one.started} of ${one.rate} per ${one.period} s`],
  empty: () => empty("No flow-control keys yet.", "A key appears when your application publishes a message with flow control. It limits how many messages start at once, or per period."),
  detail: (one, page) => {
    const where = `/v2/flowControl/${encodeURIComponent(one.key)}`;
    return [title(one.key), facts({state: running(one), running: `${one.active} of ${one.parallelism ?? "∞"}`, "this period": one.rate == null ? "no rate limit" : `${one.started} of ${one.rate} in ${one.period} s`, pinned: one.pinned ? "yes" : ""}),
      tools(itsMessages(page.fake, "flow", one.key), pausing(one, one.key, page.fake, where),
        removal("Reset rate", `Reset the rate of ${one.key}`, undoable(page.fake, "The rate is reset.", () => sendWell(page.fake, "POST", where + "/resetRate")))), head(`${count(one.waits, "message")} waiting`), held(page.fake, one.waiting)];
  },
};

const tab = (name, title, spec) => ({name, title, counted: name, make: (fake) => new ListPage(fake, name, spec)});
export const tabs = [
  tab("messages", "Messages", messages), tab("dead-letters", "Dead letters", letters), tab("schedules", "Schedules", schedules), tab("runs", "Workflow runs", runs),
  tab("callbacks", "Callbacks", callbacks), tab("queues", "Queues", queues), tab("url-groups", "URL groups", groups), tab("flow-control", "Flow control", flow),
  {name: "destinations", title: "Destinations", make: async (fake) => (await import("./destinations.js")).destinationsPage(fake)},
];
