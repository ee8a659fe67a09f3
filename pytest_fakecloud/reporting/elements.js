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
  const ms = Math.round(us / 1e3), parts = [[Math.floor(ms / 864e5), "d"], [Math.floor(ms / 36e5) % 24, "h"], [Math.floor(ms / 6e4) % 60, "m"], [ms % 6e4 / 1e3, "s"]].filter(([many]) => many);
  return parts.map((part) => part.join(" ")).join(" ") || "0 s";
}

// Formats the duration of a call in a list: "0", "94 µs", "12 ms", "1.2 s", "2 h 3 m".
export function lasted(us) { return !us ? "0" : us < 1e3 ? `${Math.round(us)} µs` : us < 1e6 ? `${Number((us / 1e3).toPrecision(2))} ms` : span(us < 6e7 ? Math.round(us / 1e4) * 1e4 : Math.round(us / 1e6) * 1e6); }

// A name that breaks only after its punctuation.
export const partsOfName = (name) => name.split(/(?<=[._:/-])/);
export const breakable = (name) => partsOfName(name).flatMap((part) => [part, el("wbr")]);
export const withoutScheme = (url) => url.replace(/^https?:\/\//, "");

// Bytes as pairs of hexadecimal digits, and with the characters that they stand for.
export const digits = (hex) => hex.match(/../g)?.join(" ") ?? "";
export const dump = (hex) => (hex.match(/.{1,16}/g) ?? []).map((line, at) => `${(8 * at).toString(16).padStart(4, "0")}  ${digits(line).padEnd(23)}  ${line.replace(/../g, (code) => String.fromCharCode(parseInt(code, 16))).replace(/[^ -~]/g, ".")}`).join("\n");

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
// `changes` are {fake, section, item, before, after}, where null is an item that does not exist; `addressOf` returns where an item is shown.
export function changesTable(changes, addressOf = () => null) {
  const sections = Map.groupBy(changes, ({fake, section}) => `${fake} · ${section}`);
  return el("table", {class: "trace-state"}, el("thead", {}, el("tr", {}, ...["data", "before", "after"].map((text) => el("th", {}, text)))),
    ...[...sections].map(([title, items]) => el("tbody", {}, el("tr", {}, el("th", {scope: "rowgroup", colspan: 3, class: "soft"}, title)), ...items.map((item) => stateRow(item, addressOf(item))))));
}

function stateRow({item, before, after}, href) {
  const kind = before === null ? "trace-added" : after === null ? "trace-removed" : "trace-changed";
  const fields = (value, other, name) => el("td", {"data-name": name}, fieldsOf(item, value, other, {changed: true}));
  return el("tr", {class: kind}, el("th", {scope: "row", title: item}, href ? el("a", {href}, shortName(item)) : shortName(item)), fields(before, after, "before"), fields(after, before, "after"));
}

// Show the fields of an item and mark those that differ from `other`; `changed` omits the rest.
export function fieldsOf(item, value, other, {changed = false} = {}) {
  if (value === null) return el("span", {class: "soft"}, "–");
  const differs = (name) => other !== null && JSON.stringify(own(other, name)) !== JSON.stringify(value[name]);
  const isShown = ([name, field]) => !(name === "id" && field === item) && (changed && other !== null ? differs(name) : field !== null);
  return el("div", {}, el("dl", {}, ...Object.entries(value).filter(isShown).map(([name, field]) => {
    const [text, before] = other && differs(name) ? unlikeTexts(told(field), told(own(other, name) ?? "")) : [told(field)];
    return el("div", {}, el("dt", {}, `${name} `), el("dd", {}, !differs(name) ? text : other ? difference(text, before) : el("mark", {}, text)));
  })), typeof value.end === "number" && "committed" in value ? offsets(value) : null);
}

const told = (field) => field === null ? "none" : visible(typeof field === "string" ? field : JSON.stringify(field));
// Of two JSON objects, the fields that are not the same in both, at each depth.
function unlike(value, other) {
  if ([value, other].some((one) => Array.isArray(one) || Object(one) !== one)) return [value, other];
  const differing = Object.keys({...value, ...other}).filter((name) => JSON.stringify(own(value, name)) !== JSON.stringify(own(other, name)));
  const sides = differing.map((name) => [name, Object.hasOwn(value, name) && Object.hasOwn(other, name) ? unlike(value[name], other[name]) : [own(value, name), own(other, name)]]);
  return [0, 1].map((side) => Object.fromEntries(sides.map(([name, both]) => [name, both[side]])));
}
const unlikeTexts = (...texts) => { try { return unlike(...texts.map((text) => JSON.parse(text))).map((value) => JSON.stringify(value)); } catch { return texts; } };
// A text with the words marked that another text does not have, in the same order. Of long parts, the middle is cut.
const LONG_PART = 160, cutMiddle = (text) => text.length > LONG_PART ? `${text.slice(0, LONG_PART / 2)}…${text.slice(-LONG_PART / 2)}` : text;
function difference(text, other) {
  const [words, others] = [text, other].map((whole) => whole.match(/\w{1,24}|\s+|[^\w\s]/gu) ?? []), wide = others.length + 1, parts = [];
  // The most words that what follows two places has in common.
  const common = new Uint16Array((words.length + 1) * wide), at = (word, to) => common[word * wide + to];
  for (let word = words.length - 1; word >= 0; word--) for (let to = others.length - 1; to >= 0; to--) common[word * wide + to] = words[word] === others[to] ? at(word + 1, to + 1) + 1 : Math.max(at(word + 1, to), at(word, to + 1));
  for (let word = 0, to = 0; word < words.length;) {
    const isSame = words[word] === others[to];
    if (!isSame && to < others.length && at(word, to + 1) > at(word + 1, to)) { to++; continue; }
    if (parts.at(-1)?.isSame === isSame) parts.at(-1).text += words[word]; else parts.push({isSame, text: words[word]});
    word++;
    to += isSame;
  }
  return parts.map(({isSame, text: part}) => isSame ? cutMiddle(part) : el("mark", {}, cutMiddle(part)));
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
