// The details of a row of Activity: advice, links, the data before and after it, and what can be made of it. Loaded when the first row is opened.

import {KINDS, attempt, copy, copyButton, el, link, tools} from "./dom.js";
import {hasFailed} from "./elements.js";
import {adviceOf} from "./errors.js";
import {changesElement} from "./history.js";
import {entries} from "./journal.js";
import {sendAgain} from "./sending.js";

export const detailsOf = (row, fakes) => [row.done && hasFailed(row) ? advice(row, fakes) : null, openLinks(row), row.done && row.kind !== "event" ? changesElement(row) : null, sendAgain(row, fakes), testCopies(row, fakes)].filter(Boolean);

function advice(row, fakes) {
  const text = adviceOf(row), token = row.status === 401 && /^Bearer (.+)/.exec(fakes.find(({name}) => name === row.peer)?.headers.Authorization)?.[1];
  return text ? el("div", {class: "banner"}, el("b", {}, "What to do: "), text, row.status === 401 ? tools(token ? copyButton(token, `Copy the token of ${row.peer}`, `Copy the token of ${row.peer}`) : null, el("a", {href: link(["connect"])}, "Connect")) : null) : null;
}
function openLinks({number, kind: what, status, subjects = [], data}) {
  // What a call names does not explain its failure if the call was rejected for its token.
  if (what === "call" && status === 401) return null;
  const links = subjects.flatMap(({kind, name, fake}) => {
    const place = Object.keys(KINDS).find((one) => KINDS[one] === kind);
    return place && name ? [el("a", {class: "button", title: name, href: link(["fake", fake, place, name])}, `Open the ${kind}`)] : [];
  });
  const toRow = (text, row) => el("a", {class: "button", href: link(["activity", row])}, `${text} #${row}`);
  if (data?.again_of) links.push(toRow("Sent again: the original is", data.again_of));
  links.push(...entries.list.filter((row) => row.data?.again_of === number).map((row) => toRow("Sent again as", row.number)), ...what === "event" && data?.row ? [toRow("Open", data.row)] : []);
  return links.length ? el("div", {class: "tools"}, links) : null;
}
// Tests that make the call again, or the delivery, from the data that was there before it.
function testCopies(row, fakes) {
  const isDelivery = row.kind === "attempt", fake = fakes.find(({name}) => name === (isDelivery ? row.fake : row.peer));
  if (!fake || !row.done || !isDelivery && row.kind !== "call") return null;
  const place = el("div"), copyIn = (language, {WRITERS, nameOf, testOf}) => el("button", {type: "button", class: "quiet", "aria-label": `Copy as a test with ${language}`, onclick: () => attempt(async () => copy(WRITERS[language](await testOf(row, fakes), nameOf(row)), `Copied. ${language === "pytest" ? "" : "It uses the helper of the guide."}`))}, language);
  import("./tests.js").then((made) => {
    const why = made.whyNoTest(fake, row);
    place.replaceChildren(why ? el("p", {class: "soft"}, why) : tools(el("span", {class: "soft"}, "Copy as a test with"), ["pytest", "Vitest", "Go"].filter((language) => !isDelivery || language !== "Go").map((language) => copyIn(language, made))));
  }).catch(({message}) => { place.textContent = message; });
  return place;
}
