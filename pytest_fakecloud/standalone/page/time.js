// Due times, snapshots and isolated clouds.
import {LivePage, about, act, attempt, both, choice, confirmed, copies, count, day, done, el, empty, form, go, isoOf, json, link, micros, move, number, own, pageHead, redraw, removal, room, saveButton, short, soft, table, time, tools, unbroken, withoutSchemes} from "./dom.js";
import {ask, askText, query} from "./api.js";
import {changesSection, recorded, restoreButton, undoable} from "./history.js";
import {fold, lasted} from "./elements.js";
import {columnsElement} from "./columns.js";
import {linksOf, moved, undoButton} from "./moves.js";
import {entries} from "./journal.js";
import {oneAtATime} from "./rows.js";

// Moves the clock to an event, or freezes it at the microsecond before it, so that it can be looked at before it happens. A line may stand for several events, of which the last is the aim.
const goThere = ({what, count: many, until: to}) => { const text = many > 1 ? "Move to the last" : "Move there"; return act(text, `${text}: ${what} at ${to}`, () => move({action: "move_to", to})); };
const goBefore = ({what, at: to}, now) => micros(to) - 1 > micros(now) ? act("Just before", `Just before: ${what} at ${to}`, async () => { await ask("POST", "/clock", {action: "freeze"}); await move({action: "move_to", to: isoOf(micros(to) - 1)}); }) : null;
const DUE_KINDS = {delivery: "delivery", callback: "callback", wait: "retry", sleep: "end of a sleep or wait", schedule: "schedule", expiry: "expiry of a key", removal: "removal by age", other: "timer of a fake"};
const WIDE = "(min-width: 1081px)", WITHIN = {"": "all", "1h": "next hour", "1d": "next day"};
const shownDue = ({count: many, kind, what}) => many > 1 || kind === "expiry" ? what : unbroken(short(withoutSchemes(what), 120));
// The next events that are due, and all of them as columns over time: beside the list, or above it where there is no room. `values` are those of the address: a span or `within`, one `kind` or those that are left out, and the time of the last of the expiries that are `open`.
export function timePage() {
  const planned = el("span", {class: "soft", role: "status"}), chosen = el("span"), moment = el("span");
  const select = (values, how = {}) => go(link(["time"], {...page.values, ...values}), how), span = (from, to) => ({from, to, within: "", open: ""});
  const isShown = (name) => page.values.kind ? name === page.values.kind : !page.without.includes(name);
  // A kind is left out, or shown again, or alone.
  const kindElement = (name, many, kinds) => el("span", {class: "check"}, el("label", {class: "check"}, el("input", {type: "checkbox", checked: isShown(name), "aria-label": DUE_KINDS[name], "data-key": name,
    onchange: () => select({kind: "", without: kinds.filter((one) => (one === name) === isShown(one)).join()})}), el("span", {}, el("i", {class: `dot kind-${name}`}), `${DUE_KINDS[name]} `, el("small", {class: "soft"}, number(many)))),
    el("button", {type: "button", class: "quiet", "aria-label": `only ${DUE_KINDS[name]}`, onclick: () => select({kind: page.values.kind === name ? "" : name, without: ""})}, page.values.kind === name ? "all" : "only"));
  const row = (one, now) => {
    const {at: first, until, count: many, kind} = one, isOpen = micros(until) === Number(page.values.open), what = shownDue(one), ends = [first, until].slice(0, many > 1 ? 2 : 1);
    const shown = many > 1 ? el("a", {href: link(["time"], {...page.values, open: isOpen ? "" : micros(until)}), "data-key": until, "aria-expanded": String(isOpen)}, `${isOpen ? "▾" : "▸"} ${what}`)
      : one.item ? el("a", {href: link(["fake", one.fake, one.list, one.item])}, what) : what;
    return [[el("span", {class: "nowrap"}, about(micros(first) - micros(now))), el("small", {class: "soft"}, ends.map((at) => el("span", {class: "nowrap"}, at === until && many > 1 ? " to " : "", day(at) === day(now) ? "" : `${day(at)} `, time(at))))],
      [el("i", {class: `dot kind-${kind}`, title: own(DUE_KINDS, kind)}), shown], tools(goThere(one), goBefore(one, now))];
  };
  const page = new LivePage("/due", ({now, count: many, kinds: counts, matching, moments, due, moves}) => {
    const [from, to] = page.chosen ?? [], kinds = Object.keys(DUE_KINDS).filter((name) => counts[name] || name === page.values.kind), isWide = matchMedia(WIDE).matches, start = micros(now);
    if (to <= start) select(span("", ""), {replace: true});
    planned.textContent = `${many ? `${count(many, "event")} planned` : "Nothing is planned"}${page.values.within ? ` in the ${own(WITHIN, page.values.within)}` : ""}${due.length < matching ? `, the first ${due.length} of ${count(matching, "line")} below` : ""}`;
    redraw(moment, copies({method: "POST", path: "/clock", body: {action: "move_to", to: now}}, "this moment"));
    redraw(chosen, page.chosen && el("button", {type: "button", class: "trace-chip", "aria-label": "Show the next events again", onclick: () => select(span("", ""))}, `due in ${lasted(Math.max(0, from - start))}${to > from ? ` to ${lasted(to - start)}` : ""} ✕`));
    const items = moments.filter(({kind}) => isShown(kind)).map(({at_us: at, kind, count: value}) => ({at, kind, value}));
    const became = moves.length ? [el("h2", {}, "Became due"), el("ul", {}, moves.map((move_) => { const {now: to, events, count: sum} = move_, links = linksOf(move_); return el("li", {}, links.length ? links : "Nothing became due", ` by the move to ${both(to)} `, undoButton(move_), events.length ? el("details", {"data-key": `moved ${to} ${page.values.moved === to}`, open: page.values.moved === to}, el("summary", {}, shownDue(events[0]), sum > 1 ? `, and ${number(sum - 1)} more` : ""), table("events that became due", ["at", "event", "row"], events, (one) => [time(one.at), one.item ? el("a", {href: link(["fake", one.fake, one.list, one.item])}, shownDue(one)) : shownDue(one), one.row ? el("a", {href: link(["activity", one.row])}, `#${one.row}`) : ""]), sum > events.length ? soft(`The first ${events.length} of ${count(sum, "event")}.`) : null) : null); }))] : null;
    return [page.values.moved && became, many || page.values.within ? el("div", {class: "due"}, el("div", {class: "filters"}, choice("time until", Object.keys(WITHIN), page.values.within ?? "", (within) => select({...span("", ""), within}), (name) => WITHIN[name]),
      kinds.length > 1 || page.values.kind ? el("div", {class: "kinds", role: "group", "aria-label": "kinds of events"}, kinds.map((name) => kindElement(name, counts[name] ?? 0, kinds))) : null,
      el("details", {class: "over-time", open: isWide}, el("summary", {}, "Events over time"), columnsElement("events by due time", [{at: start, kind: "other", value: 0}, ...items], {kinds: DUE_KINDS, chosen: page.chosen, start, pixels: isWide ? BESIDE : room(), onselect: (...ends) => select(span(...ends))}))),
    el("div", {}, due.length ? table("due events", ["in", "event", ""], due, (one) => row(one, now)) : soft(page.values.kind ? "No event of this kind is planned." : "No such event is planned.")))
      : empty("No timers.", "Delayed messages, retries, schedules, TTLs of keys and consumer sessions appear here with their due times.", "They use the clock above, not the wall clock."),
      page.values.moved ? null : became];
  }, pageHead("Time", planned, chosen, form("Move the clock to a time", "Move", [{name: "to", label: "time", note: "2026-02-01T09:00:00Z", needed: true}], async ({to}) => { return await moved({action: "move_to", to: /^[-\d]+[ T][\d:.]+$/.test(to.trim()) ? `${to.trim().replace(" ", "T")}Z` : to}) ? done("Moved.") : null; }, {open: false, copied: false}), moment));
  return Object.assign(page, {values: {}, without: [], version: () => page.values.moved, go: ({query: values}) => {
    const {from: since, to: until, kind, without = "", within, open} = values;
    Object.assign(page, {values, without: without.split(","), chosen: since && until ? [since, until].map(Number) : null, path: `/due${query({since, until, kind, without, within, open, fold: kind === "expiry" ? "" : "yes"})}`});
    return page.refresh();
  }});
}
// The width of a chart beside a list.
const BESIDE = 320;

// -- snapshots --
const at = (id, rest = "") => `/snapshots/${encodeURIComponent(id)}${rest}`;
// The file in which the server keeps its state, and buttons that save the state as a file and load one.
function stateFile({kept}) {
  const input = el("input", {type: "file", accept: ".json", hidden: true, "aria-label": "state file to load", onchange: () => attempt(async () => {
    const [file] = input.files, text = await file.text();
    input.value = "";
    json(text, file.name);
    if (!await confirmed(`Load ${file.name}? It replaces the data of each service that was saved in it. Other data in it is added.`, "Load")) return;
    await undoable(null, `${file.name} is loaded.`, () => recorded(null, `load ${file.name}`, () => ask("POST", "/load", `{"state": ${text}}`)))();
    document.dispatchEvent(new Event("changed"));
  })}), last = kept?.saved_at ? `last saved at ${new Date(kept.saved_at).toLocaleString("sv-SE")} by your clock` : "not saved yet";
  return [el("h2", {}, "State file"), !kept ? soft("The state ends with the server. Start it with --state FILE to keep it.") : kept.failure ? el("p", {class: "banner bad", role: "alert"}, `The state cannot be saved in ${kept.file}: ${kept.failure} It was ${last}.`) : soft(`The server keeps its state in ${kept.file}, ${last}.`),
    tools(saveButton("state.json", () => askText("GET", "/saved"), "Save as state file"), el("button", {type: "button", onclick: () => input.click()}, "Load…"), input)];
}
export function snapshotsPage(state) {
  const comparison = async ({since, until}) => changesSection(await ask("GET", at(since, until && `/changes?until=${encodeURIComponent(until)}`) + (until ? "" : "/changes")));
  // The form stays when the list is redrawn, with what was chosen and found. What was compared is compared again after a restore.
  let compared = null;
  const again = oneAtATime(async () => { if (compared) compare.querySelector(".out").replaceChildren(...(await comparison(compared)).filter(Boolean)); });
  const compare = form("Compare", "Compare", [{name: "since", label: "changes since", options: []}, {name: "until", label: "until", options: []}],
    (values) => { go(link(["snapshots"], values), {replace: true}); return comparison(compared = values); }, {edits: false}), [since, until] = compare.querySelectorAll("select");
  const fill = (select, options, chosen) => { const before = select.value; select.replaceChildren(...options.map(([value, text]) => el("option", {value}, text))); select.value = options.some(([value]) => value === before) ? before : chosen; };
  const take = form("Take a snapshot", "Take", [{name: "id", label: "name", note: "numbered"}], async ({id}) => { const made = await ask("POST", "/snapshots", id ? {id} : {}); await page.refresh(); return done(`Taken: ${made.id}.`); },
    {open: false, overwrites: async ({id}) => (await ask("GET", "/snapshots")).some((one) => one.id === id) && `Replace the snapshot “${id}”?`, confirms: ({id}) => `Replace ${id}`});
  const restored = () => entries.list.findLast(({operation}) => operation === "restored")?.number;
  let known = restored();
  const page = Object.assign(new LivePage("/snapshots", (found) => {
    if (compared && ![compared.since, compared.until].every((id) => !id || found.some((one) => one.id === id))) { compared = null; compare.querySelector(".out").replaceChildren(); }
    if (known !== (known = restored())) again().catch(() => {});
    const ids = found.map(({id}) => [id, id]);
    fill(since, ids, (found.at(-2) ?? found.at(-1))?.id); fill(until, [["", "now"], ...ids], "");
    return [found.length ? [table("snapshots", ["snapshot", "taken at", "", ""], found, (one) => [one.id, both(one.at), [restoreButton("Restore…", `Restore “${one.id}”`, at(one.id, "/changes"), () => ask("POST", at(one.id), {}), `“${one.id}”`), fold("Only one fake", tools(state().fakes.map(({name: fake}) => restoreButton(`${fake}…`, `${fake}: restore “${one.id}”`, at(one.id, `/changes${query({fake})}`), () => ask("POST", at(one.id), {fake}), `${fake} of “${one.id}”`))))], removal("Delete…", `Delete “${one.id}”`, () => ask("DELETE", at(one.id)), {question: `Delete the snapshot “${one.id}”? It cannot be brought back.`})]), compare] : empty("No snapshots yet.", "Take one above before you change much data."), soft("A snapshot saves the data of all fakes in the server's memory. Restoring it does not change clock, faults or activity. Without one, each row of Activity goes back to just before it, too."), stateFile(state())];
  // The comparison that the address names is made after a reload.
  }, pageHead("Snapshots", take)), {version: () => [state().kept, restored()], go: async ({query: {since: from, until: to = ""}}) => {
    await page.refresh();
    if (from && !(compared?.since === from && compared.until === to)) { compared = {since: since.value = from, until: until.value = to}; await again(); }
  }});
  return page;
}
// -- isolated clouds --
const openConsole = async (id) => { open((await ask("POST", `/clouds/${id}/codes`, {})).url, "_blank", "noopener"); };
export const cloudsPage = () => new LivePage("/clouds", (found) => !found.length ? empty("No isolated clouds.", "")
  : table("isolated clouds", ["cloud", "", "fakes", "", ""], found, (one) => [one.id, one.test ? el("span", {class: "bad"}, one.test) : "running", one.fakes.join(", "), act("Open", `Open ${one.id}`, () => openConsole(one.id)), act("Close", `Close ${one.id}`, () => ask("DELETE", `/clouds/${one.id}`))]),
pageHead("Isolated clouds", soft("Those of failed tests are kept.")));
