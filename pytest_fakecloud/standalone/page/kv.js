// Pages of a key-value server: keys, search indexes and the command box.

import {$, act, attempt, bytes, code, copies, copyButton, count, day, done, el, empty, facts, form, head, isTyped, json, laidOut, link, number, own, pill, redraw, short, soft, span, table, time, title, tools, words, about, confirmed, discard} from "./dom.js";
import {ask, call, item, list, path, send, sendWell} from "./api.js";
import {ListPage} from "./lists.js";

const run = (fake, ...line) => sendWell(fake, "POST", "/", line.map(String)).then((answer) => answer.result);
// A key as it is now, or null if it does not exist.
async function current(fake, id, values) { try { return await item(fake, "keys", id, values); } catch (error) { if (error.status === 404) return null; throw error; } }
// Returns the question before a change of a key that is not as it was shown: `same` compares the key of now.
const meanwhile = (fake, one, same) => async () => {
  const now = await current(fake, one.id);
  return !now ? `The key ${one.key} was deleted meanwhile. Write it again?` : now.type === one.type && same(now) ? null : `The key ${one.key} was changed meanwhile. Overwrite the change?`;
};
const ttl = (one) => one.ttl_ms == null ? "no TTL" : about(one.ttl_ms * 1000);
const lengthOf = (one) => count(one.length, {hash: "field", vector: "vector", stream: "entrie", zset: "member", set: "member"}[one.type] ?? "element").replace("entrie", "entry").replace("entrys", "entries");

const keys = {
  list: "keys", noun: "key", folder: "namespace", facet: "type", rawId: true, hasItem: true, key: (one) => one.key,
  searchNote: "Search all keys, or a pattern: user:*", columns: ["key", "type", "TTL", "size", "value"], fields: ["key", "type", "ttl_ms", "bytes", "preview"],
  row: (one) => [short(one.key, 200), pill(words(one.type)), el("span", {class: one.ttl_ms == null ? "soft" : "", title: one.expires ?? ""}, ttl(one)), bytes(one.bytes ?? 0), short(one.preview || (one.type === "string" ? '""' : lengthOf(one)), 120)],
  tools: (fake, page) => newKey(fake, page), above: (found, page) => [...tree(found, page), removeMatching(found, page)],
  empty: () => empty("No keys yet.", "A key appears when your application writes one. Add one above, or in the command box."),
  detail: (one, page) => [title(one.key), keyFacts(one), ...(one.is_text ? keyActs(one, page) : [soft("This key is not UTF-8. Use a client to change it.")]), ...valueOf(one, page)],
};

// The choice between a list and a tree of namespaces, which colons separate, and the tree. Keys of the root are listed below it.
function tree(found, page) {
  const {view = ""} = page.values;
  return [el("div", {class: "choice", role: "group", "aria-label": "view"}, [["", "List"], ["tree", "Namespaces"]].map(([value, text]) =>
    el("button", {type: "button", class: "facet", "aria-pressed": String(value === view), "data-key": `view ${text}`, onclick: () => page.change({view: value})}, text))), view === "tree" ? folders(found, page) : null];
}
// Shows the memory of a folder, and its share of the largest one as a bar.
function withMemory(memory, share, folder) {
  const [text, bar] = folder.querySelectorAll(":scope > details > summary > :is(.soft, .share)");
  text.textContent = memory == null ? "" : bytes(memory);
  bar.firstChild.style.width = `${100 * share}%`;
  return folder;
}
// A folder loads what is in it when it is opened, and stays open while its number of keys does.
function folders({folders: inner, items, matching}, page, under = "") {
  const all = (name) => link(page.base, {search: name.replace(/[*?[\]\\]/g, "\\$&") + "*"}), known = page.folders ??= new Map(), most = Math.max(1, ...inner.map((folder) => folder.bytes ?? folder.keys));
  const once = (name, make) => known.get(name) ?? (known.set(name, make()), known.get(name));
  return el("ul", {class: "folders"}, inner.toSorted((one, other) => one.name.localeCompare(other.name, "en", {numeric: true})).map(({name, keys: many, bytes: memory}) => withMemory(memory, (memory ?? many) / most, once(`${many} ${name}`, () => el("li", {}, el("details", {"data-key": name, ontoggle: async ({target}) => {
    if (target.open && target.children.length === 1) target.append(folders(await list(page.fake, "keys", {view: "tree", under: name, limit: 500}), page, name));
  }}, el("summary", {}, el("span", {class: "mono"}, name.slice(under.length)), el("span", {class: "many"}, number(many)), el("span", {class: "soft"}), el("span", {class: "share", "aria-hidden": "true"}, el("i")), " ", el("a", {href: all(name), "aria-label": `List all of ${name}`}, "List all"))))))),
  under ? items.map((one) => el("li", {}, el("a", {class: "mono", href: page.address(one.id)}, one.key.slice(under.length)))) : null,
  under && matching > items.length ? el("li", {}, el("a", {href: all(under)}, `${number(matching - items.length)} more`)) : null);
}

// Deletes the keys that the search finds when its button is pressed. Keys that are written later are not in the question.
function removeMatching(found, page) {
  const {search = "", type = "", view} = page.values, names = [];
  if (!(search || type) || !found.matching) return null;
  const question = async () => {
    names.length = 0;
    for (let after = ""; after !== null;) {
      const {items, next} = await list(page.fake, "keys", {search, type, view, after, limit: 500});
      names.push(...items.filter((one) => one.is_text).map((one) => one.key));
      after = next;
    }
    const more = names.length - 8;
    return [el("p", {id: "question"}, `Delete the ${count(names.length, "key")} that this search finds?`), code(names.slice(0, 8).map((name) => short(name, 60)).join("\n") + (more > 0 ? `\n… and ${number(more)} more` : ""), "keys that will be deleted")];
  };
  return act(`Delete ${count(found.matching, "key")} found…`, "Delete all keys found", async () => { while (names.length) await run(page.fake, "DEL", ...names.splice(0, 500)); }, {question});
}

function newKey(fake, page) {
  const kinds = {string: (key, value) => ["SET", key, value], hash: (key, value) => ["HSET", key, ...pairs(value)], list: (key, value) => ["RPUSH", key, ...lines(value)],
    set: (key, value) => ["SADD", key, ...lines(value)], array: (key, value) => ["ARINSERT", key, ...lines(value)], zset: (key, value) => ["ZADD", key, ...pairs(value).map((_, at, all) => all[at ^ 1])], json: (key, value) => ["JSON.SET", key, "$", value]};
  return form("New key", "Add key", [{name: "key", label: "key", needed: true}, {name: "type", label: "type", options: Object.keys(kinds)}, {name: "ttl", label: "TTL in seconds", kind: "number", note: "none"},
    {name: "value", label: "value; of a hash or sorted set a name and value, of a list, set or array an element on each line", kind: "area", wide: true}],
  async ({key, type, ttl: seconds, value}) => {
    await run(fake, ...kinds[type](key, value));
    if (seconds) await run(fake, "EXPIRE", key, seconds);
    location.hash = page.address(encodeURIComponent(key), {});
    return done("Added.");
  }, {open: false, overwrites: async ({key, type}) => await current(fake, encodeURIComponent(key)) && `The key ${key} exists. ${/string|json/.test(type) ? "Overwrite it" : "Add to it"}?`});
}
const lines = (text) => text.split("\n").filter(Boolean);
const pairs = (text) => lines(text).flatMap((line) => { const at = line.search(/[\s:=]/); return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1).trim()]; });

// The command that makes a key with this value, or null if the whole value is not here.
function remade({key, type, value, ttl_ms, is_whole: whole, elements: part}) {
  if (part) {
    const [name, ...fields] = {hash: ["HSET", "field", "value"], list: ["RPUSH", "value"], set: ["SADD", "member"], zset: ["ZADD", "score", "member"], array: ["ARMSET", "index", "value"]}[type] ?? [];
    return name && part.items.length === part.total ? [name, key, ...part.items.flatMap((row) => fields.map((field) => String(row[field])))] : null;
  }
  return whole === false ? null : type === "string" ? ["SET", key, value, ...ttl_ms == null ? [] : ["PX", String(ttl_ms)]] : /json/i.test(type) ? ["JSON.SET", key, "$", value] : null;
}
const keyFacts = (one) => tools(pill(words(one.type)), el("span", {}, [/string|json/i.test(one.type) ? "" : lengthOf(one), one.bytes == null ? "" : bytes(one.bytes), one.ttl_ms == null ? "no TTL" : `TTL ${span(one.ttl_ms * 1000)}, until ${day(one.expires)} ${time(one.expires)} UTC`].filter(Boolean).join(" · ")));

function keyActs(one, page) {
  const {fake} = page;
  return [tools(form("Change TTL", "Set TTL", [{name: "seconds", label: "TTL in seconds; empty removes it", kind: "number", value: one.ttl_ms == null ? "" : Math.ceil(one.ttl_ms / 1000)}],
    async ({seconds}) => { await run(fake, ...(seconds ? ["EXPIRE", one.key, seconds] : ["PERSIST", one.key])); document.activeElement.blur(); return done("Changed."); }, {open: false, overwrites: meanwhile(fake, one, (now) => now.expires === one.expires)}),
  copyButton(one.key, "Copy key", "Copy key"), remade(one) ? copies({method: "POST", path: path(fake, "/requests"), body: {body: remade(one)}}, "this key") : null, act("Delete…", `Delete the key ${one.key}`, async () => { await run(fake, "DEL", one.key); discard(".detail"); location.hash = page.address(); }, {question: `Delete the key ${one.key}?`}))];
}

function valueOf(one, page) {
  if (one.elements) return [elements(one, page)];
  // JSON and control characters are shown readable, and edited on request.
  const escaped = /[\x00-\x08\x0e-\x1f\x7f-\x9f]/.test(one.value) ? JSON.stringify(one.value).replace(/[\x7f-\x9f]/g, (letter) => `\\x${letter.charCodeAt(0).toString(16)}`) : "", shown = escaped || (laidOut(one.value) !== one.value ? laidOut(one.value) : "");
  if (one.type === "string" && one.is_editable && one.is_whole) return [shown ? code(shown, escaped ? "value, escaped" : "value as JSON") : null, form(shown ? "Edit the value" : "Value", "Save", [{name: "value", label: "value", kind: "area", value: one.value, wide: true}],
    async ({value}) => { await run(page.fake, "SET", one.key, value, "KEEPTTL"); document.activeElement.blur(); return done("Saved; the TTL stays."); }, {open: !shown, overwrites: meanwhile(page.fake, one, (now) => now.value === one.value)})];
  if (/json/i.test(one.type)) return [form("Document", "Save", [{name: "value", label: "JSON document", kind: "area", value: one.value, wide: true}],
    async ({value}) => { json(value, "The document"); await run(page.fake, "JSON.SET", one.key, "$", value); document.activeElement.blur(); return done("Saved."); }, {overwrites: meanwhile(page.fake, one, (now) => now.value === one.value)})];
  return [one.is_editable === false ? soft("The value is binary: only a client can change it.") : null, code(one.value, "value"), one.is_whole === false ? soft("The value is longer than what is shown.") : null];
}

// The elements of a hash, list, set, sorted set, stream or array, in pages.
function elements(one, page) {
  const {fake} = page, place = el("div"), state = {search: "", after: "", before: ""};
  const editors = {
    hash: {fields: ["field", "value"], put: (row) => ["HSET", one.key, row.field, row.value], drop: (row) => ["HDEL", one.key, row.field]},
    list: {fields: ["value"], put: (row) => row.index === undefined ? ["RPUSH", one.key, row.value] : ["LSET", one.key, row.index, row.value]},
    set: {fields: ["member"], put: (row) => ["SADD", one.key, row.member], drop: (row) => ["SREM", one.key, row.member]},
    zset: {fields: ["member", "score"], put: (row) => ["ZADD", one.key, row.score, row.member], drop: (row) => ["ZREM", one.key, row.member]},
    array: {fields: ["index", "value"], put: (row) => ["ARSET", one.key, row.index, row.value], drop: (row) => ["ARDEL", one.key, row.index]},
    vector: {fields: ["id", "vector"], put: (row) => { const numbers = json(row.vector, "The vector"); return ["VECTOR.ADD", one.key, row.id, "VALUES", String(numbers.length), ...numbers.map(String)]; }, drop: (row) => ["VECTOR.DEL", one.key, row.id]},
    stream: {fields: ["fields"], put: (row) => ["XADD", one.key, "*", ...Object.entries(json(row.fields, "The fields")).flat()], drop: (row) => ["XDEL", one.key, row.id]},
  };
  const editor = editors[one.type], name = (row) => row.field ?? row.member ?? row.id ?? row.index;
  const search = el("input", {type: "search", placeholder: "Search elements", "aria-label": "search elements", oninput: () => { Object.assign(state, {search: search.value, after: "", before: ""}); attempt(load); }});
  async function load() { show((await item(fake, "keys", one.id, state)).elements); }
  function show(found) {
    const last = found.first + found.items.length - 1;
    redraw(place, el("p", {class: "soft", role: "status"}, found.items.length ? `${number(found.first)}–${number(last)} of ${number(found.matching)}` : "No element matches."),
      table("elements", [...one.columns, editor.drop || one.type === "list" ? "" : null].filter((text) => text !== null), found.items, (row) => [...one.columns.map((column) => column === "id" && one.type === "stream" ? [row.id, el("br"), el("span", {class: "soft"}, new Date(Number(row.id.split("-")[0])).toISOString().slice(0, 19).replace("T", " "))] : short(row[column], 500)),
        el("span", {class: "tools"}, editor.fields.includes("value") || one.type === "zset" ? el("button", {type: "button", "aria-label": `Edit ${name(row)}`, onclick: async () => { if (!isTyped(adding) || await confirmed("Discard what you have typed? It was not sent.", "Discard")) edit(row); }}, "Edit") : null,
          editor.drop ? act("Remove", `Remove ${name(row)}`, () => run(fake, ...editor.drop(row))) : null)]),
      found.previous || found.next ? tools([["← Previous", "before", found.previous], ["Next →", "after", found.next]].map(([text, which, cursor]) =>
        el("button", {type: "button", disabled: !cursor, onclick: () => { Object.assign(state, {after: "", before: "", [which]: cursor}); attempt(load); }}, text))) : null);
  }
  const adding = el("div");
  // The question before an element is overwritten: one that is not as it was shown, or one that exists when another is added.
  async function overwrites(row, values) {
    if (!["hash", "zset", "list", "array"].includes(one.type) || (one.type === "list" && !row)) return null;
    const [key, field] = {hash: ["field", "value"], zset: ["member", "score"], list: ["index", "value"], array: ["index", "value"]}[one.type], wanted = row?.[key] ?? values[key], search = one.type === "list" ? row.value : wanted;
    let now;
    for (let after = ""; after !== null && !now;) {
      const page_ = (await current(fake, one.id, {search, after, limit: 500}))?.elements ?? {items: [], next: null};
      now = page_.items.find((each) => each[key] === wanted);
      after = page_.next;
    }
    return !row ? now && `${wanted} exists in ${one.key}. Overwrite it?` : now?.[field] === row[field] ? null : `${wanted} of ${one.key} was ${now || one.type === "list" ? "changed" : "removed"} meanwhile. Overwrite it?`;
  }
  function edit(row) {
    const given = row ?? {};
    adding.replaceChildren(form(row ? `Edit ${name(row)}` : "Add an element", row ? "Save" : "Add", editor.fields.map((field) => ({name: field, label: field, value: row ? given[field] : undefined, wide: true, fixed: Boolean(row) && ["field", "member", "index"].includes(field), note: field === "fields" ? '{"name": "value"}' : "", needed: field !== "value"})),
      async (values) => { await run(fake, ...editor.put({...(row && one.type === "list" ? {index: row.index} : {}), ...values})); if (row) edit(); document.activeElement.blur(); return done(row ? "Saved." : "Added."); }, {open: Boolean(row), overwrites: (values) => overwrites(row, values)}));
    if (row) adding.querySelector("input:not([readonly])").focus();
  }
  edit();
  show(one.elements);
  const readers = el("div");
  if (one.type === "stream") call(fake, "execute", "XINFO", "GROUPS", one.key).then((found) => found.length && readers.replaceChildren(head("Consumer groups"), table("consumer groups", ["group", "consumers", "pending", "last delivered"], found, (each) => ["name", "consumers", "pending", "last-delivered-id"].map((name) => String(Array.isArray(each) ? each[each.indexOf(name) + 1] : each[name]))))).catch(() => {});
  return el("section", {}, readers, el("div", {class: "forms"}, search, adding), place);
}

// -- search indexes --
const indexes = {
  list: "indexes", noun: "index", key: (one) => one.name, columns: ["index", "fields", "documents", "pending"], fields: ["name", null, "documents", "pending"],
  row: (one) => [one.name, one.fields.map((field) => field.field).join(", "), number(one.documents), number(one.pending)],
  empty: () => empty("No search indexes yet.", "SEARCH.CREATE makes one. Run it in the command box, for example:", code("SEARCH.CREATE books ON HASH PREFIX 1 book: SCHEMA title TEXT price F64", "example")),
  detail: (one, page) => [title(one.name), facts({documents: number(one.documents), pending: number(one.pending)}),
    table("schema", ["field", "type", "options"], one.fields, (field) => [field.field, field.type, field.options.join(" ")]),
    form("Query", "Search", [{name: "filter", label: "filter, as JSON", kind: "area", value: JSON.stringify({[one.fields[0]?.field ?? "field"]: "word"}), wide: true, needed: true}, {name: "limit", label: "at most", kind: "number", value: "10"}],
      async ({filter, limit}) => { json(filter, "The filter"); return typed(["SEARCH.QUERY"], await run(page.fake, "SEARCH.QUERY", one.name, filter, "LIMIT", limit || 10)); }, {edits: false})],
};

// -- the command box --
// Splits a line into words like redis-cli, with quotes and the escapes of double quotes.
const WORD = /(?:"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'])+/g, ESCAPED = {n: "\n", r: "\r", t: "\t", b: "\b", a: "\x07"};
export function split(line) {
  const [unclosed] = line.replace(WORD, "").trim();
  if (unclosed) throw new Error(`The quote ${unclosed} is not closed.`);
  const plain_ = (text) => text.replace(/\\(?:x([0-9a-fA-F]{2})|(.))/g, (_, hex, letter) => hex ? String.fromCharCode(parseInt(hex, 16)) : own(ESCAPED, letter) ?? letter);
  return (line.match(WORD) ?? []).map((word) => word.replace(/"((?:\\.|[^"\\])*)"|'([^']*)'/g, (_, double, single) => single ?? plain_(double)));
}

const PAIRED = new Set(["ARINFO", "HGETALL", "CONFIG GET", "HRANDFIELD", "XINFO STREAM"]), SCORED = /WITHSCORES/i, MOST = 200;
// Shows a reply like redis-cli, which distinguishes integers, nil and arrays from strings.
export function typed(line, value) {
  const name = line[0].toUpperCase(), both = `${name} ${(line[1] ?? "").toUpperCase()}`;
  if (Array.isArray(value) && value.length && value.length % 2 === 0 && (PAIRED.has(name) || PAIRED.has(both) || line.some((word) => SCORED.test(word))))
    return [table("reply", line.some((word) => SCORED.test(word)) ? ["member", "score"] : ["field", "value"], value.slice(0, 2 * MOST).filter((_, at) => at % 2 === 0).map((field, at) => [field, value[2 * at + 1]]), (pair) => pair.map((one) => plain(one))), value.length > 2 * MOST ? soft(`The first ${MOST} of ${number(value.length / 2)}.`) : null];
  const rows = plain(value).split("\n"), readable = typeof value === "string" ? laidOut(value) : value, isText = readable === value && typeof value === "string" && value.includes("\n");
  return [isText ? code(value, "reply as text") : code(rows.slice(0, MOST).join("\n"), "reply"), rows.length > MOST ? [soft(`The first ${MOST} of ${count(rows.length, "line")}.`), copyButton(rows.join("\n"), "Copy the whole reply", "Copy all")] : null, readable === value ? null : code(readable, "reply as JSON")].flat();
}
function plain(value, indent = "") {
  if (value === null) return "(nil)";
  if (typeof value === "number") return Number.isInteger(value) ? `(integer) ${value}` : `(double) ${value}`;
  if (typeof value === "boolean") return value ? "(true)" : "(false)";
  if (typeof value === "string") return JSON.stringify(value);
  const rows = Array.isArray(value) ? value.map((one, at) => [`${at + 1})`, one]) : Object.entries(value).map(([field, one]) => [JSON.stringify(field) + ":", one]);
  if (!rows.length) return "(empty array)";
  return rows.map(([mark, one], at) => `${at ? indent : ""}${mark} ${plain(one, indent + " ".repeat(mark.length + 1))}`).join("\n");
}

const helps = new Map();
// Returns the synopsis of each command and subcommand, from COMMAND DOCS.
export async function help(fake) {
  if (helps.has(fake.name)) return helps.get(fake.name);
  const flat = await call(fake, "execute", "COMMAND", "DOCS"), docs = new Map();
  const object = (pairs_) => Object.fromEntries(Array.from({length: pairs_.length / 2}, (_, at) => [pairs_[2 * at], pairs_[2 * at + 1]]));
  const usage = (one) => {
    const {name, token, type, flags = [], arguments: inner = []} = object(one), [optional, multiple] = ["optional", "multiple"].map((flag) => flags.includes(flag));
    const choice = inner.map(usage).join("|"), text = {oneof: multiple || !optional ? `(${choice})` : choice, block: inner.map(usage).join(" "), "pure-token": ""}[type] ?? name;
    const whole = [token, text].filter(Boolean).join(" ") + (multiple ? " ..." : "");
    return optional ? `[${whole}]` : whole;
  };
  const enter = (name, doc) => {
    docs.set(name.toUpperCase().replace("|", " "), {summary: doc.summary, group: doc.group, since: doc.since, usage: doc.subcommands ? "subcommand ..." : (doc.arguments ?? []).map(usage).join(" ")});
    const subcommands = doc.subcommands ?? [];
    for (let at = 0; at < subcommands.length; at += 2) enter(subcommands[at], object(subcommands[at + 1]));
  };
  for (let at = 0; at < flat.length; at += 2) enter(flat[at], object(flat[at + 1]));
  helps.set(fake.name, docs);
  return docs;
}

const EXAMPLES = ['SET greeting "hello you" EX 60', "HSET user:1 name Ada city London", "ZADD board 10 ada 7 bob", "SCAN 0 MATCH user:* COUNT 100"], boxes = new Map();
// A box stays with its commands and replies while the page is open.
function boxOf(fake) {
  if (!boxes.has(fake.url)) boxes.set(fake.url, new CommandBox(fake));
  return boxes.get(fake.url);
}
class CommandBox {
  constructor(fake) {
    this.said = JSON.parse(sessionStorage.getItem(`said ${fake.name}`) ?? "[]");
    Object.assign(this, {fake, at: this.said.length});
    this.log = el("div", {class: "log", role: "log", "aria-label": "replies", tabindex: 0}, tools("Try:", EXAMPLES.map((line) => el("button", {type: "button", class: "facet mono", onclick: () => { this.input.value = line; this.input.focus(); this.suggest(); }}, line))));
    this.hint = el("p", {class: "soft hint", id: "hint", "aria-live": "polite"}, "Type a command; Tab completes it, arrow up brings back earlier ones. Paste several lines to run them all.");
    this.options = el("div", {class: "options", id: "options", role: "listbox", "aria-label": "commands", hidden: true});
    this.input = el("input", {id: "command", class: "mono", role: "combobox", "aria-expanded": "false", "aria-controls": "options", "aria-autocomplete": "list", "aria-label": "command", "aria-describedby": "hint", autocomplete: "off", spellcheck: "false", autocapitalize: "off",
      placeholder: EXAMPLES[0], onpaste: (event) => this.paste(event), oninput: () => this.suggest(), onkeydown: (event) => this.key(event)});
    this.node = el("div", {class: "commands"}, el("form", {"aria-label": "Run a command", onsubmit: (event) => { event.preventDefault(); this.run(); }},
      el("div", {class: "prompt"}, this.input, el("button", {type: "submit", class: "primary"}, "Run")), this.options, this.hint), this.log);
    this.found = [];
  }
  async go() { if (matchMedia("(min-width: 700px)").matches) this.input.focus(); this.docs = await help(this.fake); if (this.input.value) this.suggest(); }

  nameIn(line) {
    const [first = "", second = ""] = line.trimStart().toUpperCase().split(/\s+/);
    return this.docs?.has(`${first} ${second}`) ? `${first} ${second}` : first;
  }
  suggest() {
    const line = this.input.value.trimStart().toUpperCase();
    this.place = -1;
    this.found = !line || !this.docs || this.docs.has(line.trimEnd()) && line.endsWith(" ") ? [] : [...this.docs.keys()].filter((name) => name.startsWith(line)).sort((one, other) => one.length - other.length || one.localeCompare(other)).slice(0, 8);
    this.show();
    const known = this.docs?.get(this.nameIn(line));
    this.hint.replaceChildren(...(known ? [el("b", {class: "mono"}, `${this.nameIn(line)} ${known.usage}`), ` ${known.summary ?? ""}`] : [line && !this.found.length && this.docs ? "No such command." : ""]));
  }
  show() {
    this.options.hidden = !this.found.length;
    this.input.setAttribute("aria-expanded", String(Boolean(this.found.length)));
    if (this.place >= 0 && this.found.length) this.input.setAttribute("aria-activedescendant", `option${this.place}`); else this.input.removeAttribute("aria-activedescendant");
    this.options.replaceChildren(...this.found.map((name, at) => el("div", {role: "option", id: `option${at}`, "aria-selected": String(at === this.place), onmousedown: (event) => { event.preventDefault(); this.take(name); }},
      el("b", {class: "mono"}, name), el("span", {class: "soft"}, ` ${this.docs.get(name).summary ?? ""}`))));
  }
  take(name) { this.input.value = name + " "; this.found = []; this.show(); this.suggest(); }
  key(event) {
    // The shortcut that leads here was pressed once more.
    if (event.key === "/" && !this.input.value) event.preventDefault();
    const open = this.found.length > 0;
    if (event.key === "Tab" && open && !event.shiftKey) { event.preventDefault(); this.take(this.found[Math.max(0, this.place)]); }
    else if (event.key === "Escape" && open) { this.found = []; this.show(); }
    else if (event.key === "Enter" && open && this.place >= 0) { event.preventDefault(); this.take(this.found[this.place]); }
    else if (event.key === "ArrowDown" && open) { event.preventDefault(); this.place = (this.place + 1) % this.found.length; this.show(); }
    else if (event.key === "ArrowUp" && open && this.place > 0) { event.preventDefault(); this.place--; this.show(); }
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      this.at = Math.max(0, Math.min(this.said.length, this.at + (event.key === "ArrowUp" ? -1 : 1)));
      this.input.value = this.said[this.at] ?? "";
      this.found = []; this.show();
    }
  }
  paste(event) {
    const given = lines(event.clipboardData.getData("text").replaceAll("\r", "")).filter((line) => line.trim());
    if (given.length < 2) return;
    event.preventDefault();
    given.reduce((before, line) => before.then(() => this.run(line)), Promise.resolve());
  }
  async run(line = this.input.value) {
    line = line.trim();
    if (!line || line.startsWith("#")) return;
    this.found = []; this.show();
    let argv;
    try { argv = split(line); } catch (error) { this.hint.replaceChildren(el("span", {class: "bad"}, error.message)); return; }
    if (/^FLUSH(ALL|DB)$/i.test(argv[0]) && !await confirmed("Delete all keys?", argv[0].toUpperCase())) return;
    if (!this.log.querySelector(".entry")) this.log.replaceChildren();
    this.at = this.said.push(line);
    sessionStorage.setItem(`said ${this.fake.name}`, JSON.stringify(this.said.slice(-100)));
    this.input.value = "";
    this.suggest();
    const parts = [], entry = el("div", {class: "entry"}, el("p", {class: "mono tools"}, el("b", {}, `> ${line}`), el("span", {class: "soft"}, $("now").textContent)));
    this.log.prepend(entry);
    try {
      const {latest} = await ask("GET", "/state"), answer = await send(this.fake, "POST", "/", argv);
      const row = (await ask("GET", `/journal?after=${latest}`)).findLast((one) => one.fake === this.fake.name && one.kind === "call");
      for (const {description} of row?.faults ?? []) parts.push(el("p", {class: "fault"}, `Injected fault: ${description}`));
      if (answer.broken) parts.push(el("p", {class: "bad"}, `The connection was broken: ${words(answer.broken)}.`));
      else {
        const read = json(answer.body, "The answer");
        parts.push(...[read.error !== undefined ? el("p", {class: "bad mono"}, `(error) ${read.error}`) : typed(argv, read.result)].flat().filter(Boolean));
      }
    } catch (error) { parts.push(el("p", {class: "bad"}, error.message)); }
    entry.append(...parts);
    document.dispatchEvent(new Event("changed"));
  }
}

export const tabs = [
  {name: "keys", title: "Keys", counted: "keys", make: (fake) => new ListPage(fake, "keys", keys)},
  {name: "commands", title: "Command box", make: boxOf},
  {name: "indexes", title: "Search indexes", counted: "indexes", make: (fake) => new ListPage(fake, "indexes", indexes)},
];
