// Failed calls, grouped by what failed, each group with advice.

import {count, el, link, number, own, short, table, when, words} from "./dom.js";
import {ask, query} from "./api.js";
import {withoutScheme} from "./elements.js";
import {entries} from "./journal.js";

// The error code of a Redis reply, or the status of a response.
const codeOf = (row) => /^(?:\d{3} )?([A-Z]{3,}) /.exec(row.text.answer)?.[1] ?? (row.status ? String(row.status) : row.data.error ?? row.outcome);
const TOO_SLOW = "Your application took longer than the timeout of the message.";
// Whether a rejected call has sent a token at all, in a header or in its address.
const hasToken = ({request}) => !request || request.headers?.some(([name]) => /^authorization$/i.test(name)) || /[?&]_token=/.test(request.line);
const tokenAdvice = (row) => row.data.token_of ? `The token belongs to ${row.data.token_of}: each fake has its own.` : hasToken(row) ? "No fake has the token or password that was sent. Copy that of this fake from Connect." : "The request has no token. Copy that of this fake from Connect.";
const ADVICE = {
  WRONGPASS: tokenAdvice,
  NOAUTH: () => "The client sent no password. Copy REDIS_URL from Connect.", NOPERM: () => "The user or the read-only token may not run this command.",
  WRONGTYPE: typeElement, NOSCRIPT: () => "The script was not loaded into this fake, or it was reset. Use EVAL, or load the script first.",
  401: tokenAdvice,
  400: () => "The answer says what is wrong with the request.", 422: () => "The answer says what of the request does not fit the data or the settings of the fake.",
  404: () => "The fake does not have this path, or what it names does not exist. Compare them with the documentation.", 429: () => "A limit was reached: one of the settings, or an injected fault.",
  413: () => "The request is larger than the limit of the fake.", ConnectionRefusedError: () => "Start your application, or forward the address to where it listens: Destinations of the queue.", UnstubbedDestinationError: ({fake}) => el("span", {}, "Forward the address to your application, or let the queue answer it: ", el("a", {href: link(["fake", fake, "destinations"])}, "Destinations"), " has both forms."), DestinationTimeoutError: () => TOO_SLOW, TimeoutError: () => TOO_SLOW, dropped: () => "An injected fault closed the connection.", null: () => "The destination did not answer. Open a row for the reason.",
};
// The advice of a group of rows, or with `isHere` that beside the details of the row itself.
const answerOf = ({data, peer, text}) => `${withoutScheme(data.url ?? peer)} answered ${text.answer}. Mend the destination or the message, then send it again.`;
export const adviceOf = (row, isHere = false) => expectedOf(row)?.why ?? (isHere && row.kind === "attempt" && !row.faults.length && row.status != null ? answerOf(row) : row.faults.length ? "An injected fault answered. The tab Faults of the fake has those that are left." : own(ADVICE, codeOf(row))?.(row) ?? (row.kind === "attempt" ? "The destination failed. Open a row for its answer." : ""));

// The types that the keys of a call had before it, and commands that fit them. Each row is looked up once.
const FAMILIES = {string: "GET, SET, APPEND or INCR", hash: "HGET, HSET or HINCRBY", list: "LPUSH, LRANGE or LPOP", set: "SADD, SMEMBERS or SREM", zset: "ZADD, ZRANGE or ZSCORE", stream: "XADD, XRANGE or XREADGROUP", "ReJSON-RL": "JSON.GET or JSON.SET", array: "ARSET or ARGET", vector: "VECTOR.ADD or VECTOR.QUERY"};
const typesOf = new Map();
function typeElement({number: row, operation, subjects}) {
  const place = el("span", {}, "The key holds a value of another type. Open the key, and its history."), keys = subjects.filter(({kind}) => kind === "key").map(({name}) => name).slice(0, 5), draw = ({items}) => { if (Object.keys(items).length) place.replaceChildren(Object.entries(items).map(([key, {type}]) => `${short(key, 60)} holds a ${words(type)}: use ${own(FAMILIES, type) ?? "commands of that type"}.`).join(" "), ` ${operation} is for another type.`); };
  typesOf.set(row, typesOf.get(row) ?? ask("GET", `/journal/${row}/data${query({section: "keys", items: JSON.stringify(keys)})}`)).get(row).then(draw, () => {});
  return place;
}
// Errors that are ordinary control flow of clients, not failures: of a command, with an answer, with this beginning of the request, and if `then` is sent afterwards. The operation of an address that a fake does not have is its method and path.
const EXPECTED = [
  {operation: /^(HELLO|COMMAND|COMMAND DOCS|CLIENT (SETINFO|SETNAME|MAINT_NOTIFICATIONS|TRACKING|NO-TOUCH))$/, answer: /^(\d+ )?(ERR|NOPROTO) /, why: "The client asks for a feature and ignores this error."},
  {operation: /^EVALSHA(_RO)?$/, answer: /^(\d+ )?NOSCRIPT /, then: /^(EVAL(_RO)?|SCRIPT LOAD)$/, why: "The script was not loaded yet, so the client sent it afterwards."},
  {operation: /^XGROUP CREATE$/, answer: /^(\d+ )?BUSYGROUP /, why: "The group exists already, which a client that creates it at each start expects."},
  {operation: /./, answer: /^(\d+ )?(MOVED|ASK|TRYAGAIN) /, why: "The client of a cluster follows the slot to its node."},
  {operation: /^(?!GET )/, answer: /^404 /, line: /^GET /, why: "The client looked up something that does not exist."},
];
const expectedOf = (row) => row.kind === "call" && !row.faults.length && EXPECTED.find(({operation, answer, line, then}) => operation.test(row.operation) && answer.test(row.text.answer) && (!line || line.test(row.request?.line)) && (!then || entries.list.findLast((one) => one.number > row.number && one.fake === row.fake && one.ok && then.test(one.operation)))) || null;
export const isExpected = (row) => expectedOf(row) !== null;

// The first groups are those of the newest rows, expected errors come last. `all` is the address of all rows.
export function errorsElement(rows, most = 50, all = link(["activity"], {status: "failed"})) {
  const groups = [...Map.groupBy(rows, (row) => JSON.stringify([row.fake, row.kind, row.operation, codeOf(row), row.data.token_of, hasToken(row), row.faults.length > 0])).values()].sort((one, other) => isExpected(one[0]) - isExpected(other[0]) || other.at(-1).number - one.at(-1).number);
  return el("div", {}, table("errors", ["what failed", "answer", "times", "last", "advice"], groups.slice(0, most), (group) => {
    const last = group.at(-1);
    return [el("a", {href: link(["activity", last.number], {fake: last.fake, problems: "yes"})}, `${last.fake} · ${last.operation}`), el("span", {class: "bad"}, short(last.text.answer, 90)), number(group.length), when(new Date(last.at_us / 1000).toISOString()), adviceOf(last)];
  }), groups.length > most ? el("p", {}, el("a", {href: all}, `${count(groups.length - most, "other kind")} of error${groups.length - most === 1 ? "" : "s"}`)) : null);
}
