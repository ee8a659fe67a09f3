// The details of a row of Activity: advice, links, the data before and after it, and what can be made of it. Loaded when the first row is opened.
import {KINDS, attempt, code, copy, copyButton, el, link, short, tools} from "./dom.js";
import {ask, list} from "./api.js";
import {fold, hasFailed} from "./elements.js";
import {adviceOf} from "./errors.js";
import {changesElement, isOfConsole} from "./history.js";
import {entries} from "./journal.js";
import {sendAgain} from "./sending.js";

export function detailsOf(row, fakes) {
  const changes = row.done && (!row.rules.is_inside || isOfConsole(row)) ? changesElement(row) : null, result = el("section", {class: "sent-again", tabindex: -1, "aria-label": "what was sent again", hidden: true});
  // The data of the row itself gives way to the result of what was sent again.
  const show = (answer, parts) => { if (changes && result.hidden) { const old = fold(`Data before and after #${row.number}, which was sent first`, null); changes.before(old); old.append(changes); }
    result.hidden = false; result.replaceChildren(...[el("h4", {}, "Sent again", answer.row ? [" as ", el("a", {href: link(["activity", answer.row])}, `#${answer.row}`)] : ""), ...parts].flat()); const pane = result.closest(".trace-pane"); pane.scrollTop += result.getBoundingClientRect().top - pane.querySelector(".trace-pane-head").getBoundingClientRect().bottom; result.focus({preventScroll: true}); };
  return [result, row.done && hasFailed(row) ? advice(row, fakes) : null, openLinks(isOfConsole(row) ? {...row, subjects: []} : row), changes, againElement(row, fakes, show)].filter(Boolean);
}

// What to do about a failed row.
export function advice(row, fakes) {
  const text = adviceOf(row, true), letter = row.rules.is_sent && fakes.find(({name}) => name === row.fake), token = row.status === 401 && /^Bearer (.+)/.exec(fakes.find(({name}) => name === row.peer)?.headers.Authorization)?.[1];
  return text ? el("div", {class: "banner"}, el("b", {}, "What to do: "), text, letter ? retryElement(letter, row) : null, token ? tools(copyButton(token, `Copy the token of ${row.peer}`, `Copy the token of ${row.peer}`)) : null) : null;
}
// A link to the dead letter of a delivery, if its message is among them.
function retryElement(fake, {subjects = []}) {
  const place = el("span"), id = subjects.find(({kind}) => kind === "message")?.name;
  if (id) list(fake, "dead-letters", {search: id}).then(({items: [letter]}) => { if (letter) place.replaceChildren(" Retry it from its ", el("a", {href: link(["fake", fake.name, "dead-letters", letter.id])}, "dead letter"), "."); }, () => {});
  return place;
}
const MOST_LINKS = 8, FEW_LINKS = 3;
function openLinks({number, rules, status, subjects = [], data}) {
  // What a call names does not explain its failure if the call was rejected for its token.
  if (rules.is_received && status === 401) return null;
  const links = subjects.flatMap(({kind, name, fake}) => {
    const place = Object.keys(KINDS).find((one) => KINDS[one] === kind);
    return place && name ? [el("a", {class: "button", title: name, href: link(["fake", fake, place, name])}, subjects.filter((other) => other.kind === kind).length > 1 ? `Open ${short(name, 24)}` : `Open the ${kind}`)] : [];
  }).slice(0, MOST_LINKS);
  const toRow = (text, row) => el("a", {class: "button", href: link(["activity", row])}, `${text} #${row}`);
  if (data?.again_of) links.push(toRow("Sent again: the original is", data.again_of));
  links.push(...entries.list.filter((row) => row.data?.again_of === number).map((row) => toRow("Sent again as", row.number)), ...rules.is_inside && data?.row ? [toRow("Open", data.row)] : []);
  return links.length ? el("div", {class: "tools"}, links.slice(0, FEW_LINKS), links.length > FEW_LINKS ? fold(`${links.length - FEW_LINKS} more`, tools(links.slice(FEW_LINKS))) : null) : null;
}
// What makes the call again, or the delivery: a form, and tests that begin with the data that was there before it.
function againElement(row, fakes, show) {
  const isDelivery = row.rules.is_sent, fake = fakes.find(({name}) => name === (isDelivery ? row.fake : row.peer)), place = el("div");
  if (!fake || !isDelivery && !row.rules.is_received) return null;
  ask("GET", `/journal/${row.number}/again`).then(({request, why_no_test: why}) => place.replaceChildren(...[sendAgain(row, fake, request, show), row.done && (why ? el("p", {class: "soft"}, why) : testCopies(row))].filter(Boolean)), ({message}) => { place.textContent = message; });
  return place;
}
// The texts are written when one is asked for, because what was there before must be replayed.
function testCopies(row) {
  const shown = el("div"), copyIn = (language) => el("button", {type: "button", class: "quiet", "aria-label": `Copy as a test with ${language}`, onclick: () => attempt(async () => {
    const {tests: {[language]: text}, why_not: why} = await ask("GET", `/journal/${row.number}/tests`);
    shown.replaceChildren(why ? el("p", {class: "soft"}, why) : code(text, `the test with ${language}`));
    if (text) await copy(text, `Copied, as shown. ${language === "pytest" ? "" : "It uses the helper of the guide."}`);
  })}, language);
  return el("div", {}, tools(el("span", {class: "soft"}, "Copy as a test with"), ["pytest", "Vitest", ...row.rules.is_sent ? [] : ["Go"]].map(copyIn)), shown);
}
