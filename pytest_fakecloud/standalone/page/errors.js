// Failed calls, grouped by what failed, each group with advice.

import {count, el, link, number, own, short, table, when} from "./dom.js";
import {withoutScheme} from "./elements.js";

// The error code of a Redis reply, or the status of a response.
const codeOf = (row) => /^(?:\d{3} )?([A-Z]{3,}) /.exec(row.text.answer)?.[1] ?? (row.status ? String(row.status) : row.data.error ?? row.outcome);
const TOO_SLOW = "Your application took longer than the timeout of the message.";
const ADVICE = {
  WRONGPASS: (row) => row.data.token_of ? `The token belongs to ${row.data.token_of}: each fake has its own.` : "The token or password is not one of this fake. Copy it from Connect.",
  NOAUTH: () => "The client sent no password. Copy REDIS_URL from Connect.", NOPERM: () => "The user or the read-only token may not run this command.",
  WRONGTYPE: () => "The key holds a value of another type. Open the key, and its history.", NOSCRIPT: () => "The script was not loaded into this fake, or it was reset. Use EVAL, or load the script first.",
  401: (row) => row.data.token_of ? `The token belongs to ${row.data.token_of}: each fake has its own.` : "The token is not one of this fake. Copy it from Connect.",
  400: () => "The answer says what is wrong with the request.", 422: () => "The answer says what of the request does not fit the data or the settings of the fake.",
  404: () => "The fake does not have this path, or what it names does not exist. Compare them with the documentation.", 429: () => "A limit was reached: one of the settings, or an injected fault.",
  413: () => "The request is larger than the limit of the fake.", ConnectionRefusedError: () => "Start your application, or forward the address to where it listens: Destinations of the queue.", UnstubbedDestinationError: () => "Forward the address to your application, or answer it: Violations has both forms.", DestinationTimeoutError: () => TOO_SLOW, TimeoutError: () => TOO_SLOW, dropped: () => "An injected fault closed the connection.", null: () => "The destination did not answer. Open a row for the reason.",
};
// The advice of a group of rows, or with `isHere` that beside the details of the row itself.
const answerOf = ({data, peer, text, response}) => `${withoutScheme(data.url ?? peer)} answered ${text.answer}${response?.body ? `: ${short(response.body, 120)}` : ""}. Mend the destination, then send the message again.`;
export const adviceOf = (row, isHere = false) => isHere && row.kind === "attempt" && !row.faults.length && row.status != null ? answerOf(row) : row.faults.length ? "An injected fault answered. The tab Faults of the fake has those that are left." : own(ADVICE, codeOf(row))?.(row) ?? (isHandshake(row) ? "The client asks for a feature and ignores this error." : row.kind === "attempt" ? "The destination failed. Open a row for its answer." : "");

// Commands with which clients ask for features: they ignore that a server does not have them.
export const isHandshake = (row) => row.kind === "call" && !row.faults.length && /^(\d+ )?(ERR|NOPROTO) /.test(row.text.answer) && /^(HELLO|COMMAND|COMMAND DOCS|CLIENT (SETINFO|SETNAME|MAINT_NOTIFICATIONS|TRACKING|NO-TOUCH))$/.test(row.operation);

// The first groups are those of the newest rows, errors that clients ignore come last. `all` is the address of all rows.
export function errorsElement(rows, most = 50, all = link(["activity"], {status: "failed"})) {
  const groups = [...Map.groupBy(rows, (row) => JSON.stringify([row.fake, row.kind, row.operation, codeOf(row), row.data.token_of, row.faults.length > 0])).values()].sort((one, other) => isHandshake(one[0]) - isHandshake(other[0]) || other.at(-1).number - one.at(-1).number);
  return el("div", {}, table("errors", ["what failed", "answer", "times", "last", "advice"], groups.slice(0, most), (group) => {
    const last = group.at(-1);
    return [el("a", {href: link(["activity", last.number], {fake: last.fake, problems: "yes"})}, `${last.fake} · ${last.operation}`), el("span", {class: "bad"}, short(last.text.answer, 90)), number(group.length), when(new Date(last.at_us / 1000).toISOString()), adviceOf(last)];
  }), groups.length > most ? el("p", {}, el("a", {href: all}, `${count(groups.length - most, "other kind")} of error${groups.length - most === 1 ? "" : "s"}`)) : null);
}
