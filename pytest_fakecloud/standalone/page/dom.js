// Formatting and small components that all pages share.
import {COPIES, NO_ANSWER, ask, change, connection, query} from "./api.js";
import {count, el, number, own, plural, span, svg, visible} from "./elements.js";

export {count, el, number, own, plural, span, svg, visible};
export const $ = (id) => document.getElementById(id);

// -- words --
const WORDS = {unstubbed: "no destination", "ReJSON-RL": "JSON", zset: "sorted set", search: "search index", vector: "vector index"};
export const words = (state) => own(WORDS, state) ?? String(state).replaceAll("_", " ");
export const day = (text) => text.slice(0, 10);
export const time = (text) => text.slice(11, 19);
export const fine = (text) => text.slice(11, 23).replace(/[+Z].*/, "");
// A time with milliseconds, and with its day if that is not the clock's.
export const withDay = (text) => `${day(text) === day(clock.now ?? "") ? "" : `${day(text)} `}${fine(text)}`;
// What the items of a list are in the recorded calls.
export const KINDS = {keys: "key", topics: "topic", groups: "group", messages: "message", runs: "run", schedules: "schedule", queues: "queue", "url-groups": "URL group", callbacks: "message", "dead-letters": "message"};
const PRODUCTS = {kv_server: "Upstash Redis", vector_index: "Upstash Vector", queue: "QStash, Workflow", broker: "Kafka REST"};
export const product = ({fixture}) => own(PRODUCTS, fixture) ?? fixture;
// The addresses of a fake: of its HTTP API, and of its database protocol with the password.
export const addresses = ({url, env = {}}) => [url, ...Object.entries(env).filter(([name]) => name === "REDIS_URL").map(([, address]) => address)];
// A button that copies the token or the password with which clients sign in to the HTTP API of a fake.
export const tokenButton = ({name, env = {}}) => { const [, token] = Object.entries(env).find(([variable]) => /(?<!ONLY)_TOKEN$|REST_PASSWORD$/.test(variable)) ?? []; return token ? copyButton(token, `Copy the token of ${name}`, "Token") : null; };
// The host and the port of an address stay on one line.
export const unbroken = (text) => text.split(/((?<![\w.])[\w.-]+:\d{2,5}(?!\d))/).map((part, at) => at % 2 ? el("span", {class: "nowrap"}, part) : part);
// An address without the user and the password in it.
export const withoutPassword = (address) => address.replace(/\/\/[^@/]*@/g, "//");
// A time in a list, without its day if that is the clock's, or where there is little room.
export const when = (text) => text ? el("time", {datetime: text, title: `${both(text)} UTC${beside(text)}`}, day(text) === day(clock.now ?? "") ? null : el("span", {class: "day"}, `${day(text)} `), time(text)) : "";
// A time in full, with the distance from the clock and the local time; showClock() keeps the distance current.
export const moment = (text) => text ? el("time", {datetime: text, "data-full": "yes"}, `${both(text)} UTC`, el("span", {class: "soft"}, beside(text))) : "";
function beside(text) {
  const us = clock.now ? micros(text) - micros(clock.now) : 0, local = new Date(micros(text) / 1000), distance = Math.abs(us) < 1e6 ? "now" : us > 0 ? `in ${about(us)}` : `${about(-us)} ago`;
  return ` · ${distance}${local.getTimezoneOffset() ? ` · ${local.toLocaleString("sv-SE")} local` : ""}`;
}
export const isAhead = (text) => Boolean(text && clock.now) && micros(text) > micros(clock.now);
export const both = (text) => text ? `${day(text)} ${time(text)}` : "";
export function short(value, length = 160) {
  // Spaces as in Python.
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 1) ?? "").replace(/(?<=[{[])\n *|\n *(?=[}\]])/g, "").replace(/\n */g, " ");
  return visible(text.length > length ? text.slice(0, length) + "…" : text);
}
// JSON in JSON, without what escapes it.
export const unescaped = (text) => /^\s*[[{"]/.test(text) ? text.replace(/\\+"/g, '"') : text;
// The fields of a JSON object in a line of a list, as those of a hash are.
export const plainly = (text) => { try { const fields = JSON.parse(text); if (fields && typeof fields === "object" && !Array.isArray(fields)) return Object.entries(fields).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", "); } catch { /* no JSON, or its beginning */ } return unescaped(text); };
export const withoutSchemes = (text) => text.replace(/\bhttps?:\/\//g, "");
export const bytes = (many) => many < 10000 ? `${Math.round(many)} B` : many < 1e7 ? `${(many / 1024).toFixed(1)} KiB` : `${(many / 1048576).toFixed(1)} MiB`;
// Names a duration in a list by its two largest units.
export const about = (us) => { const unit = [[8.64e10, 3.6e9], [3.6e9, 6e7], [1e6, 1e6]].find(([from]) => us >= from)?.[1] ?? 1; return span(Math.floor(us / unit) * unit); };
const isJson = (text) => { try { return /^\s*[[{]/.test(text) && Boolean(JSON.parse(text)); } catch { return false; } };
// The question before JSON is replaced by what is none, or anything by what only begins like JSON.
export const breaksJson = (was, now, what) => isJson(now) || was === now ? null : isJson(was) ? `${what} was JSON, and is not any more.` : /^\s*[[{]/.test(now) ? `${what} begins like JSON, but is not.` : null;
export const laidOut = (text) => isJson(text) ? JSON.stringify(JSON.parse(text), null, 2) : text;
export function json(text, what) {
  try { return JSON.parse(text); } catch (error) { throw new Error(`${what} must be JSON (${error.message}): ${short(text, 80)}`); }
}
// Returns microseconds: several events can be due within one millisecond.
export const micros = (text) => Date.parse(text.replace(/\.\d+/, "")) * 1000 + Number((/\.(\d+)/.exec(text)?.[1] ?? "").padEnd(6, "0").slice(0, 6));
export const isoOf = (us) => new Date(Math.floor(us / 1000)).toISOString().replace("Z", `${String(us % 1000).padStart(3, "0")}Z`);

// -- parts --
export const pill = (text, kind = "") => el("span", {class: `pill ${kind}`}, text);
// A text with links to the calls that it names.
const withCalls = (text) => typeof text === "string" ? text.split(/\b((?:call|row) \d+)\b/).map((part) => /^(call|row) \d/.test(part) ? el("a", {href: link(["activity", part.split(" ")[1]])}, part) : part) : [text];
export const soft = (...text) => el("p", {class: "soft"}, ...text.flatMap(withCalls));
export const code = (text, label) => el("pre", {tabindex: 0, role: "group", "aria-label": label}, text);
export const tools = (...parts) => el("div", {class: "tools"}, parts);
// The first line of a page: its title, and what is done on it. A narrow screen shows the title in the navigation alone.
export const pageHead = (text, ...parts) => el("div", {class: "tools head"}, el("h1", {}, text), parts);
export const done = (...text) => el("p", {class: "ok", role: "status"}, text);
// Empties fields of a form after they were sent, so that the next one is not the same again.
export const emptied = (inputs, ...names) => { for (const name of names) inputs[name].value = ""; };
export const head = (text) => el("h3", {}, text);
export const shown = (cell) => typeof cell === "string" ? visible(cell) : cell;
export const title = (text) => el("h2", {class: "mono", tabindex: -1}, shown(text));
export const empty = (title, ...advice) => el("div", {class: "empty"}, el("h2", {}, title), ...advice.map((line) => line instanceof Node ? line : el("p", {}, line)));
// What an address names does not exist, but these places do, each with its name.
export const missing = (text, places) => empty(text, el("p", {}, "There is ", places.flatMap(([place, name], at) => [at ? ", " : "", el("a", {href: link(place)}, name)]), "."));

export function table(label, names, items, cells, rowAttributes = () => ({})) {
  return el("div", {class: "wide-table", tabindex: 0, role: "group", "aria-label": label}, el("table", {},
    el("thead", {}, el("tr", {}, names.map((name) => name ? el("th", {scope: "col"}, name) : el("td")))),
    el("tbody", {}, items.map((item) => el("tr", rowAttributes(item), cells(item).map((cell, at) => cellElement(names[at], cell)))))));
}
// A cell breaks only words that are longer than those of a language, such as ids and addresses.
function cellElement(name, content) {
  const cell = el("td", {"data-name": name || null}, shown(content ?? ""));
  cell.classList.toggle("whole", !/\S{17}/.test(cell.textContent));
  return cell;
}
export const facts = (pairs) => el("dl", {class: "facts"}, Object.entries(pairs).filter(([, value]) => value != null && value !== "" && !(Array.isArray(value) && !value.length))
  .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

// -- results of actions --
let fading = 0;
// What the notice says while the clock moves, and until when it is moved.
export const moving = {text: "", until: null};
// While the clock moves, its notice takes the place of an empty one. A notice ends at the next action, and one that only says what was done when any control is pressed; pressing its own button is none.
export function say(text, kind = "bad") {
  if (!text && moving.text) [text, kind] = [moving.text, "busy"];
  if (!text && $("notice").contains(document.activeElement)) return;
  // The banner of a lost connection says it already.
  if (text === NO_ANSWER && connection.lost) return;
  clearTimeout(fading);
  const stays = [text].flat().some((part) => part instanceof HTMLButtonElement || part instanceof HTMLAnchorElement), isInside = $("notice").contains(document.activeElement);
  sessionStorage.removeItem("undo");
  $("notice").dataset.kind = kind;
  $("notice").replaceChildren(...[text, text && el("button", {type: "button", class: "quiet", "aria-label": "Dismiss", onclick: dismiss}, "✕")].flat().filter(Boolean).flatMap(withCalls));
  // Whoever pressed what was in it goes on in the details or on the page, which end above its bar.
  if (isInside) goOn();
  document.body.style.setProperty("--floating", `${text ? $("notice").offsetHeight : 0}px`);
  // What can be pressed stays longer, and as long as it is pointed at.
  const fade = () => { if ($("notice").matches(":hover, :focus-within")) fading = setTimeout(fade, 2000); else dismiss(); };
  if (kind === "good" && text) fading = setTimeout(fade, stays ? 20000 : 8000);
}
addEventListener("click", ({target}) => { if ($("notice").dataset.kind === "good" && target.closest("a, button, tr") && !$("notice").querySelector("a, button:not([aria-label=Dismiss])")) dismiss(); }, true);
const goOn = () => (document.querySelector(".detail:not([hidden])") ?? $("view")).focus({preventScroll: true});
$("notice").addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); dismiss(); } });
export function dismiss() { if ($("notice").contains(document.activeElement)) goOn(); sessionStorage.removeItem("undo"); $("notice").replaceChildren(); document.body.style.removeProperty("--floating"); }
export async function attempt(work) { try { say(""); return await work(); } catch (error) { say(error.message); } }
export async function copy(text, notice) { try { await navigator.clipboard.writeText(text); say(notice, "good"); } catch { prompt("Copy:", text); } }
export const copyButton = (text, label, shown = "Copy") => el("button", {type: "button", class: "quiet", "aria-label": label, onclick: () => copy(typeof text === "function" ? text() : text, `${label.replace("Copy", "Copied")}.`)}, shown);

// Buttons that copy what was made by hand as code of a test and as a request of the control API.
export function copies({method, path, body}, what = "this") {
  const place = tools();
  ask("POST", COPIES, {method, path, body}).then((texts) => place.replaceChildren(el("span", {class: "soft"}, what === "a test" ? "Copy as a test with" : "Copy as"), ...Object.entries(texts).map(([name, text]) => copyButton(text, `Copy as ${name}: ${what}`, name))), () => {});
  return place;
}
export function download(name, text) {
  const href = URL.createObjectURL(new Blob([text], {type: "application/json"}));
  el("a", {href, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}
export const saveButton = (name, text, label, shown = label) => el("button", {type: "button", class: shown === label ? null : "quiet", "aria-label": label, onclick: ({currentTarget}) => attempt(() => onlyOnce(currentTarget, async () => download(name, await text())))}, shown);
export const choice = (label, options, chosen, take, text = (name) => name) => el("div", {class: "choice", role: "group", "aria-label": label}, options.map((value) => el("button", {type: "button", class: "facet", "aria-pressed": String(value === chosen), "data-key": `${label} ${value}`, onclick: () => take(value)}, text(value))));

// The bar above the details of an item. Close returns to the list, and Back does not open the details again.
export const detailBar = (address, name, about = {search: name}) => el("div", {class: "tools detail-head"}, el("a", {class: "button", href: address, "aria-label": "close the details", onclick: (event) => { if (event.ctrlKey || event.metaKey || event.shiftKey) return; event.preventDefault(); go(address, {replace: true}); }}, "✕ Close"), name ? el("a", {href: link(["activity"], about)}, "In Activity") : null, copyButton(() => location.href, "Copy link to these details", "Copy link"));

// Opens a part of the page, and goes there.
export const unfold = (part) => { part.open = true; part.firstChild.focus({preventScroll: true}); part.scrollIntoView({block: "start"}); };
// A button that changes data, as its label says. It asks `question` first if the change cannot be undone; `no` is the answer that changes nothing. One with answers `keep` and `other` lets `work` keep what was written since.
export function act(text, label, work, {question, isRisky, no} = {}) {
  const name = text.replace("…", "");
  return el("button", {type: "button", "aria-label": label.startsWith(name) ? label : `${name}: ${label}`, class: isRisky ? "risky" : null, onclick: async ({currentTarget}) => {
    const asked = typeof question === "function" ? await attempt(question) : question;
    const {question: shown = asked, keep, other} = asked ?? {}, answer = question && asked && await confirmed(shown, keep ?? label, {isRisky, no, other});
    if (question && !answer) return;
    await attempt(() => onlyOnce(currentTarget, () => work(Boolean(keep) && answer === true)));
    document.dispatchEvent(new Event("changed"));
  }}, text);
}
// The same for a button that takes data away.
export const removal = (text, label, work, options) => act(text, label, work, {...options, isRisky: true});
// Works once for a button, which shows that it is busy, however often it is pressed meanwhile.
async function onlyOnce(button, work) {
  if (button.ariaBusy === "true") return undefined;
  button.ariaBusy = "true";
  try { return await work(); } finally { button.ariaBusy = null; }
}
// A question, with the button that says what a change does to what, that for `no`, and another one for a second way. The answer is true, "other" or, as when the address changes, false.
export function confirmed(question, button, {other, isRisky, no = "Cancel"} = {}) {
  return new Promise((done) => {
    const left = () => dialog.close(), dialog = opened("question", {onclose: () => { removeEventListener("hashchange", left); done({yes: true, other: "other"}[dialog.returnValue] ?? false); }}, el("form", {method: "dialog"}, typeof question === "string" ? el("p", {id: "question"}, question) : question,
      tools(el("button", {value: "yes", class: isRisky ? "danger" : "primary"}, short(button, 60)), other ? el("button", {value: "other"}, other) : null, el("button", {value: "no", autofocus: true}, no))));
    addEventListener("hashchange", left);
  });
}
export const DISCARD = ["Discard what you have typed? It was not sent.", "Discard", {isRisky: true, no: "Keep editing"}];
// Opens a dialog that is labelled by one of its elements and is removed when it closes.
export function opened(label, attributes, ...content) {
  const dialog = el("dialog", {"aria-labelledby": label, ...attributes}, content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

// -- forms --
let made = 0;
// A field is {name, label, note, value, kind, options, wide, needed, list}; `work` receives the values. `overwrites` returns a question if it would overwrite something else than what the form shows, `confirms` the answer that goes on. `edits` is false if nothing is lost with the values,
// `copied` if the page offers the copies of the change elsewhere.
export function form(title, button, fields, work, {open = true, overwrites, confirms = (values, of) => `Overwrite ${of}`, edits = true, copied = true, undo} = {}) {
  const inputs = {}, out = el("div", {class: "out"});
  const parts = fields.map(({name, label, options, note, value, wide, kind, needed, list, fixed}) => {
    const id = `field${++made}`;
    const input = options ? el("select", {id, name, "data-key": `${title} ${name}`}, options.map((one) => el("option", {value: one.value ?? one}, one.label ?? (one || "any"))))
      : kind === "area" ? el("textarea", {id, name, "data-key": `${title} ${name}`, rows: Math.max(3, Math.min(24, String(value ?? "").split("\n").reduce((sum, line) => sum + 1 + Math.floor(line.length / 80), 0))), placeholder: note, required: needed, spellcheck: "false"})
      : el("input", {id, name, "data-key": `${title} ${name}`, type: kind || "text", placeholder: note, required: needed, autocomplete: "off", spellcheck: "false", readonly: fixed, list: list ? id + "list" : null, min: kind === "number" ? 0 : null});
    if (value !== undefined) input.value = value;
    inputs[name] = input;
    const known = list ? el("datalist", {id: id + "list"}) : null;
    if (known) input.addEventListener("focus", async () => known.replaceChildren(...(await list()).map((one) => el("option", {value: one}))));
    return el("div", {class: wide ? "field wide" : "field"}, el("label", {for: id}, label), input, known);
  });
  const body = el("form", {class: "act", "aria-label": title, oninput: () => { body.dataset.typed = edits ? "yes" : ""; }, onkeydown: ({key, target, ctrlKey, metaKey}) => { if (key === "Enter" && (ctrlKey || metaKey) && target.localName === "textarea") body.requestSubmit(); }, onsubmit: async (event) => {
    event.preventDefault();
    out.replaceChildren(); say("");
    const of = body.closest(".detail")?.querySelector("h2")?.textContent ?? title, before = change.number, values = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]));
    try {
      const submit = body.querySelector("[type=submit]"), question = await onlyOnce(submit, async () => overwrites?.(values));
      // While the question is open, the form is not being sent: leaving it asks.
      if (question && !(body.isConnected && await confirmed(question, confirms(values, of)))) { out.replaceChildren(soft("Nothing was changed.")); return; }
      const shown = [await onlyOnce(submit, async () => work(values, inputs))].flat().filter((one) => one != null);
      body.dataset.typed = "no";
      out.replaceChildren(...shown, ...!copied || change.number === before ? [] : [copies({...change})]);
      // The details are redrawn when the item changes, so show the result outside of them.
      const notice = shown[0]?.className === "ok" && [`${short(of, 60)}: `, ...[...shown[0].childNodes].map((part) => part instanceof Text ? part.data : part.cloneNode(true))];
      if (undo && notice && change.number !== before) { body.dataset.sent = "yes"; undo(change.row, notice); }
      else if (notice && body.closest(".detail, .violation")) say(notice, "good");
    }
    catch (error) { out.replaceChildren(el("p", {class: "bad", role: "alert"}, error.message)); }
    if (document.activeElement === document.body) goOn();
    document.dispatchEvent(new Event("changed"));
  }}, el("div", {class: "fields"}, parts, el("button", {type: "submit", class: "primary"}, button)), out);
  return el("details", {class: "form", open}, el("summary", {}, title), body);
}

export function showCurrent(nav) {
  const chosen = nav.querySelector("[aria-current]");
  if (chosen && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = chosen.offsetLeft - nav.clientWidth / 2 + chosen.offsetWidth / 2;
}

// -- redrawing --
// The name of a part that can be opened.
export const partName = (details) => details.dataset.key ?? details.firstChild.textContent;
const keyOf = (one) => one.dataset.key || one.id || one.getAttribute("aria-label") || one.getAttribute("href") || one.textContent;
// Redraws a part of the page and keeps focus, open details and scroll positions.
export function redraw(place, ...children) {
  const focused = place.contains(document.activeElement) && document.activeElement !== place ? keyOf(document.activeElement) : null;
  const wasSent = document.activeElement.form?.dataset.typed === "no", all = "a, button, summary, pre, input, select, [tabindex]";
  const open = new Map([...place.querySelectorAll("details")].map((one) => [partName(one), one.open]));
  const scrolled = new Map([...place.querySelectorAll("pre, .wide-table")].map((one) => [keyOf(one), [one.scrollTop, one.scrollLeft]]));
  place.replaceChildren(...children.flat(4).filter((child) => child != null && child !== false));
  for (const one of place.querySelectorAll("details")) if (open.has(partName(one))) one.open = open.get(partName(one));
  for (const one of place.querySelectorAll("pre, .wide-table")) if (scrolled.has(keyOf(one))) [one.scrollTop, one.scrollLeft] = scrolled.get(keyOf(one));
  if (focused === null) return;
  const same = [...place.querySelectorAll(all)].find((one) => keyOf(one) === focused);
  // What had the focus is gone: a reader goes on at the part that it was in, not at the start of the document.
  if (!same) place.tabIndex = -1;
  (same ?? place).focus({preventScroll: true}); if (wasSent && same?.form) same.form.dataset.typed = "no";
}
// The forms in the places of a selector with values that were not sent, and are not being sent.
export const unsent = (places) => [...document.querySelectorAll(`:is(${places}) form[data-typed=yes]:not(:has([aria-busy=true]))`)];
export const discard = (places) => { for (const one of unsent(places)) one.dataset.typed = "no"; };
// Returns whether a redraw of this part would lose text: that of an unsent form, or of the input with the focus.
export const isTyped = (place) => place.querySelector("form[data-typed=yes]") !== null || place.contains(document.activeElement) && isTyping() && document.activeElement.closest("form")?.dataset.typed !== "no";
export const isTyping = () => document.activeElement.matches("select, textarea, input:not([type=checkbox])");

// The width in pixels of a chart, which is drawn at that width, so that text keeps its size.
export const room = () => Math.max(280, Math.min(900, (document.querySelector(".detail:not([hidden])") ?? document.getElementById("view")).clientWidth - 26));

// -- addresses in the fragment: #/fake/kv_server/keys/user%3A1?search=user --
export function read(hash = location.hash) {
  const [place, search = ""] = hash.replace(/^#\/?/, "").split("?");
  // The item of a list whose id is empty has a slash at the end.
  const raw = place.split("/").filter((part, at) => part || at === 3);
  return {parts: raw.map(decoded), raw, query: Object.fromEntries(new URLSearchParams(search))};
}
function decoded(part) { try { return decodeURIComponent(part); } catch { return part; } }

// Encodes `parts`. Pass an id that the server has already encoded as {raw: id}.
export const link = (parts, values = {}) => "#/" + parts.map((part) => part.raw ?? encodeURIComponent(part)).join("/") + query(values);

// Whether the document is being loaded: its first page is the one that the reader had, and not one that was opened.
export const isLoading = () => !document.documentElement.dataset.ready;
export const pageOf = (hash) => { const {parts} = read(hash); return String(parts.slice(0, parts[0] === "fake" ? 3 : 1)); };
export function go(address, {replace = false} = {}) {
  if (address === location.hash) return;
  if (!replace) { location.hash = address; return; }
  // A page writes its filters into its address a moment after the last keystroke. Until then, the reader may have gone to another page.
  if (pageOf(address) !== pageOf(location.hash)) return;
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
// A page that draws the answer to one request again when it, or `version()`, changes.
export class LivePage {
  constructor(path, draw, ...above) {
    Object.assign(this, {path, draw, place: el("section")});
    this.node = el("div", {class: "page"}, above, this.place);
  }
  async go() { await this.refresh(); }
  async refresh() {
    const {path} = this, found = await ask("GET", path), shape = JSON.stringify([found, path, this.version?.()]);
    if (path !== this.path || shape === this.shape || this.place.querySelector("form[data-typed=yes]")) return;
    this.shape = shape;
    redraw(this.place, this.draw(found));
  }
}

// -- the clock in the header of every page --
let clock = {};
export function showClock(found) {
  clock = found;
  moving.until = found.move?.until ?? moving.until;
  const now = $("now");
  now.replaceChildren(el("span", {class: "date"}, day(clock.now)), " ", time(clock.now), el("small", {}, clock.mode === "frozen" ? " UTC, frozen" : " UTC"));
  now.dataset.mode = clock.mode;
  now.title = `${clock.mode === "frozen" ? "The clock is frozen: time passes only when you advance it." : "The clock runs."}${beside(clock.now).replace(" · now", "")}`;
  Object.assign($("freeze"), {textContent: clock.mode === "frozen" ? "Run" : "Freeze"}).dataset.mode = clock.mode;
  const {next} = clock;
  $("next").replaceChildren("Next due", next ? el("span", {class: "date"}, `: ${about(Math.max(0, micros(next.at) - micros(clock.now)))}`) : ""); Object.assign($("next"), {disabled: !next, title: next ? `${short(withoutSchemes(next.what))}, due at ${both(next.at)} UTC` : "nothing is planned"});
  for (const one of document.querySelectorAll("#view time")) if (one.dataset.full) one.lastChild.textContent = beside(one.dateTime); else one.title = `${both(one.dateTime)} UTC${beside(one.dateTime)}`;
  showMove(clock);
}
// The progress of a move of the clock, which can be stopped; an answer comes within a moment to most moves.
function showMove({now, move: found}) {
  if ($("moving").hidden = !found) return;
  const [from, until, at] = [found.since, found.until, now].map(micros), share = until > from ? (at - from) / (until - from) : 1;
  $("moving").querySelector("progress").value = share;
  $("moving").querySelector("span").textContent = `${Math.floor(100 * share)} %: ${both(now)} UTC, ${count(found.events, "event")}`;
}
// Moves the clock; the code for it is loaded when it is moved first.
export async function move(body) {
  if (moving.text) { say("The clock is still moving. Wait until it has arrived.", "busy"); return; }
  await attempt(async () => (await import("./moves.js")).moved(body));
  document.dispatchEvent(new Event("changed"));
}
export function clockButtons() {
  // A narrow screen shows the other buttons on request.
  $("clock-more").addEventListener("click", () => $("clock-more").setAttribute("aria-expanded", String($("clock-more").getAttribute("aria-expanded") !== "true")));
  for (const button of document.querySelectorAll("[data-by]")) button.addEventListener("click", () => move({action: "advance", by: button.dataset.by}));
  $("advance").addEventListener("submit", (event) => { event.preventDefault(); const {validity: {valid}, value: by} = $("by"); $("by-error").textContent = valid ? "" : "Type a duration, such as 90m, 1d 2h or 30s."; if (valid) move({action: "advance", by}); });
  for (const event of ["input", "focusout"]) $("advance").addEventListener(event, () => { $("by-error").textContent = ""; });
  $("next").addEventListener("click", () => move({action: "move_to"}));
  $("stop-move").addEventListener("click", () => attempt(() => ask("POST", "/clock", {action: "stop"})));
  $("freeze").addEventListener("click", () => move({action: clock.mode === "frozen" ? "resume" : "freeze"}));
}
