"use strict";
const api = "/__control__";
const query = new URLSearchParams(location.search);
if (query.get("token")) {
  sessionStorage.setItem("token", query.get("token"));
  history.replaceState(null, "", location.pathname + location.hash);
}
const token = sessionStorage.getItem("token") || "";
const $ = (id) => document.getElementById(id);
const entries = new Rows();
const open = new Set(), seen = {}, rates = [], memories = {};
let state = {handles: [], clock: {}}, rows = [], selected = decodeURIComponent(location.hash.slice(1)) || "timeline";

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    // As an attribute it would be inline style, which the page's policy forbids.
    else if (name === "style") made.style.cssText = value;
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

async function ask(method, path, body) {
  const answer = await fetch(api + path, {method, headers: {Authorization: "Bearer " + token},
    body: body === undefined ? undefined : JSON.stringify(body)});
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error.message);
  return content;
}

// What a person did is told until the next act; what the page does by itself takes back only its own words.
function say(text, kind = "bad", by = "person") { Object.assign($("notice").dataset, {kind, by}); $("notice").textContent = text; }
async function attempt(work) {
  say("");
  try { return await work(); } catch (error) { say(error.message); }
}
async function quietly(work) {
  try { await work(); if ($("notice").dataset.by === "page") say(""); } catch (error) { say(error.message, "bad", "page"); }
}

const day = (text) => text.slice(0, 10), time = (text) => text.slice(11, 23).replace(/[+Z].*/, "");
const short = (value, length = 160) => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text && text.length > length ? text.slice(0, length) + "…" : text;
};

function showClock(clock) {
  state.clock = clock;
  $("now").textContent = `${day(clock.now)} ${clock.now.slice(11, 19)} UTC`;
  $("freeze").textContent = clock.mode === "frozen" ? "Resume" : "Freeze";
  $("next").disabled = !clock.next_due;
  $("next").title = clock.next_due ? "next due at " + clock.next_due : "nothing is planned";
}

async function move(body) {
  await attempt(async () => { showClock(await ask("POST", "/clock", body)); await refresh(); });
}
document.querySelectorAll("[data-by]").forEach((button) =>
  button.addEventListener("click", () => move({action: "advance", by: button.dataset.by})));
$("advance").addEventListener("click", () => move({action: "advance", by: $("by").value}));
$("by").addEventListener("keydown", (event) => { if (event.key === "Enter") $("advance").click(); });
$("problems").addEventListener("click", () => select("overview"));
$("next").addEventListener("click", () => move({action: "advance_to_next"}));
$("freeze").addEventListener("click", () => move({action: state.clock.mode === "frozen" ? "resume" : "freeze"}));
$("reset").addEventListener("click", async () => {
  if (!await confirmed("Reset all fakes to their baseline? What they hold now is lost.", "Reset")) return;
  await attempt(async () => { await ask("POST", "/reset", {}); entries.clear(); await refresh(); });
});

// A fake may have the name of a view that is always there.
const always = ["timeline", "overview"], tabOf = (handle) => always.includes(handle.name) ? "fake:" + handle.name : handle.name;

function tabs() {
  const named = [...always.map((name) => [name, name]), ...state.handles.map((handle) => [tabOf(handle), handle.name])];
  if (!named.some(([tab]) => tab === selected)) selected = "timeline";
  $("tabs").replaceChildren(...named.map(([tab, name]) => el("button", {role: "tab", id: "tab-" + tab,
    "aria-selected": String(tab === selected), "aria-controls": "view", tabindex: tab === selected ? 0 : -1,
    onclick: () => select(tab)}, name)));
  $("view").setAttribute("aria-labelledby", "tab-" + selected);
}
$("tabs").addEventListener("keydown", (event) => {
  const all = [...$("tabs").children], place = all.findIndex((tab) => tab === document.activeElement);
  const next = {ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1}[event.key];
  if (next === undefined) return;
  event.preventDefault();
  all.at(next % all.length).click(); $("tab-" + selected).focus();
});
function select(name) { selected = name; location.hash = encodeURIComponent(name); tabs(); draw(true); }

// -- timeline -------------------------------------------------------------------------------------

const filters = {text: "", handle: ""};
function timeline() {
  const search = el("input", {type: "search", placeholder: "filter", "aria-label": "filter the timeline",
    value: filters.text, oninput: (event) => { filters.text = event.target.value; fill(); }});
  const choose = el("select", {"aria-label": "which fake", onchange: (event) => { filters.handle = event.target.value; fill(); }},
    el("option", {value: ""}, "all fakes"), ...state.handles.map((handle) =>
      el("option", {value: handle.name, selected: handle.name === filters.handle}, handle.name)));
  const cell = (text) => el("th", {scope: "col", role: "columnheader"}, text);
  $("view").replaceChildren(el("div", {class: "tools"}, search, choose, el("span", {class: "soft", id: "count", role: "status"})),
    el("table", {id: "timeline", role: "table", "aria-label": "calls and events, the newest first"},
      el("thead", {role: "rowgroup"}, el("tr", {role: "row"}, ...["time (UTC)", "fake", "what", "answer"].map(cell))),
      el("tbody", {id: "above", role: "presentation"}), el("tbody", {id: "rows", role: "rowgroup"}), el("tbody", {id: "below", role: "presentation"})));
  list.forget();
  fill();
}
const texts = new WeakMap();
function textOf(row) {
  if (!texts.has(row)) texts.set(row, JSON.stringify(row).toLowerCase());
  return texts.get(row);
}
function fill() {
  if (!$("rows")) return;
  const wanted = filters.text.toLowerCase();
  const chosen = rows.filter((row) => (!filters.handle || row.handle === filters.handle) && (!wanted || textOf(row).includes(wanted)));
  $("count").textContent = `${chosen.length} of ${rows.length}`;
  $("timeline").setAttribute("aria-rowcount", chosen.length + 1);
  list.show(chosen.reverse());
}

// Only the rows in sight are in the page; those above and below are room, as high as they are or would be.
const list = {
  all: [], drawn: new Map(), heights: new Map(), usual: 30,
  forget() { this.all = []; this.drawn.clear(); this.heights.clear(); },
  height(row) { return this.heights.get(row.number) ?? this.usual; },
  show(all) {
    const top = $("rows").parentElement.getBoundingClientRect().top, first = this.all[0];
    const anchor = this.all.length && top < -100 ? all.indexOf(this.all.find((row) => row.number === first.number && all.includes(row))) : 0;
    this.all = all;
    // Who reads further down keeps the place while new rows come on top.
    if (anchor > 0) { this.draw(); scrollBy(0, all.slice(0, anchor).reduce((sum, row) => sum + this.height(row), 0)); }
    this.draw();
  },
  draw() {
    const body = $("rows");
    if (!body) return;
    for (let turn = 0; turn < 3; turn++) if (!this.place(body)) return;
  },
  place(body) {
    const top = -$("above").getBoundingClientRect().top, from = top - 400, to = top + innerHeight + 400;
    let y = 0, above = 0, below = 0;
    const wanted = [];
    this.all.forEach((row, index) => {
      const next = y + this.height(row);
      if (next < from) above = next; else if (y > to) below += next - y; else wanted.push([row, index]);
      y = next;
    });
    const kept = new Set(wanted.map(([row]) => row.number));
    for (const [number, one] of this.drawn) if (!kept.has(number)) {
      if (one.element.contains(document.activeElement)) $("view").focus({preventScroll: true});
      one.element.remove(); this.drawn.delete(number);
    }
    wanted.forEach(([row, index], position) => {
      let one = this.drawn.get(row.number);
      if (!one || one.row !== row) {
        const fresh = {row, element: rowElement(row)};
        if (one) { const held = one.element.contains(document.activeElement); one.element.replaceWith(fresh.element); if (held) fresh.element.querySelector("summary").focus({preventScroll: true}); }
        this.drawn.set(row.number, one = fresh);
      }
      one.element.setAttribute("aria-rowindex", index + 2);
      if (body.children[position] !== one.element) body.insertBefore(one.element, body.children[position] ?? null);
    });
    let moved = false;
    for (const [number, one] of this.drawn) {
      const high = one.element.getBoundingClientRect().height;
      if (high && Math.abs(high - (this.heights.get(number) ?? this.usual)) >= 1) moved = true;
      if (high) this.heights.set(number, high);
    }
    for (const [id, high] of [["above", above], ["below", below]])
      if ($(id).dataset.high !== String(high)) { $(id).dataset.high = high; $(id).replaceChildren(...(high ? [el("tr", {role: "presentation"}, el("td", {role: "presentation", colspan: 4, class: "room", style: `height:${high}px`}))] : [])); moved = true; }
    return moved;
  },
};
let waiting = false;
function later() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; list.draw(); });
}
addEventListener("scroll", later, {passive: true});
addEventListener("resize", () => { list.heights.clear(); later(); drawn = ""; soon(); });

// What has the focus is known by its label, wherever it stands after a change.
const nameOf = (one) => one.dataset.key || one.getAttribute("aria-label") || one.textContent;
function keepingFocus(place, change) {
  const name = place.contains(document.activeElement) && document.activeElement !== place ? nameOf(document.activeElement) : null;
  change();
  if (name !== null) [...place.querySelectorAll("button, summary, pre, [tabindex]")].find((one) => nameOf(one) === name)?.focus({preventScroll: true});
}
// A part that stays open, or closed, through every change.
function fold(key, summary, make) {
  const place = el("details", {open: open.has(key), ontoggle: () => { if (place.open) { open.add(key); filled(); } else open.delete(key); later(); }},
    el("summary", {"data-key": key, class: "mono"}, summary));
  const filled = () => { if (place.children.length === 1) place.append(...make().filter((one) => one != null)); };
  if (open.has(key)) filled();
  return place;
}
function rowElement(row) {
  const detail = fold(`row ${row.number}`, short(row.what), () => [
    row.sent ? el("pre", {tabindex: 0, "aria-label": "sent"}, row.sent) : null, row.got ? el("pre", {tabindex: 0, "aria-label": "answered"}, row.got) : null,
    row.kind === "call" ? el("button", {onclick: () => copy(curl(row), lost(row)), "aria-label": "Copy as curl: " + short(row.what)}, "Copy as curl") : null]);
  const answer = el("td", {role: "cell", class: "mono " + (row.ok ? "ok" : "bad")}, short(row.answer || "", 120));
  if (row.fault) answer.append(el("div", {class: "fault"}, "fault: " + row.fault));
  if (row.note) answer.append(el("div", {class: "bad"}, row.note));
  return el("tr", {role: "row"}, el("td", {role: "cell", class: "time mono"}, `${day(row.at)} ${time(row.at)}`),
    el("td", {role: "cell"}, row.source === "client" ? row.target : row.source === row.target ? row.source : `${row.source} → ${row.target}`),
    el("td", {role: "cell"}, detail), answer);
}
function curl(row) {
  const handle = state.handles.find((one) => one.name === row.handle);
  const [head, ...rest] = row.sent.split("\n\n");
  const [first, ...headers] = head.split("\n");
  const [method, target] = [first.split(" ")[0], first.slice(first.indexOf(" ") + 1)];
  const quote = (text) => "'" + text.replaceAll("'", "'\\''") + "'";
  const plain = (word) => /^[A-Za-z]+$/.test(word) ? word : quote(word);
  const skipped = /^(authorization|host|content-length|connection|accept-encoding|user-agent|accept):/i;
  // A HEAD by -X would wait for a body; without -g, brackets and braces mean several addresses.
  const parts = ["curl", "-g", ...(method === "HEAD" ? ["-I"] : ["-X", plain(method)]), quote((handle ? handle.url : "") + target)];
  for (const [name, value] of Object.entries(handle ? handle.headers : {})) parts.push("-H", quote(`${name}: ${value}`));
  for (const header of headers) if (!skipped.test(header)) parts.push("-H", quote(header));
  // Not --data-binary, which takes a body that begins with @ for the name of a file to send.
  if (rest.length) parts.push("--data-raw", quote(rest.join("\n\n")));
  return parts.join(" ");
}
function lost(row) {
  if (/\n… \d+ more bytes$/.test(row.sent)) return "The body is longer than what was copied.";
  if (row.sent.includes("\ufffd")) return "The body holds bytes that are no text: they were not copied.";
  return row.sent.split("\n\n").slice(1).join().includes("***") ? "What was secret in the body was not copied." : "";
}
async function copy(text, notice) {
  try { await navigator.clipboard.writeText(text); say(notice, "told"); }
  catch { prompt("Copy:", text); }
}

// -- what the fakes hold --------------------------------------------------------------------------

function table(names, list, cells) {
  if (!list.length) return el("p", {class: "soft"}, "nothing");
  return el("div", {class: "wide-table", tabindex: 0, role: "group", "aria-label": `table: ${names.filter(Boolean).join(", ")}`}, el("table", {}, el("thead", {}, el("tr", {}, ...names.map((name) => name ? el("th", {scope: "col"}, name) : el("td", {})))),
    el("tbody", {}, ...list.map((item) => el("tr", {}, ...cells(item).map((cell) =>
      el("td", {class: "mono"}, cell instanceof Node ? cell : cell == null ? "" : String(cell))))))));
}
const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
const bytes = (count) => count < 10000 ? `${Math.round(count)} bytes` : count < 1e7 ? `${(count / 1024).toFixed(1)} KiB` : `${(count / 1048576).toFixed(1)} MiB`;
const views = {
  kv_server: (data) => [el("h2", {}, `${data.count} keys, ${bytes(data.memory)}`), searchable(["key", "type", "expires", "value"], data.keys,
    (one) => [one.key, one.type, one.ttl === -1 ? "never" : `in ${one.ttl} s`, short(one.value, 400)])],
  vector_index: (data) => [el("p", {class: "soft mono"}, short(data.info, 300)), ...data.namespaces.flatMap((space) => [
    el("h2", {}, `namespace ${space.name || "(default)"}: ${space.count} vectors`), plot(space) || el("p", {class: "soft"}, "no dense vectors to plot"),
    searchable(["id", "metadata", "data"], space.vectors, (one) => [one.id, short(one.metadata ?? "", 300), short(one.data ?? "", 300)])])],
  broker: (data) => [el("h2", {}, "Groups"), ...(data.groups.length ? [] : [el("p", {class: "soft"}, "nobody consumes")]), ...data.groups.flatMap((group) => [
      el("h3", {}, `${group.name}: ${group.state}, generation ${group.generation}, lag ${group.total_lag}`), lanes(group, data.topics),
      fold(`group ${group.name}`, `${count(group.members.length, "member")}, ${count(group.partitions.length, "partition")}`, () => [
        table(["instance", "state", "assignment"], group.members, (one) => [one.name, one.state, one.assignment.join(", ")]),
        table(["partition", "committed", "position", "lag"], group.partitions, (one) => [one.partition, one.committed, one.position, one.lag])])]),
    el("h2", {}, "Topics"), ...data.topics.flatMap((topic) => [
      el("h3", {}, `${topic.name}: ${count(topic.count, "record")}`),
      table(["partition", "from", "to", "records"], topic.partitions, (one) => [one.partition, one.start, one.end,
        el("span", {}, el("span", {class: "bar", style: `width:${80 * (one.end - one.start) / Math.max(1, ...topic.partitions.map((each) => each.end - each.start))}px`}), ` ${one.end - one.start}`)]),
      fold(`records ${topic.name}`, "records", () => [searchable(["partition", "offset", "key", "value"], topic.records,
        (one) => [one.partition, one.offset, one.key, short(one.value, 300)])])])],
  queue: (data, handle) => [el("h2", {}, `${data.count} messages`), searchable(["message", "state", "to", "retried", "timeline"],
      data.messages.slice().reverse(), (one) => [one.id, one.state, `${one.method} ${one.url}`, `${one.retried} of ${one.max_retries}`,
        fold(`message ${one.id}`, count(one.attempts.length, "attempt"), () => [
          one.attempts.length + (one.next ? 1 : 0) > 1 ? ladder(one) : null, el("pre", {tabindex: 0, "aria-label": "timeline of " + one.id}, one.timeline)])]),
    el("h2", {}, "Retries"), ...ladders(data.messages),
    el("h2", {}, "Workflow runs"), ...(data.workflows.length ? data.workflows.slice().reverse().flatMap((run) => [
      el("h3", {}, `${run.workflowRunId}: ${run.workflowState.replace("RUN_", "").toLowerCase()}`), el("p", {class: "soft mono"}, run.workflowUrl), graph(run)]) : [el("p", {class: "soft"}, "nothing")]),
    el("h2", {}, "Dead letters"), table(["id", "since", "url", "last status", ""], data.dead_letters, (one) => [one.id,
      `${day(one.at)} ${time(one.at)}`, one.url, one.status, act("Retry", "Retry " + one.id, () => ask("POST", path(handle, `/dead-letters/${encodeURIComponent(one.id)}`), {}))]),
    el("h2", {}, "Schedules"), table(["id", "cron", "to", "next runs"], data.schedules, (one) => [one.id, one.cron, one.destination,
      one.paused ? "paused" : one.next.map((at) => `${day(at)} ${time(at)}`).join("\n")])],
};
function ladders(messages) {
  const several = messages.filter((one) => one.attempts.length + (one.next ? 1 : 0) > 1 && one.attempts.length).slice(-6).reverse();
  if (!several.length) return [el("p", {class: "soft"}, "nothing was retried")];
  return several.flatMap((one) => [el("h3", {}, `${one.method} ${short(one.url, 80)}: ${one.state}`), ladder(one)]);
}
// What the page has no drawing for: each list of the view as a table, all else as a line.
function plain({name, service, fixture, fault_kinds, ...content}) {
  const rows = Object.entries(content);
  if (!rows.length) return [el("p", {class: "soft"}, "nothing to show")];
  return rows.flatMap(([title, value]) => {
    if (!Array.isArray(value)) return [el("p", {class: "soft mono"}, `${title}: ${short(value, 300)}`)];
    const columns = [...new Set(value.flatMap((one) => one && typeof one === "object" ? Object.keys(one) : ["value"]))];
    return [el("h2", {}, title), searchable(columns, value, (one) => columns.map((column) =>
      short(one && typeof one === "object" ? one[column] ?? "" : column === "value" ? one : "", 300)))];
  });
}
const searches = {};
function searchable(names, list, cells) {
  const key = selected + names.join();
  const place = el("div");
  const render = () => place.replaceChildren(table(names, list.filter((item) =>
    !searches[key] || JSON.stringify(item).toLowerCase().includes(searches[key].toLowerCase())), cells));
  render();
  return el("div", {}, el("div", {class: "tools"}, el("input", {type: "search", placeholder: "search", "aria-label": "search " + names[0],
    value: searches[key] || "", oninput: (event) => { searches[key] = event.target.value; render(); }})), place);
}
// -- overview --------------------------------------------------------------------------------------

function overview() {
  const snapshot = form("Take a snapshot", "Take", [{name: "id", label: "name", note: "a number"}],
    async ({id}) => el("p", {class: "ok"}, `taken: ${(await ask("POST", "/snapshots", id ? {id} : {})).id}`));
  $("view").replaceChildren(el("section", {class: "data", id: "data"}), el("section", {}, el("h2", {}, "Snapshots"), snapshot, el("div", {id: "snapshots"})),
    el("section", {}, el("h2", {}, "Environment"), el("div", {class: "tools"}, ...Object.entries(environments).map(([text, make]) =>
      el("button", {type: "button", onclick: () => copy(make(environment()), "copied")}, text))), el("div", {id: "environment"})));
}
async function drawOverview() {
  const [due, problems, snapshots] = await Promise.all([ask("GET", "/due"), ask("GET", "/problems"), ask("GET", "/snapshots")]);
  if (selected !== "overview" || !$("environment")) return;
  const figures = JSON.stringify([due, problems, snapshots, state.handles, rates.at(-1)]);
  if (figures === drawn) return;
  drawn = figures;
  keepingFocus($("view"), () => {
    $("data").replaceChildren(el("h2", {}, `${due.count} planned`), strip(due.now, due.due), ...(due.count ? [fold("due", "what falls due, and when", () => [
      table(["in", "at", "what", ""], due.due, (one) => [span(micros(one.at) - micros(due.now)), `${day(one.at)} ${time(one.at)}`, one.what,
        act("Go there", `Go there: ${one.what} at ${one.at}`, () => ask("POST", "/clock", {action: "move_to", to: one.at}))])])] : []),
      el("h2", {}, problems.length ? count(problems.length, "problem") : "No problems"), ...problems.map((one) => el("div", {}, el("h3", {class: "bad"}, one.kind), el("pre", {tabindex: 0, "aria-label": `problem: ${one.kind}`}, one.text))),
      el("div", {class: "pair"}, el("section", {}, el("h2", {}, "Calls a second"), curve(rates, (value) => `${value.toFixed(1)} a second`)),
        ...Object.entries(memories).map(([name, samples]) => el("section", {}, el("h2", {}, `Memory of ${name}`), curve(samples, bytes)))));
    $("snapshots").replaceChildren(table(["snapshot", "", ""], snapshots, (one) => [one.id,
      act("Restore", `Restore ${one.id}`, async () => { if (await confirmed(`Put the data of snapshot ${one.id} back? What the fakes hold now is lost.`, "Restore")) await ask("POST", `/snapshots/${encodeURIComponent(one.id)}`, {}); }),
      act("Forget", `Forget ${one.id}`, () => ask("DELETE", `/snapshots/${encodeURIComponent(one.id)}`))]));
    $("environment").replaceChildren(table(["variable", "value"], Object.entries(environment()), (pair) => pair));
  });
}

// -- one fake --------------------------------------------------------------------------------------

let drawn = "";
async function draw(fresh) {
  if (fresh) drawn = "";
  if (selected === "timeline") { if (fresh) timeline(); else fill(); return; }
  if (selected === "overview") { if (fresh) overview(); await quietly(drawOverview); return; }
  const handle = state.handles.find((one) => tabOf(one) === selected);
  if (!handle) return;
  // The forms are made once: what is typed in them, and what was answered, stays.
  if (fresh) $("view").replaceChildren(el("p", {class: "soft mono"}, handle.url), el("section", {class: "acts", id: "acts"}, ...(acts[handle.fixture]?.(handle) || []), anything(handle)),
    el("section", {id: "data"}), el("section", {}, el("h2", {}, "Faults"), el("div", {id: "faults"}), el("div", {id: "faultform"})));
  await quietly(async () => {
    const [data, faults] = await Promise.all([ask("GET", path(handle, "/view")), ask("GET", path(handle, "/faults"))]);
    if (selected !== tabOf(handle) || !$("faults")) return;
    seen[handle.name] = data;
    if (!$("faultform").children.length && data.fault_kinds) $("faultform").append(faultForm(handle, data.fault_kinds));
    // Typing in a search field must not be interrupted by a refresh.
    if ($("data").contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
    // What has not changed stays as it is: redrawn, it would lose focus, selection and place.
    const content = JSON.stringify([data, faults]);
    if (content === drawn) return;
    drawn = content;
    keepingFocus($("view"), () => {
      $("data").replaceChildren(...(views[data.fixture] || plain)(data, handle));
      $("faults").replaceChildren(...faultList(handle, faults));
    });
  });
}

// -- keeping up -----------------------------------------------------------------------------------

let behind = true;
const came = [];
const refresh = oneAtATime(async () => {
  entries.merge(came.splice(0));
  const before = state.handles.map((handle) => handle.name).join();
  state = await ask("GET", "/state");
  showClock(state.clock);
  $("facts").textContent = `seed ${state.seed} · ${state.handles.length} fakes`;
  $("problems").hidden = !state.problems;
  $("problems").textContent = count(state.problems, "problem");
  if (state.handles.map((handle) => handle.name).join() !== before) tabs();
  // The stream tells of the answers to calls under way, unless it was broken off.
  const wanted = behind ? entries.cursor : entries.latest;
  behind = false;
  try { entries.cover(await ask("GET", "/journal?after=" + wanted)); }
  catch (error) { behind = true; throw error; }
  rows = entries.list;
  await draw(false);
});
const MOST_SAMPLES = 300, EVERY = 2000;
function sample(samples, value) { samples.push({at: Date.now(), value}); if (samples.length > MOST_SAMPLES) samples.shift(); }
let counted = null, ticks = 0;
async function measure() {
  const now = {at: performance.now(), number: rows.length ? rows.at(-1).number : entries.latest};
  if (counted && now.at > counted.at) sample(rates, Math.max(0, now.number - counted.number) * 1000 / (now.at - counted.at));
  counted = now;
  // All keys are weighed for it, so not at each tick.
  if (ticks++ > 1 && ticks % 5) return;
  for (const handle of state.handles.filter((one) => one.fixture === "kv_server")) {
    const {value} = await ask("POST", "/call", {object: handle.name, name: "execute", args: ["INFO", "memory"]});
    const found = /used_memory:(\d+)/.exec(value);
    if (found) sample(memories[handle.name] ??= [], Number(found[1]));
  }
}
let planned = false;
function soon() {
  if (planned) return;
  planned = true;
  setTimeout(() => { planned = false; quietly(refresh); }, 150);
}
attempt(async () => {
  await refresh(); tabs(); await draw(true);
  const live = new EventSource(`${api}/journal/stream?after=${entries.cursor}&token=${encodeURIComponent(token)}`);
  live.onmessage = (event) => { came.push(JSON.parse(event.data)); soon(); };
  live.onerror = () => { behind = true; };
  const tick = oneAtATime(measure);
  setInterval(() => { if (!document.hidden) { soon(); quietly(tick); } }, EVERY);
  quietly(tick);
});
