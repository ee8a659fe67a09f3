// What failed calls mean, and what to do about them.
import {el, link, own, short, words} from "./dom.js";
import {ask, query} from "./api.js";
import {hasFailed, withoutScheme} from "./elements.js";
import {entries} from "./journal.js";

// The error code of a Redis reply, or the status of a response.
export const codeOf = (row) => /^(?:\d{3} )?([A-Z]{3,}) /.exec(row.text.answer)?.[1] ?? (row.status ? String(row.status) : row.data.error ?? row.outcome);
// A link to where in the console advice is followed.
export const placeLink = ({place, fake}) => el("a", {href: link(fake ? ["fake", fake, place] : [place])}, `${place[0].toUpperCase()}${place.slice(1).replace("-", " ")}${fake ? ` of ${fake}` : ""}`);
// The advice of a group of rows, or with `isHere` that beside the details of the row itself, which names the destination.
const answerOf = ({data, peer, text}) => `${withoutScheme(data.url ?? peer)} answered ${text.answer}. `;
export function adviceOf(row, isHere = false) {
  if (sendsScript(row)) return "The script was not loaded yet, so the client sent it afterwards.";
  if (row.advice && codeOf(row) === "WRONGTYPE") return typeElement(row);
  const text = (isHere && row.rules.is_sent && !row.faults.length && row.status != null ? answerOf(row) : "") + (row.advice ?? "");
  return row.advice_at ? el("span", {}, text, " ", placeLink(row.advice_at)) : text;
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
export const isExpected = (row) => Boolean(row.expected) || sendsScript(row), isFailure = (row) => row.done && hasFailed(row) && !isExpected(row);
