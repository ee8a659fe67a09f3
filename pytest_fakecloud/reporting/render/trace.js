// The timeline of a report: a toolbar, lanes, a virtualised list of rows and a detail pane.
//
// The report's page contains this module inline, and the console of the stand-alone server loads it.
// It reads the JSON of docs/reference/report.schema.json and makes no request.
import {DATE, HUES, LINE, PAD, TIME, lanesOf, partsOf, rowElement, shapeOf} from "./drawing.js";
import {border, breakable, count, el, failedItems, partsOfName, showChip, withoutScheme} from "./elements.js";
import {gapText, hasSubject, isProblem, isWanted, isoDay, laneName, nameOf} from "./facts.js";
import {Pane} from "./pane.js";

const GAP = 22, AHEAD = 600;
// Pixels beside the text of a row, and of the guide of each level; the least width with a column for the time.
const SIDES = 14, GUIDE = 14, TIMED_LEAST = 480;
const NARROW = 720, WIDE = 1000, TEXT_LEAST = 340, LANE_LEAST = 42, LANE_MOST = 130, NUMBER = 38;
// The width of the column of durations, and of that of fakes without lanes: wide, and where there is little room.
const TOOK = 62, ENDS = 186, ENDS_LEAST = 104;
const NO_BARS = [], ALL_ROWS = {search: "", fake: "", problems: false, subject: null};

export class Trace {
  // Options: numbered (number the rows from 1 and keep #row-12 in the address; otherwise a row keeps
  // its number of the journal), newest (start at the end and follow the rows that arrive,
  // until the reader scrolls up; shows the fakes as a column, and as lanes on request),
  // onselect(row), onfilter(wanted), isWanted(row) (another filter), isFiltered() and onclear() (of that filter), tools (elements for the toolbar),
  // details(one, trace) (more elements for the detail pane), loading() (older rows will come), gone(fake) (says which older rows were dropped).
  constructor(root, options = {}) {
    Object.assign(this, {root, options, wanted: {...ALL_ROWS, slowest: false, lanes: false}, report: {rows: [], findings: [], fakes: []}, rows: [], items: [], shown: [], lanes: [], widths: [], leasts: []});
    Object.assign(this, {number: null, closed: null, drawn: new Map(), known: new WeakMap(), version: 0, problemCount: 0, following: Boolean(options.newest), scrolled: 0});
    this.build();
    this.stop = new AbortController();
    const {signal} = this.stop;
    addEventListener("scroll", () => { this.watch(); this.draw(); }, {passive: true, signal});
    addEventListener("hashchange", () => this.follow(), {signal});
    addEventListener("keydown", (event) => this.pressed(event), {signal});
    this.sizes = new ResizeObserver(() => { this.root.style.setProperty("--trace-top", `${this.top.offsetHeight}px`); if (this.list.clientWidth !== this.width) this.measure(); });
    for (const part of [this.list, this.top]) this.sizes.observe(part);
  }
  // Whether lanes are drawn, and the row from which arrow keys go on: the selected one, or the last one that was closed.
  get laned() { return !this.options.newest || this.wanted.lanes && this.hasRoom; }
  get active() { return this.number ?? this.closed; }

  // Show a report. Selection, filters and the position in the list stay. A row that has changed must be a new object, because the layout of a row is cached by object.
  show(report) {
    const first = !this.rows.length, anchor = this.anchor();
    this.report = report;
    this.prepare();
    this.fillTools();
    this.arrange();
    if (first) this.follow();
    else if (this.number !== null) this.details.fill();
    const added = !this.following && !first && anchor && this.places.has(anchor.key) ? this.items[this.places.get(anchor.key)].top - anchor.top : 0;
    if (added) { scrollBy(0, added); this.fillWindow(); }
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
  inWindow(key) { return this.items[this.places.get(key)].top + this.list.getBoundingClientRect().top; }
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
    const isInside = this.pane.contains(document.activeElement) || document.activeElement.contains(this.root), opens = (this.number === null) !== (number === null), anchor = opens && this.anchor(), was = anchor && this.inWindow(anchor.key);
    this.closed = this.number ?? this.closed;
    this.number = number;
    // Whoever reads a row keeps it in sight.
    if (one) this.following = false;
    if (one && !this.places.has(number)) this.clear();
    if (this.options.numbered) {
      const hash = one ? `#row-${one.label}` : "";
      if (location.hash !== hash) history.replaceState(history.state, "", hash || location.pathname + location.search);
    }
    const before = this.items[this.places.get(number)]?.top, {scrollY: place} = window;
    this.details.fill();
    if (opens) this.measure();
    // Keep a clicked row under the pointer when opening the pane changes the layout, but in sight above a pane that covers rows.
    if (one && (reveal || !this.beside)) this.reveal(number);
    else if (one) scrollBy(0, this.items[this.places.get(number)].top - before);
    else {
      // Beside the pane, rows have more lines. Without it the page is shorter, and the browser may have scrolled to its end.
      if (anchor) scrollBy(0, this.inWindow(anchor.key) - was);
      if (opens) scrollBy(0, -this.covered);
      this.following = Boolean(this.options.newest) && this.atEnd();
      if (isInside) this.list.focus({preventScroll: true});
    }
    // How far the list was scrolled because the pane covers rows; it goes back when that is closed.
    if (one && opens) this.covered = reveal || this.beside ? 0 : scrollY - place;
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
  clear(subject = null) { this.options.onclear?.(); this.filter({...ALL_ROWS, subject}); }
  // Arrange the rows for another filter. What is seen keeps its place, and a selected row stays in view; without one, the list is not scrolled further than it is long.
  arrangeAll() {
    const anchor = this.anchor(), was = anchor && this.inWindow(anchor.key);
    this.arrange();
    if (!this.following && this.places.has(anchor?.key)) scrollBy(0, this.inWindow(anchor.key) - was);
    if (this.places.has(this.number)) this.reveal(this.number); else this.fillWindow();
    this.draw();
    this.countNewer();
  }
  // Scroll back over what is empty below the last row, as far as there are rows above.
  fillWindow() { const {from, to} = this.seen(), {top = 0, height = 0} = this.items.at(-1) ?? {}, end = top + height; if (from > 0 && to > end) scrollBy(0, -Math.min(from, to - end)); }
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
    this.problemsLabel = el("label", {}, this.problems, this.problemsText = el("span"));
    this.top = el("div", {class: "trace-top"},
      el("div", {class: "trace-tools", role: "search", "aria-label": "Filter the timeline"}, this.search, this.fake,
        this.problemsLabel, this.order, this.chip, this.count, this.newer, this.clearButton, this.lanesButton, ...(this.options.tools ?? [])), this.heads);
    this.list = el("div", {class: "trace-list", role: "listbox", tabindex: 0, "aria-label": "Timeline", onclick: (event) => this.clicked(event)});
    this.empty = el("p", {class: "trace-empty soft", hidden: true});
    this.pane = (this.details = new Pane(this)).element;
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
      const parent = byNumber.get(row.parent);
      // Requests and deliveries start a new colour, which the calls below them share.
      const starts = row.rules.surrounds;
      let one = known.get(row);
      if (!one) known.set(row, one = {row, toName: laneName(row.peer), failed: failedItems(row)});
      const fromName = row.actor === "application" && parent ? parent.toName : one.actorName ??= laneName(row.actor), label = numbered ? index + 1 : row.number;
      if (one.fromName !== fromName || one.label !== label) Object.assign(one, {fromName, label, layout: null});
      Object.assign(one, {index, hue: starts ? 1 + hues++ % (HUES.length - 1) : parent?.hue ?? 0, isExpected: this.options.isExpected?.(row)});
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
    // The parents of a match stay visible, so that nesting keeps its meaning.
    const context = new Set();
    if (matches.size < rows.length) {
      for (const one of matches) for (let up = this.byNumber.get(one.row.parent); up && !context.has(up); up = this.byNumber.get(up.row.parent)) context.add(up);
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
    [this.middles, this.across] = [[], 0];
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
    [this.version, this.items, this.places] = [this.version + 1, [], new Map()];
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
    const shape = JSON.stringify([this.laned, this.lanes, this.middles, this.time, this.took]);
    if (shape === this.headed) return;
    this.headed = shape;
    let left = 0;
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
    for (let index = firstBelow(this.items, from); index < this.items.length && this.items[index].top < to; index++) { kept.add(this.items[index].key); this.drawItem(this.items[index]); }
    for (const [key, element] of this.drawn) if (!kept.has(key)) { element.remove(); this.drawn.delete(key); }
    // Whoever listens to the page, or copies from it, has the rows in their order.
    let last = null;
    for (const key of kept) { const element = this.drawn.get(key); if (element.previousElementSibling !== last) { if (last) last.after(element); else this.list.prepend(element); } last = element; }
    const active = this.drawn.get(this.active)?.id;
    if (active) this.list.setAttribute("aria-activedescendant", active); else this.list.removeAttribute("aria-activedescendant");
  }
  // Draw an item, or move its element if it has one: scrolling changes no element that stays visible.
  drawItem(item) {
    const {one} = item, isActive = item.key === this.active, state = `${this.version} ${isActive} ${item.key === this.number}`;
    let element = this.drawn.get(item.key);
    if (element?.state === state) return;
    const shape = one ? shapeOf(item, this) : item.gap;
    if (element?.row !== one?.row || element?.shape !== shape) {
      const made = one ? rowElement(item, this) : el("div", {class: "trace-gap", role: "presentation", style: `height: ${item.height}px`}, el("span", {}, item.gap));
      if (element) element.replaceWith(made); else this.list.append(made);
      element = Object.assign(made, {row: one?.row, shape});
      this.drawn.set(item.key, element);
    }
    element.state = state;
    element.style.transform = `translateY(${item.top}px)`;
    if (!one) return;
    element.classList.toggle("trace-active", isActive);
    Object.assign(element, {ariaSelected: one.row.number === this.number, ariaPosInSet: item.index, ariaSetSize: this.shown.length});
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
    if (target === this.search && ["ArrowDown", "Enter"].includes(event.key)) { event.preventDefault(); this.list.focus({preventScroll: true}); return; }
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
      // A delivery without a parent follows the last row about its message, and the other way round.
      ArrowLeft: () => row && (this.byNumber.get(row.parent) ?? this.rows.slice(0, this.byNumber.get(this.number).index).findLast((one) => isAbout(one, row))),
      ArrowRight: () => row && (this.rows.find((one) => one.row.parent === row.number) ?? this.rows.slice(this.byNumber.get(this.number).index + 1).find((one) => !this.byNumber.has(one.row.parent) && isAbout(one, row))),
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
}

// Whether one row is about a message of another.
const isAbout = (one, {subjects = []}) => subjects.some((subject) => subject.kind === "message" && hasSubject(one.row, subject));
// The index of the first item that ends at or below a position. Items are in order, so a search halves them.
function firstBelow(items, y) {
  let from = 0, to = items.length;
  while (from < to) { const middle = (from + to) >> 1; if (items[middle].top + items[middle].height >= y) to = middle; else from = middle + 1; }
  return from;
}
