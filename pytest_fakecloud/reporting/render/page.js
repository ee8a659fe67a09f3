// The report's page: its timelines, with the data of the fakes before and after each row.
import {changesTable, count, el, fieldsOf, fold} from "./elements.js";
import {Trace} from "./trace.js";

// Actions and commands that change credentials, which states do not contain.
const CREDENTIALS = new Set(["rotate_keys", "rotate_token", "rotate_password", "ACL SETUSER"]);
const KEYS = [["↓ ↑ j k", "next, previous row"], ["n p", "next, previous problem"], ["← →", "parent, first child"],
  ["Enter", "to the details"], ["Esc", "close the details"], ["/", "search"]];

// The data of the fakes over time: an initial state, and the steps that changed it, in order.
class States {
  constructor({note = "", initial, steps = []} = {}) {
    Object.assign(this, {note, initial, steps});
    this.places = Map.groupBy(steps.keys(), (index) => steps[index].number);
  }
  // Return the states before and after a row and the rows nested in it, and the items that they changed.
  around(one, rows) {
    const end = rows.findIndex((other, index) => index > one.index && other.row.depth <= one.row.depth);
    const own = rows.slice(one.index, end < 0 ? rows.length : end).flatMap(({row}) => this.places.get(row.number) ?? []).sort((a, b) => a - b);
    const began = one.row.began || one.row.number;
    const first = own[0] ?? this.steps.findLastIndex((step) => (step.order ?? step.number) < began) + 1;
    const before = copied(this.initial);
    for (const step of this.steps.slice(0, first)) apply(before, step.changes);
    const after = copied(before);
    if (own.length) for (const step of this.steps.slice(first, own.at(-1) + 1)) apply(after, step.changes);
    const items = new Map(own.flatMap((index) => this.steps[index].changes)
      .map(([fake, section, item]) => [JSON.stringify([fake, section, item]), {fake, section, item}]));
    const of = (state, {fake, section, item}) => state[fake]?.[section]?.[item] ?? null;
    const changes = [...items.values()].map((each) => ({...each, before: of(before, each), after: of(after, each)}));
    // A step may undo a change of an earlier one.
    return {before, after, changes: changes.filter((each) => JSON.stringify(each.before) !== JSON.stringify(each.after))};
  }

  element(one, {rows}) {
    const note = this.note ? [el("p", {class: "soft trace-pre"}, this.note)] : [];
    if (!this.initial) return note.length ? [fold("State", note, true)] : [];
    const {before, after, changes} = this.around(one, rows), nested = rows[one.index + 1]?.row.depth > one.row.depth;
    const rest = Object.entries(after).map(([fake, sections]) => fold(`All data of ${fake} after this row${nested ? " and the rows below it" : ""}`, stateOf(sections, before[fake] ?? table({}))));
    // The changes of an event may belong to the call or action that caused it.
    const nothing = CREDENTIALS.has(one.row.operation) ? "This row changed credentials, which are not shown."
      : `This row${nested ? " and the rows below it" : ""} changed no data.`;
    return [fold(changes.length ? `State: ${count(changes.length, "change")}${nested ? " by this row and the rows below it" : ""}` : "State",
      [changes.length ? changesTable(changes) : one.row.rules.is_inside ? null : el("p", {class: "soft"}, nothing), ...rest, ...note], true)];
  }
}
// Copy an object whose names come from data. The copy inherits nothing, so that every name is free.
const table = (from, copy = (value) => value) => Object.entries(from).reduce((made, [name, value]) => { made[name] = copy(value); return made; }, Object.create(null));

// Copy a state. Steps replace whole items, so copies can share items.
const copied = (state) => table(state, (sections) => table(sections, (items) => table(items)));

function apply(state, changes) {
  for (const [fake, section, item, value] of changes) {
    const items = (state[fake] ??= table({}))[section] ??= table({});
    if (value === null) delete items[item]; else items[item] = value;
  }
}

function stateOf(sections, before) {
  const parts = Object.entries(sections).filter(([, items]) => Object.keys(items).length).flatMap(([section, items]) => [
    el("h4", {}, section), el("table", {class: "trace-state"}, el("tbody", {}, ...Object.entries(items).map(([item, value]) => {
      const other = before[section]?.[item] ?? null;
      return el("tr", {class: JSON.stringify(other) === JSON.stringify(value) ? "" : "trace-changed"}, el("th", {scope: "row"}, item), el("td", {}, fieldsOf(item, value, other)));
    })))]);
  return parts.length ? parts : el("p", {class: "soft"}, "empty");
}

function begin(id, report, options = {}) {
  const states = new States(report.states);
  new Trace(document.getElementById(id), {details: (one, trace) => states.element(one, trace), ...options}).show(report);
}

const report = JSON.parse(document.getElementById("report").textContent);
const keys = el("details", {class: "trace-keys"}, el("summary", {}, "Keyboard"), el("dl", {}, ...KEYS.flatMap(([key, does]) => [el("dt", {}, key), el("dd", {}, does)])));
begin("timeline", report, {numbered: true, tools: [keys]});
if (report.beside) begin("beside", report.beside.report);
