// Numbers over time as columns, on the axis of spans.
import {count, el, number} from "./elements.js";
import {SPAN_KINDS, TimeAxis, axisElement, gapElements, legend} from "./spans.js";

// With a column that is so many times as high as the middle one, heights are square roots.
const UNEVEN = 12;
// Draw numbers over time as columns. An item is {at, kind, value, failed}. The columns add the values of their items; with `level`, the items are the levels that a number had from a time on, and a column shows the highest. The caption names the column under
// the pointer or with the focus. A click, a drag or an arrow key with Shift selects a span of time, which `onselect(from, to)` receives; `chosen` is [from, to] of the one that is selected.
export function columnsElement(label, items, {pixels = 560, kinds = SPAN_KINDS, level = false, noun = "event", chosen = null, start = null, isClock = false, onselect = null} = {}) {
  const axis = new TimeAxis(items.map(({at, kind}) => ({kind, from: at, to: at})), {start, isClock}), many = Math.max(12, Math.min(80, Math.floor(pixels / 9)));
  const slots = Array.from({length: many}, () => ({counts: {}, from: Infinity, to: -Infinity}));
  for (const {at, kind, value = 1} of items) {
    if (!value && !level) continue;
    const slot = slots[Math.min(many - 1, Math.floor(axis.place(at) * many / 100))];
    slot.counts[kind] = level ? Math.max(slot.counts[kind] ?? 0, value) : (slot.counts[kind] ?? 0) + value;
    Object.assign(slot, {from: Math.min(slot.from, at), to: Math.max(slot.to, at)});
    if (level) (slot.last ??= {})[kind] = value;
  }
  if (level) slots.reduce((before, slot) => { slot.counts = {...before.counts, ...slot.counts}; if (slot.from > slot.to) slot.from = slot.to = before.to; return {counts: {...before.counts, ...slot.last}, to: slot.to}; }, {counts: {}, to: -Infinity});
  const sums = slots.map(({counts}) => Object.values(counts).reduce((sum, value) => sum + value, 0)), most = Math.max(1, ...sums), filled = sums.filter(Boolean).sort((less, more) => less - more), used = new Set(slots.flatMap(({counts}) => Object.keys(counts)));
  // One burst would flatten all other columns.
  const isUneven = most > UNEVEN * (filled[filled.length >> 1] ?? most), percent = (sum) => 100 * (isUneven ? Math.sqrt(sum / most) : sum / most), middle = Math.round(most / (isUneven ? 4 : 2)), levels = middle < most ? [middle, most] : [most];
  const columns = slots.map(({counts, from, to}, at) => {
    if (!sums[at]) return null;
    const parts = [...used].filter((kind) => counts[kind]), what = parts.map((kind) => `${number(counts[kind])} ${kinds[kind] ?? kind}`).join(", ");
    const text = `${count(sums[at], noun)}: ${what}${Number.isFinite(from) ? `, ${axis.say(from - axis.start)}${to > from ? ` to ${axis.say(to - axis.start)}` : ""}` : ""}`;
    const isChosen = chosen && from <= chosen[1] && to >= chosen[0], attributes = {class: "span-column", style: `left: ${100 * at / many}%; width: ${100 / many}%`, "aria-label": text, "data-slot": at, tabindex: -1};
    const stack = el("span", {style: `height: ${Math.max(3, percent(sums[at]))}%`}, parts.map((kind) => el("i", {class: `kind-${kind}`, style: `flex-grow: ${counts[kind]}`})));
    return onselect ? el("button", {type: "button", ...attributes, "aria-pressed": String(Boolean(isChosen))}, stack) : el("div", {...attributes, role: "img"}, stack);
  });
  const summary = `highest column: ${count(most, noun)}${isUneven ? "; heights are square roots" : ""}${items.length ? `; ${isClock ? "from" : "0 is"} ${new Date((start ?? axis.first) / 1000).toISOString().slice(0, 19).replace("T", " ")} UTC` : ""}`, caption = el("figcaption", {class: "soft"}, summary);
  const area = el("div", {class: "span-columns", role: "group", "aria-label": label}, levels.map((value) => el("i", {class: "span-level", style: `bottom: ${percent(value)}%`})), gapElements(axis), columns);
  const name = ({target}) => { caption.textContent = (target.closest?.(".span-column") ?? area.querySelector(".span-column:focus"))?.ariaLabel ?? summary; };
  for (const event of ["pointerover", "focusin"]) area.addEventListener(event, name);
  for (const event of ["pointerleave", "focusout"]) area.addEventListener(event, () => name({target: area}));
  movable(area, slots, columns.filter(Boolean), onselect);
  return el("figure", {class: "spans"}, caption, el("div", {class: "span-chart"}, el("div", {class: "span-levels", "aria-hidden": "true", style: `width: ${number(most).length + 1}ch`}, levels.map((value) => el("span", {style: `bottom: ${percent(value)}%`}, number(value)))), el("div", {}, area, axisElement(axis))),
    used.size > 1 ? legend([...Object.keys(kinds).filter((kind) => used.has(kind)), ...[...used].filter((kind) => !(kind in kinds))], kinds) : null);
}
// Arrow keys move the focus between columns. Without `onselect`, nothing can be selected.
function movable(area, slots, columns, onselect) {
  const slotOf = (element) => Number(element.dataset.slot);
  let first = null, dragged = false;
  if (columns.length) (columns.find((column) => column.getAttribute("aria-pressed") === "true") ?? columns[0]).tabIndex = 0;
  const mark = (until) => { for (const column of columns) column.setAttribute("aria-pressed", String(slotOf(column) >= Math.min(first, until) && slotOf(column) <= Math.max(first, until))); };
  area.addEventListener("keydown", (event) => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key], at = columns.indexOf(document.activeElement);
    if (!by || at < 0) return;
    event.preventDefault();
    const to = columns[Math.max(0, Math.min(columns.length - 1, at + by))];
    if (event.shiftKey && onselect) { first ??= slotOf(columns[at]); mark(slotOf(to)); } else first = slotOf(to);
    to.focus();
  });
  if (!onselect) return;
  const choose = (start, end) => { const both = slots.slice(Math.min(start, end), Math.max(start, end) + 1).filter(({from, to}) => from <= to); if (both.length) onselect(both[0].from, Math.max(...both.map(({to}) => to))); };
  const slotAt = ({clientX}) => { const {left, width} = area.getBoundingClientRect(); return Math.max(0, Math.min(slots.length - 1, Math.floor(slots.length * (clientX - left) / width))); };
  // While a finger is down, which is not :active yet, the chart must not be drawn again.
  area.addEventListener("pointerdown", (event) => { if (event.button === 0) { if (!event.shiftKey) first = slotAt(event); dragged = false; area.classList.add("span-pressed"); } });
  for (const event of ["pointerup", "pointercancel", "pointerleave"]) area.addEventListener(event, () => setTimeout(() => area.classList.remove("span-pressed")));
  area.addEventListener("pointermove", (event) => { if (first !== null && event.buttons && slotAt(event) !== first) { dragged = true; mark(slotAt(event)); } });
  area.addEventListener("pointerup", (event) => { if (first !== null && dragged) choose(first, slotAt(event)); });
  // A click follows the pointerup of a drag if both are on one element.
  area.addEventListener("click", ({target}) => { const column = target.closest(".span-column"); if (column && !dragged) choose(first ?? slotOf(column), slotOf(column)); });
}
