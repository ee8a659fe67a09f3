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
let state = {handles: [], clock: {}}, rows = [], selected = location.hash.slice(1) || "timeline", open = new Set();

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

async function attempt(work) {
  try { $("notice").textContent = ""; return await work(); }
  catch (error) { $("notice").textContent = error.message; }
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
$("next").addEventListener("click", () => move({action: "advance_to_next"}));
$("freeze").addEventListener("click", () => move({action: state.clock.mode === "frozen" ? "resume" : "freeze"}));
$("reset").addEventListener("click", () => attempt(async () => {
  await ask("POST", "/reset", {}); entries.clear(); await refresh();
}));

function tabs() {
  const names = ["timeline", ...state.handles.map((handle) => handle.name)];
  if (!names.includes(selected)) selected = "timeline";
  $("tabs").replaceChildren(...names.map((name) => el("button", {role: "tab", id: "tab-" + name,
    "aria-selected": String(name === selected), "aria-controls": "view", tabindex: name === selected ? 0 : -1,
    onclick: () => select(name)}, name)));
  $("view").setAttribute("aria-labelledby", "tab-" + selected);
}
$("tabs").addEventListener("keydown", (event) => {
  const all = [...$("tabs").children], place = all.findIndex((tab) => tab === document.activeElement);
  const next = {ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1}[event.key];
  if (next === undefined) return;
  event.preventDefault();
  all.at(next % all.length).click(); $("tab-" + selected).focus();
});
function select(name) { selected = name; location.hash = name; tabs(); draw(true); }

// -- timeline -------------------------------------------------------------------------------------

const filters = {text: "", handle: ""};
function timeline() {
  const search = el("input", {type: "search", placeholder: "filter", "aria-label": "filter the timeline",
    value: filters.text, oninput: (event) => { filters.text = event.target.value; fill(); }});
  const choose = el("select", {"aria-label": "which fake", onchange: (event) => { filters.handle = event.target.value; fill(); }},
    el("option", {value: ""}, "all fakes"), ...state.handles.map((handle) =>
      el("option", {value: handle.name, selected: handle.name === filters.handle}, handle.name)));
  const body = el("tbody", {id: "rows"});
  $("view").replaceChildren(el("div", {class: "tools"}, search, choose,
    el("span", {class: "soft", id: "count"})),
    el("table", {}, el("thead", {}, el("tr", {}, ...["time (UTC)", "fake", "what", "answer"].map((text) =>
      el("th", {scope: "col"}, text)))), body));
  fill();
}
function fill() {
  const body = $("rows");
  if (!body) return;
  const wanted = filters.text.toLowerCase();
  const shown = rows.filter((row) => (!filters.handle || row.handle === filters.handle) &&
    (!wanted || JSON.stringify(row).toLowerCase().includes(wanted)));
  $("count").textContent = `${shown.length} of ${rows.length}`;
  const content = shown.slice(-500).map((row) => `${row.number} ${row.done}`).join();
  if (body.dataset.content === content) return;
  body.dataset.content = content;
  // New rows come on top, so what has the focus keeps its place from the end.
  keepingFocus(body, true, () => body.replaceChildren(...shown.slice(-500).reverse().map(rowElement)));
}
function keepingFocus(place, fromEnd, change) {
  const all = () => { const found = [...place.querySelectorAll("button, summary")]; return fromEnd ? found.reverse() : found; };
  const focused = place.contains(document.activeElement) ? all().indexOf(document.activeElement) : -1;
  change();
  if (focused >= 0) all()[focused]?.focus({preventScroll: true});
}
function rowElement(row) {
  const detail = el("details", {open: open.has(row.number), ontoggle: (event) =>
    event.target.open ? open.add(row.number) : open.delete(row.number)},
    el("summary", {class: "mono"}, short(row.what)),
    row.sent ? el("pre", {}, row.sent) : null, row.got ? el("pre", {}, row.got) : null,
    row.kind === "call" ? el("button", {onclick: () => copy(curl(row), lost(row)), "aria-label": "Copy as curl: " + short(row.what)}, "Copy as curl") : null);
  const answer = el("td", {class: "mono " + (row.ok ? "ok" : "bad")}, short(row.answer || "", 120));
  if (row.fault) answer.append(el("div", {class: "fault"}, "fault: " + row.fault));
  if (row.note) answer.append(el("div", {class: "bad"}, row.note));
  return el("tr", {}, el("td", {class: "time mono"}, `${day(row.at)} ${time(row.at)}`),
    el("td", {}, row.source === "client" ? row.target : row.source === row.target ? row.source : `${row.source} → ${row.target}`),
    el("td", {}, detail), answer);
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
  try { await navigator.clipboard.writeText(text); $("notice").textContent = notice; }
  catch { prompt("Copy:", text); }
}

// -- what the fakes hold --------------------------------------------------------------------------

function table(names, list, cells) {
  if (!list.length) return el("p", {class: "soft"}, "nothing");
  return el("table", {}, el("thead", {}, el("tr", {}, ...names.map((name) => el("th", {scope: "col"}, name)))),
    el("tbody", {}, ...list.map((item) => el("tr", {}, ...cells(item).map((cell) =>
      el("td", {class: "mono"}, cell instanceof Node ? cell : cell == null ? "" : String(cell)))))));
}
const views = {
  kv_server: (data) => [el("h2", {}, `${data.count} keys`), searchable(["key", "type", "expires", "value"], data.keys,
    (one) => [one.key, one.type, one.ttl === -1 ? "never" : `in ${one.ttl} s`, short(one.value, 400)])],
  vector_index: (data) => [el("p", {class: "soft mono"}, short(data.info, 300)), ...data.namespaces.flatMap((space) => [
    el("h2", {}, `namespace ${space.name || "(default)"}: ${space.count} vectors`), plot(space.vectors),
    searchable(["id", "metadata", "data"], space.vectors, (one) => [one.id, short(one.metadata ?? "", 300), short(one.data ?? "", 300)])])],
  broker: (data) => [el("h2", {}, "Topics"), ...data.topics.flatMap((topic) => [
      el("h3", {}, `${topic.name}: ${topic.count} records`),
      table(["partition", "from", "to", "records"], topic.partitions, (one) => [one.partition, one.start, one.end,
        el("span", {class: "bar", style: `width:${Math.min(240, 4 * (one.end - one.start))}px`, title: one.end - one.start})]),
      el("details", {}, el("summary", {}, "records"), searchable(["partition", "offset", "key", "value"], topic.records,
        (one) => [one.partition, one.offset, one.key, short(one.value, 300)]))]),
    el("h2", {}, "Groups"), ...data.groups.flatMap((group) => [
      el("h3", {}, `${group.name}: ${group.state}, generation ${group.generation}, lag ${group.total_lag}`),
      table(["instance", "state", "assignment"], group.members, (one) => [one.name, one.state, one.assignment.join(", ")]),
      table(["partition", "committed", "position", "lag"], group.partitions, (one) => [one.partition, one.committed, one.position, one.lag])])],
  queue: (data, handle) => [el("h2", {}, `${data.count} messages`), searchable(["message", "state", "to", "retried", "timeline"],
      data.messages.slice().reverse(), (one) => [one.id, one.state, `${one.method} ${one.url}`, `${one.retried} of ${one.max_retries}`,
        el("details", {}, el("summary", {}, `${one.attempts.length} attempts`), el("pre", {}, one.timeline),
          table(["number", "at", "waited", "why", "status"], one.attempts, (a) => [a.number, `${day(a.at)} ${time(a.at)}`,
            `${a.waited} s`, a.why, a.status ?? a.exception ?? a.state]))]),
    el("h2", {}, "Dead letters"), table(["id", "since", "url", "last status", ""], data.dead_letters, (one) => [one.id,
      `${day(one.at)} ${time(one.at)}`, one.url, one.status, el("button", {onclick: () => attempt(async () => {
        await ask("POST", `/handles/${encodeURIComponent(handle.name)}/dead-letters/${encodeURIComponent(one.id)}`, {});
        await refresh(); }), "aria-label": "Retry " + one.id}, "Retry")]),
    el("h2", {}, "Schedules"), table(["id", "cron", "to", "next runs"], data.schedules, (one) => [one.id, one.cron, one.destination,
      one.paused ? "paused" : one.next.join("\n")])],
};
// What the page has no drawing for: each list of the view as a table, all else as a line.
function plain({name, service, fixture, ...content}) {
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
function plot(vectors) {
  const shown = vectors.filter((vector) => vector.point);
  if (!shown.length) return el("p", {class: "soft"}, "no dense vectors to plot");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 640 360"); svg.setAttribute("class", "plot"); svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${shown.length} vectors on the plane in which they differ most`);
  const most = Math.max(1e-9, ...shown.flatMap((vector) => vector.point.map(Math.abs)));
  for (const vector of shown) {
    const [x, y] = [320 + vector.point[0] / most * 260, 180 - vector.point[1] / most * 150];
    const dot = document.createElementNS(svg.namespaceURI, "circle");
    dot.setAttribute("cx", x); dot.setAttribute("cy", y); dot.setAttribute("r", 4);
    const title = document.createElementNS(svg.namespaceURI, "title");
    title.textContent = `${vector.id} ${short(vector.metadata ?? "")}`; dot.append(title); svg.append(dot);
    if (shown.length <= 60) {
      const label = document.createElementNS(svg.namespaceURI, "text");
      label.setAttribute("x", x + 6); label.setAttribute("y", y + 3); label.textContent = short(vector.id, 24); svg.append(label);
    }
  }
  return svg;
}

let drawn = "";
async function draw(fresh) {
  if (selected === "timeline") { if (fresh) timeline(); else fill(); return; }
  const handle = state.handles.find((one) => one.name === selected);
  if (!handle) return;
  await attempt(async () => {
    const data = await ask("GET", `/handles/${encodeURIComponent(handle.name)}/view`);
    if (selected !== handle.name) return;
    // Typing in a search field must not be interrupted by a refresh.
    if (!fresh && $("view").contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
    // What has not changed stays as it is: redrawn, it would lose focus, selection and place.
    const content = JSON.stringify(data);
    if (!fresh && content === drawn) return;
    drawn = content;
    const kept = [...$("view").querySelectorAll("details")].map((one) => one.open);
    const show = views[data.fixture] || plain;
    keepingFocus($("view"), false, () => {
      $("view").replaceChildren(el("p", {class: "soft mono"}, handle.url), ...show(data, handle));
      if (!fresh) [...$("view").querySelectorAll("details")].forEach((one, index) => { one.open = kept[index] || false; });
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
  $("facts").textContent = `seed ${state.seed} · ${state.handles.length} fakes` + (state.problems ? ` · ${state.problems} problems` : "");
  if (state.handles.map((handle) => handle.name).join() !== before) tabs();
  // The stream tells of the answers to calls under way, unless it was broken off.
  const wanted = behind ? entries.cursor : entries.latest;
  behind = false;
  try { entries.cover(await ask("GET", "/journal?after=" + wanted)); }
  catch (error) { behind = true; throw error; }
  rows = entries.list;
  await draw(false);
});
let planned = false;
function soon() {
  if (planned) return;
  planned = true;
  setTimeout(() => { planned = false; attempt(refresh); }, 150);
}
attempt(async () => {
  await refresh(); tabs(); await draw(true);
  const live = new EventSource(`${api}/journal/stream?after=${entries.cursor}&token=${encodeURIComponent(token)}`);
  live.onmessage = (event) => { came.push(JSON.parse(event.data)); soon(); };
  live.onerror = () => { behind = true; };
  setInterval(() => { if (!document.hidden) soon(); }, 2000);
});
