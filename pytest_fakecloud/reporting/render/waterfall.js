// The waterfall of the request that a row belongs to.
import {count, el, fold, lasted} from "./elements.js";
import {whatOf} from "./facts.js";
import {spansElement} from "./spans.js";

// The most rows of a waterfall, and the most messages of a call that are all followed.
const MOST_SPANS = 200, MOST_MESSAGES = 10;

// The request that a row belongs to, from end to end: calls, deliveries with the waits before them, and callbacks.
export function waterfallElement(one, trace) {
  const all = requestRows(one, trace.rows, trace.byNumber), [first_] = all, shown = all.slice(0, MOST_SPANS);
  if (all.length < 2) return null;
  return fold("Waterfall", [spansElement("Waterfall of the request", waterfallRows(shown).map(({entry, spans, note}) => ({
    name: whatOf(entry.row).slice(0, 200), note, spans, depth: entry.row.depth - first_.row.depth, chosen: entry === one, failed: !entry.row.ok || entry.failed > 0,
    onclick: () => { trace.select(entry.row.number); trace.pane.focus({preventScroll: true}); }})), {start: first_.row.at_us}),
  shown.length < all.length ? el("p", {class: "soft"}, `The first ${MOST_SPANS} of ${count(all.length, "row")}.`) : null], true);
}
// The messages and runs that a row is about. The data of an action and of a delivery names others: what was published, and what a callback is about.
function messagesOf({subjects = [], data}) {
  const named = [data?.message_id, (data?.delivery ?? data)?.about].filter((name) => typeof name === "string").map((name) => ({kind: "message", name}));
  return [...new Set([...subjects, ...named].filter(({kind, name}) => name && (kind === "message" || kind === "run")).map(({kind, name}) => `${kind} ${name}`))];
}
// Returns all rows of the request that a row belongs to, in their order: that of the outermost parent, its children, the messages that they
// published, and the deliveries and callbacks of these. Of a call that is about many messages, only that of the row is followed.
function requestRows(chosen, rows, byNumber) {
  const children = Map.groupBy(rows, ({row}) => row.parent), about = new Map();
  for (const entry of rows) for (const message of messagesOf(entry.row)) { if (about.has(message)) about.get(message).push(entry); else about.set(message, [entry]); }
  const path = new Set([chosen]), followed = new Set(messagesOf(chosen.row));
  for (let up = chosen; up;) {
    const publisher = up.row.rules.is_sent || up.row.rules.is_inside ? messagesOf(up.row).map((message) => about.get(message)[0]).find((entry) => entry.index < up.index) : null;
    up = byNumber.get(up.row.parent) ?? publisher;
    if (!up || path.has(up)) break;
    path.add(up);
  }
  const collected = new Set(), collectedMessages = new Set();
  const collect = (entry) => {
    if (collected.has(entry)) return;
    collected.add(entry);
    for (const child of children.get(entry.row.number) ?? []) collect(child);
    const messages = messagesOf(entry.row);
    for (const message of messages) {
      if (collectedMessages.has(message) || messages.length > MOST_MESSAGES && !followed.has(message)) continue;
      collectedMessages.add(message);
      about.get(message).forEach(collect);
    }
  };
  collect([...path].at(-1));
  path.forEach(collect);
  return [...collected].sort((entry, other) => entry.index - other.index);
}
// Returns the spans of each row, and for a delivery the wait before it.
function waterfallRows(all) {
  const ends = new Map();
  return all.map((entry) => {
    const {row} = entry, {at_us: from, took_us: took} = row, kind = row.rules.bar;
    const [message] = messagesOf(row), before = ends.get(message), to = from + (took ?? 0), spans = [{kind, from, to, failed: !row.ok || entry.failed > 0}];
    if (row.rules.is_sent && before < from) spans.unshift({kind: row.attempt > 1 ? "wait" : "sleep", from: before, to: from});
    for (const name of messagesOf(row)) ends.set(name, to);
    return {entry, spans, note: [row.text.answer, took > 0 ? lasted(took) : ""].filter(Boolean).join(" · ").slice(0, 60)};
  });
}
