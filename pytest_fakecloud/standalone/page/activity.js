// The activity page: the timeline component of the reports, fed with the live journal.
import {count, el, empty, go, isLoading, link, number, own, pageHead, redraw, room, saveButton, say} from "./dom.js";
import {ask, askText} from "./api.js";
import {entries, journal, likeOf} from "./journal.js";
import {hasFailed, showChip} from "./elements.js";
import {isExpected, isFailure} from "./errors.js";
import {columnsElement} from "./columns.js";
import {clockTime as time, isRestore, isoDay} from "./facts.js";
import {Trace} from "./trace.js";

const STATUSES = {"": "Any status", ok: "Succeeded", failed: "Failed", expected: "Expected error", fault: "Injected fault", open: "In progress", expired: "Expiries", unexpired: "No expiries"};
const HAS_STATUS = {ok: (row) => row.done && !hasFailed(row), failed: (row) => isFailure(row) && !row.faults.length, expected: (row) => row.done && hasFailed(row) && isExpected(row), fault: (row) => row.faults.length > 0, open: (row) => !row.done, expired: ({operation}) => operation === "expired", unexpired: ({operation}) => operation !== "expired"};

// Rows with their parents, by the time of the outermost one: an event may be recorded after calls that came later. Where the clock went
// back, as when a move is undone, a new order begins, so that what is recorded next comes last.
const byBegin = (one, other) => one.began - other.began || one.number - other.number;
function inOrder(rows) {
  const first = new Map();
  let turns = 0, latest = 0;
  for (const row of rows.toSorted(byBegin)) {
    if (!row.rules.is_inside || isRestore(row)) { turns += row.at_us < latest; latest = row.at_us; }
    first.set(row.number, first.get(row.parent) ?? [turns, row.at_us]);
  }
  const place = (one, other, at) => first.get(one.number)[at] - first.get(other.number)[at];
  return rows.toSorted((one, other) => place(one, other, 0) || place(one, other, 1) || byBegin(one, other));
}
// A chart of more rows takes more than a frame, so it is drawn only when it is open, and after a pause.
const FEW = 500, CHART_EVERY_MS = 1000;

export class ActivityPage {
  constructor(state) {
    Object.assign(this, {state, values: {}, id: null, paused: null, without: [], missing: null, isReload: isLoading()});
    this.status = el("select", {"aria-label": "Status", onchange: () => this.rearrange()}, Object.entries(STATUSES).map(([value, text]) => el("option", {value}, text)));
    this.pause = el("button", {type: "button", "aria-pressed": "false", onclick: () => this.hold(!this.paused)}, "Pause");
    // Calls over time, of which a span can be selected. It is opened on request, and stays open from then on.
    this.chart = el("div", {class: "over-time"});
    this.over = el("button", {type: "button", onclick: () => { this.open(this.chart.hidden); this.drawChart(); this.trace.measure(); }}, "Over time");
    this.open(localStorage.getItem("calls over time") === "open");
    this.span = el("button", {type: "button", class: "trace-chip", hidden: true, onclick: () => this.between(null)});
    this.hidden = el("button", {type: "button", class: "trace-chip", hidden: true, onclick: () => this.hide([])});
    Object.assign(this, {nothing: el("div"), place: el("div", {hidden: true}), lost: el("div", {class: "lost"})});
    this.node = el("div", {class: "page activity"}, pageHead("Activity"), el("h2", {class: "skip"}, "Timeline"), this.nothing, this.place, this.lost);
    const saves = el("span", {class: "saves"}, saveButton("activity.json", () => JSON.stringify([...this.trace.matches].map(({row}) => row), null, 1), "Save the rows that are shown as JSON", "↓ JSON"), saveButton("activity.har", () => this.archive(), "Save the calls that are shown as HAR", "↓ HAR"));
    this.trace = new Trace(this.place, {
      newest: true, isExpected,
      tools: [this.status, this.over, this.pause, saves, this.span, this.hidden, this.chart],
      isWanted: (row) => (!this.chosen || row.at_us >= this.chosen[0] && row.at_us <= this.chosen[1]) && (!this.status.value || HAS_STATUS[this.status.value](row)) && !(this.without.length && this.without.includes(likeOf(row))),
      isFiltered: () => Boolean(this.chosen || this.status.value || this.without.length),
      onclear: () => { this.status.value = ""; this.between(null); this.hide([]); },
      onfilter: () => { this.drawChart(); this.keep(); },
      details: ({row}) => {
        const place = el("div");
        // Another row may have been selected meanwhile.
        import("./row.js").then(({detailsOf}) => { if (place.isConnected) place.replaceChildren(...detailsOf(row, this.state().fakes)); }, ({message}) => { place.textContent = message; });
        return row.rules.is_inside ? [place] : [el("button", {type: "button", class: "trace-chip", title: likeOf(row), onclick: () => { this.trace.select(null); this.hide([...this.without, likeOf(row)]); }}, "Hide calls like this"), place];
      },
      loading: () => journal.older,
      gone: (name) => this.dropped().filter(({fake}) => !name || fake === name).map(({text}) => text).join(" "),
      // The filters may be written into the address before the event of this change of it.
      onselect: (row) => { this.id = row ? String(row.number) : this.missing && String(this.missing.number); go(this.address(this.id), {replace: !row}); },
    });
    this.trace.search.placeholder = "Search calls";
    journal.listeners.add(this.refresh = () => this.draw());
  }
  // Its entry in the navigation leads to the newest rows, also from details.
  again() { this.trace.select(null); this.trace.follows(); }
  leave() { journal.listeners.delete(this.refresh); clearTimeout(this.timer); clearTimeout(this.planned); this.trace.destroy(); }

  // The HTTP archive, of the rows that are shown. A call without a row of its own is in the next row of its fake.
  async archive() {
    const text = await askText("GET", "/archive"), {matches, rows} = this.trace;
    if (matches.size === rows.length) return text;
    const found = JSON.parse(text), calls = Map.groupBy(rows.filter(({row}) => !row.rules.is_inside).sort((one, other) => one.row.number - other.row.number), ({row}) => row.fake);
    found.log.entries = found.log.entries.filter(({_number, _fake}) => matches.has(calls.get(_fake)?.find(({row}) => row.number >= _number)));
    return JSON.stringify(found, null, 1);
  }
  // The fakes whose oldest rows were dropped, by the server or by this page, and from which time on their rows exist.
  dropped() {
    return this.state().fakes.flatMap(({name: fake, forgotten}) => {
      const many = Math.max(forgotten, entries.dropped.get(fake) ?? 0), first = many && entries.list.find((row) => row.fake === fake);
      return first ? [{fake, text: `${count(many, "older row")} of ${fake} ${many === 1 ? "was" : "were"} dropped: its rows begin at ${isoDay(first.at_us)} ${time(first.at_us)} UTC.`}] : [];
    });
  }
  address(id) {
    const {search, fake, problems, subject, slowest, lanes} = this.trace.wanted, [from, to] = this.chosen ?? [];
    return link(id == null ? ["activity"] : ["activity", id], {search, fake, problems: problems ? "yes" : "", status: this.status.value, order: slowest ? "slowest" : "", lanes: lanes ? "yes" : "", from, to, hide: this.without.join("\n"), ...subject && {kind: subject.kind, name: subject.name, of: subject.fake}});
  }
  // Write the filters into the address, while a search is typed shortly after the last keystroke.
  keep() { clearTimeout(this.timer); this.timer = setTimeout(() => go(this.address(this.id), {replace: true}), document.activeElement === this.trace.search ? 100 : 0); }

  async go(route) {
    const {search = "", fake = "", problems, status = "", kind, name = "", of, order, lanes, from, to, hide} = route.query;
    // The filters come first: to select a row writes them into the address.
    this.id = null;
    this.draw();
    this.id = route.parts[1] ?? null;
    if (this.address(this.id) === location.hash) { this.select(); return; }
    this.status.value = own(STATUSES, status) ? status : "";
    this.between(from && to ? [Number(from), Number(to)] : null);
    this.hide(hide?.split("\n") ?? []);
    this.trace.filter({search, fake, problems: Boolean(problems), subject: kind ? {kind, name, fake: of} : null, slowest: order === "slowest", lanes: Boolean(lanes)});
    clearTimeout(this.timer);
    this.select();
  }
  select() {
    const {trace} = this, wanted = this.id === null ? null : Number(this.id) || 0;
    if (wanted !== null && !trace.byNumber.has(wanted)) { this.seek(wanted).catch(({message}) => { this.sought = null; say(message); }); return; }
    this.forget(wanted);
    if (wanted === trace.number) return;
    trace.select(wanted);
    // Whoever has come from another page goes on in the details, and after a reload in the list.
    if (wanted !== null && document.activeElement.contains(trace.root)) (this.isReload ? trace.list : trace.pane).focus({preventScroll: true});
    this.isReload = false;
  }
  // A row that is not in the list may still be loading, so only the server's answer says whether it is kept.
  async seek(number) {
    if (this.sought === number) return;
    this.sought = number;
    const after = async (one) => (await ask("GET", `/journal?after=${one}&limit=1`))[0], next = await after(Math.max(0, number - 1));
    if (next?.number === number) entries.merge([next]);
    const isKept = entries.known.has(number), first = isKept ? null : await after(0);
    if (this.sought !== number) return;
    if (!isKept) this.missing = {number, next: next?.number === number ? null : next, first};
    if (!isKept && this.trace.number !== null) this.trace.select(null);
    if (this.paused && isKept) this.hold(false); else this.draw();
  }
  // Takes back that a row is missing, when it was recorded or another one is shown.
  forget(number) {
    this.sought = null;
    if (this.missing && (this.missing.number !== number || entries.known.has(number))) { this.missing = null; this.draw(); }
  }
  missingElement({number, next, first}) {
    const kept = (row) => el("a", {href: link(["activity", row.number])}, `#${row.number}`), last = entries.list.at(-1);
    return el("p", {class: "banner", role: "status"}, `There is no row #${number}, or it was dropped. `, first && last ? ["Not each number is that of a row. The first one is ", kept(first), ", the last one ", kept(last), ". ", next && next.number > first.number ? ["The next one is ", kept(next), ". "] : "", el("a", {href: link(["activity"])}, "Show all rows")] : "No row is known.");
  }
  hold(paused) { this.paused = paused ? entries.list : null; this.pause.setAttribute("aria-pressed", String(paused)); this.draw(); }

  // Show all rows but those that are like these.
  hide(without) { this.without = without; showChip(this.hidden, without.length && `without ${without.join(", ")}`, "Stop showing calls "); this.rearrange(); }
  rearrange() { this.trace.arrangeAll(); this.drawChart(); this.keep(); }
  // Show only the rows of a span of time [from, to], or all.
  between(chosen) {
    if (String(chosen) === String(this.chosen ?? null)) return;
    this.chosen = chosen;
    // A span that does not begin and end on the day of the newest row has its days.
    const [from, to] = chosen ?? [], today = isoDay(entries.list.at(-1)?.at_us ?? 0), text = (at) => `${[from, to].every((each) => isoDay(each) === today) ? "" : `${isoDay(at)} `}${time(at)}`;
    showChip(this.span, chosen && `${text(from)} – ${text(to)}`, "Stop showing only ");
    this.rearrange();
  }
  // The calls that the filters and the selected span leave, so that a finer span can be selected within it.
  drawChart() {
    if (this.chart.hidden && this.trace.rows.length > FEW) return;
    const calls = [...this.trace.matches ?? []].map(({row}) => row).filter(({rules}) => !rules.is_inside).map((row) => ({at: row.at_us, kind: isFailure(row) ? "failed" : "ok"}));
    redraw(this.chart, columnsElement("calls", calls, {noun: "call", isClock: true, pixels: room(), onselect: (from, to) => this.between([from, to])}));
  }

  open(isOpen) { this.chart.hidden = !isOpen; this.over.ariaExpanded = isOpen; localStorage.setItem("calls over time", isOpen ? "open" : ""); }

  draw() {
    // Older rows that arrive meanwhile are not new.
    if (this.paused?.length && entries.list[0]?.number < this.paused[0].number) { const newest = this.paused.at(-1).number; this.paused = entries.list.filter(({number: row}) => row <= newest); }
    const all = this.paused ?? entries.list, missed = entries.list.length - all.length;
    this.pause.replaceChildren(this.paused ? "Resume" : "Pause", this.paused && missed > 0 ? el("span", {class: "many", title: count(missed, "new row")}, number(missed)) : "");
    redraw(this.lost, this.missing ? this.missingElement(this.missing) : null);
    redraw(this.nothing, !journal.loaded ? el("p", {class: "soft", role: "status"}, "Loading…")
      : all.length ? journal.older ? null : this.dropped().map(({text}) => el("p", {class: "soft dropped"}, text))
      : empty("No requests yet.", el("p", {}, "Every request to a fake appears here as it is made. ", el("a", {href: "#/connect"}, "Connect your application"), " to begin.")));
    this.place.hidden = !all.length;
    if (all === this.shown && journal.older === this.older) return;
    Object.assign(this, {shown: all, older: journal.older});
    const fakes = this.state().fakes.map(({name, url, headers}) => ({name, url, headers}));
    this.trace.show({rows: inOrder(all), findings: [], fakes});
    this.planned ??= setTimeout(() => {
      this.planned = null;
      // A chart that a pointer drags over stays.
      if (!this.chart.querySelector(".span-columns:active, .span-pressed")) this.drawChart();
    }, this.chart.firstChild ? CHART_EVERY_MS : 0);
    if (this.id !== null) this.select();
  }
}
