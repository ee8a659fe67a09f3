// Elements and texts that the page of a report and the console share.

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    // The pages' Content-Security-Policy forbids style attributes.
    else if (name === "style") element.style.cssText = value;
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(4).filter((child) => child != null && child !== false));
  return element;
}
export const el = (tag, attributes = {}, ...children) => made(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => made(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
export const fold = (title, content, open = false) => el("details", {open}, el("summary", {}, title), content);

// Returns the entry of a table that has this name, but nothing that every object inherits, such as `constructor`.
export const own = (table, name) => Object.hasOwn(table, name) ? table[name] : undefined;
export const number = (value) => Number(value).toLocaleString("en-US");
export const plural = (what) => /[^aeiou]y$/.test(what) ? `${what.slice(0, -1)}ies` : `${what}${what.endsWith("x") ? "es" : "s"}`;
export const count = (many, what) => `${number(many)} ${many === 1 ? what : plural(what)}`;

// Return the two ends of a long name, because names often differ only at the end.
export function shortName(name) { return name.length > 32 ? `${name.slice(0, 16)}…${name.slice(-12)}` : name; }

// Escape characters that are invisible or look like others, as visible() in values.py does.
export function visible(text) {
  const hidden = text.normalize() === text ? /(?! )[\p{Cf}\p{Z}]/gu : /(?! )[\p{Cf}\p{Z}\p{Mn}]/gu;
  return text.replace(hidden, (one) => [...Array(one.length).keys()].map((at) => `\\u${one.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));
}

// Formats a duration like reports do: "12.182 s", "6 h 7 m 6.466 s".
export function span(us) {
  const parts = [], rounded = Math.round(us / 1e3) * 1e3, rest = rounded % 1e6;
  let seconds = Math.floor(rounded / 1e6);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    const count = Math.floor(seconds / size);
    if (count) parts.push(`${count} ${unit}`);
    seconds -= count * size;
  }
  const tail = (seconds + rest / 1e6).toFixed(3).replace(/0+$/, "").replace(/\.$/, "");
  if (tail !== "0" || !parts.length) parts.push(`${tail} s`);
  return parts.join(" ");
}

// Formats the duration of a call in a list: "0", "94 µs", "12 ms", "1.2 s", "2 h 3 m".
export function lasted(us) { return !us ? "0" : us < 1e3 ? `${Math.round(us)} µs` : us < 1e6 ? `${Number((us / 1e3).toPrecision(2))} ms` : span(us < 6e7 ? Math.round(us / 1e4) * 1e4 : Math.round(us / 1e6) * 1e6); }

// A name that breaks only after its punctuation.
export const partsOfName = (name) => name.split(/(?<=[._:/-])/);
export const breakable = (name) => partsOfName(name).flatMap((part) => [part, el("wbr")]);
export const withoutScheme = (url) => url.replace(/^https?:\/\//, "");

// The border between a list and its details. Dragging it or pressing an arrow key sets --share, the list's share of the width.
export function border(label, share) {
  const set = (percent) => {
    share = Math.max(25, Math.min(75, percent));
    bar.parentNode.style.setProperty("--share", `${share}%`);
    bar.setAttribute("aria-valuenow", Math.round(share));
  };
  const bar = el("div", {class: "border", role: "separator", tabindex: 0, "aria-label": label, "aria-orientation": "vertical", "aria-valuenow": share, "aria-valuemin": 25, "aria-valuemax": 75,
    onpointerdown: (event) => { bar.setPointerCapture(event.pointerId); event.preventDefault(); },
    onpointermove: (event) => { const {left, width} = bar.parentNode.getBoundingClientRect(); if (bar.hasPointerCapture(event.pointerId)) set(100 * (event.clientX - left) / width); },
    onkeydown: (event) => { const by = {ArrowLeft: -5, ArrowRight: 5}[event.key]; if (by) { event.preventDefault(); set(share + by); } }});
  return bar;
}

// -- changes of the data of fakes, as tables --
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
    const [text, before] = other && differs(name) ? unlike(told(field), told(own(other, name) ?? "")) : [told(field)];
    return el("div", {}, el("dt", {}, `${name} `), el("dd", {}, !differs(name) ? text : other ? difference(text, before) : el("mark", {}, text)));
  })), typeof value.end === "number" && "committed" in value ? offsets(value) : null);
}

const told = (field) => field === null ? "none" : visible(typeof field === "string" ? field : JSON.stringify(field));
// Of two JSON objects, the fields that are not the same in both.
function unlike(text, other) {
  try {
    const both = [JSON.parse(text), JSON.parse(other)], names = Object.keys({...both[0], ...both[1]}).filter((name) => JSON.stringify(own(both[0], name)) !== JSON.stringify(own(both[1], name)));
    return both.some((one) => Array.isArray(one) || Object(one) !== one) ? [text, other] : both.map((one) => JSON.stringify(Object.fromEntries(names.filter((name) => Object.hasOwn(one, name)).map((name) => [name, one[name]]))));
  } catch { return [text, other]; }
}
// A text with the part marked that differs from another text. What is equal on both sides of a long text is cut.
function difference(text, other) {
  const shorter = Math.min(text.length, other.length), most = shorter > 60 ? shorter : 0;
  let same = 0, end = 0;
  while (same < most && text[same] === other[same]) same++;
  while (end < most - same && text.at(-1 - end) === other.at(-1 - end)) end++;
  const before = text.slice(0, same), after = end ? text.slice(-end) : "";
  const cut = (part, most_) => part.length > most_ ? `${part.slice(0, most_)}…` : part;
  return [before.length > 60 ? `…${before.slice(-60)}` : before, el("mark", {}, cut(text.slice(same, text.length - end), 240)), cut(after, 60)];
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
