// The detail pane of a timeline: all about its selected row.
import {LANGUAGES, REDIS_CLIENTS, commandsOf, lost, prefixOf, requestOf} from "./copying.js";
import {count, dump, el, fold, lasted, own, visible} from "./elements.js";
import {clockTime, colour, endsOf, gapText, hasSubject, isRestore, isoDay, nameOf} from "./facts.js";
import {waterfallElement} from "./waterfall.js";

// The most things to follow that are in sight.
const MOST_CHIPS = 2;

export class Pane {
  constructor(trace) { Object.assign(this, {trace, element: el("section", {class: "trace-pane", "aria-label": "Details", tabindex: -1, hidden: true})}); }
  fill() {
    const one = this.trace.byNumber.get(this.trace.number);
    this.element.hidden = !one;
    if (!one) { this.filled = undefined; this.element.replaceChildren(); return; }
    const related = new Map((one.row.subjects ?? []).map((subject) => [subject, this.trace.rows.filter((other) => hasSubject(other.row, subject)).length]));
    const children = this.trace.rows.filter((other) => other.row.parent === this.trace.number);
    const {row} = one, before = one.index ? this.trace.rows[one.index - 1].row.at_us : row.at_us, gap = gapText(before, row.at_us), wait = before > row.at_us ? gap : gap && `${gap} since the row before`;
    // New rows change only the links of this one: a reader may have scrolled the pane, and its forms show answers.
    const shape = JSON.stringify([row, wait, this.trace.options.loading?.()]), linked = JSON.stringify([children.length, [...related.values()]]);
    if (shape === this.filled) {
      if (linked === this.linked || [this.links, this.waterfall].some((place) => place.contains(document.activeElement))) return;
      this.linked = linked;
      for (const [place, part] of [[this.links, this.linksElement(one, children, related)], [this.waterfall, waterfallElement(one, this.trace)]]) {
        const isOpen = place.querySelector("details")?.open, details = part?.querySelector("details") ?? part?.closest("details");
        place.replaceChildren(...part ? [part] : []);
        if (details) details.open = isOpen ?? details.open;
      }
      return;
    }
    // Text that was typed and not sent stays while the row does.
    if (this.filledFor === this.trace.number && this.element.querySelector("form[data-typed=yes]")) return;
    Object.assign(this, {filledFor: this.trace.number, filled: shape, linked, links: el("div", {}, this.linksElement(one, children, related)), waterfall: el("div", {}, waterfallElement(one, this.trace))});
    this.element.replaceChildren(el("div", {class: "trace-pane-body"},
      el("div", {class: "trace-pane-head"},
        // A long text scrolls, which the keyboard must reach.
        el("h3", {tabindex: row.text.what.length > 250 ? 0 : null}, row.text.what),
        el("button", {type: "button", "aria-label": "Close the details", onclick: () => this.trace.select(null)}, "✕")),
      el("p", {class: "soft"}, [`${this.trace.options.numbered ? "row " : "#"}${one.label}`, endsOf(one), `${isoDay(row.at_us)} ${clockTime(row.at_us)} UTC`, row.took_us > 0 ? `took ${lasted(row.took_us)}` : "", wait].filter(Boolean).join(" · ")),
      one.failed ? el("p", {class: "trace-bad"}, `${count(one.failed, "item")} of this request failed.`) : null,
      row.text.answer ? el("p", {class: colour(one)}, row.text.answer) : null,
      ...(row.faults ?? []).map((fault) => el("p", {class: "trace-fault"}, `Injected fault: ${fault.description}`)),
      ...(row.findings ?? []).map((index) => this.findingElement(index, row)),
      row.text.note ? el("pre", {class: "trace-bad", tabindex: 0, "aria-label": "Note"}, row.text.note) : null,
      ...(row.text.lines ?? []).map((line) => el("p", {class: "soft trace-pre"}, line)),
      row.where ? sourceOf(row.where) : row.rules.is_received && this.trace.rows.some((other) => other.row.rules.is_received && other.row.where) ? el("p", {class: "soft"}, "The line that made this call is not known.") : null,
      this.links,
      // The whole request comes after what is about this row.
      ...(this.trace.options.details?.(one, this.trace) ?? []), this.waterfall,
      messageElement("Request", row.request),
      messageElement("Response", row.response),
      row.text.script ? fold("Script", el("pre", {tabindex: 0}, row.text.script)) : null,
      !row.request && row.data && !isRestore(row) && Object.keys(row.data).length
        ? fold("Data", el("pre", {tabindex: 0}, pretty(row.data)), true) : null,
      this.copyElement(row)));
    this.element.scrollTop = 0;
  }
  // Selecting fills the pane again, which removes the pressed button, so move the focus to the pane.
  goTo(number, text) {
    return el("button", {type: "button", class: "trace-link", onclick: () => { this.trace.select(number); this.element.focus({preventScroll: true}); }}, text);
  }
  goToRow({row, label}) { return this.goTo(row.number, this.trace.options.numbered ? `row ${label}: ${row.text.what}` : row.text.what); }
  findingElement(index, row) {
    const finding = this.trace.report.findings[index];
    const others = (finding.rows ?? []).filter((number) => number !== row.number && this.trace.byNumber.has(number));
    const first = finding.rows?.find((number) => this.trace.byNumber.has(number)) ?? row.number;
    // The text says "this" of the first row.
    const about = first === row.number ? "" : `about row ${this.trace.byNumber.get(first).label}: `;
    return el("p", {class: "trace-finding"}, `▲${index + 1} ${about}${finding.text} `,
      ...others.flatMap((number) => [this.goTo(number, `row ${this.trace.byNumber.get(number).label}`), " "]));
  }
  linksElement({row}, children, related) {
    const parent = this.trace.byNumber.get(row.parent), chips = [...related].sort(([, rows], [, others]) => (others > 1) - (rows > 1)).map(([subject, rows]) => rows > 1 ? el("button", {type: "button", class: "trace-chip", title: subject.name, onclick: () => this.trace.clear(subject)}, `${nameOf(subject)} · ${rows} rows`) : el("p", {class: "soft", title: subject.name}, `${nameOf(subject)}: only in this row`));
    const items = [
      // Another client may have called meanwhile, so that only the cause of an event is known.
      parent && [el("dt", {}, row.rules.is_inside ? "Caused by" : "During"), el("dd", {}, this.goToRow(parent))],
      children.length && [el("dt", {}, children.every((other) => other.row.rules.is_inside) ? "Effects" : "During it"), el("dd", {}, ...children.slice(0, 50).flatMap((other) =>
        [this.goToRow(other), el("br")]), children.length > 50 ? `… ${children.length - 50} more` : null)],
      row.trace && [el("dt", {}, "Trace"), el("dd", {class: "trace-mono"}, row.trace)],
      related.size && !isRestore(row) && [el("dt", {}, "Follow"), el("dd", {}, chips.slice(0, MOST_CHIPS), chips.length > MOST_CHIPS ? fold(`${chips.length - MOST_CHIPS} more`, chips.slice(MOST_CHIPS)) : null)],
    ].filter(Boolean);
    return items.length ? el("dl", {class: "trace-links"}, ...items.flat()) : null;
  }
  copyElement(row) {
    const status = el("output", {class: "soft"}), sent = row.request && (requestOf(row, this.trace.report) ?? commandsOf(row));
    const button = (name, make) => el("button", {type: "button", onclick: async () => {
      const text = make(), missing = sent ? lost(sent) : "";
      try { await navigator.clipboard.writeText(text); status.textContent = `Copied.${missing}`; }
      catch { status.replaceChildren(`Select and copy:${missing}`, el("pre", {tabindex: 0}, text)); }
    }}, name);
    return el("div", {class: "trace-copy"}, sent && Object.entries(sent.commands ? REDIS_CLIENTS : LANGUAGES).map(([name, write]) => button(`Copy as ${name}`, () => sent.commands ? write(sent.commands, prefixOf({name: row.peer, fixture: "kv_server"})) : write(sent))),
      this.trace.options.numbered ? button("Copy link", () => location.href) : null, status);
  }
}
function messageElement(title, message) {
  if (!message) return null;
  // If nothing was decoded, an object such as {"Base64": …} was sent as such.
  const isPlain = message.decoded === undefined || sameJson(message.body, message.decoded);
  const body = message.decoded === undefined ? visible(message.body) : pretty(message.decoded, !isPlain);
  return fold(title,
    [el("p", {class: "trace-mono"}, visible(message.line)),
      message.headers?.length ? fold(count(message.headers.length, "header"),
        el("dl", {class: "trace-headers"}, ...message.headers.flatMap(([name, value]) => [el("dt", {}, visible(name)), el("dd", {}, visible(value), claimsOf(value))]))) : null,
      body ? el("pre", {tabindex: 0, "aria-label": `${title} body`}, body)
        : message.missing || message.headers?.length ? el("p", {class: "soft"}, message.missing ? "The body was not recorded." : "no body") : null,
      message.cut ? el("p", {class: "trace-fault"}, `Only the first ${[...message.body].length.toLocaleString("en")} characters of ${message.cut.toLocaleString("en")} bytes are in this report.`) : null,
      message.hex ? fold("Bytes that are not UTF-8, in hexadecimal", [el("pre", {tabindex: 0, "aria-label": `${title} in hexadecimal`}, dump(message.hex)), message.hex.length < 2 * (message.cut ?? 0) ? el("p", {class: "soft"}, `The first ${count(message.hex.length / 2, "byte")}.`) : null], true) : null,
      isPlain ? null : fold("Raw body", el("pre", {tabindex: 0, "aria-label": `${title} raw body`}, visible(message.body)))], true);
}
function sourceOf(where) {
  const lines = (where.source ?? []).map(({line, text}) => el("div", line === where.line ? {class: "trace-called"} : {}, `${String(line).padStart(5)}  ${text}`));
  const place = ({file, line, function: name}) => `${file}:${line} in ${name}`;
  return [el("p", {}, `Called at ${[where, ...where.callers ?? []].map(place).join(", from ")}`),
    lines.length ? el("pre", {class: "trace-source", tabindex: 0, "aria-label": "Source"}, ...lines) : null];
}
// The words before the content of a string that the report decoded (`decoded()` in strings.py).
const ENCODINGS = {Base64: "Base64 of ", "JSON in a string": "as a string: "};
// Print a value as JSON, with short lists and objects in one line. `marked` names the encodings of decoded strings.
function pretty(value, marked = false) {
  const print = (one, indent) => {
    if (one === null || typeof one !== "object") return JSON.stringify(one);
    const names = Object.keys(one), isList = Array.isArray(one), [start, end] = isList ? "[]" : "{}", deeper = `${indent}  `;
    if (marked && names.length === 1 && own(ENCODINGS, names[0])) return ENCODINGS[names[0]] + print(one[names[0]], indent);
    const parts = names.map((name) => (isList ? "" : `${JSON.stringify(name)}: `) + print(one[name], deeper));
    const line = parts.length ? `${start} ${parts.join(", ")} ${end}` : start + end;
    return line.length + indent.length <= 64 && !line.includes("\n") ? line : `${start}\n${deeper}${parts.join(`,\n${deeper}`)}\n${indent}${end}`;
  };
  return visible(print(value, ""));
}
function claimsOf(value) {
  const part = /^eyJ[\w-]+\.(eyJ[\w-]+)\./.exec(value)?.[1];
  try { return part ? el("pre", {}, pretty(JSON.parse(atob(part.replaceAll("-", "+").replaceAll("_", "/"))))) : null; } catch { return null; }
}
const sameJson = (text, value) => { try { return JSON.stringify(JSON.parse(text)) === JSON.stringify(value); } catch { return false; } };
