// Problems: the causes of violations, failed calls by what failed, and dead letters, each with advice.
import {LivePage, act, both, count, el, empty, link, number, pageHead, pill, short, soft, table, tools, when, words} from "./dom.js";
import {ask} from "./api.js";
import {destinationForms} from "./destinations.js";
import {hasFailed, withoutScheme} from "./elements.js";
import {adviceOf, codeOf, isExpected, isFailure, placeLink} from "./errors.js";
import {entries, journal} from "./journal.js";

const failedOf = (numbers) => numbers.map((number_) => entries.known.get(number_)).filter((row) => row?.done && hasFailed(row));
// The failed calls of which no violation is the cause, and that count as failures still. `found` is the answer of the server.
export function openFailures({causes, settled, dismissed}) {
  const apart = new Set([...settled, ...dismissed, ...causes.flatMap(({rows}) => rows)]);
  return entries.list.filter((row) => row.done && hasFailed(row) && !apart.has(row.number));
}
export const siteOf = ({facts: {url, method, path}}) => url ?? [method, path].filter(Boolean).join(" ");
export const lettersLinks = (letters, noun = "dead letter") => [...Map.groupBy(letters, ({fake}) => fake)].map(([fake, some]) => el("a", {href: link(["fake", fake, "dead-letters", ...some.length === 1 ? [some[0].id] : []])}, `${count(some.length, noun)} of ${fake}`));
// The first groups are those of the newest rows. What was only tried in the console comes after them, expected errors come last. Overview shows `few`.
export const isInjected = (row) => row.faults.length > 0, isTried = (group) => group.every(({actor}) => actor === "console");
// What failed in a group of rows: the address of its deliveries, the call if all are the same, or the command.
function nameOf(group) {
  const last = group.at(-1), urls = new Set(group.map(({data, peer}) => data.url ?? peer));
  if (last.rules.is_sent) return urls.size === 1 ? `delivery to ${short(withoutScheme([...urls][0]), 60)}` : `deliveries to ${number(urls.size)} addresses`;
  return last.rules.is_received && group.every((row) => row.text.what === last.text.what) ? short(last.text.what, 60) : last.operation;
}
export function errorsElement(rows, letters, few) {
  const most = few ?? 50, groups = [...Map.groupBy(rows, (row) => JSON.stringify([row.fake, row.kind, row.operation, codeOf(row), row.advice, isInjected(row), row.actor === "console"])).values()].sort((one, other) => isExpected(one[0]) - isExpected(other[0]) || isInjected(one[0]) - isInjected(other[0]) || isTried(one) - isTried(other) || other.at(-1).number - one.at(-1).number);
  return el("div", {}, table("errors", few ? ["what failed", "answer", "last"] : ["what failed", "answer", "times", "last", "advice", ""], groups.slice(0, most), (group) => {
    const last = group.at(-1), caused = letters.filter(({message_id: id}) => group.some(({subjects}) => subjects.some(({name}) => name === id)));
    const what = [el("a", {href: link(["activity", last.number], {fake: last.fake, problems: "yes"})}, `${last.fake} · ${nameOf(group)}${isTried(group) ? ", from here" : ""}`), few && group.length > 1 ? ` ${number(group.length)} times` : null, caused.length ? el("div", {}, lettersLinks(caused)) : null];
    const answer = [isInjected(last) ? pill("injected", "wait") : null, " ", el("span", {class: isInjected(last) ? "" : "bad"}, short(last.text.answer, 90))], at = when(new Date(last.at_us / 1000).toISOString());
    return few ? [what, [answer, el("div", {class: "soft"}, adviceOf(last))], at] : [what, answer, number(group.length), at, adviceOf(last), act("Dismiss", `Dismiss ${nameOf(group)} ${short(last.text.answer, 40)}`, () => ask("POST", "/violations/dismiss", {rows: group.map((row) => row.number)}))];
  }), groups.length > most ? el("p", {}, el("a", {href: few ? "#/problems" : link(["activity"], {status: "failed"})}, `${count(groups.length - most, "other kind")} of error${groups.length - most === 1 ? "" : "s"}`)) : null);
}
const APPEAR = "What a test in strict mode would report appears here, such as a delivery to an address that nothing answers.";
export const problemsPage = () => Object.assign(new LivePage("/problems", (found) => {
  const {causes, dead_letters: letters} = found, failures = openFailures(found), expected = failures.filter(isExpected).length, injected = failures.filter(isInjected).length, open = failures.length - expected - injected, failed = entries.list.filter((row) => isFailure(row) && !isInjected(row)).length, many = causes.flatMap(({violations}) => violations).length, to = (text, status) => el("a", {href: link(["activity"], {status})}, text);
  // The number of problems is that of the navigation: a cause, with all that it brought about, is one. A call that failed may be meant to.
  const caused = causes.flatMap((cause) => cause.dead_letters), others = letters.filter((one) => !caused.some(({fake, id}) => fake === one.fake && id === one.id)), problems = causes.length + others.length;
  const counted = [many ? [`${count(causes.length, "violation")}${many > causes.length ? `, ${number(many)} times` : ""}`, caused.length ? [" (", lettersLinks(caused), ")"] : ""] : null, ...lettersLinks(others, caused.length ? "other dead letter" : undefined)].filter(Boolean);
  const besides = [failed ? [open === failed ? to(count(open, "failed call"), "failed") : [`${count(open, "failed call")} (`, to(`${number(failed)} in Activity`, "failed"), ", with those of violations, those that were dismissed, and those of messages that were delivered since)"], journal.older ? " so far: older ones are being loaded" : ""] : null, injected ? to(`${count(injected, "failure")} by injected faults`, "fault") : null, expected ? to(`${count(expected, "error")} that clients expect`, "expected") : null].filter(Boolean);
  const listed = (parts) => parts.flatMap((part, at) => at ? [" · ", part] : part);
  return [problems ? el("p", {}, el("b", {}, count(problems, "problem")), ": ", listed(counted)) : null, besides.length ? el("p", {class: problems ? "soft" : ""}, problems ? "Besides: " : "", listed(besides)) : null, causes.length ? causes.map(violation) : failures.length ? soft(`No violations. ${APPEAR}`) : empty("No violations.", APPEAR), failures.length ? [causes.length ? el("h2", {}, "Failed calls") : null, errorsElement(failures, letters)] : null];
}, pageHead("Problems")), {version: () => [entries.list.length, journal.older]});

function violation({violations: all, advice, unanswered, is_answered: isAnswered, rows, dead_letters: letters}) {
  const [{kind, what, text, facts: known}] = all, ats = failedOf(rows).map((row) => both(new Date(row.at_us / 1000).toISOString()));
  const places = [...Map.groupBy(all, siteOf)], runs = new Set(all.map(({facts}) => facts.run_id).filter(Boolean));
  const card = el("article", {class: "violation"}, el("h2", {class: "bad"}, words(kind), all.length > 1 ? el("span", {class: "many"}, `${number(all.length)} times`) : null), " ", el("span", {class: "soft"}, `${known.fake ?? ""}${ats.length ? ` · ${ats[0]}${ats.at(-1) === ats[0] ? "" : ` to ${ats.at(-1)}`} UTC` : ""}`),
    el("ul", {}, places.filter(([place]) => place).slice(0, 20).map(([place, some]) => el("li", {class: "mono"}, el("a", {href: link(["activity"], {search: place, violations: "yes"})}, place), some.length > 1 ? ` ${number(some.length)} times` : ""))),
    isAnswered ? el("p", {class: "ok", role: "status"}, `Deliveries to ${unanswered} are answered by now. Retries will use that. `, letters.length ? "Retry the dead letters, then dismiss this." : "Dismiss this.") : null,
    el("p", {class: "mono"}, what), advice.map(({text: line, code, at}) => el("p", {}, line, code ? [" ", el("code", {}, code)] : null, at ? [" ", placeLink(at)] : null)), unanswered ? destinationForms({name: known.fake}, unanswered) : null,
    text === what ? null : el("details", {}, el("summary", {}, "As a test with pytest reports it"), el("p", {class: "mono"}, text)),
    tools(act("Dismiss", `Dismiss ${words(kind)} ${places[0]?.[0] ?? ""}`, async () => { await ask("POST", "/violations/dismiss", {texts: all.map((one) => one.text), rows}); card.remove(); }), lettersLinks(letters)), [...runs].slice(0, 20).map((run) => el("p", {}, el("a", {href: link(["fake", known.fake ?? "queue", "runs", run])}, `Show the run ${run}`))));
  return card;
}
