// Failed calls, grouped by what failed, each group with advice.

import {count, el, link, number, own, pill, short, table, when, words} from "./dom.js";
import {ask, query} from "./api.js";
import {withoutScheme} from "./elements.js";
import {entries} from "./journal.js";

// The error code of a Redis reply, or the status of a response.
const codeOf = (row) => /^(?:\d{3} )?([A-Z]{3,}) /.exec(row.text.answer)?.[1] ?? (row.status ? String(row.status) : row.data.error ?? row.outcome);
// The advice of a group of rows, or with `isHere` that beside the details of the row itself, which names the destination.
const answerOf = ({data, peer, text}) => `${withoutScheme(data.url ?? peer)} answered ${text.answer}. `;
export function adviceOf(row, isHere = false) {
  if (sendsScript(row)) return "The script was not loaded yet, so the client sent it afterwards.";
  if (row.advice && codeOf(row) === "WRONGTYPE") return typeElement(row);
  const {place, fake} = row.advice_at ?? {}, text = (isHere && row.rules.is_sent && !row.faults.length && row.status != null ? answerOf(row) : "") + (row.advice ?? "");
  return place ? el("span", {}, text, " ", el("a", {href: link(fake ? ["fake", fake, place] : [place])}, `${place[0].toUpperCase()}${place.slice(1).replace("-", " ")}${fake ? ` of ${fake}` : ""}`)) : text;
}

// The types that the keys of a call had before it, and commands that fit them. Each row is looked up once.
const FAMILIES = {string: "GET, SET, APPEND or INCR", hash: "HGET, HSET or HINCRBY", list: "LPUSH, LRANGE or LPOP", set: "SADD, SMEMBERS or SREM", zset: "ZADD, ZRANGE or ZSCORE", stream: "XADD, XRANGE or XREADGROUP", "ReJSON-RL": "JSON.GET or JSON.SET", array: "ARSET or ARGET", vector: "VECTOR.ADD or VECTOR.QUERY"};
const typesOf = new Map();
function typeElement({number: row, operation, subjects, advice}) {
  const place = el("span", {}, advice), keys = subjects.filter(({kind}) => kind === "key").map(({name}) => name).slice(0, 5), draw = ({items}) => { if (Object.keys(items).length) place.replaceChildren(Object.entries(items).map(([key, {type}]) => `${short(key, 60)} holds a ${words(type)}: use ${own(FAMILIES, type) ?? "commands of that type"}.`).join(" "), ` ${operation} is for another type.`); };
  typesOf.set(row, typesOf.get(row) ?? ask("GET", `/journal/${row}/data${query({section: "keys", items: JSON.stringify(keys)})}`)).get(row).then(draw, () => {});
  return place;
}
// Errors that are ordinary control flow of clients, not failures. Only later rows tell that a script was sent after an error.
const sendsScript = (row) => codeOf(row) === "NOSCRIPT" && /^EVALSHA/.test(row.operation)
  && entries.list.some((one) => one.number > row.number && one.fake === row.fake && one.ok && /^(EVAL(_RO)?|SCRIPT LOAD)$/.test(one.operation));
export const isExpected = (row) => Boolean(row.expected) || sendsScript(row);

// The first groups are those of the newest rows. What was only tried in the console comes after them, expected errors come last. `all` is the address of all rows.
export const isInjected = (row) => row.faults.length > 0, isTried = (group) => group.every(({actor}) => actor === "console");
export function errorsElement(rows, most = 50, all = link(["activity"], {status: "failed"})) {
  const groups = [...Map.groupBy(rows, (row) => JSON.stringify([row.fake, row.kind, row.operation, codeOf(row), row.advice, isInjected(row)])).values()].sort((one, other) => isExpected(one[0]) - isExpected(other[0]) || isInjected(one[0]) - isInjected(other[0]) || isTried(one) - isTried(other) || other.at(-1).number - one.at(-1).number);
  return el("div", {}, table("errors", ["what failed", "answer", "times", "last", "advice"], groups.slice(0, most), (group) => {
    const last = group.at(-1);
    return [el("a", {href: link(["activity", last.number], {fake: last.fake, problems: "yes"})}, `${last.fake} · ${last.operation}${isTried(group) ? ", from here" : ""}`), [isInjected(last) ? pill("injected", "wait") : null, " ", el("span", {class: isInjected(last) ? "" : "bad"}, short(last.text.answer, 90))], number(group.length), when(new Date(last.at_us / 1000).toISOString()), adviceOf(last)];
  }), groups.length > most ? el("p", {}, el("a", {href: all}, `${count(groups.length - most, "other kind")} of error${groups.length - most === 1 ? "" : "s"}`)) : null);
}
