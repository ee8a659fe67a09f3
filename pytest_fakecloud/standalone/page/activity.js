// Everything that happened, the newest first: one line each, with the request and answer beside it.

import {code, copy, count, day, detailBar, el, empty, facts, fine, head, number, redraw, short, title, tools} from "./dom.js";
import {ask, follow} from "./api.js";
import {go, link} from "./router.js";
import {Rows, oneAtATime} from "./rows.js";

export const entries = new Rows();
export const journal = {loaded: false, listeners: new Set()};
const NEWEST = 300;
let behind = true;
const came = [];

const tell = () => { for (const listener of journal.listeners) listener(); };
export const catchUp = oneAtATime(async () => {
  entries.merge(came.splice(0));
  if (!journal.loaded) await first();
  else if (behind) {
    behind = false;
    try { entries.cover(await ask("GET", "/journal?after=" + entries.cursor)); }
    catch (error) { behind = true; throw error; }
  }
  tell();
});
// The newest entries come first: the server takes about a millisecond to write each out.
async function first() {
  const {latest} = await ask("GET", "/state"), from = Math.max(0, latest - NEWEST);
  entries.cover(await ask("GET", "/journal?after=" + from));
  journal.loaded = true;
  behind = false;
  if (!from) return;
  journal.older = true;
  ask("GET", "/journal?after=0").then((found) => entries.merge(found), () => {}).then(() => { journal.older = false; tell(); });
}
let planned = false, stream;
export function listen() {
  const again = () => setTimeout(listen, 1000);
  stream = new AbortController();
  behind = true;
  follow(entries.cursor, (row) => {
    came.push(row);
    if (planned) return;
    planned = true;
    setTimeout(() => { planned = false; catchUp().catch(() => {}); document.dispatchEvent(new Event("happened")); }, 120);
  }, stream.signal).then(again, again);
  catchUp().catch(() => {});
}

// Forgets all entries, for another server that numbers them from 1 again.
export function startOver() {
  entries.begin();
  journal.loaded = false;
  stream.abort();
}

// -- one row as curl --

export function curl(row, handle) {
  const [head, ...rest] = row.sent.split("\n\n"), [first, ...headers] = head.split("\n");
  const [method, target] = [first.split(" ")[0], first.slice(first.indexOf(" ") + 1)];
  const quote = (text) => "'" + text.replaceAll("'", "'\\''") + "'", plain = (word) => /^[A-Za-z]+$/.test(word) ? word : quote(word);
  const skipped = /^(authorization|host|content-length|connection|accept-encoding|user-agent|accept):/i;
  // A HEAD by -X would wait for a body; without -g, brackets and braces mean several addresses.
  const parts = ["curl", "-g", ...(method === "HEAD" ? ["-I"] : ["-X", plain(method)]), quote((handle ? handle.url : "") + target)];
  for (const [name, value] of Object.entries(handle ? handle.headers : {})) parts.push("-H", quote(`${name}: ${value}`));
  for (const header of headers) if (!skipped.test(header)) parts.push("-H", quote(header));
  // Not --data-binary, which takes a body that begins with @ for the name of a file to send.
  if (rest.length) parts.push("--data-raw", quote(rest.join("\n\n")));
  return parts.join(" ");
}
export function lost(row) {
  if (/\n… \d+ more bytes$/.test(row.sent)) return "Copied, but the body is longer than what was copied.";
  if (row.sent.includes("\ufffd")) return "Copied without the bytes of the body that are not text.";
  return row.sent.split("\n\n").slice(1).join().includes("***") ? "Copied without the secrets in the body." : "Copied.";
}

// -- the page --

const STATUSES = {"": "all", ok: "succeeded", failed: "failed", fault: "met a fault", open: "under way"};
const isOf = {"": () => true, ok: (row) => row.ok && row.done, failed: (row) => !row.ok && row.done, fault: (row) => Boolean(row.fault), open: (row) => !row.done};
const texts = new WeakMap(), narrow = matchMedia("(max-width: 700px)");
function textOf(row) {
  if (!texts.has(row)) texts.set(row, JSON.stringify([row.what, row.answer, row.sent, row.got, row.source, row.target, row.note, row.fault]).toLowerCase());
  return texts.get(row);
}

export class ActivityPage {
  constructor(state) {
    Object.assign(this, {state, shown: [], drawn: new Map(), paused: null});
    this.search = el("input", {type: "search", id: "search", placeholder: "Search requests and answers", "aria-label": "search the activity", oninput: () => this.change({search: this.search.value})});
    this.fake = el("select", {"aria-label": "fake", onchange: () => this.change({fake: this.fake.value})});
    this.status = el("select", {"aria-label": "status", onchange: () => this.change({status: this.status.value})}, Object.entries(STATUSES).map(([value, text]) => el("option", {value}, text)));
    this.pause = el("button", {type: "button", "aria-pressed": "false", onclick: () => this.hold(!this.paused)}, "Pause");
    this.counted = el("span", {class: "soft", role: "status", id: "count"}, "Loading…");
    this.rows = el("div", {class: "virtual", role: "list", "aria-label": "calls and events, the newest first"});
    this.scroller = el("div", {class: "scroller", tabindex: 0, role: "group", "aria-label": "activity"}, this.rows);
    this.nothing = el("div");
    this.side = el("section", {class: "detail", "aria-label": "details", hidden: true});
    this.split = el("div", {class: "split activity"}, el("section", {class: "list", "aria-label": "activity"}, tools(this.search, this.fake, this.status, this.pause, this.counted), this.nothing, this.scroller), this.side);
    this.node = el("div", {class: "page"}, el("h1", {}, "Activity"), this.split);
    this.scroller.addEventListener("scroll", () => this.later(), {passive: true});
    this.scroller.addEventListener("keydown", (event) => this.step(event));
    this.side.addEventListener("keydown", (event) => { if (event.key === "Escape") { go(this.address()); this.scroller.focus(); } });
    this.resized = new ResizeObserver(() => { this.forget(); this.later(); });
    this.resized.observe(this.scroller);
    this.update = () => this.fill();
    journal.listeners.add(this.update);
  }
  leave() { journal.listeners.delete(this.update); this.resized.disconnect(); }
  address(id, values = this.values) { return link(id === undefined ? ["activity"] : ["activity", String(id)], values); }
  change(values) {
    clearTimeout(this.timer);
    this.changes = {...this.changes, ...values};
    this.timer = setTimeout(() => { const given = this.changes; this.changes = {}; go(this.address(this.id, {...this.values, ...given}), {replace: true}); }, 100);
  }

  async go(route) {
    this.values = route.query;
    this.id = route.parts[1];
    if (document.activeElement !== this.search) this.search.value = route.query.search ?? "";
    this.fake.replaceChildren(el("option", {value: ""}, "all fakes"), ...this.state().handles.map((one) => el("option", {value: one.name}, one.name)));
    this.fake.value = route.query.fake ?? "";
    this.status.value = route.query.status ?? "";
    this.fill();
    const at = this.shown.findIndex((row) => String(row.number) === this.id);
    if (at >= 0 && (at * this.high < this.scroller.scrollTop || (at + 1) * this.high > this.scroller.scrollTop + this.scroller.clientHeight)) this.scroller.scrollTop = at * this.high - this.scroller.clientHeight / 3;
  }
  async refresh() { this.fill(); }

  hold(paused) {
    this.paused = paused ? entries.list.slice() : null;
    this.pause.setAttribute("aria-pressed", String(paused));
    this.fill();
  }

  get high() { return narrow.matches ? 52 : 34; }
  forget() { this.drawn.clear(); this.rows.replaceChildren(); }

  fill() {
    if (!this.values) return;
    const {search = "", fake = "", status = ""} = this.values, wanted = search.toLowerCase(), all = this.paused ?? entries.list, fits = isOf[status] ?? isOf[""];
    const found = search || fake || status ? all.filter((row) => (!fake || row.handle === fake) && fits(row) && (!wanted || textOf(row).includes(wanted))) : all.slice();
    found.reverse();
    const missed = this.paused ? entries.list.length - this.paused.length : 0;
    this.pause.textContent = this.paused ? `Resume${missed ? `, ${number(missed)} new` : ""}` : "Pause";
    this.counted.textContent = !journal.loaded ? "Loading…" : found.length === all.length ? count(all.length, "entry").replace("entrys", "entries") : `${number(found.length)} of ${number(all.length)}`;
    if (journal.older) this.counted.textContent += ", loading older ones…";
    const advice = !journal.loaded || found.length ? [] : all.length ? [empty("Nothing matches.", "Clear the search or choose another status.")]
      : [empty("No requests yet.", el("p", {}, "Every request to a fake appears here as it is made. ", el("a", {href: "#/connect"}, "Connect your application"), " to begin."))];
    redraw(this.nothing, advice);
    this.show(found);
    this.drawSide();
  }

  // Only the rows in sight are in the page. Who reads further down keeps the place as rows are added.
  show(found) {
    const first = this.shown[0], grown = this.scroller.scrollTop > 0 && first ? found.findIndex((row) => row.number === first.number) : 0;
    this.shown = found;
    this.rows.style.cssText = `height:${found.length * this.high}px`;
    if (grown > 0) this.scroller.scrollTop += grown * this.high;
    this.draw();
  }
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }
  draw() {
    const {high} = this, from = Math.max(0, Math.floor(this.scroller.scrollTop / high) - 6), to = Math.min(this.shown.length, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / high) + 6);
    const kept = new Set(this.shown.slice(from, to).map((row) => row.number)), focused = this.rows.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    for (const [key, one] of this.drawn) if (!kept.has(key)) { one.node.remove(); this.drawn.delete(key); }
    for (let at = from; at < to; at++) {
      const row = this.shown[at], chosen = String(row.number) === this.id;
      let one = this.drawn.get(row.number);
      if (!one || one.row !== row || one.chosen !== chosen) {
        const node = this.line(row, chosen);
        if (one) one.node.replaceWith(node); else this.rows.append(node);
        this.drawn.set(row.number, one = {row, node, chosen});
        if (focused === node.firstChild.dataset.key) node.firstChild.focus({preventScroll: true});
      }
      one.node.style.cssText = `transform:translateY(${at * high}px);height:${high}px`;
      one.node.setAttribute("aria-posinset", at + 1);
      one.node.setAttribute("aria-setsize", this.shown.length);
    }
  }
  line(row, chosen) {
    const who = row.source === "client" ? row.target : row.source === row.target ? row.source : `${row.source} → ${row.target}`;
    return el("div", {role: "listitem", class: chosen ? "line chosen" : "line"}, el("a", {href: this.address(row.number), "data-key": String(row.number), "aria-current": chosen ? "true" : null},
      el("span", {class: "at", title: row.at}, fine(row.at)), el("span", {class: "who"}, who), el("span", {class: "what mono"}, short(row.what, 200)),
      el("span", {class: `got mono ${row.ok ? "ok" : "bad"}`}, row.fault ? el("b", {class: "fault"}, "fault ") : null, short(row.answer || row.note || "", 160))));
  }
  step(event) {
    const by = {ArrowDown: 1, j: 1, ArrowUp: -1, k: -1}[event.key];
    if (!by) return;
    const at = this.shown.findIndex((row) => String(row.number) === document.activeElement.dataset?.key), to = Math.max(0, Math.min(this.shown.length - 1, at + by));
    if (!this.shown.length) return;
    event.preventDefault();
    const top = to * this.high;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    if (top + this.high > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top + this.high - this.scroller.clientHeight;
    this.draw();
    this.drawn.get(this.shown[to].number)?.node.firstChild.focus({preventScroll: true});
  }

  drawSide() {
    const row = this.id && entries.list.find((one) => String(one.number) === this.id), shape = JSON.stringify([this.id, row]);
    this.side.hidden = !this.id;
    this.split.classList.toggle("chosen", Boolean(this.id));
    if (!this.id || shape === this.sideShape) { if (!this.id) this.sideShape = ""; return; }
    this.sideShape = shape;
    if (!row) { redraw(this.side, detailBar(this.address()), journal.loaded ? empty("This entry is gone.", "The journal was cleared by a reset, or keeps only newer entries.") : el("p", {class: "soft"}, "Loading…")); return; }
    const handle = this.state().handles.find((one) => one.name === row.handle);
    redraw(this.side, detailBar(this.address()), title(short(row.what, 300)),
      facts({time: `${day(row.at)} ${fine(row.at)} UTC`, from: row.source, to: row.target, fault: row.fault && el("span", {class: "fault"}, row.fault)}), row.note ? el("p", {class: "bad"}, row.note) : null,
      row.kind === "call" ? tools(el("button", {type: "button", onclick: () => copy(curl(row, handle), lost(row))}, "Copy as curl"), handle ? el("a", {class: "button", href: link(["fake", handle.name])}, `Open ${handle.name}`) : null) : null,
      row.answer ? [head("Answer"), el("p", {class: `mono ${row.ok ? "ok" : "bad"}`}, row.answer)] : null, row.got ? [head("Answered"), code(row.got, "answered")] : null, row.sent ? [head("Sent"), code(row.sent, "sent")] : null);
  }
}
