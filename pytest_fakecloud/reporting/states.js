// Changes of the data of fakes, as tables.

import {count, el, own, shortName, svg, visible} from "./elements.js";

// `changes` are {fake, section, item, before, after}, where null is an item that does not exist.
export function changesTable(changes) {
  const sections = Map.groupBy(changes, ({fake, section}) => `${fake} · ${section}`);
  return el("table", {class: "trace-state"}, el("thead", {}, el("tr", {}, ...["data", "before", "after"].map((text) => el("th", {}, text)))),
    ...[...sections].map(([title, items]) => el("tbody", {}, el("tr", {}, el("th", {scope: "rowgroup", colspan: 3, class: "soft"}, title)), ...items.map(stateRow))));
}

function stateRow({item, before, after}) {
  const kind = before === null ? "trace-added" : after === null ? "trace-removed" : "trace-changed";
  const fields = (value, other) => el("td", {}, fieldsOf(item, value, other, {changed: true}));
  return el("tr", {class: kind}, el("th", {scope: "row", title: item}, shortName(item)), fields(before, after), fields(after, before));
}

// Show the fields of an item and mark those that differ from `other`; `changed` omits the rest.
export function fieldsOf(item, value, other, {changed = false} = {}) {
  if (value === null) return el("span", {class: "soft"}, "–");
  const differs = (name) => other !== null && JSON.stringify(own(other, name)) !== JSON.stringify(value[name]);
  const isShown = ([name, field]) => !(name === "id" && field === item) && (changed && other !== null ? differs(name) : field !== null);
  return el("div", {}, el("dl", {}, ...Object.entries(value).filter(isShown).map(([name, field]) => {
    const text = field === null ? "none" : visible(typeof field === "string" ? field : JSON.stringify(field));
    return el("div", {}, el("dt", {}, `${name} `), el("dd", {}, differs(name) ? el("mark", {}, text) : text));
  })), typeof value.end === "number" && "committed" in value ? offsets(value) : null);
}

// Draw a partition from its first to its last offset: committed, delivered and waiting records.
export function offsets({start = 0, end, committed, position}) {
  const whole = Math.max(1, end - start), share = (offset) => 100 * (Math.max(start, offset ?? start) - start) / whole;
  const picture = svg("svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "trace-offsets", role: "img",
    "aria-label": `committed ${committed ?? "nothing"}, delivered up to ${position ?? "nothing"}, end ${end}`},
  [["waiting", 100], ["delivered", share(position)], ["committed", share(committed)]].map(([name, width]) => svg("rect", {class: `trace-${name}`, width, height: 8})));
  const missing = committed === null ? 0 : start - committed;
  const gone = missing > 0 ? `${count(missing, "uncommitted record")} no longer exist${missing === 1 ? "s" : ""}` : "";
  return el("div", {}, picture, gone ? el("p", {class: "trace-fault"}, gone) : null);
}
