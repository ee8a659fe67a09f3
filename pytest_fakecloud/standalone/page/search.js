// One search over the data of all fakes and over the recorded calls.

import {count, el, empty, go, link, number, own, product, redraw, short, soft} from "./dom.js";
import {list} from "./api.js";
import {entries, journal} from "./journal.js";

const HITS = 5;
// The lists of each fake that are searched. Some have parts, which another list names: `records` those of each topic.
const LISTS = {kv_server: ["keys", "indexes"], vector_index: ["vectors"], broker: ["topics", "records", "groups"],
  queue: ["messages", "dead-letters", "runs", "callbacks", "schedules", "queues", "url-groups", "flow-control"]};
const PARTS = {vectors: ["namespaces", "namespace"], records: ["topics", "topic"]};

async function hitsIn(fake, name, search) {
  const [names, field] = own(PARTS, name) ?? [], parts = names ? (await list(fake, names, {limit: 50})).items.map((one) => ({[field]: one.name})) : [{}];
  return Promise.all(parts.map(async (part) => ({fake, name, part, page: await list(fake, name, {search, limit: HITS, ...part})})));
}
function hitElement({fake, name, part}, one) {
  const id = one.key && name === "keys" ? {raw: one.id} : name === "flow-control" ? one.key : one.id ?? one.name;
  const about = [one.method, one.url ?? one.destination, one.preview ?? one.value ?? one.metadata, one.data].filter(Boolean).map((text) => short(text, 160)).join(" ");
  return el("li", {}, el("a", {class: "mono", href: link(["fake", fake.name, name, id], part)}, short(one.key && name !== "records" ? one.key : one.name ?? one.id, 80)), el("span", {class: "soft mono"}, about));
}

export class SearchPage {
  constructor(state) {
    Object.assign(this, {state, turn: 0});
    this.input = el("input", {type: "search", "aria-label": "search everything", placeholder: "Keys and values, vectors, messages, runs, records, bodies", oninput: () => {
      this.opens = false;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(), 200);
    }});
    this.found = el("div", {role: "status"});
    const move = (event) => {
      const by = {ArrowDown: 1, ArrowUp: -1}[event.key], all = [this.input, ...this.found.querySelectorAll("a")], at = all.indexOf(event.target);
      if (by && at >= 0) { event.preventDefault(); all[Math.max(0, Math.min(all.length - 1, at + by))].focus(); }
      else if (event.key === "Enter" && at === 0) { this.opens = true; this.ask(); this.open(); }
    };
    this.node = el("div", {class: "page"}, el("h1", {}, "Search"), el("div", {class: "tools"}, this.input), this.found);
    this.node.addEventListener("keydown", move);
    journal.listeners.add(this.update = () => { if (this.partial && !journal.older) this.go(this.route); });
  }
  leave() { clearTimeout(this.timer); journal.listeners.delete(this.update); }
  ask() { clearTimeout(this.timer); go(link(["find"], {search: this.input.value}), {replace: true}); }
  // Opens the first result after Enter, once it is that of what was typed.
  open() {
    if (!this.opens || this.drawn !== this.input.value.trim()) return;
    this.opens = false;
    (this.found.querySelector("li a") ?? this.found.querySelector("a"))?.click();
  }
  async go(route) {
    const turn = ++this.turn, {search = ""} = route.query, words = search.trim(), each = words.toLowerCase().split(/\s+/);
    Object.assign(this, {route, partial: !journal.loaded || journal.older});
    if (document.activeElement !== this.input) { this.input.value = search; this.input.focus(); }
    if (!words) { redraw(this.found, empty("Search all fakes at once.", "The search looks at names, values, addresses, labels, bodies and recorded calls.")); return; }
    const jobs = this.state().fakes.flatMap((fake) => (own(LISTS, fake.fixture) ?? []).map((name) => hitsIn(fake, name, words)));
    const found = (await Promise.all(jobs)).flat().filter(({page}) => page.matching), calls = entries.list.filter((row) => { const text = JSON.stringify([row.text, row.request, row.response]).toLowerCase(); return each.every((word) => text.includes(word)); }).length;
    if (turn !== this.turn) return;
    this.drawn = words;
    redraw(this.found, found.map((hit) => {
      const where = link(["fake", hit.fake.name, hit.name], {search: words, ...hit.part}), title = [product(hit.fake), hit.name.replaceAll("-", " "), ...Object.values(hit.part)].filter(Boolean).join(" · ");
      return [el("h2", {}, el("a", {href: where}, title), el("span", {class: "many"}, number(hit.page.matching))), el("ul", {class: "sentences"}, hit.page.items.map((one) => hitElement(hit, one)))];
    }), calls ? el("p", {}, el("a", {href: link(["activity"], {search: words})}, `${count(calls, "recorded call")}`)) : null, this.partial ? soft("Older calls are still being loaded…") : found.length || calls ? null : soft("Nothing was found."));
    this.open();
  }
}
