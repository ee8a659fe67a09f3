// The timeline of a report: a toolbar, lanes, a virtualised list of rows and a detail pane.
//
// The report's page contains this module inline, and the console of the stand-alone server loads it.
// It reads the JSON of docs/reference/report.schema.json and makes no request.

import {LANGUAGES, REDIS_CLIENTS, commandsOf, lost, prefixOf, requestOf} from "./copying.js";
import {border, breakable, count, dump, el, failedItems, fold, lasted, own, partsOfName, shortName, showChip, span, svg, visible, withoutScheme} from "./elements.js";
import {spansElement} from "./spans.js";

const LINE = 19, PAD = 9, GAP = 22, AHEAD = 600;
// Pixels beside the text of a row, and of the guide of each level; the least width with a column for the time.
const SIDES = 14, GUIDE = 14, TIMED_LEAST = 480;
// The most lines of a row's text, of its answer and of each explanation below. The detail pane has the whole texts.
const MOST_LINES = 8, MOST_OF_ANSWER = 4, MOST_BELOW = 4;
const NARROW = 720, WIDE = 1000, TEXT_LEAST = 340, LANE_LEAST = 42, LANE_MOST = 130, TIME = 98, NUMBER = 38;
// The colour of rows that belong to no request, and the colours of requests in turn.
const HUES = ["var(--soft)", ...["#2f6feb, #7aa7ff", "#b35900, #f0a35e", "#0f7b6c, #4fd1bd", "#a8328f, #ee8fd8", "#6a7a00, #c6d64d", "#6b4fd6, #b3a1ff"].map((pair) => `light-dark(${pair})`)];
// The width of the column of durations, the most rows of a waterfall, and the most things to follow that are in sight.
const TOOK = 62, MOST_SPANS = 200, MOST_CHIPS = 2;
// The width of the date of a time, and of the column of fakes without lanes: wide, and where there is little room.
const DATE = 52, ENDS = 186, ENDS_LEAST = 104;
const NO_BARS = [];
const ALL_ROWS = {search: "", fake: "", problems: false, subject: null};

export class Trace {
  // Options: numbered (number the rows from 1 and keep #row-12 in the address; otherwise a row keeps
  // its number of the journal), newest (start at the end and follow the rows that arrive,
  // until the reader scrolls up; shows the fakes as a column, and as lanes on request),
  // onselect(row), onfilter(wanted), isWanted(row) (another filter), isFiltered() and onclear() (of that filter), tools (elements for the toolbar),
  // details(one, trace) (more elements for the detail pane), loading() (older rows will come),
  // gone(fake) (says which older rows were dropped).
  constructor(root, options = {}) {
    Object.assign(this, {root, options, wanted: {...ALL_ROWS, slowest: false, lanes: false}, report: {rows: [], findings: [], fakes: []}, rows: [], items: [], shown: [], lanes: [], widths: [], leasts: []});
    Object.assign(this, {number: null, closed: null, drawn: new Map(), known: new WeakMap(), version: 0, problemCount: 0, following: Boolean(options.newest), scrolled: 0});
    this.build();
    this.stop = new AbortController();
    const {signal} = this.stop;
    addEventListener("scroll", () => { this.watch(); this.draw(); }, {passive: true, signal});
    addEventListener("hashchange", () => this.follow(), {signal});
    addEventListener("keydown", (event) => this.pressed(event), {signal});
    this.sizes = new ResizeObserver(() => { if (this.list.clientWidth !== this.width) this.measure(); });
    this.sizes.observe(this.list);
  }
  // Whether lanes are drawn, and the row from which arrow keys go on: the selected one, or the last one that was closed.
  get laned() { return !this.options.newest || this.wanted.lanes && this.hasRoom; }
  get active() { return this.number ?? this.closed; }

  // Show a report. Selection, filters and the position in the list stay. A row that has changed must be
  // a new object, because the layout of a row is cached by object.
  show(report) {
    const first = !this.rows.length, anchor = this.anchor();
    this.report = report;
    this.prepare();
    this.fillTools();
    this.arrange();
    if (first) this.follow();
    else if (this.number !== null) this.fillPane();
    if (!this.following && !first && anchor && this.places.has(anchor.key)) scrollBy(0, this.items[this.places.get(anchor.key)].top - anchor.top);
  }
  // The vertical part of the window in which rows are seen, in pixels of the list.
  seen() {
    const {top} = this.list.getBoundingClientRect(), below = this.beside || this.pane.hidden ? 0 : this.pane.offsetHeight;
    return {from: this.top.offsetHeight + parseFloat(getComputedStyle(this.top).top) - top, to: innerHeight - below - top};
  }
  // The item that keeps its place in the window when rows are added above it: the selected row if it is seen, or the first row that is.
  anchor() {
    const {from, to} = this.seen(), selected = this.items[this.places?.get(this.number)];
    if (selected && selected.top + selected.height > from && selected.top < to) return selected;
    return this.items.slice(firstBelow(this.items, from)).find(({one}) => one);
  }
  // While the timeline follows, it stays at its end, however its height changes. Scrolling up ends that, and reaching the end begins it again.
  toEnd() {
    if (!this.options.newest) return;
    if (this.following && this.number === null) scrollTo(0, document.documentElement.scrollHeight);
    // Beside open details, there is room below the last row.
    else if (this.following) scrollBy(0, this.list.offsetHeight + 8 - this.seen().to);
    this.scrolled = scrollY;
    this.countNewer();
  }
  // Says how many of the shown rows are below those that are seen.
  countNewer() {
    if (!this.options.newest) return;
    const {to} = this.seen(), below = this.items.slice(firstBelow(this.items, to)).find(({one, top}) => one && top + LINE > to);
    const newer = below && !this.following && !this.wanted.slowest ? this.shown.length - below.index + 1 : 0;
    this.newer.hidden = !newer;
    this.newer.textContent = `${newer.toLocaleString("en")} newer ↓`;
  }
  follows() { this.following = true; this.toEnd(); this.draw(); }
  watch() {
    const up = scrollY < this.scrolled - 1;
    this.scrolled = scrollY;
    if (!this.options.newest || !this.rows.length) return;
    const {following} = this;
    if (following && up && !this.atEnd()) this.following = false;
    this.following ||= this.number === null && this.atEnd();
    if (!following && this.following) this.toEnd(); else this.countNewer();
  }
  // Select a row by its number and scroll it into view; null closes the detail pane.
  select(number, {reveal = true} = {}) {
    const one = number === null ? null : this.byNumber.get(number);
    if (number !== null && !one) return;
    const isInside = this.pane.contains(document.activeElement) || document.activeElement.contains(this.root), opens = (this.number === null) !== (number === null), anchor = opens && this.anchor(), inWindow = () => this.items[this.places.get(anchor.key)].top + this.list.getBoundingClientRect().top, was = anchor && inWindow();
    this.closed = this.number ?? this.closed;
    this.number = number;
    // Whoever reads a row keeps it in sight.
    if (one) this.following = false;
    if (one && !this.places.has(number)) this.clear();
    if (this.options.numbered) {
      const hash = one ? `#row-${one.label}` : "";
      if (location.hash !== hash) history.replaceState(history.state, "", hash || location.pathname + location.search);
    }
    const before = this.items[this.places.get(number)]?.top;
    this.fillPane();
    if (opens) this.measure();
    // Keep a clicked row under the pointer when opening the pane changes the layout.
    if (one && reveal) this.reveal(number);
    else if (one) scrollBy(0, this.items[this.places.get(number)].top - before);
    else {
      // Beside the pane, rows have more lines. Without it the page is shorter, and the browser may have scrolled to its end.
      if (anchor) scrollBy(0, inWindow() - was);
      this.following = Boolean(this.options.newest) && this.atEnd();
      if (isInside) this.list.focus({preventScroll: true});
    }
    this.draw();
    this.options.onselect?.(one ? one.row : null);
  }
  // Change some of: search, fake, problems, subject ({kind, name, fake} or null), slowest (order by duration), lanes (calls between fakes as arrows).
  filter(changes) {
    const {search, fake, problems, subject, slowest} = Object.assign(this.wanted, changes);
    [this.search.value, this.fake.value, this.problems.checked, this.order.value] = [search, fake, problems, slowest ? "slowest" : ""];
    showChip(this.chip, subject && nameOf(subject), "Stop following ");
    this.arrangeAll();
    if (changes.slowest && this.number === null) scrollTo(0, 0);
    this.options.onfilter?.(this.wanted);
  }
  clear() { this.options.onclear?.(); this.filter(ALL_ROWS); }
  // Arrange the rows for another filter. The selected row stays in view; if there is none, the list is not scrolled further than it is long.
  arrangeAll() {
    this.arrange();
    if (this.places.has(this.number)) this.reveal(this.number);
    else {
      const {from, to} = this.seen(), height = this.list.offsetHeight;
      if (from > 0 && to > height) scrollBy(0, -Math.min(from, to - height));
    }
    this.draw();
    this.countNewer();
  }
  destroy() { this.stop.abort(); this.sizes.disconnect(); this.root.replaceChildren(); }

  // -- building ----------------------------------------------------------------------------------
  build() {
    this.search = el("input", {type: "search", placeholder: "Search calls and bodies", "aria-label": "Search calls and bodies", oninput: () => this.filter({search: this.search.value})});
    this.fake = el("select", {"aria-label": "Fake", onchange: () => this.filter({fake: this.fake.value})});
    this.problems = el("input", {type: "checkbox", onchange: () => this.filter({problems: this.problems.checked})});
    this.order = el("select", {"aria-label": "Order", onchange: () => this.filter({slowest: this.order.value === "slowest"})}, el("option", {value: ""}, "By time"), el("option", {value: "slowest"}, "Slowest first"));
    this.chip = el("button", {class: "trace-chip", type: "button", hidden: true, onclick: () => this.filter({subject: null})});
    this.count = el("output", {class: "soft"});
    this.clearButton = el("button", {type: "button", hidden: true, "aria-label": "Clear all filters", title: "Clear all filters", onclick: () => { this.clear(); this.search.focus(); }}, "Clear");
    this.lanesButton = this.options.newest && el("button", {type: "button", class: "trace-laned", onclick: () => this.filter({lanes: !this.wanted.lanes})}, "Lanes");
    this.newer = el("button", {type: "button", class: "trace-newer", hidden: true, onclick: () => this.follows()});
    this.heads = el("div", {class: "trace-heads", "aria-hidden": "true"});
    this.problemsText = el("span");
    this.problemsLabel = el("label", {}, this.problems, this.problemsText);
    this.top = el("div", {class: "trace-top"},
      el("div", {class: "trace-tools", role: "search", "aria-label": "Filter the timeline"}, this.search, this.fake,
        this.problemsLabel, this.order, this.chip, this.count, this.newer, this.clearButton, this.lanesButton, ...(this.options.tools ?? [])), this.heads);
    this.list = el("div", {class: "trace-list", role: "listbox", tabindex: 0, "aria-label": "Timeline", onclick: (event) => this.clicked(event)});
    this.empty = el("p", {class: "trace-empty soft", hidden: true});
    this.pane = el("section", {class: "trace-pane", "aria-label": "Details", tabindex: -1, hidden: true});
    this.border = border("width of the timeline", this.options.newest ? 52 : 60);
    this.probe = el("span", {class: "trace-probe", "aria-hidden": "true"}, "0".repeat(20));
    this.root.classList.add("trace");
    this.root.replaceChildren(this.top, el("div", {class: "trace-main"}, el("div", {class: "trace-rows"}, this.list, this.probe, this.empty), this.border, this.pane));
  }
  // Compute of each row the names of its lanes, the colour of the request it belongs to, and its label.
  prepare() {
    const {known, options: {numbered}} = this, byNumber = this.byNumber = new Map(), rows = this.rows = [];
    let hues = 0;
    this.problemCount = 0;
    for (const [index, row] of this.report.rows.entries()) {
      const cause = byNumber.get(row.cause);
      // Requests and attempts start a new colour, which the calls below them share.
      const starts = row.rules.surrounds;
      let one = known.get(row);
      if (!one) known.set(row, one = {row, toName: laneName(row.peer), failed: failedItems(row)});
      const fromName = row.actor === "application" && cause ? cause.toName : one.actorName ??= laneName(row.actor), label = numbered ? index + 1 : row.number;
      if (one.fromName !== fromName || one.label !== label) Object.assign(one, {fromName, label, layout: null});
      one.index = index;
      one.hue = starts ? 1 + hues++ % (HUES.length - 1) : cause?.hue ?? 0;
      one.isExpected = this.options.isExpected?.(row);
      this.problemCount += isProblem(one);
      byNumber.set(row.number, one);
      rows.push(one);
    }
  }
  fillTools() {
    const names = (this.report.fakes ?? []).map((fake) => fake.name);
    if (String(names) !== this.fake.dataset.names) {
      const now = this.fake.value;
      this.fake.replaceChildren(el("option", {value: ""}, "All fakes"), ...names.map((name) => el("option", {value: name}, name)));
      this.fake.value = names.includes(now) ? now : "";
      this.fake.dataset.names = names;
      this.fake.hidden = names.length < 2;
    }
    this.problemsLabel.hidden = !this.problemCount && !this.wanted.problems && !this.options.loading?.();
    this.top.hidden = !this.rows.length;
    // On a frozen clock, calls take no time.
    this.took = this.rows.some(({row}) => row.took_us > 0) ? TOOK : 0;
    this.order.hidden = !this.took && !this.wanted.slowest;
  }

  // -- arranging: which rows are shown, and how high each is --------------------------------------
  arrange() {
    const {rows, wanted} = this, search = wanted.search.trim().toLowerCase(), {isWanted: another} = this.options, matches = new Set(rows.filter((one) => isWanted(one, wanted, search) && another?.(one.row) !== false));
    // The causes of a match stay visible, so that nesting keeps its meaning.
    const context = new Set();
    if (matches.size < rows.length) {
      for (const one of matches) for (let up = this.byNumber.get(one.row.cause); up && !context.has(up); up = this.byNumber.get(up.row.cause)) context.add(up);
    }
    this.matches = matches;
    this.countProblems(search);
    this.shown = wanted.slowest ? [...matches].sort((one, other) => (other.row.took_us ?? -1) - (one.row.took_us ?? -1))
      : matches.size === rows.length ? rows : rows.filter((one) => matches.has(one) || context.has(one));
    this.lanes = lanesOf(this.shown, this.report.fakes ?? []);
    this.widths = this.lanes.map((name) => Math.max(LANE_LEAST, Math.min(LANE_MOST, withoutScheme(name).length * 7.2 + 14)));
    this.leasts = this.lanes.map((name) => Math.min(LANE_MOST, Math.max(...partsOfName(withoutScheme(name)).map((part) => part.length)) * 6.6 + 4));
    this.count.textContent = matches.size === rows.length ? count(matches.size, "row") : `${matches.size} of ${count(rows.length, "row")}`;
    if (this.options.loading?.()) this.count.textContent += " so far";
    this.clearButton.hidden = !search && !wanted.fake && !wanted.problems && !wanted.subject && !this.options.isFiltered?.();
    this.empty.hidden = this.shown.length > 0;
    this.empty.replaceChildren(...rows.length ? [this.options.loading?.() ? "Searching older rows… " : ["No row matches the filters. ", this.options.gone?.(wanted.fake) ?? "", " "].join(""), el("button", {type: "button", onclick: () => this.clear()}, "Clear the filters")] : ["No calls were recorded."]);
    this.activate();
    this.measure();
  }
  // Say how many rows have a problem among those that the other filters leave.
  countProblems(search) {
    const others = {...this.wanted, problems: false}, {isWanted: another} = this.options, isFiltered = search || others.fake || others.subject || this.matches.size < this.rows.length;
    const problems = isFiltered ? this.rows.reduce((sum, one) => sum + (isProblem(one) && isWanted(one, others, search) && another?.(one.row) !== false), 0) : this.problemCount;
    this.problemsText.textContent = ` Failed or faulty (${this.options.loading?.() ? "…" : problems.toLocaleString("en")})`;
  }
  // Compute the bars that run past each row, and the bar that begins at it.
  activate() {
    const open = [];
    for (const [index, one] of this.shown.entries()) {
      while (open.length && open.at(-1).depth >= one.row.depth) open.pop();
      one.bars = open.length ? open.slice() : NO_BARS;
      one.starts = null;
      if (!this.wanted.slowest && (this.shown[index + 1]?.row.depth ?? 0) > one.row.depth) {
        one.starts = {lane: one.to, hue: one.hue, depth: one.row.depth};
        open.push(one.starts);
      }
    }
  }
  measure() {
    this.beside = this.root.clientWidth >= WIDE;
    this.root.classList.toggle("trace-beside", this.beside);
    this.root.classList.toggle("trace-open", this.number !== null);
    this.border.hidden = !this.beside || this.number === null;
    const width = this.width = this.list.clientWidth;
    // Of several days, each time has its date.
    this.dated = this.shown.length > 0 && isoDay(this.shown[0].row.at_us) !== isoDay(this.shown.at(-1).row.at_us);
    this.time = TIME + (this.dated ? DATE : 0) + this.took + (this.options.numbered ? NUMBER : 0);
    // Shorten the longest names until the text has room.
    const available = width - this.time - 1.1 * TEXT_LEAST;
    let most = LANE_MOST;
    const widths = () => this.widths.map((one, at) => Math.max(this.leasts[at], Math.min(one, most))), sum = (all) => all.reduce((whole, one) => whole + one, 0);
    while (most > LANE_LEAST && sum(widths()) > available) most--;
    this.middles = [];
    this.across = 0;
    for (const lane of widths()) { this.middles.push(this.across + lane / 2); this.across += lane; }
    this.hasRoom = width - this.across - this.time >= TEXT_LEAST;
    if (!this.laned) this.across = width - this.time - ENDS < 1.2 * TEXT_LEAST ? ENDS_LEAST : ENDS;
    this.root.classList.toggle("trace-plain", !this.laned);
    if (this.lanesButton) Object.assign(this.lanesButton, {ariaPressed: this.laned, disabled: !this.hasRoom, title: this.hasRoom ? "Show the calls between fakes as arrows" : "The list is too narrow for lanes: close the details, or widen the window"});
    // If lanes would leave too little room for the text, omit them and name both ends in the text.
    this.narrow = this.root.clientWidth < NARROW || width - this.across - this.time < TEXT_LEAST;
    this.root.classList.toggle("trace-narrow", this.narrow);
    // Number and time keep their columns beside open details. Only a phone has no room for them.
    this.timed = !this.narrow || width >= TIMED_LEAST;
    const room = width - SIDES - (this.timed ? this.time : 0) - (this.narrow ? 0 : this.across), advance = this.probe.getBoundingClientRect().width / 20 || 7.6, layout = [this.narrow, this.timed, this.laned, room, advance].join(" ");
    this.fillHeads();
    this.root.style.setProperty("--trace-top", `${this.top.offsetHeight}px`);
    this.version++;
    [this.items, this.places] = [[], new Map()];
    let y = 0, at = null;
    for (const [index, one] of this.shown.entries()) {
      const words = this.wanted.slowest ? "" : at === null ? this.options.numbered && isoDay(one.row.at_us) : gapText(at, one.row.at_us, this.options.newest ? 10 : 1);
      if (words) { this.items.push({gap: words, key: `gap-${one.row.number}`, top: y, height: GAP}); y += GAP; }
      // A call that arrives places all rows again, but breaks the lines of those only for which something has changed.
      if (one.layout !== layout || one.indent !== one.bars.length || one.row.findings?.length) {
        Object.assign(one, {layout, indent: one.bars.length});
        one.parts = partsOf(one, this, Math.floor((room - GUIDE * one.bars.length) / advance));
        one.height = one.parts.length * LINE + PAD;
      }
      this.places.set(one.row.number, this.items.length);
      this.items.push({one, index: index + 1, key: one.row.number, top: y, height: one.height});
      y += one.height;
      at = one.row.at_us;
    }
    this.list.style.height = `${y}px`;
    if (this.following && !this.wanted.slowest) this.toEnd();
    this.draw();
    this.countNewer();
  }
  fillHeads() {
    let left = 0;
    const shape = JSON.stringify([this.laned, this.lanes, this.middles, this.time, this.took]);
    if (shape === this.headed) return;
    this.headed = shape;
    this.heads.replaceChildren(el("span", {class: "trace-time", style: `width: ${this.time}px`}, this.took ? "time (UTC), took" : "time (UTC)"), ...!this.laned ? [el("span", {class: "trace-time trace-party", style: `width: ${this.across}px`}, "fake"), el("span", {class: "trace-time"}, "call")] : this.lanes.map((lane, index) => {
      const width = 2 * (this.middles[index] - left);
      left += width;
      return el("span", {class: "trace-head", title: lane, style: `width: ${width}px`}, breakable(withoutScheme(lane)));
    }));
  }

  // -- drawing: only what is near the window is in the document ------------------------------------
  draw() {
    const top = this.list.getBoundingClientRect().top, from = -top - AHEAD, to = -top + innerHeight + AHEAD;
    const kept = new Set();
    for (let index = firstBelow(this.items, from); index < this.items.length && this.items[index].top < to; index++) {
      const item = this.items[index];
      kept.add(item.key);
      this.drawItem(item);
    }
    for (const [key, element] of this.drawn) if (!kept.has(key)) { element.remove(); this.drawn.delete(key); }
    const active = this.drawn.get(this.active)?.id;
    if (active) this.list.setAttribute("aria-activedescendant", active); else this.list.removeAttribute("aria-activedescendant");
  }
  // Draw an item, or move its element if it has one: scrolling changes no element that stays visible.
  drawItem(item) {
    const {one} = item, isActive = item.key === this.active, state = `${this.version} ${isActive} ${item.key === this.number}`;
    let element = this.drawn.get(item.key);
    if (element?.state === state) return;
    const shape = one ? this.shapeOf(item) : item.gap;
    if (element?.row !== one?.row || element?.shape !== shape) {
      const made = one ? this.rowElement(item) : el("div", {class: "trace-gap", role: "presentation", style: `height: ${item.height}px`}, el("span", {}, item.gap));
      if (element) element.replaceWith(made); else this.list.append(made);
      element = Object.assign(made, {row: one?.row, shape});
      this.drawn.set(item.key, element);
    }
    element.state = state;
    element.style.transform = `translateY(${item.top}px)`;
    if (!one) return;
    element.classList.toggle("trace-active", isActive);
    element.setAttribute("aria-selected", one.row.number === this.number);
    element.setAttribute("aria-posinset", item.index);
    element.setAttribute("aria-setsize", this.shown.length);
  }
  // A key of everything that a row's element depends on, except the row itself.
  shapeOf({one}) {
    return JSON.stringify([one.parts, this.middles, this.narrow, this.laned ? 0 : this.across, this.dated, one.from, one.to, one.hue, one.bars, one.starts, this.matches.has(one), one.label]);
  }
  rowElement({one, height}) {
    const {row} = one, text = el("div", {class: "trace-text"});
    const guides = one.bars.length ? el("span", {class: "trace-guides"}, one.bars.map((bar) => el("i", {style: `--hue: ${HUES[bar.hue]}`}))) : null;
    for (const [name, part, answer] of one.parts) text.append(el("div", {class: name}, el("span", {}, part), answer && el("span", {class: `trace-answer ${colour(one)}`}, answer)));
    const marks = [...(row.marks ?? []).map((mark) => `trace-${mark}`), isFailure(one) ? "trace-failed" : "", row.findings?.length ? "trace-found" : "", this.matches.has(one) ? "" : "trace-context"].filter(Boolean);
    return el("div", {class: ["trace-row", ...marks].join(" "), role: "option", id: `row-${one.label}`, "aria-selected": "false", "data-number": row.number, style: `height: ${height}px`},
      this.timed && this.options.numbered ? el("span", {class: "trace-number"}, one.label) : null,
      !this.timed ? null : el("span", {class: "trace-time", style: this.dated ? `width: ${TIME + DATE}px` : null}, this.timeOf(row)),
      this.timed && this.took ? el("span", {class: "trace-took"}, row.took_us == null ? "" : lasted(row.took_us)) : null,
      this.narrow ? null : this.laned ? this.lanesElement(one, height) : el("span", {class: "trace-time trace-party", style: `width: ${this.across}px`, title: endsOf(one)}, partyOf(one)), guides, text);
  }
  timeOf({at_us}) { return `${this.dated ? `${isoDay(at_us).slice(5)} ` : ""}${clockTime(at_us)}`; }
  lanesElement(one, height) {
    const {row} = one, y = PAD / 2 + LINE / 2, x = (lane) => this.middles[lane], hue = `--hue: ${HUES[one.hue]}`;
    const kind = isFailure(one) ? "trace-bad-arrow" : "trace-good-arrow", right = one.to > one.from;
    const start = x(one.from) + (right ? 5 : -5), end = x(one.to) + (right ? -5 : 5), lost = row.outcome === "dropped" || row.outcome === "refused", stop = lost ? (start + end) / 2 : end;
    const bar = ({lane, hue: own}, from) => svg("rect", {class: "trace-bar", style: `--hue: ${HUES[own]}`, x: x(lane) - 4, y: from, width: 8, height: height - from});
    return svg("svg", {width: this.across, height, class: "trace-lanes", "aria-hidden": "true"}, svg("path", {class: "trace-life", d: this.middles.map((at) => `M${at} 0v${height}`).join("")}),
      one.bars.map((each) => bar(each, 0)), one.starts && bar(one.starts, y - 4),
      one.from === one.to ? svg("circle", {class: kind, cx: x(one.to), cy: y, r: 4}) : [svg("line", {class: kind, style: hue, x1: start, x2: stop, y1: y, y2: y}),
        svg("path", {class: kind, style: hue, d: lost ? `M${stop - 4} ${y - 4}l8 8m0 -8l-8 8` : `M${stop} ${y}l${right ? -7 : 7} -4v8z`})]);
  }

  // -- moving ------------------------------------------------------------------------------------
  clicked(event) {
    const element = event.target.closest("[role=option]");
    if (element && !String(getSelection())) this.select(Number(element.dataset.number), {reveal: false});
  }
  // Letters work wherever the focus is, except while typing; other keys only in the list.
  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const {target} = event, own = document.querySelector(".trace:focus-within") ?? document.querySelector(".trace");
    if (own !== this.root) return;
    if (event.key === "Escape" && this.number !== null && (this.root.contains(target) || target.contains(this.root))) { this.select(null); return; }
    if (event.key === "Escape" && target === this.search && !target.value) target.blur();
    if (target.matches?.("input, select, textarea")) return;
    if (event.key === "/") { event.preventDefault(); this.search.focus(); return; }
    if (target !== this.list && !"jknp".includes(event.key)) return;
    const chosen = this.shown.findIndex((one) => one.row.number === this.number);
    // Without a selected row, begin at the one that was closed, at the first row in view, or at the last one if the newest is of interest.
    const edge = this.options.newest ? innerHeight - LINE : this.top.getBoundingClientRect().bottom + 1, at = firstBelow(this.items, edge - this.list.getBoundingClientRect().top);
    const {from, to: until} = this.seen(), closed = this.items[this.places.get(this.closed)], isSeen = closed && closed.top > from - closed.height && closed.top < until;
    const place = chosen < 0 ? isSeen ? closed.index - 1 : (this.items.slice(0, at + 1).findLast(({one}) => one)?.index ?? 1) - 1 : chosen;
    const row = this.byNumber.get(this.number)?.row;
    const jump = (by) => this.shown[Math.max(0, Math.min(this.shown.length - 1, chosen < 0 ? place : place + by))];
    const to = {
      ArrowDown: () => jump(1), j: () => jump(1), ArrowUp: () => jump(-1), k: () => jump(-1),
      PageDown: () => jump(10), PageUp: () => jump(-10), Home: () => this.shown[0], End: () => this.shown.at(-1),
      n: () => this.shown.slice(chosen < 0 ? place : place + 1).find(isProblem),
      p: () => this.shown.slice(0, Math.max(0, place)).findLast(isProblem),
      // An attempt without a cause follows the last row about its message.
      ArrowLeft: () => row && (this.byNumber.get(row.cause) ?? this.rows.slice(0, this.byNumber.get(this.number).index).findLast((one) => (row.subjects ?? []).some((subject) => subject.kind === "message" && hasSubject(one.row, subject)))),
      ArrowRight: () => row && this.rows.find((one) => one.row.cause === row.number),
    }[event.key];
    if (to) {
      event.preventDefault();
      const found = to();
      if (!found && event.key.startsWith("Arrow")) this.count.textContent = "No such row was recorded.";
      if (found) { this.select(found.row.number); if (target.contains(this.root)) this.list.focus({preventScroll: true}); }
    } else if (event.key === "Enter" && !this.pane.hidden) { event.preventDefault(); this.pane.focus(); }
  }

  follow() {
    const found = this.options.numbered && /^#row-(\d+)$/.exec(location.hash), one = found && this.rows[found[1] - 1];
    if (one && one.row.number !== this.number) this.select(one.row.number);
  }
  atEnd() { return scrollY + innerHeight >= document.documentElement.scrollHeight - 40; }

  reveal(number) {
    const item = this.items[this.places.get(number)];
    if (!item) return;
    const {from, to} = this.seen(), {top, height} = item;
    if (top < from + 8) scrollBy(0, top - from - 48);
    else if (top + height > to - 8) scrollBy(0, Math.min(top - from - 8, top + height - to + 48));
  }

  // -- the detail pane ---------------------------------------------------------------------------
  fillPane() {
    const one = this.byNumber.get(this.number);
    this.pane.hidden = !one;
    const related = one && new Map((one.row.subjects ?? []).map((subject) => [subject, this.rows.filter((other) => hasSubject(other.row, subject)).length]));
    const effects = one && this.rows.filter((other) => other.row.cause === this.number);
    // New rows change only the links of this one: a reader may have scrolled the pane, and its forms show answers.
    const shape = one && JSON.stringify(one.row), linked = one && JSON.stringify([effects.length, [...related.values()]]);
    if (!one) { this.filled = undefined; this.pane.replaceChildren(); return; }
    if (shape === this.filled) {
      if (linked === this.linked || [this.links, this.waterfall].some((place) => place.contains(document.activeElement))) return;
      this.linked = linked;
      for (const [place, part] of [[this.links, this.linksElement(one, effects, related)], [this.waterfall, this.waterfallElement(one)]]) {
        const isOpen = place.querySelector("details")?.open, details = part?.querySelector("details") ?? part?.closest("details");
        place.replaceChildren(...part ? [part] : []);
        if (details) details.open = isOpen ?? details.open;
      }
      return;
    }
    // Text that was typed and not sent stays while the row does.
    if (this.filledFor === this.number && this.pane.querySelector("form[data-typed=yes]")) return;
    Object.assign(this, {filledFor: this.number, filled: shape, linked, links: el("div", {}, this.linksElement(one, effects, related)), waterfall: el("div", {}, this.waterfallElement(one))});
    const {row} = one, wait = one.index ? gapText(this.rows[one.index - 1].row.at_us, row.at_us) : "";
    this.pane.replaceChildren(el("div", {class: "trace-pane-body"},
      el("div", {class: "trace-pane-head"},
        // A long text scrolls, which the keyboard must reach.
        el("h3", {tabindex: row.text.what.length > 250 ? 0 : null}, row.text.what),
        el("button", {type: "button", "aria-label": "Close the details", onclick: () => this.select(null)}, "✕")),
      el("p", {class: "soft"}, [`${this.options.numbered ? "row " : "#"}${one.label}`, endsOf(one), `${isoDay(row.at_us)} ${clockTime(row.at_us)} UTC`, row.took_us > 0 ? `took ${lasted(row.took_us)}` : "", wait].filter(Boolean).join(" · ")),
      one.failed ? el("p", {class: "trace-bad"}, `${count(one.failed, "item")} of this request failed.`) : null,
      row.text.answer ? el("p", {class: colour(one)}, row.text.answer) : null,
      ...(row.faults ?? []).map((fault) => el("p", {class: "trace-fault"}, `Injected fault: ${fault.description}`)),
      ...(row.findings ?? []).map((index) => this.findingElement(index, row)),
      row.text.note ? el("pre", {class: "trace-bad", tabindex: 0, "aria-label": "Note"}, row.text.note) : null,
      ...(row.text.lines ?? []).map((line) => el("p", {class: "soft trace-pre"}, line)),
      row.where ? sourceOf(row.where) : row.rules.is_received && this.rows.some((other) => other.row.rules.is_received && other.row.where) ? el("p", {class: "soft"}, "The line that made this call is not known.") : null,
      this.links,
      // The whole request comes after what is about this row.
      ...(this.options.details?.(one, this) ?? []), this.waterfall,
      this.messageElement("Request", row.request),
      this.messageElement("Response", row.response),
      row.text.script ? fold("Script", el("pre", {tabindex: 0}, row.text.script)) : null,
      !row.request && row.data && !isRestore(row) && Object.keys(row.data).length
        ? fold("Data", el("pre", {tabindex: 0}, pretty(row.data)), true) : null,
      this.copyElement(row)));
    this.pane.scrollTop = 0;
  }

  goTo(number, text) {
    // Selecting fills the pane again, which removes the pressed button, so move the focus to the pane.
    return el("button", {type: "button", class: "trace-link", onclick: () => { this.select(number); this.pane.focus({preventScroll: true}); }}, text);
  }
  goToRow({row, label}) { return this.goTo(row.number, this.options.numbered ? `row ${label}: ${row.text.what}` : row.text.what); }
  findingElement(index, row) {
    const finding = this.report.findings[index];
    const others = (finding.rows ?? []).filter((number) => number !== row.number && this.byNumber.has(number));
    const first = finding.rows?.find((number) => this.byNumber.has(number)) ?? row.number;
    // The text says "this" of the first row.
    const about = first === row.number ? "" : `about row ${this.byNumber.get(first).label}: `;
    return el("p", {class: "trace-finding"}, `▲${index + 1} ${about}${finding.text} `,
      ...others.flatMap((number) => [this.goTo(number, `row ${this.byNumber.get(number).label}`), " "]));
  }
  linksElement({row}, effects, related) {
    const cause = this.byNumber.get(row.cause), chips = [...related].sort(([, rows], [, others]) => (others > 1) - (rows > 1)).map(([subject, rows]) => rows > 1 ? el("button", {type: "button", class: "trace-chip", title: subject.name, onclick: () => this.filter({subject})}, `${nameOf(subject)} · ${rows} rows`) : el("p", {class: "soft", title: subject.name}, `${nameOf(subject)}: only in this row`));
    const items = [
      // Another client may have called meanwhile, so that only the cause of an event is known.
      cause && [el("dt", {}, row.rules.is_inside ? "Caused by" : "During"), el("dd", {}, this.goToRow(cause))],
      effects.length && [el("dt", {}, effects.every((other) => other.row.rules.is_inside) ? "Effects" : "During it"), el("dd", {}, ...effects.slice(0, 50).flatMap((other) =>
        [this.goToRow(other), el("br")]), effects.length > 50 ? `… ${effects.length - 50} more` : null)],
      row.trace && [el("dt", {}, "Trace"), el("dd", {class: "trace-mono"}, row.trace)],
      related.size && !isRestore(row) && [el("dt", {}, "Follow"), el("dd", {}, chips.slice(0, MOST_CHIPS), chips.length > MOST_CHIPS ? fold(`${chips.length - MOST_CHIPS} more`, chips.slice(MOST_CHIPS)) : null)],
    ].filter(Boolean);
    return items.length ? el("dl", {class: "trace-links"}, ...items.flat()) : null;
  }
  // The request that a row belongs to, from end to end: calls, deliveries with the waits before them, and callbacks.
  waterfallElement(one) {
    const all = requestRows(one, this.rows, this.byNumber), [first_] = all, shown = all.slice(0, MOST_SPANS);
    if (all.length < 2) return null;
    return fold("Waterfall", [spansElement("Waterfall of the request", waterfallRows(shown).map(({entry, spans, note}) => ({
      name: whatOf(entry.row).slice(0, 200), note, spans, depth: entry.row.depth - first_.row.depth, chosen: entry === one, failed: !entry.row.ok || entry.failed > 0,
      onclick: () => { this.select(entry.row.number); this.pane.focus({preventScroll: true}); }})), {start: first_.row.at_us}),
    shown.length < all.length ? el("p", {class: "soft"}, `The first ${MOST_SPANS} of ${count(all.length, "row")}.`) : null], true);
  }

  messageElement(title, message) {
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

  copyElement(row) {
    const status = el("output", {class: "soft"}), sent = row.request && (requestOf(row, this.report) ?? commandsOf(row));
    const button = (name, make) => el("button", {type: "button", onclick: async () => {
      const text = make(), missing = sent ? lost(sent) : "";
      try { await navigator.clipboard.writeText(text); status.textContent = `Copied.${missing}`; }
      catch { status.replaceChildren(`Select and copy:${missing}`, el("pre", {tabindex: 0}, text)); }
    }}, name);
    return el("div", {class: "trace-copy"}, sent && Object.entries(sent.commands ? REDIS_CLIENTS : LANGUAGES).map(([name, write]) => button(`Copy as ${name}`, () => sent.commands ? write(sent.commands, prefixOf({name: row.peer, fixture: "kv_server"})) : write(sent))),
      this.options.numbered ? button("Copy link", () => location.href) : null, status);
  }
}

// -- rows ---------------------------------------------------------------------------------------

export function sourceOf(where) {
  const lines = (where.source ?? []).map(({line, text}) => el("div", line === where.line ? {class: "trace-called"} : {}, `${String(line).padStart(5)}  ${text}`));
  const place = ({file, line, function: name}) => `${file}:${line} in ${name}`;
  return [el("p", {}, `Called at ${[where, ...where.callers ?? []].map(place).join(", from ")}`),
    lines.length ? el("pre", {class: "trace-source", tabindex: 0, "aria-label": "Source"}, ...lines) : null];
}

// A restore, and another change without a call, has its data as a table before and after it.
const isRestore = ({rules, operation}) => rules.is_inside && (operation === "restored" || operation === "changed");
const laneName = (end) => /^https?:\/\/[^/?#]+/.exec(end)?.[0] ?? end;

// -- the waterfall of a request --
const MOST_MESSAGES = 10;
// The messages and runs that a row is about. The data of an action and of a delivery names others: what was published, and what a callback is about.
function messagesOf({subjects = [], data}) {
  const named = [data?.message_id, (data?.delivery ?? data)?.about].filter((name) => typeof name === "string").map((name) => ({kind: "message", name}));
  return [...new Set([...subjects, ...named].filter(({kind, name}) => name && (kind === "message" || kind === "run")).map(({kind, name}) => `${kind} ${name}`))];
}
// Returns all rows of the request that a row belongs to, in their order: that of the first cause, its effects, the messages that they
// published, and the deliveries and callbacks of these. Of a call that is about many messages, only that of the row is followed.
function requestRows(chosen, rows, byNumber) {
  const effects = Map.groupBy(rows, ({row}) => row.cause), about = new Map();
  for (const entry of rows) for (const message of messagesOf(entry.row)) { if (about.has(message)) about.get(message).push(entry); else about.set(message, [entry]); }
  const path = new Set([chosen]), followed = new Set(messagesOf(chosen.row));
  for (let up = chosen; up;) {
    const publisher = up.row.rules.is_sent || up.row.rules.is_inside ? messagesOf(up.row).map((message) => about.get(message)[0]).find((entry) => entry.index < up.index) : null;
    up = byNumber.get(up.row.cause) ?? publisher;
    if (!up || path.has(up)) break;
    path.add(up);
  }
  const collected = new Set(), collectedMessages = new Set();
  const collect = (entry) => {
    if (collected.has(entry)) return;
    collected.add(entry);
    for (const effect of effects.get(entry.row.number) ?? []) collect(effect);
    const messages = messagesOf(entry.row);
    for (const message of messages) {
      if (collectedMessages.has(message) || messages.length > MOST_MESSAGES && !followed.has(message)) continue;
      collectedMessages.add(message);
      about.get(message).forEach(collect);
    }
  };
  collect([...path].at(-1));
  path.forEach(collect);
  return [...collected].sort((entry, other) => entry.index - other.index);
}
// Returns the spans of each row, and for a delivery the wait before it.
function waterfallRows(all) {
  const ends = new Map();
  return all.map((entry) => {
    const {row} = entry, {at_us: from, took_us: took} = row, kind = row.rules.bar;
    const [message] = messagesOf(row), before = ends.get(message), to = from + (took ?? 0), spans = [{kind, from, to, failed: !row.ok || entry.failed > 0}];
    if (row.rules.is_sent && before < from) spans.unshift({kind: row.attempt > 1 ? "wait" : "sleep", from: before, to: from});
    for (const name of messagesOf(row)) ends.set(name, to);
    return {entry, spans, note: [row.text.answer, took > 0 ? lasted(took) : ""].filter(Boolean).join(" · ").slice(0, 60)};
  });
}

function lanesOf(rows, fakes) {
  const known = new Set();
  for (const one of rows) known.add(one.fromName).add(one.toName);
  const fakeNames = fakes.map((fake) => fake.name).filter((name) => known.has(name));
  const outside = [...known].filter((name) => !fakeNames.includes(name));
  const rank = (name) => ({test: 0, client: 1, console: 1, application: 2}[name] ?? 3);
  const lanes = [...outside.filter((name) => rank(name) < 3).sort((a, b) => rank(a) - rank(b)), ...fakeNames, ...outside.filter((name) => rank(name) === 3)];
  for (const one of rows) Object.assign(one, {from: lanes.indexOf(one.fromName), to: lanes.indexOf(one.toName)});
  return lanes;
}

// Errors that clients expect are no failures.
const isFailure = ({row, failed, isExpected}) => (!row.ok || failed > 0) && !isExpected;
const isProblem = (one) => isFailure(one) || one.row.findings?.length > 0 || one.row.faults?.length > 0;

const hasSubject = (row, {kind, name, fake}) => (row.subjects ?? []).some((one) => one.kind === kind && one.name === name && (!fake || one.fake === fake));

function isWanted(one, wanted, search) {
  const {row} = one;
  if (wanted.problems && !isProblem(one)) return false;
  if (wanted.fake && row.actor !== wanted.fake && row.peer !== wanted.fake) return false;
  if (wanted.subject && !hasSubject(row, wanted.subject)) return false;
  if (!search) return true;
  one.words ??= [row.text.what, row.text.answer, row.text.note, ...(row.text.lines ?? []), one.fromName, one.toName, row.where?.file, row.request?.line,
    row.request?.body, row.response?.body, ...(row.subjects ?? []).map((subject) => subject.name),
    ...[row.request?.decoded, row.response?.decoded, row.data].map((value) => value === undefined ? "" : JSON.stringify(value))]
    .join("\n").toLowerCase();
  return search.split(/\s+/).every((word) => one.words.includes(word));
}
// Return a text of a row with the row's long ids shortened: they would leave no room for the address.
function withShortIds(text, {subjects = []}) {
  return subjects.filter(({name}) => /^\w{24,}$/.test(name)).reduce((short, {name}) => short.replaceAll(name, `${name.slice(0, 8)}…${name.slice(-4)}`), text);
}
// Return the text of a row without the host of an address, which its lane shows.
const whatOf = (row) => withShortIds(/^https?:/.test(row.peer) ? row.text.what.replace(`${laneName(row.peer)}/`, "/") : row.text.what, row);

// An answer that says that nothing happened, such as 0 or null, is neither good nor bad.
const colour = (one) => isFailure(one) ? "trace-bad" : one.isExpected || one.row.marks?.includes("refused") ? "trace-nothing" : "trace-ok";

// Break a text into lines of at most so many columns, between words if possible. The first line may be shorter.
function wrapped(text, columns, most, first = columns) {
  const lines = [];
  for (let paragraph of text.split("\n")) {
    for (;;) {
      // Letters that are not of a single column, such as Chinese ones, take two.
      const room = Math.max(8, (lines.length ? columns : first) >> /[\u2e80-\uffff]/.test(paragraph));
      if (paragraph.length <= room || lines.length > most) break;
      const space = paragraph.lastIndexOf(" ", room), end = space > room / 2 ? space : room - /[\ud800-\udbff]/.test(paragraph[room - 1]);
      lines.push(paragraph.slice(0, end));
      paragraph = paragraph.slice(end).trimStart();
    }
    lines.push(paragraph);
  }
  return lines.length <= most ? lines : [...lines.slice(0, most - 1), `${lines[most - 1].slice(0, columns - 1)}…`];
}
// Return the lines of a row in the list, each with a class and a text, the first also with a short answer.
function partsOf(one, trace, columns) {
  const {report, narrow, timed, options, byNumber} = trace, {row, failed} = one, {note} = row.text, what = whatOf(row);
  const answer = [failed ? `${failed} failed` : "", withShortIds(row.text.answer, row)].filter(Boolean).join(": ");
  const label = options.numbered ? `${one.label} · ` : "", ends = `${timed ? "" : `${label}${trace.timeOf(row)} ${row.took_us > 0 ? `${lasted(row.took_us)} ` : ""}`}${endsOf(one)}`;
  const parts = [], add = (name, text, most) => parts.push(...wrapped(text, columns, most).map((line) => [name, line]));
  const isShort = answer.length < 0.45 * columns && !answer.includes("\n");
  const [name, text] = narrow ? ["trace-ends soft", ends] : ["trace-what", what];
  parts.push(...wrapped(text, columns, MOST_LINES, isShort && answer ? columns - answer.length - 2 : columns).map((line, index) => [name, line, index || !isShort ? null : answer]));
  if (narrow) add("trace-what", what, MOST_LINES);
  if (row.read) add("trace-read", "the statement read this value", 1);
  if (!isShort) add(colour(one), answer, MOST_OF_ANSWER);
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
// What a client calls, or both ends of another call.
const partyOf = (one) => one.fromName === "client" ? withoutScheme(one.toName) : endsOf(one);
const endsOf = ({fromName, toName}) => [...new Set([fromName, toName].map(withoutScheme))].join(" → ");

// The index of the first item that ends at or below a position. Items are in order, so a search halves them.
function firstBelow(items, y) {
  let from = 0, to = items.length;
  while (from < to) { const middle = (from + to) >> 1; if (items[middle].top + items[middle].height >= y) to = middle; else from = middle + 1; }
  return from;
}

// -- words and elements -------------------------------------------------------------------------
export const isoDay = (at_us) => new Date(at_us / 1000).toISOString().slice(0, 10);
export const clockTime = (at_us) => new Date(at_us / 1000).toISOString().slice(11, 23);

// Return the time between two rows in whole seconds ("+5 m"), with the date if the day changes; empty below so many seconds.
function gapText(from_us, to_us, least = 1) {
  const seconds = Math.floor((to_us - from_us) / 1e6), isSameDay = Math.floor(from_us / 864e8) === Math.floor(to_us / 864e8);
  return seconds < least && isSameDay || seconds < 1 ? "" : `+${span(seconds * 1e6)}${isSameDay ? "" : ` · ${isoDay(to_us)}`}`;
}

function nameOf({kind, name}) { return name ? `${kind} ${shortName(name)}` : `default ${kind}`; }

// The words before the content of a string that the report decoded (`decoded()` in values.py).
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
