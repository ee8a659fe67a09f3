// What the parts of a timeline ask about a row: its ends, its problems, its subjects, its words and its time.
import {shortName, span, withoutScheme} from "./elements.js";

// A restore, and another change without a call, has its data as a table before and after it.
export const isRestore = ({rules, operation}) => rules.is_inside && (operation === "restored" || operation === "changed");
export const laneName = (end) => /^https?:\/\/[^/?#]+/.exec(end)?.[0] ?? end;
// Errors that clients expect are no failures.
export const isFailure = ({row, failed, isExpected}) => (!row.ok || failed > 0) && !isExpected;
export const isProblem = (one) => isFailure(one) || one.row.findings?.length > 0 || one.row.faults?.length > 0;
export const hasSubject = (row, {kind, name, fake}) => (row.subjects ?? []).some((one) => one.kind === kind && one.name === name && (!fake || one.fake === fake));
export function isWanted(one, wanted, search) {
  const {row} = one;
  if (wanted.problems && !isProblem(one)) return false;
  if (wanted.fake && row.actor !== wanted.fake && row.peer !== wanted.fake) return false;
  if (wanted.subject && !hasSubject(row, wanted.subject)) return false;
  if (!search) return true;
  one.words ??= [row.text.what, row.text.answer, row.text.note, ...(row.text.lines ?? []), one.fromName, one.toName, row.where?.file, row.request?.line,
    row.request?.body, row.response?.body, ...(row.subjects ?? []).map((subject) => subject.name),
    ...[row.request?.decoded, row.response?.decoded, row.data].map((value) => value === undefined ? "" : JSON.stringify(value))]
    .join("\n").toLowerCase();
  return search.split(/\s+/).every((word) => one.words.includes(word));
}
// Return a text of a row with the row's long ids shortened: they would leave no room for the address.
export function withShortIds(text, {subjects = []}) {
  return subjects.filter(({name}) => /^(?:\w{24,}|[a-z]{3}_[-\w]{16,})$/.test(name)).reduce((short, {name}) => short.replaceAll(name, `${name.slice(0, 8)}…${name.slice(-4)}`), text);
}
// Return the text of a row without the host of an address, which its lane shows.
export const whatOf = (row) => withShortIds(/^https?:/.test(row.peer) ? row.text.what.replace(`${laneName(row.peer)}/`, "/") : row.text.what, row);
// An answer that says that nothing happened, such as 0 or null, is neither good nor bad.
export const colour = (one) => isFailure(one) ? "trace-bad" : one.isExpected || one.row.marks?.includes("refused") ? "trace-nothing" : "trace-ok";
// What a client calls, or both ends of another call.
export const partyOf = (one) => one.fromName === "client" ? withoutScheme(one.toName) : endsOf(one);
export const endsOf = ({fromName, toName}) => [...new Set([fromName, toName].map(withoutScheme))].join(" → ");
export const isoDay = (at_us) => new Date(at_us / 1000).toISOString().slice(0, 10);
export const clockTime = (at_us) => new Date(at_us / 1000).toISOString().slice(11, 23);
// Return the time between two rows in whole seconds ("+5 m"), with the date if the day changes; empty below so many seconds, and other words where the clock went back.
export function gapText(from_us, to_us, least = 1) {
  const seconds = Math.floor(Math.abs(to_us - from_us) / 1e6), isSameDay = isoDay(from_us) === isoDay(to_us), text = `${span(seconds * 1e6)}${isSameDay ? "" : ` · ${isoDay(to_us)}`}`;
  return seconds < least && isSameDay || seconds < 1 ? "" : to_us < from_us ? `the clock went back ${text}` : `+${text}`;
}
export function nameOf({kind, name}) { return name ? `${kind} ${shortName(name)}` : `default ${kind}`; }
