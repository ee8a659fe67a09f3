// The timeline of a report: a toolbar, lanes, a virtualised list of rows and a detail pane.
//
// The report's page contains this module inline, and the console of the stand-alone server loads it.
// It reads the JSON of docs/reference/report.schema.json and makes no request.

const LINE = 19, PAD = 9, GAP = 26, HUES = 6, AHEAD = 600;
const NARROW = 720, WIDE = 1000, TEXT_LEAST = 360, LANE_MOST = 92, LANE_LEAST = 48, TIME = 98;
const LINES_IN_LIST = 6, LINES_OF_ANSWER = 2;
const SVG = "http://www.w3.org/2000/svg";
const HOP_BY_HOP = new Set(["host", "connection", "content-length", "accept-encoding", "transfer-encoding"]);
const KEYS = [["↓ ↑ j k", "next, previous row"], ["n p", "next, previous problem"], ["← →", "cause, first effect"],
  ["Enter", "to the details"], ["Esc", "close the details"], ["/", "search"]];

export class Trace {
  // Options: hash (keep #row-12 in the address), newest (start at the end and keep to it while rows
  // arrive), onselect(row), onfilter(wanted), tools (elements for the toolbar), isWanted(row) (another filter).
  constructor(root, options = {}) {
    this.root = root;
    this.options = options;
    this.wanted = {search: "", fake: "", problems: false, subject: null};
    this.report = {rows: [], findings: [], fakes: []};
    this.number = null;
    this.drawn = new Map();
    this.version = 0;
    this.items = [];
    this.build();
    this.stop = new AbortController();
    const {signal} = this.stop;
    addEventListener("scroll", () => this.draw(), {passive: true, signal});
    addEventListener("hashchange", () => this.follow(), {signal});
    this.sizes = new ResizeObserver(() => this.resized());
    this.sizes.observe(root);
  }

  // Show a report. Selection, filters and the position in the list stay.
  show(report) {
    const first = !this.report.rows.length, atEnd = this.atEnd(), anchor = this.items[firstBelow(this.items, -this.list.getBoundingClientRect().top)];
    this.report = report;
    this.rows = prepare(report);
    this.byNumber = new Map(this.rows.map((one) => [one.row.number, one]));
    this.lanes = lanesOf(this.rows, report.fakes ?? []);
    this.states = new States(report.states);
    this.fillFakes();
    this.arrange();
    if (first) this.follow();
    else if (this.number !== null) this.fillPane();
    if (this.options.newest && (first ? this.number === null : atEnd)) scrollTo(0, document.documentElement.scrollHeight);
    else if (!first && anchor && this.places.has(anchor.key)) scrollBy(0, this.items[this.places.get(anchor.key)].top - anchor.top);
  }

  get selected() { return this.byNumber?.get(this.number)?.row ?? null; }

  // Select a row by its number and scroll it into view; null closes the detail pane.
  select(number, {reveal = true} = {}) {
    const one = number === null ? null : this.byNumber.get(number);
    if (number !== null && !one) return;
    this.number = number;
    if (one && !this.places.has(number)) this.filter({search: "", fake: "", problems: false, subject: null});
    if (this.options.hash) {
      const hash = one ? `#row-${number}` : "";
      if (location.hash !== hash) history.replaceState(history.state, "", hash || location.pathname + location.search);
    }
    const before = this.items[this.places.get(number)]?.top;
    this.fillPane();
    this.resized();
    // Another layout must not move a clicked row away from the pointer.
    if (one && reveal) this.reveal(number);
    else if (one) scrollBy(0, this.items[this.places.get(number)].top - before);
    this.draw();
    this.options.onselect?.(one ? one.row : null);
  }

  // Change some of: search, fake, problems, subject ({kind, name, fake} or null).
  filter(changes) {
    Object.assign(this.wanted, changes);
    this.search.value = this.wanted.search;
    this.fake.value = this.wanted.fake;
    this.problems.checked = this.wanted.problems;
    const {subject} = this.wanted;
    this.chip.hidden = !subject;
    this.chip.textContent = subject ? `${nameOf(subject)} ✕` : "";
    this.chip.setAttribute("aria-label", subject ? `Stop following ${nameOf(subject)}` : "");
    this.arrange();
    this.options.onfilter?.(this.wanted);
  }

  destroy() {
    this.stop.abort();
    this.sizes.disconnect();
    this.root.replaceChildren();
  }

  // -- building ----------------------------------------------------------------------------------

  build() {
    this.search = el("input", {type: "search", placeholder: "Search calls and bodies", "aria-label": "Search calls and bodies",
      oninput: () => this.filter({search: this.search.value})});
    this.fake = el("select", {"aria-label": "Fake", onchange: () => this.filter({fake: this.fake.value})});
    this.problems = el("input", {type: "checkbox", onchange: () => this.filter({problems: this.problems.checked})});
    this.chip = el("button", {class: "trace-chip", type: "button", hidden: true, onclick: () => this.filter({subject: null})});
    this.count = el("output", {class: "trace-soft"});
    const keys = el("details", {class: "trace-keys"}, el("summary", {}, "Keys"),
      el("dl", {}, ...KEYS.flatMap(([key, does]) => [el("dt", {}, key), el("dd", {}, does)])));
    this.heads = el("div", {class: "trace-heads", "aria-hidden": "true"});
    this.top = el("div", {class: "trace-top"},
      el("div", {class: "trace-tools", role: "search", "aria-label": "Filter the timeline"}, this.search, this.fake,
        el("label", {}, this.problems, " Problems only"), ...(this.options.tools ?? []), this.chip, this.count, keys), this.heads);
    this.list = el("div", {class: "trace-list", role: "listbox", tabindex: 0, "aria-label": "Timeline",
      onclick: (event) => this.clicked(event)});
    this.empty = el("p", {class: "trace-empty trace-soft", hidden: true});
    this.pane = el("section", {class: "trace-pane", "aria-label": "Details", tabindex: -1, hidden: true});
    this.ruler = el("span", {class: "trace-ruler trace-mono", "aria-hidden": "true"}, "0".repeat(100));
    this.root.classList.add("trace");
    this.root.replaceChildren(this.top, this.ruler, el("div", {class: "trace-main"}, el("div", {class: "trace-rows"}, this.list, this.empty), this.pane));
    this.root.addEventListener("keydown", (event) => this.pressed(event));
  }

  fillFakes() {
    const names = (this.report.fakes ?? []).map((fake) => fake.name);
    const now = this.fake.value;
    this.fake.replaceChildren(el("option", {value: ""}, "All fakes"), ...names.map((name) => el("option", {value: name}, name)));
    this.fake.value = names.includes(now) ? now : "";
    this.fake.hidden = names.length < 2;
  }

  // -- arranging: which rows are shown, and how high each is --------------------------------------

  arrange() {
    const wanted = this.wanted, search = wanted.search.trim().toLowerCase();
    const matches = new Set(), context = new Set();
    for (const one of this.rows) {
      if (!isWanted(one, wanted, search) || this.options.isWanted?.(one.row) === false) continue;
      matches.add(one);
      // The causes of a match stay visible, so that nesting keeps its meaning.
      for (let up = this.byNumber.get(one.row.cause); up && !context.has(up); up = this.byNumber.get(up.row.cause)) context.add(up);
    }
    this.matches = matches;
    this.shown = this.rows.filter((one) => matches.has(one) || context.has(one));
    this.count.textContent = matches.size === this.rows.length ? plural(matches.size, "row") : `${matches.size} of ${plural(this.rows.length, "row")}`;
    this.empty.hidden = this.shown.length > 0;
    this.empty.textContent = this.rows.length ? "No row matches the filters." : "No calls were recorded.";
    this.activate();
    this.measure();
    this.fillHeads();
    this.draw();
  }

  // Find which activations are open at each row, and which colour its arrow has.
  activate() {
    const open = [];
    this.shown.forEach((one, index) => {
      while (open.length && open.at(-1).depth >= one.row.depth) open.pop();
      one.bars = open.map(({lane, hue}) => ({lane, hue}));
      one.starts = null;
      if ((this.shown[index + 1]?.row.depth ?? 0) > one.row.depth) {
        one.starts = {lane: one.to, hue: one.hue, depth: one.row.depth};
        open.push(one.starts);
      }
    });
  }

  measure() {
    const width = this.root.clientWidth;
    this.beside = width >= WIDE;
    const room = this.beside && this.number !== null ? width * 0.6 : width, lanes = this.lanes?.length ?? 0;
    this.lane = Math.max(LANE_LEAST, Math.min(LANE_MOST, Math.floor(room * 0.3 / Math.max(1, lanes))));
    // Where lanes would leave too little room for the text, the text names both ends instead.
    this.narrow = width < NARROW || room - lanes * this.lane < TEXT_LEAST;
    this.root.classList.toggle("trace-narrow", this.narrow);
    this.root.classList.toggle("trace-beside", this.beside);
    this.root.classList.toggle("trace-open", this.number !== null);
    this.root.style.setProperty("--lanes-width", `${this.narrow ? 0 : this.lane * lanes}px`);
    this.root.style.setProperty("--trace-top", `${this.top.offsetHeight}px`);
    this.version++;
    this.character ||= this.ruler.getBoundingClientRect().width / this.ruler.textContent.length;
    this.items = [];
    this.places = new Map();
    let y = 0, index = 0, before = null;
    for (const one of this.shown ?? []) {
      const gap = before === null ? "" : gapText(before, one.row.at_us);
      if (gap) {
        this.items.push({gap, key: `gap-${one.row.number}`, top: y, height: GAP, bars: one.bars});
        y += GAP;
      }
      one.parts = partsOf(one, this.report, this.narrow, this.characters(one));
      const height = one.parts.reduce((sum, part) => sum + part.lines, 0) * LINE + PAD;
      this.places.set(one.row.number, this.items.length);
      this.items.push({one, index: ++index, key: one.row.number, top: y, height});
      y += height;
      before = one.row.at_us;
    }
    this.list.style.height = `${y}px`;
  }

  // How many characters fit into a line of a row's text.
  characters(one) {
    const before = (this.narrow ? 0 : TIME + this.lane * this.lanes.length) + one.bars.length * 14;
    return Math.max(16, Math.floor((this.list.clientWidth - before - 12) / this.character));
  }

  resized() {
    this.measure();
    this.clear();
    this.fillHeads();
    this.draw();
  }

  fillHeads() {
    const width = `${this.lane}px`;
    this.heads.replaceChildren(el("span", {class: "trace-time"}, "time (UTC)"),
      ...(this.lanes ?? []).map((lane) => styled(el("span", {class: "trace-head", title: lane}, ...breakable(lane.replace(/^https?:\/\//, ""))), {width})));
  }

  // -- drawing: only what is near the window is in the document ------------------------------------

  clear() {
    for (const element of this.drawn.values()) element.remove();
    this.drawn.clear();
  }

  draw() {
    const top = this.list.getBoundingClientRect().top;
    const from = -top - AHEAD, to = -top + innerHeight + AHEAD;
    const kept = new Set();
    for (let index = firstBelow(this.items, from); index < this.items.length && this.items[index].top < to; index++) {
      const item = this.items[index];
      kept.add(item.key);
      this.drawItem(item);
    }
    for (const [key, element] of this.drawn) if (!kept.has(key)) { element.remove(); this.drawn.delete(key); }
    const active = this.number !== null && this.drawn.has(this.number) ? `row-${this.number}` : null;
    if (active) this.list.setAttribute("aria-activedescendant", active); else this.list.removeAttribute("aria-activedescendant");
  }

  // Draw an item unless it is drawn already: scrolling touches no element that stays.
  drawItem(item) {
    const {one} = item, state = `${this.version} ${one?.row.number === this.number}`;
    let element = this.drawn.get(item.key);
    if (element?.state === state) return;
    const shape = one ? this.shapeOf(item) : item.gap;
    if (element?.row !== one?.row || element?.shape !== shape) {
      const made = one ? this.rowElement(item) : this.gapElement(item);
      if (element) element.replaceWith(made); else this.list.append(made);
      element = Object.assign(made, {row: one?.row, shape});
      this.drawn.set(item.key, element);
    }
    element.state = state;
    element.style.transform = `translateY(${item.top}px)`;
    if (!one) return;
    element.setAttribute("aria-selected", one.row.number === this.number);
    element.setAttribute("aria-posinset", item.index);
    element.setAttribute("aria-setsize", this.shown.length);
  }

  // All that a row's element shows besides the row.
  shapeOf({one, height}) {
    return JSON.stringify([height, this.lane, this.lanes.length, this.narrow, one.from, one.to, one.hue, one.bars, one.starts, this.matches.has(one)]);
  }

  gapElement(item) {
    const element = el("div", {class: "trace-gap", role: "presentation"}, el("span", {}, item.gap));
    element.style.height = `${item.height}px`;
    return element;
  }

  rowElement({one, height}) {
    const {row} = one, findings = findingsOf(row, this.report);
    const text = el("div", {class: "trace-text"});
    const guides = el("span", {class: "trace-guides"},
      ...one.bars.map((bar) => el("i", {class: `trace-hue-${bar.hue}`})));
    for (const part of one.parts) {
      const name = part.beside ? `${part.name} trace-beside-answer` : part.name;
      const element = el("div", {class: name}, el("span", {}, part.text), part.beside ? el("span", {class: part.beside.name}, part.beside.text) : null);
      text.append(styled(element, {height: `${part.lines * LINE}px`, webkitLineClamp: part.lines}));
    }
    const element = el("div", {class: "trace-row", role: "option", id: `row-${row.number}`, "aria-selected": "false"},
      this.narrow ? null : el("span", {class: "trace-time"}, clockTime(row.at_us)),
      this.narrow ? null : this.lanesElement(one, height), guides, text);
    element.dataset.number = row.number;
    element.classList.toggle("trace-failed", !row.ok);
    element.classList.toggle("trace-found", findings.length > 0);
    element.classList.toggle("trace-context", !this.matches.has(one));
    element.style.height = `${height}px`;
    return element;
  }

  lanesElement(one, height) {
    const {row} = one, width = this.lane * this.lanes.length, y = PAD / 2 + LINE / 2;
    const x = (lane) => this.lane * (lane + 0.5);
    const picture = svg("svg", {width, height, class: "trace-lanes", "aria-hidden": "true"});
    this.lanes.forEach((_, lane) => picture.append(svg("line", {class: "trace-life", x1: x(lane), x2: x(lane), y1: 0, y2: height})));
    for (const bar of one.bars) picture.append(svg("rect", {class: `trace-bar trace-hue-${bar.hue}`, x: x(bar.lane) - 4, y: 0, width: 8, height}));
    if (one.starts) picture.append(svg("rect", {class: `trace-bar trace-hue-${one.starts.hue}`, x: x(one.starts.lane) - 4, y: y - 4, width: 8, height: height - y + 4}));
    const kind = row.ok ? "trace-good-arrow" : "trace-bad-arrow";
    if (one.from === one.to) {
      picture.append(svg("circle", {class: kind, cx: x(one.to), cy: y, r: 4}));
      return picture;
    }
    const right = one.to > one.from, start = x(one.from) + (right ? 5 : -5), end = x(one.to) + (right ? -5 : 5);
    const lost = row.outcome === "dropped" || row.outcome === "refused";
    const stop = lost ? (start + end) / 2 : end, back = right ? -7 : 7;
    picture.append(svg("line", {class: `${kind} trace-hue-${one.hue}`, x1: start, x2: stop, y1: y, y2: y}));
    picture.append(svg("path", {class: `${kind} trace-hue-${one.hue}`, d: lost
      ? `M${stop - 4} ${y - 4}l8 8m0 -8l-8 8` : `M${stop} ${y}l${back} -4v8z`}));
    return picture;
  }

  // -- moving ------------------------------------------------------------------------------------

  clicked(event) {
    const element = event.target.closest("[role=option]");
    if (!element || String(getSelection())) return;
    this.select(Number(element.dataset.number), {reveal: false});
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && this.number !== null) { this.select(null); this.list.focus({preventScroll: true}); return; }
    if (event.target.matches("input, select, textarea")) return;
    if (event.key === "/") { event.preventDefault(); this.search.focus(); return; }
    if (event.target !== this.list && !"np".includes(event.key)) return;
    const place = this.shown.findIndex((one) => one.row.number === this.number);
    const row = this.selected;
    const jump = (by) => this.shown[Math.max(0, Math.min(this.shown.length - 1, place < 0 ? 0 : place + by))];
    const to = {
      ArrowDown: () => jump(1), j: () => jump(1), ArrowUp: () => jump(-1), k: () => jump(-1),
      PageDown: () => jump(10), PageUp: () => jump(-10), Home: () => this.shown[0], End: () => this.shown.at(-1),
      n: () => this.shown.slice(place + 1).find(isProblem),
      p: () => this.shown.slice(0, Math.max(0, place)).findLast(isProblem),
      ArrowLeft: () => row && this.byNumber.get(row.cause),
      ArrowRight: () => row && this.rows.find((one) => one.row.cause === row.number),
    }[event.key];
    if (to) {
      event.preventDefault();
      const found = to();
      if (found) this.select(found.row.number);
    } else if (event.key === "Enter" && !this.pane.hidden) {
      event.preventDefault();
      this.pane.focus();
    }
  }

  follow() {
    const found = this.options.hash && /^#row-(\d+)$/.exec(location.hash);
    if (found && Number(found[1]) !== this.number) this.select(Number(found[1]));
  }

  atEnd() { return scrollY + innerHeight >= document.documentElement.scrollHeight - 40; }

  reveal(number) {
    const item = this.items[this.places.get(number)];
    if (!item) return;
    const y = this.list.getBoundingClientRect().top + item.top;
    const above = this.top.offsetHeight + parseFloat(getComputedStyle(this.top).top) + 8;
    const below = innerHeight - (this.beside || this.pane.hidden ? 8 : this.pane.offsetHeight + 8);
    if (y < above) scrollBy(0, y - above - 40);
    else if (y + item.height > below) scrollBy(0, Math.min(y - above, y + item.height - below + 40));
  }

  // -- the detail pane ---------------------------------------------------------------------------

  fillPane() {
    const one = this.byNumber.get(this.number);
    this.pane.hidden = !one;
    // Rows that arrive must not move what is being read.
    const shape = one && JSON.stringify([one.row, this.rows.filter((other) => other.row.cause === this.number
      || (one.row.subjects ?? []).some((subject) => hasSubject(other.row, subject))).length]);
    if (!one || shape === this.filled) { this.filled = shape; return; }
    this.filled = shape;
    const {row} = one, before = this.rows[this.rows.indexOf(one) - 1];
    const findings = findingsOf(row, this.report);
    const wait = before ? gapText(before.row.at_us, row.at_us) : "";
    this.pane.replaceChildren(el("div", {class: "trace-pane-body"},
      el("div", {class: "trace-pane-head"},
        el("h3", {}, row.text.what),
        el("button", {type: "button", "aria-label": "Close the details", onclick: () => { this.select(null); this.list.focus({preventScroll: true}); }}, "✕")),
      el("p", {class: "trace-soft"}, [`#${row.number}`, endsOf(one, this.lanes), `${isoDay(row.at_us)} ${clockTime(row.at_us)} UTC`, wait].filter(Boolean).join(" · ")),
      row.text.answer ? el("p", {class: row.ok ? "trace-ok" : "trace-bad"}, row.text.answer) : null,
      ...(row.faults ?? []).map((fault) => el("p", {class: "trace-fault"}, `Injected fault: ${fault.description}`)),
      ...findings.map((finding) => this.findingElement(finding, row)),
      row.text.note ? el("pre", {class: "trace-bad", tabindex: 0, "aria-label": "Note"}, row.text.note) : null,
      ...(row.text.lines ?? []).map((line) => el("p", {class: "trace-soft trace-pre"}, line)),
      row.where ? el("p", {}, `${row.where.file}:${row.where.line} in ${row.where.function}`) : null,
      this.linksElement(one),
      this.attemptsElement(row),
      this.stateElement(row),
      this.messageElement("Request", row.request),
      this.messageElement("Response", row.response),
      row.text.script ? fold("Script", el("pre", {tabindex: 0}, row.text.script)) : null,
      !row.request && row.data && Object.keys(row.data).length
        ? fold("Data", el("pre", {tabindex: 0}, pretty(row.data)), true) : null,
      this.copyElement(row)));
    this.pane.scrollTop = 0;
  }

  goTo(number, text) {
    // The pane is filled again, so the pressed button, and the focus with it, would be gone.
    return el("button", {type: "button", class: "trace-link", onclick: () => { this.select(number); this.pane.focus({preventScroll: true}); }}, text);
  }

  findingElement(finding, row) {
    const others = (finding.rows ?? []).filter((number) => number !== row.number && this.byNumber.has(number));
    return el("p", {class: "trace-finding"}, `${markOf(finding)} ${finding.text} `,
      ...others.flatMap((number) => [this.goTo(number, `row ${number}`), " "]));
  }

  linksElement(one) {
    const {row} = one, cause = this.byNumber.get(row.cause);
    const effects = this.rows.filter((other) => other.row.cause === row.number);
    const subjects = (row.subjects ?? []).filter((subject) => this.rows.filter((other) => hasSubject(other.row, subject)).length > 1);
    const items = [
      cause && [el("dt", {}, "Cause"), el("dd", {}, this.goTo(cause.row.number, cause.row.text.what))],
      effects.length && [el("dt", {}, "Effects"), el("dd", {}, ...effects.slice(0, 50).flatMap((other) =>
        [this.goTo(other.row.number, other.row.text.what), el("br")]), effects.length > 50 ? `… ${effects.length - 50} more` : null)],
      subjects.length && [el("dt", {}, "Follow"), el("dd", {}, ...subjects.map((subject) =>
        el("button", {type: "button", class: "trace-chip", title: subject.name, onclick: () => this.filter({subject})}, nameOf(subject))))],
    ].filter(Boolean);
    return items.length ? el("dl", {class: "trace-links"}, ...items.flat()) : null;
  }

  // The attempts of the row's message on a common time scale.
  attemptsElement(row) {
    const message = (row.subjects ?? []).find((subject) => subject.kind === "message");
    const attempts = message ? this.rows.filter((one) => one.row.kind === "attempt" && hasSubject(one.row, message)) : [];
    if (attempts.length < 2) return null;
    const first = attempts[0].row.at_us, whole = Math.max(1, attempts.at(-1).row.at_us - first);
    return fold(`Attempts of ${shortName(message.name)}`, el("ol", {class: "trace-attempts"}, ...attempts.map(({row: each}, index) => {
      const dot = styled(el("i", {class: each.ok ? "trace-dot-ok" : "trace-dot-bad"}), {left: `${100 * (each.at_us - first) / whole}%`});
      const wait = index ? gapText(attempts[index - 1].row.at_us, each.at_us) || "+0 s" : "";
      const label = `${each.attempt || index + 1}: ${each.status ?? "no answer"}${wait ? ` ${wait}` : ""}`;
      const button = this.goTo(each.number, label);
      if (each.number === row.number) button.setAttribute("aria-current", "true");
      return el("li", {}, button, el("span", {class: "trace-track", "aria-hidden": "true"}, dot));
    })), true);
  }

  messageElement(title, message) {
    if (!message) return null;
    const body = message.decoded === undefined ? message.body : pretty(message.decoded);
    const isPlain = message.decoded === undefined || sameJson(message.body, message.decoded);
    return fold(title,
      [el("p", {class: "trace-mono"}, message.line),
        message.headers?.length ? fold(plural(message.headers.length, "header"),
          el("dl", {class: "trace-headers"}, ...message.headers.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value, claimsOf(value))]))) : null,
        body ? el("pre", {tabindex: 0, "aria-label": `${title} body`}, body) : el("p", {class: "trace-soft"}, message.missing ? "not recorded" : "no body"),
        message.cut ? el("p", {class: "trace-fault"}, `Only the first ${[...message.body].length.toLocaleString("en")} characters of ${message.cut.toLocaleString("en")} bytes are in this report.`) : null,
        isPlain ? null : fold("Raw body", el("pre", {tabindex: 0, "aria-label": `${title} raw body`}, message.body))], true);
  }

  stateElement(row) {
    if (!this.states.known) return this.states.note ? fold("State", el("p", {class: "trace-soft"}, this.states.note), true) : null;
    const {before, after, changes} = this.states.around(row.number);
    const changed = changes.length
      ? el("table", {class: "trace-state"}, el("thead", {}, el("tr", {}, ...["data", "before", "after"].map((text) => el("th", {}, text)))),
        el("tbody", {}, ...changes.map((change) => stateRow(change))))
      : el("p", {class: "trace-soft"}, "This row changed no data.");
    return fold(changes.length ? `State: ${plural(changes.length, "change")}` : "State", [changed,
      ...Object.entries(after).map(([fake, sections]) => fold(`All data of ${fake} after this row`, stateOf(sections, before[fake] ?? {}))),
      this.states.note ? el("p", {class: "trace-soft"}, this.states.note) : null], true);
  }

  copyElement(row) {
    const status = el("output", {class: "trace-soft"});
    const button = (name, make) => el("button", {type: "button", onclick: async () => {
      const text = make();
      try {
        await navigator.clipboard.writeText(text);
        status.textContent = `Copied.${lost(row, this.report)}`;
      } catch {
        status.replaceChildren(`Select and copy:${lost(row, this.report)}`, el("pre", {tabindex: 0}, text));
      }
    }}, name);
    const url = row.request ? urlOf(row, this.report) : "";
    return el("div", {class: "trace-copy"},
      url ? button("Copy as curl", () => curl(row, url, this.report)) : null,
      url ? button("Copy as Python", () => python(row, url, this.report)) : null,
      this.options.hash ? button("Copy link", () => location.href) : null, status);
  }
}

// -- rows ---------------------------------------------------------------------------------------

// Give each row its lanes' names and the colour of the request it belongs to.
function prepare(report) {
  const byNumber = new Map(), found = [];
  let hues = 0;
  for (const row of report.rows) {
    const cause = byNumber.get(row.cause);
    // A row without calls below it keeps the colour of its cause; a request starts its own.
    const starts = row.kind === "request" || row.kind === "attempt";
    const one = {row, hue: starts ? 1 + hues++ % HUES : cause?.hue ?? 0, cause,
      fromName: row.actor === "application" && cause ? cause.toName : laneName(row.actor), toName: laneName(row.peer)};
    byNumber.set(row.number, one);
    found.push(one);
  }
  return found;
}

function laneName(end) {
  const url = /^(https?:\/\/[^/?#]+)/.exec(end);
  return url ? url[1] : end;
}

function lanesOf(rows, fakes) {
  const known = new Set(rows.flatMap((one) => [one.fromName, one.toName]));
  const fakeNames = fakes.map((fake) => fake.name).filter((name) => known.has(name));
  const outside = [...known].filter((name) => !fakeNames.includes(name));
  const rank = (name) => ({test: 0, client: 1, application: 2}[name] ?? 3);
  const lanes = [...outside.filter((name) => rank(name) < 3).sort((a, b) => rank(a) - rank(b)), ...fakeNames, ...outside.filter((name) => rank(name) === 3)];
  for (const one of rows) { one.from = lanes.indexOf(one.fromName); one.to = lanes.indexOf(one.toName); }
  return lanes;
}

function isProblem({row}) { return !row.ok || row.findings?.length > 0 || row.faults?.length > 0; }

function hasSubject(row, {kind, name, fake}) {
  return (row.subjects ?? []).some((one) => one.kind === kind && one.name === name && (!fake || one.fake === fake));
}

const searched = new WeakMap();
function isWanted(one, wanted, search) {
  const {row} = one;
  if (wanted.problems && !isProblem(one)) return false;
  if (wanted.fake && row.actor !== wanted.fake && row.peer !== wanted.fake) return false;
  if (wanted.subject && !hasSubject(row, wanted.subject)) return false;
  if (!search) return true;
  if (!searched.has(row)) searched.set(row, [row.text.what, row.text.answer, row.text.note, ...(row.text.lines ?? []), one.fromName, one.toName, row.request?.line,
    row.request?.body, row.response?.body, ...(row.subjects ?? []).map((subject) => subject.name),
    ...[row.request?.decoded, row.response?.decoded, row.data].map((value) => value === undefined ? "" : JSON.stringify(value))]
    .join("\n").toLowerCase());
  return search.split(/\s+/).every((word) => searched.get(row).includes(word));
}

function findingsOf(row, report) { return (row.findings ?? []).map((index) => report.findings[index]).filter(Boolean); }

function markOf(finding) { return {cause: "▲", hint: "△"}[finding.severity] ?? "·"; }

// How many lines a text takes that is broken between words.
function linesIn(text, characters) {
  let lines = 1, used = 0;
  for (const {length} of text.split(" ")) {
    if (used && used + 1 + length > characters) { lines++; used = 0; }
    used += (used && 1) + length;
    lines += Math.floor(Math.max(0, used - 1) / characters);
    used = (used - 1) % characters + 1;
  }
  return lines;
}

// The texts of a row in the list, each with the number of lines that it takes.
function partsOf(one, report, narrow, characters) {
  const {row} = one, {what, answer, note, lines = []} = row.text, parts = [];
  const add = (name, text, most) => parts.push({name, text, lines: Math.min(most, linesIn(text, characters))});
  const answered = row.ok ? "trace-answer trace-ok" : "trace-answer trace-bad";
  if (narrow) add("trace-ends trace-soft", `${clockTime(row.at_us)} ${endsOf(one)}`, 1);
  if (answer && !narrow && what.length + answer.length + 2 <= characters) {
    parts.push({name: "trace-what", text: what, lines: 1, beside: {name: answered, text: answer}});
  } else {
    // An event says all that it has to say there.
    add("trace-what", what, row.kind === "event" ? LINES_IN_LIST : LINES_OF_ANSWER);
    if (answer) add(answered, answer, LINES_OF_ANSWER);
  }
  for (const fault of row.faults ?? []) add("trace-fault", `fault: ${fault.description}`, LINES_OF_ANSWER);
  for (const finding of findingsOf(row, report)) add("trace-finding", `${markOf(finding)} ${finding.text}`, LINES_IN_LIST);
  if (note) add("trace-bad", note.split("\n")[0], LINES_OF_ANSWER);
  // The effects of a call, such as the assignments of a rebalance.
  for (const line of lines.slice(0, LINES_IN_LIST)) add("trace-soft", line.split("\n")[0], LINES_OF_ANSWER);
  if (lines.length > LINES_IN_LIST) add("trace-soft", `… ${plural(lines.length - LINES_IN_LIST, "more line")}`, 1);
  return parts;
}

function endsOf(one) {
  const [from, to] = [one.fromName, one.toName].map((name) => name.replace(/^https?:\/\//, ""));
  return from === to ? from : `${from} → ${to}`;
}

// The index of the first item that ends below y.
function firstBelow(items, y) {
  let low = 0, high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].top + items[middle].height < y) low = middle + 1; else high = middle;
  }
  return low;
}

// -- states -------------------------------------------------------------------------------------

// The data of the fakes around each row: an initial state, and the changes in the order in which they happened.
class States {
  constructor(found) {
    this.note = found?.note ?? "";
    this.known = Boolean(found?.initial);
    this.initial = found?.initial ?? {};
    this.steps = found?.steps ?? [];
    // A delivery has two steps, its start and its end.
    this.places = new Map();
    this.steps.forEach((step, index) => {
      if (this.places.has(step.number)) this.places.get(step.number).push(index); else this.places.set(step.number, [index]);
    });
  }

  around(number) {
    const own = this.places.get(number) ?? [];
    const first = own[0] ?? this.steps.findLastIndex((step) => step.number < number) + 1;
    const before = structuredClone(this.initial);
    for (const step of this.steps.slice(0, first)) apply(before, step.changes);
    const after = structuredClone(before);
    if (own.length) for (const step of this.steps.slice(first, own.at(-1) + 1)) apply(after, step.changes);
    const items = new Map(own.flatMap((index) => this.steps[index].changes)
      .map(([fake, section, item]) => [JSON.stringify([fake, section, item]), {fake, section, item}]));
    const of = (state, {fake, section, item}) => state[fake]?.[section]?.[item] ?? null;
    return {before, after, changes: [...items.values()].map((each) => ({...each, before: of(before, each), after: of(after, each)}))};
  }
}

function apply(state, changes) {
  for (const [fake, section, item, value] of changes) {
    const items = (state[fake] ??= {})[section] ??= {};
    if (value === null) delete items[item]; else items[item] = value;
  }
}

function stateRow({fake, section, item, before, after}) {
  const kind = before === null ? "trace-added" : after === null ? "trace-removed" : "trace-changed";
  return el("tr", {class: kind}, el("th", {scope: "row", title: item}, el("span", {class: "trace-soft"}, `${fake} · ${section}`), el("br"), shortName(item)),
    el("td", {}, fieldsOf(before, after, {changed: true})), el("td", {}, fieldsOf(after, before, {changed: true})));
}

function stateOf(sections, before) {
  const parts = Object.entries(sections).filter(([, items]) => Object.keys(items).length).map(([section, items]) => [
    el("h4", {}, section), el("table", {class: "trace-state"}, el("tbody", {}, ...Object.entries(items).map(([item, value]) =>
      el("tr", {class: sameJson(JSON.stringify(before[section]?.[item]), value) ? "" : "trace-changed"}, el("th", {scope: "row"}, item),
        el("td", {}, fieldsOf(value, before[section]?.[item] ?? null))))))]).flat();
  return parts.length ? parts : el("p", {class: "trace-soft"}, "empty");
}

// The fields of an item, those that differ from the other side marked, or only those.
function fieldsOf(value, other, {changed = false} = {}) {
  if (value === null) return el("span", {class: "trace-soft"}, "–");
  const differs = (name) => other !== null && JSON.stringify(other[name]) !== JSON.stringify(value[name]);
  return el("div", {}, el("dl", {}, ...Object.entries(value).filter(([name, field]) => changed && other !== null ? differs(name) : field !== null).map(([name, field]) => {
    const text = field === null ? "none" : visible(typeof field === "string" ? field : JSON.stringify(field));
    return el("div", {}, el("dt", {}, `${name} `), el("dd", {}, differs(name) ? el("mark", {}, text) : text));
  })), isPartition(value) ? offsets(value) : null);
}

function isPartition(value) { return typeof value.end === "number" && "committed" in value; }

// A partition from its first to its last offset: committed, delivered and waiting records.
function offsets({start = 0, end, committed, position}) {
  const whole = Math.max(1, end - start), share = (offset) => 100 * (Math.max(start, offset ?? start) - start) / whole;
  const picture = svg("svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "trace-offsets", role: "img",
    "aria-label": `committed ${committed ?? "nothing"}, delivered up to ${position ?? "nothing"}, end ${end}`});
  picture.append(svg("rect", {class: "trace-waiting", width: 100, height: 8}),
    svg("rect", {class: "trace-delivered", width: share(position), height: 8}),
    svg("rect", {class: "trace-committed", width: share(committed), height: 8}));
  const gone = committed !== null && committed < start
    ? `${plural(start - committed, "record")} from the committed offset on no longer exist${start - committed === 1 ? "s" : ""}` : "";
  return el("div", {}, picture, gone ? el("p", {class: "trace-fault"}, gone) : null);
}

// -- copying ------------------------------------------------------------------------------------

export function urlOf(row, report) {
  const target = row.request.line.replace(/^\S+ /, "");
  if (/^https?:/.test(target)) return target;
  const fake = (report.fakes ?? []).find((one) => one.name === row.peer);
  return fake && target.startsWith("/") ? fake.url + target : "";
}

// The headers of the request. A fake that has `headers` gives the credentials that a report hides.
function sentHeaders(row, report) {
  const known = Object.entries((report.fakes ?? []).find((one) => one.name === row.peer)?.headers ?? {});
  return (row.request.headers ?? []).filter(([name]) => !HOP_BY_HOP.has(name.toLowerCase())).map(([name, value]) =>
    known.find(([each]) => value.includes("***") && each.toLowerCase() === name.toLowerCase()) ?? [name, value]);
}

export function lost(row, report) {
  if (row.request.cut) return " The body is longer than what was recorded.";
  if (row.request.body?.includes("\ufffd")) return " The bytes of the body that are not text are missing.";
  if (row.request.body?.includes("***")) return " Secrets in the body are missing.";
  return sentHeaders(row, report).some(([, value]) => value.includes("***")) ? " Replace *** by the credentials." : "";
}

export function curl(row, url, report) {
  const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const method = row.request.line.split(" ")[0];
  // A HEAD by -X waits for a body. Without -g, brackets and braces mean several addresses.
  const sends = method === "HEAD" ? "-I" : `-X ${/^[A-Za-z]+$/.test(method) ? method : quote(method)}`;
  // Not --data-binary: it reads a file when the body begins with @.
  return [`curl -g ${sends} ${quote(url)}`, ...sentHeaders(row, report).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
    ...(row.request.body ? [`--data-raw ${quote(row.request.body)}`] : [])].join(" \\\n  ");
}

function python(row, url, report) {
  const quote = (text) => JSON.stringify(text).replaceAll("\u007f", "\\x7f");
  const headers = sentHeaders(row, report).map(([name, value]) => `        ${quote(name)}: ${quote(value)},\n`).join("");
  return `import requests\n\nrequests.request(\n    ${quote(row.request.line.split(" ")[0])},\n    ${quote(url)},\n`
    + (headers ? `    headers={\n${headers}    },\n` : "")
    + (row.request.body ? `    data=${quote(row.request.body)}.encode(),\n` : "") + ")\n";
}

// -- words and elements -------------------------------------------------------------------------

function plural(count, word) { return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`; }

function isoDay(at_us) { return new Date(at_us / 1000).toISOString().slice(0, 10); }

function clockTime(at_us) { return new Date(at_us / 1000).toISOString().slice(11, 23); }

// The time between two rows in whole seconds: "+5 m", with the date when the day changes. Empty below a second.
function gapText(from_us, to_us) {
  const seconds = Math.floor((to_us - from_us) / 1e6);
  if (seconds < 1) return "";
  const parts = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const text = [];
  let rest = seconds;
  for (const [unit, size] of parts) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count && text.length < 2) text.push(`${count} ${unit}`);
  }
  return `+${text.join(" ")}${isoDay(from_us) === isoDay(to_us) ? "" : ` · ${isoDay(to_us)}`}`;
}

function nameOf({kind, name}) { return name ? `${kind} ${shortName(name)}` : `default ${kind}`; }

// A long id by its beginning.
function shortName(name) { return name.length > 32 ? `${name.slice(0, 14)}…` : name; }

// A name that may be broken after each of its words.
function breakable(name) { return name.split(/(?<=[_.:-])/).flatMap((part) => [part, el("wbr")]); }

function pretty(value) {
  const line = JSON.stringify(value, null, 1).replace(/\n\s*/g, " ");
  return visible(line.length > 60 ? JSON.stringify(value, null, 2) : line);
}

// A text with the characters escaped that a reader cannot see or tell apart, as in the rows (visible() in bodies.py).
function visible(text) {
  const hidden = text.normalize() === text ? /(?! )[\p{Cf}\p{Z}]/gu : /(?! )[\p{Cf}\p{Z}\p{Mn}]/gu;
  return text.replace(hidden, (one) => [...Array(one.length).keys()].map((at) => `\\u${one.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));
}

// The claims of a web token below it.
function claimsOf(value) {
  const part = /^eyJ[\w-]+\.(eyJ[\w-]+)\./.exec(value)?.[1];
  try { return part ? el("pre", {}, pretty(JSON.parse(atob(part.replaceAll("-", "+").replaceAll("_", "/"))))) : null; } catch { return null; }
}

function sameJson(text, value) {
  try { return JSON.stringify(JSON.parse(text)) === JSON.stringify(value); } catch { return false; }
}

function fold(title, content, open = false) {
  return el("details", open ? {open: ""} : {}, el("summary", {}, title), ...[content].flat());
}

function el(name, attributes = {}, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "hidden" || key === "checked") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...content.filter((one) => one !== null && one !== undefined));
  return element;
}

function svg(name, attributes, ...content) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...content);
  return element;
}

function styled(element, styles) {
  Object.assign(element.style, styles);
  return element;
}
