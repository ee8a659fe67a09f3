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

// Shows what is filtered by on the button that ends it, or hides the button.
export function showChip(chip, text, ends) {
  chip.hidden = !text;
  [chip.textContent, chip.ariaLabel] = text ? [`${text} ✕`, ends + text] : ["", ""];
}
// Returns the entry of a table that has this name, but nothing that every object inherits, such as `constructor`.
export const own = (table, name) => Object.hasOwn(table, name) ? table[name] : undefined;
export const number = (value) => Number(value).toLocaleString("en-US");
export const plural = (what) => /[^aeiou]y$/.test(what) ? `${what.slice(0, -1)}ies` : `${what}${what.endsWith("x") ? "es" : "s"}`;
export const count = (many, what) => `${number(many)} ${many === 1 ? what : plural(what)}`;

// Return the two ends of a long name, because names often differ only at the end.
export function shortName(name) { return name.length > 32 ? `${name.slice(0, 16)}…${name.slice(-12)}` : name; }

// Escape characters that are invisible, look like others or change the order of a line, as visible() in values.py does. No page executes control characters, so this function leaves them.
export function visible(text) {
  const hidden = text.normalize() === text ? /(?! )[\p{Cf}\p{Z}\p{NChar}\u115f\u1160\u2800\u3164\uffa0]/gu : /(?! )[\p{Cf}\p{Z}\p{NChar}\p{Mn}\u115f\u1160\u2800\u3164\uffa0]/gu;
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

// The number of items with an error in the answer to a pipeline, a transaction or a batch.
export function failedItems({response}) {
  const decoded = response?.decoded, items = Array.isArray(decoded) ? decoded : Array.isArray(decoded?.responses) ? decoded.responses : [];
  return items.filter((one) => one && typeof one === "object" && Object.hasOwn(one, "error") && one.error).length;
}
export const hasFailed = (row) => !row.ok || failedItems(row) > 0;

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
// `changes` are {fake, section, item, before, after}, where null is an item that does not exist; `addressOf` returns where an item is shown, `names` are those of the two times.
export function changesTable(changes, addressOf = () => null, names = ["before", "after"]) {
  const sections = Map.groupBy(changes, ({fake, section}) => `${fake} · ${section}`);
  return el("table", {class: "trace-state"}, el("thead", {}, el("tr", {}, ...["data", ...names].map((text) => el("th", {}, text)))),
    ...[...sections].map(([title, items]) => el("tbody", {}, el("tr", {}, el("th", {scope: "rowgroup", colspan: 3, class: "soft"}, title)), ...items.map((item) => stateRow(item, addressOf(item), names)))));
}

function stateRow({item, before, after, expired, added = []}, href, [first, second]) {
  const kind = before === null ? "trace-added" : after === null ? "trace-removed" : "trace-changed";
  const fields = (value, other, name) => el("td", {"data-name": name}, value === null ? el("span", {class: "soft"}, name === first ? "–" : expired ? "expired" : "removed") : other === null && name === second ? el("span", {class: "soft"}, "added") : null, value && fieldsOf(item, value, other, {changed: true}), value?.end > (other?.end ?? -1) ? added.map(({offset, key, value: text}) => el("p", {class: "soft"}, cutMiddle(`@${offset} ${key ?? ""} ${visible(text)}`))) : null);
  return el("tr", {class: kind}, el("th", {scope: "row", title: item}, href ? el("a", {href}, shortName(item)) : shortName(item)), fields(before, after, first), fields(after, before, second));
}
// Show the fields of an item and mark the parts that differ from `other`; `changed` omits the fields that do not.
const MOST_PARTS = 100;
export function fieldsOf(item, value, other, {changed = false} = {}) {
  if (value === null) return el("span", {class: "soft"}, "–");
  const differs = (name) => other !== null && JSON.stringify(own(other, name)) !== JSON.stringify(own(value, name));
  const names = Object.keys({...value, ...changed ? other : null}).filter((name) => !(name === "id" && own(value, name) === item) && (changed && other ? differs(name) : (value[name] ?? null) !== null));
  return el("div", {}, el("dl", {}, ...names.flatMap((name) => {
    if (!other || !differs(name)) return [fieldElement(name, told(value[name]))];
    const parts = differences(own(value, name), own(other, name), name);
    return [...parts.slice(0, MOST_PARTS).map(([path, mine, theirs]) => fieldElement(path, mine === undefined ? el("span", {class: "soft"}, "–") : theirs === undefined ? el("mark", {}, cutMiddle(told(mine))) : marked(told(mine), told(theirs)))),
      parts.length > MOST_PARTS ? fieldElement("…", `${number(parts.length - MOST_PARTS)} more`) : null];
  })), typeof value.end === "number" && "committed" in value ? offsets(value) : null);
}
const fieldElement = (name, content) => el("div", {}, el("dt", {}, `${visible(name)} `), el("dd", {}, content));

// Control characters are shown as bytes, like those that are not UTF-8. Only a text without other such bytes keeps its lines.
const told = (field) => field === null ? "none" : visible(typeof field === "string" ? field.replace(isText(field) ? /[\t\r]/g : /[\0-\x1f\x7f]/g, (one) => `\\x${one.charCodeAt().toString(16).padStart(2, "0")}`) : JSON.stringify(field));
const isText = (field) => /\S/.test(field) && !/[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|\\x[0-9a-f]{2}/.test(field);
// A string that contains JSON as what it contains. An integer that JavaScript would round stays a string.
function parsed(value) {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value)) return value;
  try { return JSON.parse(value, (_, part, {source} = {}) => typeof part === "number" && /^-?\d{16,}$/.test(source) ? source : part); } catch { return value; }
}
// The smallest parts that differ, as [path, value, other]: members of objects by name, elements of lists by index. What is missing is undefined.
function differences(value, other, path) {
  const [one, two] = [value, other].map(parsed), same = (at, to) => JSON.stringify(one[at]) === JSON.stringify(two[to]);
  let parts = [];
  if (Array.isArray(one) && Array.isArray(two)) {
    const least = Math.min(one.length, two.length), most = Math.max(one.length, two.length);
    let head = 0, tail = 0;
    while (head < least && same(head, head)) head++;
    while (tail < least - head && same(one.length - 1 - tail, two.length - 1 - tail)) tail++;
    for (let at = head; at < most - tail; at++) parts.push(...differences(at < one.length - tail ? one[at] : undefined, at < two.length - tail ? two[at] : undefined, `${path}[${at}]`));
  } else if ([one, two].every((whole) => Object(whole) === whole && !Array.isArray(whole))) parts = Object.keys({...one, ...two}).filter((name) => !same(name, name)).flatMap((name) => differences(own(one, name), own(two, name), `${path}.${name}`));
  // Texts that contain the same JSON differ in how it is written.
  return parts.length || JSON.stringify(value) === JSON.stringify(other) ? parts : [[path, value, other]];
}
// A text with the words marked from the first to the last that differ from another text. Of long parts, the middle is cut.
const LONG_PART = 160, cutMiddle = (text) => text.length > LONG_PART ? `${text.slice(0, LONG_PART / 2)}…${text.slice(-LONG_PART / 2)}` : text;
function marked(text, other) {
  const [words, others] = [text, other].map((whole) => whole.match(/\\x[0-9a-f]{2}|\w{1,24}|\s+|[^\w\s]/gu) ?? []), least = Math.min(words.length, others.length);
  let head = 0, tail = 0;
  while (head < least && words[head] === others[head]) head++;
  while (tail < least - head && words.at(-1 - tail) === others.at(-1 - tail)) tail++;
  const part = (from, to) => cutMiddle(words.slice(from, to).join("")), end = words.length - tail;
  return [part(0, head), end > head ? el("mark", {}, part(head, end)) : null, part(end)];
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
