// Spans of time in rows, on a linear axis with labels. Times are in microseconds.
// The report's page contains this module inline, and the console loads it.
import {el, lasted, span, visible} from "./elements.js";

// The kinds of spans, with their names in the legend. The style sheet has a colour for each, `.kind-call` etc.
export const SPAN_KINDS = {call: "call", request: "request to the application", delivery: "delivery", callback: "callback", step: "step", wait: "retry wait", sleep: "delay, sleep or wait", planned: "planned", event: "event",
  ok: "succeeded", failed: "failed", schedule: "schedule", other: "timer"};
// Kinds of spans in which nothing happens, so that the axis may fold them.
const IDLE_KINDS = new Set(["wait", "sleep"]);
// A gap of a second or more is folded if it is FOLDED times as long as all shorter gaps and spans together, but no more than MOST_FOLDS are.
const FOLDED = 4, LEAST_FOLDED = 1e6, MOST_FOLDS = 8, FOLD_WIDTH = 5, MARGIN = 1.2;
// An upper bound of the pixels that a label of the axis takes.
const labelWidth = (text) => 7 * text.length + 8;
const MINUTE_US = 6e7, HOUR_US = 60 * MINUTE_US, DAY_US = 24 * HOUR_US;
const TICK_STEPS = [...[0, 1, 2, 3, 4, 5, 6].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)), 1e7, 2e7, 3e7, ...[1, 2, 5, 10, 15, 30].map((many) => many * MINUTE_US), ...[1, 2, 3, 6, 12].map((many) => many * HOUR_US)];

// A linear axis over the time of spans {kind, from, to}. Positions are percentages of its width. Long gaps in which
// nothing happens are folded: `pieces` are the linear parts, and a fold of a fixed width is between two of them.
export class TimeAxis {
  // Labels are times after `start`, or with `isClock` the times of day.
  constructor(spans, {start = null, isClock = false} = {}) {
    const edges = spans.flatMap(({from, to}) => [from, to]), points = [...new Set(edges)].sort((earlier, later) => earlier - later);
    const busy = spans.filter(({kind, from, to}) => to > from && !IDLE_KINDS.has(kind)).sort((earlier, later) => earlier.from - later.from), gaps = [];
    let next = 0, until = -Infinity, worked = 0;
    for (let at = 1; at < points.length; at++) {
      const [from, to] = [points[at - 1], points[at]];
      while (next < busy.length && busy[next].from <= from) until = Math.max(until, busy[next++].to);
      if (until > from) worked += to - from; else gaps.push([to - from, from]);
    }
    const folds = new Set(foldedGaps(gaps, worked));
    [this.first, this.start] = [points[0], isClock ? 0 : start ?? points[0] ?? 0];
    this.pieces = points.length ? [{from: points[0], to: points[0]}] : [];
    for (let at = 1; at < points.length; at++) if (folds.has(points[at - 1])) this.pieces.push({from: points[at], to: points[at]}); else this.pieces.at(-1).to = points[at];
    // Of several days, labels have the date.
    this.say = isClock ? (us) => new Date(us / 1000).toISOString().slice(...points.at(-1) - points[0] > DAY_US ? [5, 16] : [11, us % 1e6 ? 23 : 19]).replace("T", " ") : afterStart;
    this.length = this.pieces.reduce((sum, {from, to}) => sum + to - from, 0);
    this.room = 100 - FOLD_WIDTH * (this.pieces.length - 1) - 2 * MARGIN * this.pieces.length;
    let left = 0;
    for (const piece of this.pieces) {
      Object.assign(piece, {left: left + MARGIN, width: this.length ? this.room * (piece.to - piece.from) / this.length : this.room / this.pieces.length});
      left += piece.width + 2 * MARGIN + FOLD_WIDTH;
    }
  }

  place(at) {
    const piece = this.pieces.findLast(({from}) => from <= at) ?? this.pieces[0];
    return piece.left + (this.length ? this.room * (Math.min(at, piece.to) - piece.from) / this.length : piece.width / 2);
  }

  get folds() { return this.pieces.slice(1).map((piece, at) => ({left: piece.left - MARGIN - FOLD_WIDTH, length: piece.from - this.pieces[at].to})); }

  // The labels {left, text, isLeft} at the beginning of each piece, and where there is room at round times within it.
  ticks(pixels) {
    const labels = [], step = TICK_STEPS.find((us) => this.length / us <= pixels / 90) ?? DAY_US * Math.ceil(this.length / DAY_US / (pixels / 90));
    const add = (at) => {
      const left = this.place(at), text = this.say(at - this.start), width = 100 * labelWidth(text) / pixels;
      // A label is at the right of its place, or at the left if that has no room.
      const from = [left, left - width].find((from) => from >= 0 && from + width <= 100 && !labels.some((other) => from < other.to && other.from < from + width));
      if (from !== undefined && !labels.some((other) => other.text === text)) labels.push({left, text, from, to: from + width, isLeft: from < left});
    };
    // The beginnings of the first and the last piece come first.
    for (const {from} of [...this.pieces.slice(0, 1), ...this.pieces.slice(-1), ...this.pieces]) add(from);
    for (const {from, to} of this.pieces) for (let at = this.start + step * Math.ceil((from - this.start + 1) / step); at <= to; at += step) add(at);
    return labels.sort((earlier, later) => earlier.left - later.left);
  }
}
// Returns where the gaps [length, from] begin that are folded.
function foldedGaps(gaps, worked) {
  gaps.sort(([shorter_], [longer]) => shorter_ - longer);
  let shorter = worked, at = 0;
  while (at < gaps.length && (!shorter || gaps[at][0] <= FOLDED * shorter)) shorter += gaps[at++][0];
  // Gaps of one length are all folded, or none.
  const most = gaps.at(-1 - MOST_FOLDS)?.[0] ?? 0;
  return gaps.slice(at).filter(([length]) => length > most && length >= LEAST_FOLDED).map(([, from]) => from);
}

const afterStart = (us) => us ? `${us < 0 ? "−" : "+"}${lasted(Math.abs(us))}` : "0";

// The row of the axis: its labels, and the lengths of the folds, where one does not cover another. Its width determines which.
export function axisElement(axis) {
  const row = el("div", {class: "span-axis", "aria-hidden": "true"});
  new ResizeObserver(() => row.replaceChildren(...axisLabels(axis, row.clientWidth))).observe(row);
  return row;
}
export const gapElements = (axis) => axis.folds.map(({left}) => el("i", {class: "span-gap", style: `left: ${left}%; width: ${FOLD_WIDTH}%`}));
function axisLabels(axis, pixels) {
  // Of several gaps of one length, the first has the label.
  let covered = 0;
  const folds = axis.folds, lengths = folds.map(({left, length}, at) => {
    const text = lasted(length).split(" ").slice(0, 4).join(" "), width = 100 * labelWidth(text) / pixels, from = Math.max(0, Math.min(100 - width, left + (FOLD_WIDTH - width) / 2)), isFree = from >= covered && Math.round(length / 1e6) !== Math.round(folds[at - 1]?.length / 1e6);
    if (isFree) covered = from + width;
    return isFree ? el("small", {style: `left: ${from}%; width: ${width}%`}, text) : "";
  });
  return [...gapElements(axis), ...lengths, ...axis.ticks(pixels).map(({left, text, isLeft}) => el("span", {class: isLeft ? "span-tick span-tick-left" : "span-tick", style: `left: ${left}%`}, text))];
}
export const legend = (kinds, names) => el("ul", {class: "span-legend"}, [...kinds].map((kind) => el("li", {}, el("i", {class: `kind-${kind}`}), visible(names[kind] ?? kind))));

function inWords({kind, from, to, failed, text}, start) {
  return [text ?? SPAN_KINDS[kind] ?? kind, `at ${afterStart(from - start)}`, to > from ? `for ${span(to - from)}` : "", failed ? "failed" : ""].filter(Boolean).join(" ");
}
// Draw rows of spans below each other. A row is {name, note, error, depth, spans, chosen, failed}, and what is below it: `content` (elements
// that it opens), `onclick`, or neither. A span is {kind, from, to, failed, text}.
export function spansElement(label, rows, {start = null} = {}) {
  const axis = new TimeAxis(rows.flatMap(({spans}) => spans), {start}), kinds = new Set(rows.flatMap(({spans}) => spans.map(({kind}) => kind)));
  const hasFailed = rows.some((row) => row.failed || row.spans.some(({failed}) => failed));
  return el("figure", {class: "spans", "aria-label": label}, legend([...Object.keys(SPAN_KINDS).filter((kind) => kinds.has(kind)), ...hasFailed ? ["failed"] : []], SPAN_KINDS),
    el("div", {class: "span-row"}, el("span"), axisElement(axis)),
    el("ol", {}, rows.map(({name, note, error, depth = 0, spans, chosen, failed, content, onclick, key}) => {
      const words = spans.map((part) => inWords(part, axis.start)).join(", ");
      const line = [el("span", {class: "span-name", style: `padding-left: ${Math.min(8, depth) * 12}px`}, el("b", {class: failed ? "trace-bad" : null}, visible(name)), note ? [" ", el("span", {class: "soft"}, visible(note))] : null, error ? el("span", {class: "span-error trace-bad", title: error}, visible(error)) : null),
        el("span", {class: spans.length ? "span-track" : null}, spans.length ? gapElements(axis) : null, spans.map((part) => {
          const left = axis.place(part.from), width = axis.place(part.to) - left;
          return el("i", {class: `span-bar kind-${part.kind}${part.failed ? " kind-failed" : ""}${part.to > part.from ? "" : " span-moment"}`, style: `left: ${left}%; width: ${width}%`});
        })), el("span", {class: "span-words"}, words)];
      const current = chosen ? "true" : null;
      return el("li", {}, content ? el("details", {"data-key": key, class: "span-item"}, el("summary", {class: "span-row"}, line), el("div", {class: "span-content"}, content)) : onclick ? el("button", {type: "button", class: "span-row", "aria-current": current, onclick}, line) : el("div", {class: "span-row", "aria-current": current}, line));
    })));
}
