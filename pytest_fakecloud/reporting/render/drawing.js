// A row in the list of a timeline: its lines, its lanes and its marks.
import {el, lasted, svg} from "./elements.js";
import {clockTime, colour, endsOf, isFailure, isoDay, partyOf, whatOf, withShortIds} from "./facts.js";

// The height of a line and around a row, the width of a time, and of its date.
export const LINE = 19, PAD = 9, TIME = 98, DATE = 52;
// The most lines of a row's text, of its answer and of each explanation below. The detail pane has the whole texts.
const MOST_LINES = 8, MOST_OF_ANSWER = 4, MOST_BELOW = 4;
// The colour of rows that belong to no request, and the colours of requests in turn.
export const HUES = ["var(--soft)", ...["#2f6feb, #7aa7ff", "#b35900, #f0a35e", "#0f7b6c, #4fd1bd", "#a8328f, #ee8fd8", "#6a7a00, #c6d64d", "#6b4fd6, #b3a1ff"].map((pair) => `light-dark(${pair})`)];

export function lanesOf(rows, fakes) {
  const known = new Set();
  for (const one of rows) known.add(one.fromName).add(one.toName);
  const fakeNames = fakes.map((fake) => fake.name).filter((name) => known.has(name));
  const outside = [...known].filter((name) => !fakeNames.includes(name));
  const rank = (name) => ({test: 0, client: 1, console: 1, application: 2}[name] ?? 3);
  const lanes = [...outside.filter((name) => rank(name) < 3).sort((a, b) => rank(a) - rank(b)), ...fakeNames, ...outside.filter((name) => rank(name) === 3)];
  for (const one of rows) Object.assign(one, {from: lanes.indexOf(one.fromName), to: lanes.indexOf(one.toName)});
  return lanes;
}
// A key of everything that a row's element depends on, except the row itself.
export function shapeOf({one}, trace) {
  return JSON.stringify([one.parts, trace.middles, trace.narrow, trace.laned ? 0 : trace.across, trace.dated, one.from, one.to, one.hue, one.bars, one.starts, trace.matches.has(one), one.label]);
}
export function rowElement({one, height}, trace) {
  const {row} = one, text = el("div", {class: "trace-text"});
  const guides = one.bars.length ? el("span", {class: "trace-guides"}, one.bars.map((bar) => el("i", {style: `--hue: ${HUES[bar.hue]}`}))) : null;
  for (const [name, part, answer] of one.parts) text.append(el("div", {class: name}, el("span", {}, part), answer && el("span", {class: `trace-answer ${colour(one)}`}, answer)));
  const marks = [...(row.marks ?? []).map((mark) => `trace-${mark}`), isFailure(one) ? "trace-failed" : "", row.findings?.length ? "trace-found" : "", trace.matches.has(one) ? "" : "trace-context"].filter(Boolean);
  return el("div", {class: ["trace-row", ...marks].join(" "), role: "option", id: `row-${one.label}`, "aria-selected": "false", "data-number": row.number, style: `height: ${height}px`},
    trace.timed && trace.options.numbered ? el("span", {class: "trace-number"}, one.label) : null,
    !trace.timed ? null : el("span", {class: "trace-time", style: trace.dated ? `width: ${TIME + DATE}px` : null}, timeOf(row, trace)),
    trace.timed && trace.took ? el("span", {class: "trace-took"}, row.took_us == null ? "" : lasted(row.took_us)) : null,
    trace.narrow ? null : trace.laned ? lanesElement(one, height, trace) : el("span", {class: "trace-time trace-party", style: `width: ${trace.across}px`, title: endsOf(one)}, partyOf(one)), guides, text);
}
function timeOf({at_us}, trace) { return `${trace.dated ? `${isoDay(at_us).slice(5)} ` : ""}${clockTime(at_us)}`; }
function lanesElement(one, height, trace) {
  const {row} = one, y = PAD / 2 + LINE / 2, x = (lane) => trace.middles[lane], hue = `--hue: ${HUES[one.hue]}`;
  const kind = isFailure(one) ? "trace-bad-arrow" : "trace-good-arrow", right = one.to > one.from;
  const start = x(one.from) + (right ? 5 : -5), end = x(one.to) + (right ? -5 : 5), lost = row.outcome === "dropped" || row.outcome === "refused", stop = lost ? (start + end) / 2 : end;
  const bar = ({lane, hue: own}, from) => svg("rect", {class: "trace-bar", style: `--hue: ${HUES[own]}`, x: x(lane) - 4, y: from, width: 8, height: height - from});
  return svg("svg", {width: trace.across, height, class: "trace-lanes", "aria-hidden": "true"}, svg("path", {class: "trace-life", d: trace.middles.map((at) => `M${at} 0v${height}`).join("")}),
    one.bars.map((each) => bar(each, 0)), one.starts && bar(one.starts, y - 4),
    one.from === one.to ? svg("circle", {class: kind, cx: x(one.to), cy: y, r: 4}) : [svg("line", {class: kind, style: hue, x1: start, x2: stop, y1: y, y2: y}),
      svg("path", {class: kind, style: hue, d: lost ? `M${stop - 4} ${y - 4}l8 8m0 -8l-8 8` : `M${stop} ${y}l${right ? -7 : 7} -4v8z`})]);
}
// Break a text into lines of at most so many columns, between words if possible.
function wrapped(text, columns, most) {
  const lines = [];
  for (let paragraph of text.split("\n")) {
    for (;;) {
      // Letters that are not of a single column, such as Chinese ones, take two.
      const room = Math.max(8, columns >> /[\u2e80-\uffff]/.test(paragraph));
      if (paragraph.length <= room || lines.length > most) break;
      const space = paragraph.lastIndexOf(" ", room), end = space > room / 2 ? space : room - /[\ud800-\udbff]/.test(paragraph[room - 1]);
      lines.push(paragraph.slice(0, end));
      paragraph = paragraph.slice(end).trimStart();
    }
    lines.push(paragraph);
  }
  return lines.length <= most ? lines : [...lines.slice(0, most - 1), `${lines[most - 1].slice(0, columns - 1)}…`];
}
// Return the lines of a row in the list, each with a class and a text. A short answer follows its call.
export function partsOf(one, trace, columns) {
  const {report, narrow, timed, options, byNumber} = trace, {row, failed} = one, {note} = row.text, what = whatOf(row);
  const answer = [failed ? `${failed} failed` : "", withShortIds(row.text.answer, row)].filter(Boolean).join(": ");
  const label = options.numbered ? `${one.label} · ` : "", ends = `${timed ? "" : `${label}${timeOf(row, trace)} ${row.took_us > 0 ? `${lasted(row.took_us)} ` : ""}`}${endsOf(one)}`;
  const parts = [], add = (name, text, most) => parts.push(...wrapped(text, columns, most).map((line) => [name, line]));
  const lines = wrapped(what, columns, MOST_LINES), isBeside = answer && !answer.includes("\n") && lines.at(-1).length + answer.length + 5 <= columns;
  if (narrow) add("trace-ends soft", ends, MOST_LINES);
  parts.push(...lines.map((line, index) => ["trace-what", line, isBeside && index === lines.length - 1 ? answer : null]));
  if (row.writer) add("trace-writer", "led to what the statement read", 1);
  if (answer && !isBeside) add(colour(one), answer, MOST_OF_ANSWER);
  for (const line of row.text.lines ?? []) add("soft", line, MOST_BELOW);
  for (const fault of row.faults ?? []) add("trace-fault", `fault: ${fault.description}`, MOST_BELOW);
  for (const index of row.findings ?? []) {
    const finding = report.findings[index], first = byNumber.get(finding.rows.find((number) => byNumber.has(number)));
    // Only the first row of a finding shows the text; the others refer to it.
    add("trace-finding", `▲${index + 1} ${first && first !== one ? `see row ${first.label}` : finding.text}`, MOST_BELOW);
  }
  if (note) add("trace-bad", note.split("\n")[0], MOST_BELOW);
  return parts;
}
