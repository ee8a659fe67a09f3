// The data of fakes over time: what a row changed, going back to just before it, and the versions of an item.

import {act, attempt, both, el, link, own, say, soft, table} from "./dom.js";
import {ask, path, query} from "./api.js";
import {changesTable, fieldsOf} from "./elements.js";
import {entries} from "./journal.js";
import {oneAtATime} from "./rows.js";

// The list that shows the items of a section of the data, and what else its address needs.
const LISTS = {keys: "keys", messages: "messages", "dead letters": "dead-letters", schedules: "schedules", queues: "queues", "URL groups": "url-groups", "workflow runs": "runs", topics: "topics", groups: "groups"};
function addressOf({fake, section, item, after}) {
  const list = own(LISTS, section), [, namespace] = /^namespace (.+)$/s.exec(section) ?? [], [, group] = /^group (.+)$/s.exec(section) ?? [];
  if (group !== undefined) return link(["fake", fake, "groups", group]);
  if (after === null) return null;
  return list ? link(["fake", fake, list, item]) : section === "default namespace" || namespace !== undefined ? link(["fake", fake, "vectors", item], {namespace}) : null;
}

// What a row changed, before and after it, with buttons that go back to just before it.
export function changesElement(row) {
  const place = el("div", {class: "row-changes"}, soft("…"));
  const restore = (body, text) => async () => { const {restored} = await ask("POST", `/journal/${row.number}/restore`, body); say(`${restored.join(", ")}: restored to just before ${text}.`, "good"); };
  const what = `#${row.number}`;
  ask("GET", `/journal/${row.number}/changes`).then(({changes, note}) => {
    place.replaceChildren(...[el("h4", {}, "Data before and after"), changes === null ? soft(note) : changes.length ? changesTable(changes, addressOf) : soft("This row changed no data."),
      changes === null ? null : el("div", {class: "tools"}, act(`Restore ${row.fake}…`, `Restore ${row.fake} to just before ${what}`, restore({fake: row.fake}, what), {question: `Restore the data of ${row.fake} to just before this row? What changed in it since then is lost. The clock stays, so what was due since then happens at once.`, soft: true}),
        act("Restore all fakes…", `Restore all fakes to just before ${what}`, restore({}, what), {question: "Restore the data of all fakes to just before this row? What changed since then is lost. The clock stays, so what was due since then happens at once.", soft: true}))].filter(Boolean));
  }, (error) => place.replaceChildren(soft(error.message)));
  return place;
}

// The section of a namespace in the data of a vector index.
export const sectionOf = (namespace) => namespace ? `namespace ${namespace}` : "default namespace";
// The item whose history was opened last: what is known of it stays while it is read again, for at most one request at a time.
let opened = {};
function historyOf(fake, section, item) {
  const name = JSON.stringify([fake.name, section, item]);
  if (opened.name !== name) {
    const history = opened = {name, parts: () => [el("p", {class: "soft", role: "status"}, "Loading…")], draw: () => history.place.replaceChildren(...history.parts())};
    history.read = oneAtATime(async () => {
      try { const {versions} = await ask("GET", path(fake, `/versions${query({section, item})}`)); history.parts = () => [versions.length ? versionsTable(item, versions) : soft("It has not existed since the first known row.")]; }
      catch (error) { history.parts = () => [soft(error.message, " In Activity shows its calls.")]; }
      history.draw();
    });
  }
  return opened;
}
const versionsTable = (item, versions) => table("versions", ["time", "made by", "value"], versions.map((version, at) => ({...version, before: versions[at - 1]?.fields ?? null})), ({number, at, fields, before}) => [both(at), number ? el("a", {href: link(["activity", number])}, entries.known.get(number)?.text.what.slice(0, 80) ?? `#${number}`) : before === null && fields !== null ? "there before" : "the console or the clock",
  fields === null ? el("span", {class: "soft"}, "gone") : fieldsOf(item, fields, before, {changed: before !== null})]);
// The versions of an item with the rows that made them, read when the part is opened, and again when the item is drawn again.
export function versionsElement(fake, section, item = "") {
  const place = el("div"), load = () => { const history = Object.assign(historyOf(fake, section, item), {place}); history.draw(); history.read(); };
  return el("details", {class: "form versions", "data-key": `versions ${section} ${item}`, ontoggle: ({target}) => { if (target.open) load(); }}, el("summary", {}, "History"), place);
}

// A notice with a button that undoes a change of items, which was made by the call of a row.
export function offerUndo(fake, row, section, items, text) {
  if (!row) { say(text, "good"); return; }
  say([text, el("button", {type: "button", class: "quiet", onclick: () => attempt(async () => {
    await ask("POST", `/journal/${row}/restore`, {fake: fake.name, section, items});
    say("Undone.", "good");
    document.dispatchEvent(new Event("changed"));
  })}, "Undo")], "good");
}
