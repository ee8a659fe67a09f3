// One search over the data of all fakes and over the recorded calls.
import {el, empty, go, link, number, own, pageHead, redraw, short, soft, unescaped, withoutSchemes} from "./dom.js";
import {ask, list} from "./api.js";
import {entries, journal} from "./journal.js";
import {hasFailed} from "./elements.js";

// So many results of each list are shown, the best of so many that the server returns.
const HITS = 5, RANKED = 100;
// The lists of each fake that are searched. Some have parts, which another list names: `records` those of each topic.
const LISTS = {kv_server: ["keys", "indexes"], vector_index: ["vectors"], broker: ["topics", "records", "groups"], queue: ["messages", "dead-letters", "runs", "callbacks", "schedules", "queues", "url-groups", "flow-control"]};
const PARTS = {vectors: ["namespaces", "namespace"], records: ["topics", "topic"]};

async function hitsIn(fake, name, search) {
  const [names, field] = own(PARTS, name) ?? [], parts = names ? (await list(fake, names, {limit: 50})).items.map((one) => ({[field]: one.name})) : [{}];
  return Promise.all(parts.map(async (part) => ({fake, name, part, page: await list(fake, name, {search, limit: RANKED, ...part})})));
}
function hitElement({fake, name, part}, one, search) {
  const id = one.key && name === "keys" ? {raw: one.id} : name === "flow-control" ? one.key : one.id ?? one.name, about = [one.preview ?? one.value ?? one.metadata, one.data, one.now, one.found], to = one.url ?? one.destination, named = String(one.key && name !== "records" ? one.key : one.name ?? one.id);
  return resultElement(link(["fake", fake.name, name, id], part), named, about, search, "", [one.method, to && withoutSchemes(to), named].filter(Boolean).join(" "));
}
// How many words of a search a result shows only as a part of another word, such as "ada" in "metadata" or in a hexadecimal id.
const literally = (word) => word.replace(/[^\p{L}\d_]/gu, (sign) => `\\u{${sign.codePointAt().toString(16)}}`);
function partial(result, search) {
  const text = [...result.children].map((part) => part.textContent).join(" ");
  return search.split(/\s+/).filter((word) => !new RegExp(`(?<![\\p{L}\\d])${literally(word)}(?![\\p{L}\\d])`, "iu").test(text)).length;
}
function hasAllWords(search) { const words = search.toLowerCase().split(/\s+/); return (text) => words.every((word) => text.toLowerCase().includes(word)); }
// The bodies of a call are shown only if its text has not all words.
const callElement = (row, search) => resultElement(link(["activity", row.number], {search}), row.text.what, [row.text.answer, ...hasAllWords(search)(row.text.what) ? [] : [...row.text.lines, row.text.note, row.request?.line, row.request?.body, row.response?.body]], search, hasFailed(row) && "bad");
function resultElement(href, name, about, search, kind = "", text = name) {
  // What the name or another part says already is left out.
  const plain = (one) => one.replace(/[^\p{L}\d]+/gu, " ").trim(), said = new Set(), isNew = (one) => !said.has(one) && !(one.length > 3 && plain(text).includes(one)) && said.add(one);
  const parts = [about].flat().filter(Boolean).map((part) => unescaped(typeof part === "string" ? part : JSON.stringify(part))).filter((part) => isNew(plain(part)));
  return el("li", {}, el("a", {class: `mono ${kind}`, href, title: name}, marked(short(text, 120), search)), el("span", {class: "soft mono"}, marked(parts.join(" "), search)));
}
// A group of results, those with whole words of the search first, and how many words its best one does not have.
function groupElement(title, href, many, results, search) {
  const ranked = results.map((result) => ({result, rank: partial(result, search)})).sort((one, other) => one.rank - other.rank);
  return {rank: ranked[0]?.rank, parts: [el("h2", {}, el("a", {href}, title), el("span", {class: "many"}, number(many))), el("ul", {class: "sentences"}, ranked.slice(0, HITS).map(({result}) => result)), many > HITS ? el("a", {href, "aria-label": `Show all ${number(many)} of ${title}`}, `Show all ${number(many)}`) : null]};
}
// A text from shortly before the first word of a search on, with all its words marked.
function marked(text, search) {
  const pattern = new RegExp(`(${search.split(/\s+/).map((word) => RegExp.escape?.(word) ?? word.replace(/[^\w\s]/g, "\\$&")).join("|")})`, "giu"), from = Math.max(0, text.search(pattern) - 60);
  return short((from ? "…" : "") + text.slice(from), 200).split(pattern).map((part, at) => at % 2 ? el("mark", {}, part) : part);
}
export class SearchPage {
  constructor(state) {
    Object.assign(this, {state, turn: 0});
    this.input = el("input", {type: "search", "aria-label": "search everything", placeholder: "Keys, values, messages, runs, calls, errors", oninput: () => {
      this.opens = false;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(), 200);
    }});
    this.found = el("div", {role: "status"});
    const move = (event) => {
      const by = {ArrowDown: 1, ArrowUp: -1}[event.key], all = [this.input, ...this.found.querySelectorAll("li a")], at = all.indexOf(event.target);
      if (by && at >= 0) { event.preventDefault(); all[Math.max(0, Math.min(all.length - 1, at + by))].focus(); }
      else if (event.key === "Enter" && at === 0) { this.opens = true; this.ask(); this.open(); }
    };
    this.node = el("div", {class: "page"}, pageHead("Search", this.input), this.found);
    this.node.addEventListener("keydown", move);
    journal.listeners.add(this.update = () => { if (this.partial && !journal.older) this.go(this.route); });
  }
  leave() { clearTimeout(this.timer); journal.listeners.delete(this.update); }
  ask() { clearTimeout(this.timer); this.timer = null; go(link(["search"], {search: this.input.value}), {replace: true}); }
  // After Enter, opens the result that is named as what was typed, or moves the focus into the results.
  open() {
    if (!this.opens || this.drawn !== this.input.value.trim()) return;
    this.opens = false;
    const results = [...this.found.querySelectorAll("li a")], exact = results.filter(({title}) => title === this.drawn);
    if (exact.length === 1) exact[0].click(); else (exact[0] ?? results[0])?.focus();
  }
  async go(route) {
    const turn = ++this.turn, {search = ""} = route.query, words = search.trim(), contains = hasAllWords(words);
    Object.assign(this, {route, partial: !journal.loaded || journal.older});
    if (!this.timer) this.input.value = search; if (document.activeElement !== this.input) this.input.focus();
    if (!words) { redraw(this.found, empty("Search all fakes at once.", "The search looks at names, values, addresses, labels, bodies, errors and recorded calls.")); return; }
    const jobs = this.state().fakes.flatMap((fake) => (own(LISTS, fake.fixture) ?? []).map((name) => hitsIn(fake, name, words)));
    const violations = (await ask("GET", "/problems")).causes.flatMap((cause) => cause.violations).filter(({kind, text}) => contains(`${kind} ${text}`));
    const found = (await Promise.all(jobs)).flat().filter(({page}) => page.matching), calls = entries.list.toReversed().filter((row) => contains(JSON.stringify([row.text, row.request, row.response]))), [failed, others] = [true, false].map((whether) => calls.filter((row) => hasFailed(row) === whether));
    if (turn !== this.turn) return;
    this.drawn = words;
    const callGroup = (title, values, rows) => groupElement(title, link(["activity"], {search: words, ...values}), rows.length, rows.slice(0, RANKED).map((row) => callElement(row, words)), words);
    const groups = [...found.map((hit) => groupElement([hit.fake.name, hit.name === "runs" ? "workflow runs" : hit.name.replaceAll("-", " "), ...Object.values(hit.part)].filter(Boolean).join(" · "), link(["fake", hit.fake.name, hit.name], {search: words, ...hit.part}), hit.page.matching, hit.page.items.map((one) => hitElement(hit, one, words)), words)),
      groupElement("Violations", "#/problems", violations.length, violations.map(({kind, text}) => resultElement("#/problems", kind, text, words, "bad")), words),
      callGroup("Failed calls", {status: "failed"}, failed), callGroup(failed.length ? "Other calls" : "Recorded calls", failed.length ? {status: "ok"} : {}, others)].filter(({rank}) => rank !== undefined).sort((one, other) => one.rank - other.rank);
    redraw(this.found, groups.map(({parts}) => parts),
    this.partial ? soft("Older calls are still being loaded…") : found.length || violations.length || calls.length ? null : soft("Nothing was found."));
    this.open();
  }
}
