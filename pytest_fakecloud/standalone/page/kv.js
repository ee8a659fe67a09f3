// Pages of a key-value server: keys, channels, pending entries and search indexes.
import {about, act, attempt, breaksJson, bytes, choice, code, confirmed, copies, copyButton, count, discard, done, el, emptied, empty, facts, form, head, isTyped, json, laidOut, link, micros, moment, number, pill, redraw, removal, short, soft, table, title, tools, visible, withDay, words} from "./dom.js";
import {change, item, list, path, sendWell} from "./api.js";
import {digits, dump} from "./elements.js";
import {historyButton, offerUndo, replacedField, versionsElement} from "./history.js";
import {entries} from "./journal.js";
import {ListPage, withCancel} from "./lists.js";
import {BYTE, asRequest, byte, hexOf} from "./words.js";

const run = (fake, ...line) => sendWell(fake, "POST", ...asRequest(line.map(String))).then((answer) => answer.result);
const wordOf = (id) => { try { return decodeURIComponent(id); } catch { return id.replace(/%(..)/g, (_, hex) => byte(hex)); } };
const nameOf = (word) => word === "" ? '""' : word.replace(new RegExp(BYTE, "gu"), (letter) => `\\x${hexOf(letter)}`);
const wordOfHex = (hex) => hex.replace(/../g, byte);
function wordOfDigits(text) {
  const hex = text.replace(/\s+/g, "");
  if (!/^([0-9a-f]{2})*$/i.test(hex)) throw new Error("The bytes must be pairs of hexadecimal digits, such as 00 ff.");
  return wordOfHex(hex);
}
async function current(fake, id, values) { try { return await item(fake, "keys", id, values); } catch (error) { if (error.status === 404) return null; throw error; } }
// Returns the question before a change of a key that is not as it was shown in a field. It names the value of now, as `show` returns it, and the one that was typed.
const meanwhile = (fake, one, field = "value", show = (now) => short(now[field], 80)) => async (values) => {
  const now = await current(fake, one.id), [typed_] = Object.values(values);
  return !now ? `The key ${one.key} was deleted meanwhile. Write it again?` : now.type !== one.type ? `The key ${one.key} is a ${words(now.type)} now. Overwrite it?` : now[field] === one[field] ? null : `${one.key} is now ${show(now)}. Overwrite it with ${short(typed_, 80) || "nothing"}?`;
};
const ttl = (one) => one.ttl_ms == null ? "no TTL" : about(one.ttl_ms * 1000);
const lengthOf = (one) => count(one.length, {hash: "field", vector: "vector", stream: "entry", zset: "member", set: "member"}[one.type] ?? "element");

const keys = {
  list: "keys", noun: "key", folder: "namespace", facet: "type", rawId: true, hasItem: true, key: (one) => wordOf(one.id),
  searchNote: "Search, or user:*", columns: ["key", "type", "TTL", "size", "value"], aside: ["TTL", "size"], fields: ["key", "type", "ttl_ms", "bytes", "preview"],
  row: (one) => [short(nameOf(wordOf(one.id)), 200), pill(words(one.type)), el("span", {class: one.ttl_ms == null ? "soft" : "", title: one.expires ?? ""}, ttl(one)), bytes(one.bytes ?? 0), short(one.preview || (one.type === "string" ? '""' : lengthOf(one)), 120)],
  tools: (fake, page) => newKey(fake, page), bar: views, section: () => "keys", name: (one) => one.key, named: (id) => nameOf(wordOf(id)), above: tree, bulk: [{text: "Delete", isRisky: true, work: (fake, names) => run(fake, "DEL", ...names), undone: "Deleted", note: "The notice that follows can undo it."}],
  gone: (id, {fake}) => [versionsElement(fake, "keys", wordOf(id), {open: true})],
  empty: () => empty("No keys yet.", "A key appears when your application writes one. Add one above, or in the command box."),
  detail: (one, page) => [title(nameOf(wordOf(one.id))), keyFacts(one), ...keyActs(one, page), ...valueOf(one, page), versionsElement(page.fake, "keys", one.key)],
};
// Offers to undo a change of a key.
const undoOfKey = (fake, key, inverse) => (row, text) => offerUndo(fake, row, "keys", [key], text, {inverse});
// The inverse of a change of a TTL, of which `after` is the key after it.
const ttlBefore = (fake, one, after) => async () => {
  const now = await current(fake, one.id), key = wordOf(one.id);
  return now && after() && {question: now.expires === after().expires ? null : `${one.key} is now to expire: ${now.expires ? ttl(now) : "never"}. Overwrite it with the TTL before your change?`, run: () => run(fake, ...one.expires ? ["PEXPIREAT", key, Math.round(micros(one.expires) / 1000)] : ["PERSIST", key])};
};

// The choice between a list and a tree of namespaces, which colons separate, and the tree. Keys of the root are listed below it.
function views(found, page) { return choice("view", ["", "tree"], page.values.view ?? "", (value) => page.change({view: value}), (value) => value ? "Namespaces" : "List"); }
function tree(found, page) { return page.values.view === "tree" ? folders(found, page) : null; }
function withMemory(memory, share, folder) {
  const [text, bar] = folder.querySelectorAll(":scope > details > summary > :is(.soft, .share)");
  text.textContent = memory == null ? "" : bytes(memory);
  bar.firstChild.style.width = `${100 * share}%`;
  return folder;
}
// A folder loads what is in it when it is opened, and stays open while its number of keys does.
function folders({folders: inner, items, matching}, page, under = "") {
  const all = (name) => link(page.base, {search: name.replace(/[*?[\]\\]/g, "\\$&") + "*"}), {search} = page.values, known = page.folders ??= new Map(), most = Math.max(1, ...inner.map((folder) => folder.bytes ?? folder.keys));
  const once = (name, make) => known.get(name) ?? (known.set(name, make()), known.get(name));
  return el("ul", {class: "folders"}, inner.toSorted((one, other) => one.name.localeCompare(other.name, "en", {numeric: true})).map(({name, keys: many, bytes: memory}) => withMemory(memory, (memory ?? many) / most, once(JSON.stringify([many, name, search]), () => el("li", {}, el("details", {"data-key": [name, search].join(" "), open: Boolean(search), ontoggle: async ({target}) => {
    if (target.open && target.children.length === 1) target.append(folders(await list(page.fake, "keys", {view: "tree", under: name, search, limit: 500}), page, name));
  }}, el("summary", {}, el("span", {class: "mono"}, name.slice(under.length)), el("span", {class: "many"}, number(many)), el("span", {class: "soft"}), el("span", {class: "share", "aria-hidden": "true"}, el("i")), " ", el("a", {href: all(name), "aria-label": `List all of ${name}`}, "List all"))))))),
  under ? items.map((one) => el("li", {}, el("a", {class: "mono", href: page.address(one.id)}, visible(one.key.slice(under.length))))) : null,
  under && matching > items.length ? el("li", {}, el("a", {href: all(under)}, `${number(matching - items.length)} more`)) : null);
}

function newKey(fake, page) {
  let added;
  const kinds = {string: (key, value) => ["SET", key, value], hash: (key, value) => ["HSET", key, ...pairs(value)], list: (key, value) => ["RPUSH", key, ...lines(value)],
    set: (key, value) => ["SADD", key, ...lines(value)], array: (key, value) => ["ARINSERT", key, ...lines(value)], zset: (key, value) => ["ZADD", key, ...pairs(value).map((_, at, all) => all[at ^ 1])], json: (key, value) => ["JSON.SET", key, "$", value]};
  return form("New key", "Add key", [{name: "key", label: "key", needed: true}, {name: "type", label: "type", options: Object.keys(kinds)}, {name: "ttl", label: "TTL in seconds", kind: "number", note: "none"},
    {name: "value", label: "value; of a hash or sorted set a name and value, of a list, set or array an element on each line", kind: "area", wide: true}],
  async ({key, type, ttl: seconds, value}, inputs) => {
    await run(fake, ...kinds[type](key, value));
    added = {key, row: change.row};
    if (seconds) await run(fake, "EXPIRE", key, seconds);
    emptied(inputs, "key", "value", "ttl"); location.hash = page.address(encodeURIComponent(key), {});
    return done("Added ", el("a", {href: page.address(encodeURIComponent(key), {})}, short(key, 60)), ".");
  }, {open: false, undo: (row, text) => offerUndo(fake, added.row, "keys", [added.key], text, {last: row}), overwrites: async ({key, type}) => await current(fake, encodeURIComponent(key)) && `The key ${key} exists. ${/string|json/.test(type) ? "Overwrite it" : "Add to it"}?`, confirms: ({key, type}) => `${/string|json/.test(type) ? "Overwrite" : "Add to"} ${key}`});
}
const lines = (text) => text.split("\n").filter(Boolean), pairs = (text) => lines(text).flatMap((line) => { const at = line.search(/[\s:=]/); if (at < 0) throw new Error(`${short(line, 60)} has no value: write "${short(line, 60)} VALUE", or "${short(line, 60)}=" for an empty one.`); return [line.slice(0, at), line.slice(at + 1).trim()]; });

const keyFacts = (one) => tools(pill(words(one.type)), el("span", {}, [/string|json/i.test(one.type) ? "" : lengthOf(one), one.bytes == null ? "" : bytes(one.bytes), one.ttl_ms == null ? "no TTL" : null].filter((text) => text).join(" · ")), one.ttl_ms == null ? null : el("span", {}, "expires ", moment(one.expires)));

function keyActs(one, page) {
  const {fake} = page, key = wordOf(one.id);
  let after = null;
  return [tools(form("Change TTL", "Set TTL", [{name: "seconds", label: "TTL in seconds; empty removes it", kind: "number", value: one.ttl_ms == null ? "" : Math.ceil(one.ttl_ms / 1000)}],
    async ({seconds}) => { await run(fake, ...(seconds ? ["EXPIRE", key, seconds] : ["PERSIST", key])); after = await current(fake, one.id); document.activeElement.blur(); return done("Changed."); }, {open: false, undo: undoOfKey(fake, one.key, ttlBefore(fake, one, () => after)), overwrites: meanwhile(fake, one, "expires", (now) => now.expires ? `to expire in ${ttl(now)}` : "without TTL")}),
  copyButton(nameOf(key), "Copy key", "Copy key"), historyButton(), removal("Delete", `Delete the key ${nameOf(key)}`, async () => { await run(fake, "DEL", key); discard(".detail"); location.hash = page.address(); undoOfKey(fake, one.key)(change.row, `Deleted ${short(nameOf(key), 60)}.`); }), one.made_by ? copies({method: "POST", path: path(fake, "/requests"), body: {body: one.made_by}}, "this key") : null)];
}

function valueOf(one, page) {
  const key = wordOf(one.id), blur = (text) => { document.activeElement.blur(); return done(text); }, saved = one.ttl_ms == null ? "Saved." : "Saved; the TTL stays.";
  if (one.elements) return [one.groups?.length ? groups(one, page) : null, elements(one, page)];
  if (one.hex !== undefined) return [code(dump(one.hex), "value in hexadecimal"), one.is_whole ? form("Edit as hexadecimal", "Save", [{name: "value", label: "bytes, two hexadecimal digits each", kind: "area", value: digits(one.hex), wide: true}],
    async ({value}) => { await run(page.fake, "SET", key, wordOfDigits(value), "KEEPTTL"); return blur(saved); }, {open: false, undo: undoOfKey(page.fake, one.key), overwrites: meanwhile(page.fake, one, "hex", (now) => short(digits(now.hex ?? ""), 80) || short(now.value, 80))}) : soft("The value is longer than what is shown.")];
  // JSON and control characters are shown readable, and edited on request.
  const escaped = /[\x00-\x08\x0e-\x1f\x7f-\x9f]/.test(one.value) || visible(one.value) !== one.value && !laidOut(one.value).includes("\n") ? visible(JSON.stringify(one.value)).replace(/[\x7f-\x9f]/g, (letter) => `\\x${letter.charCodeAt(0).toString(16)}`) : "", shown = escaped || (laidOut(one.value) !== one.value ? laidOut(one.value) : "");
  if (one.type === "string" && one.is_editable && one.is_whole) return [shown ? code(shown, escaped ? "value, escaped" : "value as JSON") : null, form(shown ? "Edit the value" : "Value", "Save", [{name: "value", label: "value", kind: "area", value: one.value, wide: true}],
    async ({value}) => { await run(page.fake, "SET", key, value, "KEEPTTL"); return blur(saved); }, {open: !shown, undo: undoOfKey(page.fake, one.key), overwrites: async (values) => breaksJson(one.value, values.value, "The value") ?? meanwhile(page.fake, one)(values)})];
  if (/json/i.test(one.type)) return [form("Document", "Save", [{name: "value", label: "JSON document", kind: "area", value: one.value, wide: true}],
    async ({value}) => { json(value, "The document"); await run(page.fake, "JSON.SET", key, "$", value); return blur("Saved."); }, {undo: undoOfKey(page.fake, one.key), overwrites: meanwhile(page.fake, one)})];
  return [code(one.value, "value"), one.is_whole === false ? soft("The value is longer than what is shown.") : null];
}

function groups(one, page) {
  let first;
  const {fake} = page, key = wordOf(one.id), pendingOf = (values) => link(["fake", fake.name, "pending"], {key: one.key, ...values});
  return [head("Consumer groups"), one.groups.map((group) => el("details", {class: "attempt", open: true, "data-key": `group ${group.name}`}, el("summary", {}, el("b", {}, shownName(group.name)), ` · ${number(group.waiting)} not delivered · ${number(group.pending)} pending`),
    table(`consumers of ${group.name}`, ["consumer", "pending", "last seen"], group.consumers, (each) => [shownName(each.name), each.pending ? el("a", {href: pendingOf({group: group.name, consumer: each.name})}, number(each.pending)) : "0", moment(each.seen)]),
    tools(`Last delivered: ${group.last_id}`, group.pending ? el("a", {class: "button", href: pendingOf({group: group.name})}, count(group.pending, "pending entry")) : null),
    group.pending ? form(`Claim entries of ${group.name}`, "Claim", [{name: "consumer", label: "for the consumer", needed: true, list: async () => group.consumers.map((each) => each.name)}, {name: "idle", label: "idle for at least (ms)", kind: "number", value: 60000}],
      async ({consumer, idle}) => {
        let from = "0-0", many = 0;
        do { const [next, claimed] = await run(fake, "XAUTOCLAIM", key, group.name, consumer, idle || 0, from, "COUNT", 1000); if (from === "0-0") first = change.row; [from, many] = [next, many + claimed.length]; } while (from !== "0-0");
        return done(`Claimed ${count(many, "entry")} for ${consumer}.`);
      }, {open: false, undo: (row, text) => offerUndo(fake, first, "keys", [one.key], text, {last: row})}) : null))];
}
// Redis removes an element of a list by its value, so it gets one that no other has, if it is still the one that was shown.
const shownName = (name) => short(nameOf(name), 120), REMOVE = "if redis.call('LINDEX', KEYS[1], ARGV[1]) ~= ARGV[2] then return redis.error_reply('ERR the list has changed, so nothing was removed') end redis.call('LSET', KEYS[1], ARGV[1], ARGV[3]) return redis.call('LREM', KEYS[1], 1, ARGV[3])";
function elements(one, page) {
  const {fake} = page, key = wordOf(one.id), place = el("div"), state = {search: "", after: "", before: ""};
  const editors = {
    hash: {fields: ["field", "value"], put: (row) => ["HSET", key, row.field, row.value], drop: (row) => ["HDEL", key, row.field]},
    list: {fields: ["value"], put: (row) => row.index === undefined ? ["RPUSH", key, row.value] : ["LSET", key, row.index, row.value], drop: (row) => ["EVAL", REMOVE, 1, key, row.index, row.value, `removed ${Math.random()}`]},
    set: {fields: ["member"], put: (row) => ["SADD", key, row.member], drop: (row) => ["SREM", key, row.member]},
    zset: {fields: ["member", "score"], put: (row) => ["ZADD", key, row.score, row.member], drop: (row) => ["ZREM", key, row.member]},
    array: {fields: ["index", "value"], put: (row) => ["ARSET", key, row.index, row.value], drop: (row) => ["ARDEL", key, row.index]},
    vector: {fields: ["id", "vector"], put: (row) => { const numbers = json(row.vector, "The vector"); return ["VECTOR.ADD", key, row.id, "VALUES", String(numbers.length), ...numbers.map(String)]; }, drop: (row) => ["VECTOR.DEL", key, row.id]},
    stream: {fields: ["fields"], put: (row) => ["XADD", key, "*", ...Object.entries(json(row.fields, "The fields")).flat()], drop: (row) => ["XDEL", key, row.id]},
  };
  // What is not UTF-8 is shown and edited as digits, and sent as bytes.
  const editor = editors[one.type], cell = (row, column) => row.hex?.[column] === undefined ? row[column] : digits(row.hex[column]), name = (row) => cell(row, ["field", "member", "id", "index"].find((column) => column in row));
  const asBytes = (row, hex = row.hex) => ({...row, ...Object.fromEntries(Object.keys(hex ?? {}).filter((column) => column in row).map((column) => [column, row.hex ? wordOfHex(hex[column]) : wordOfDigits(row[column])]))});
  const search = el("input", {type: "search", placeholder: "Search elements", "aria-label": "search elements", oninput: () => { Object.assign(state, {search: search.value, after: "", before: ""}); attempt(load); }});
  async function load() { show((await item(fake, "keys", one.id, state)).elements); }
  function show(found) {
    const last = found.first + found.items.length - 1, held = document.activeElement;
    redraw(place, el("p", {class: "soft", role: "status"}, found.items.length ? `${number(found.first)}–${number(last)} of ${number(found.matching)}` : "No element matches."),
      table("elements", [...one.columns, editor.drop ? "" : null].filter((text) => text !== null), found.items, (row) => [...one.columns.map((column) => column === "id" && one.type === "stream" ? [row.id, el("br"), el("span", {class: "soft"}, new Date(Number(row.id.split("-")[0])).toISOString().slice(0, 19).replace("T", " "))] : row.hex?.[column] === undefined ? short(row[column], 500) : el("span", {title: "hexadecimal"}, short(cell(row, column), 500))),
        el("span", {class: "tools"}, editor.fields.includes("value") || one.type === "zset" ? el("button", {type: "button", "aria-label": `Edit ${name(row)}`, onclick: async ({currentTarget}) => { if (!isTyped(editing) || await confirmed("Discard what you have typed? It was not sent.", "Discard what you have typed")) { edited = String(name(row)); edit(row); currentTarget.closest("tr").after(editing); editing.querySelector("input:not([readonly])").focus(); } }}, "Edit") : null,
          editor.drop ? removal("Remove", `Remove ${name(row)}`, async () => { await run(fake, ...editor.drop(asBytes(row))); undoOfKey(fake, one.key, inverseOf(row, null, change.row))(change.row, `Removed ${short(name(row), 60)}.`); }) : null)]),
      found.previous || found.next ? tools([["← Previous", "before", found.previous], ["Next →", "after", found.next]].map(([text, which, cursor]) =>
        el("button", {type: "button", disabled: !cursor, onclick: () => { Object.assign(state, {after: "", before: "", [which]: cursor}); attempt(load); }}, text))) : null);
    if (edited === null) return;
    // The form stays at its row, or above the others if the row is not shown any more.
    const row = [...place.querySelectorAll("tbody tr")][found.items.findIndex((each) => String(name(each)) === edited)];
    if (row) row.after(editing); else place.querySelector("tbody").prepend(editing);
    if (editing.contains(held)) held.focus({preventScroll: true});
  }
  const adding = el("div"), line = el("td", {colspan: one.columns.length + 1}), editing = el("tr", {class: "editing"}, line);
  // The name of the element whose form is open.
  let edited = null;
  // The element that was changed last, before and after that.
  let before = null, after = null;
  const [id, field] = {hash: ["field", "value"], zset: ["member", "score"], list: ["index", "value"], array: ["index", "value"], set: ["member", "member"]}[one.type] ?? [];
  // The element of now with this name. That of a list is found by its value too: undefined means that it was changed.
  async function elementOf(wanted, search) {
    for (let after = "", now; after !== null; now = null) {
      const page_ = (await current(fake, one.id, {search, after, limit: 500}))?.elements ?? {items: [], next: null};
      if (now = page_.items.find((each) => String(cell(each, id)) === String(wanted))) return now;
      after = page_.next;
    }
  }
  // The inverse of a change of one element, null where there is none before or after it. It leaves all other elements.
  const inverseOf = (shown, after, row) => !field || one.type === "list" && !(shown && after) || !shown && !editor.drop ? undefined : async () => {
    // What the call replaced, which others may have changed since it was shown.
    const replaced = row && one.type === "hash" ? await replacedField(fake, row, one.key, cell(shown ?? after, id)) : undefined, before = shown && replaced !== undefined && !shown.hex ? {...shown, [field]: replaced} : shown;
    const known = before ?? after, now = await elementOf(cell(known, id), one.type === "list" ? after.value : known[id]), same = now && after ? one.type === "zset" ? Number(now.score) === Number(after.score) : cell(now, field) === cell(after, field) : !now && !after;
    // The last element took the key with it.
    if (!await current(fake, one.id)) return null;
    // What was added to a number since stays.
    const numbers = [before, after, now].map((each) => each && ["hash", "zset"].includes(one.type) && String(cell(each, field)).trim() !== "" ? Number(cell(each, field)) : NaN), [old, edited, current_] = numbers, wanted = current_ - edited + old;
    if (!same && numbers.every(Number.isSafeInteger)) return {question: `${cell(known, id)} of ${one.key} is now ${current_}, ${Math.abs(current_ - edited)} ${current_ > edited ? "more" : "less"} than after your change. Set it to ${wanted}, which takes back only your change?`, run: () => run(fake, ...one.type === "hash" ? ["HINCRBY", key, asBytes(known)[id], old - edited] : ["ZINCRBY", key, old - edited, asBytes(known)[id]])};
    return {question: same ? null : `${cell(known, id)} of ${one.key} ${now ? `is now ${short(cell(now, field), 80)}` : `was ${one.type === "list" ? "changed" : "removed"} meanwhile`}. ${before ? `Set it to ${short(cell(before, field), 80)}, as before your change` : "Remove it"}?`, run: () => run(fake, ...before ? editor.put(asBytes(before)) : editor.drop(asBytes(after)))};
  };
  // The question before an element is overwritten: one that is not as it was shown, or one that exists when another is added.
  async function overwrites(row, values) {
    before = row;
    if (!field || one.type === "list" && !row) return null;
    const wanted = row ? cell(row, id) : values[id], now = await elementOf(wanted, one.type === "list" ? row.value : row?.[id] ?? wanted);
    before = now ?? null;
    if (row && now && cell(now, field) === cell(row, field) || !row && !now || one.type === "set") return null;
    // The table behind the question shows what is there now.
    await attempt(load);
    return now ? `${wanted} of ${one.key} is now ${short(cell(now, field), 80)}. Overwrite it with ${short(values[field], 80)}?` : `${wanted} of ${one.key} was ${one.type === "list" ? "changed" : "removed"} meanwhile. Overwrite it?`;
  }
  function edit(row) {
    const given = row ?? {};
    const shown = form(row ? `Edit ${name(row)}` : "Add an element", row ? "Save" : "Add", editor.fields.map((field) => ({name: field, label: given.hex?.[field] === undefined ? field : `${field}, in hexadecimal`, value: row ? cell(given, field) : undefined, wide: true, fixed: Boolean(row) && ["field", "member", "index"].includes(field), note: field === "fields" ? '{"name": "value"}' : "", needed: field !== "value"})),
      async (values) => {
        const put = {...(row && one.type === "list" ? {index: row.index} : {}), ...asBytes(values, given.hex)};
        await run(fake, ...editor.put(put));
        after = {...given, ...values, ...given.hex && {hex: Object.fromEntries(Object.keys(given.hex).map((column) => [column, (values[column] ?? digits(given.hex[column])).replace(/\s+/g, "").toLowerCase()]))}};
        if (row) close();
        document.activeElement.blur();
        return done(row ? "Saved." : "Added.");
      }, {open: Boolean(row), undo: (number_, text) => undoOfKey(fake, one.key, inverseOf(before, after, number_))(number_, text), overwrites: (values) => overwrites(row, values)});
    if (row) withCancel(Object.assign(shown, {open: false}), close).open = true;
    (row ? line : adding).replaceChildren(shown);
  }
  function close() { edited = null; editing.remove(); }
  edit();
  show(one.elements);
  return el("section", {}, el("div", {class: "forms"}, search, adding), place);
}

// -- pending entries of streams --
// The id of a pending entry has the key, the group and the entry, quoted.
const partsOf = (id) => id.split(" ").map(wordOf);
async function acknowledge(fake, ids) {
  for (const entries of Map.groupBy(ids.map(partsOf), ([key, group]) => JSON.stringify([key, group])).values()) await run(fake, "XACK", entries[0][0], entries[0][1], ...entries.map(([, , entry]) => entry));
}
// The inverse of a claim or an acknowledgement: the entry is pending again as it was, and the rest of the stream stays. A claim that made its consumer has none.
const pendingAgain = (fake, one, [key, group, entry], hasMade) => async () => !one.fields || hasMade() ? null : {run: () => run(fake, "XCLAIM", key, group, one.consumer, 0, entry, "TIME", Math.round(micros(one.delivered) / 1000), "RETRYCOUNT", one.deliveries, "FORCE", "JUSTID")};
const pending = {
  list: "pending", noun: "pending entry", about: (one) => [null, one.entry], facet: "consumer", hasItem: true, key: (one) => one.id, columns: ["entry", "stream", "group", "consumer", "idle", "deliveries", "fields"], aside: ["stream", "group", "idle", "deliveries"], fields: ["entry", "key", "group", "consumer", "idle_ms", "deliveries", "preview"],
  moreFilters: true, filters: [{name: "key", label: "stream", note: "orders"}, {name: "group", label: "consumer group", note: "mailers"}],
  row: (one) => [one.entry, short(one.key, 80), short(one.group, 80), short(one.consumer, 80), about(one.idle_ms * 1000), number(one.deliveries), one.preview ? short(one.preview, 120) : el("span", {class: "soft"}, "deleted")],
  section: () => "keys", name: (one) => one.key, bulk: [{text: "Acknowledge", undone: "Acknowledged", work: acknowledge, note: "Their groups will not deliver them again. The notice that follows can undo it."}],
  empty: () => empty("No pending entries.", "An entry of a stream is pending from the moment a consumer of a group receives it until it is acknowledged."),
  detail: (one, page) => {
    const {fake} = page, [key, group, entry] = partsOf(one.id), undo = (row, text) => offerUndo(fake, row, "keys", [one.key], text, {inverse: pendingAgain(fake, one, [key, group, entry], () => hasMade)});
    const consumers = async () => (await item(fake, "keys", one.id.split(" ")[0])).groups.find((each) => each.name === one.group)?.consumers.map((each) => each.name) ?? [];
    let hasMade = false;
    return [title(one.entry), facts({stream: el("a", {href: link(["fake", fake.name, "keys", {raw: one.id.split(" ")[0]}])}, shownName(key)), group: shownName(group), consumer: shownName(one.consumer), delivered: moment(one.delivered), deliveries: number(one.deliveries)}),
      tools(act("Acknowledge", `Acknowledge ${entry}`, async () => { await acknowledge(fake, [one.id]); discard(".detail"); location.hash = page.address(); undo(change.row, `Acknowledged ${entry}.`); })),
      form("Claim", "Claim", [{name: "consumer", label: "for the consumer", needed: true, list: consumers}],
        async ({consumer}) => { hasMade = !(await consumers()).includes(consumer); const claimed = await run(fake, "XCLAIM", key, group, consumer, 0, entry); document.activeElement.blur(); return done(claimed.length ? `Claimed for ${consumer}.` : "The stream no longer has this entry, so it is not pending any more."); }, {undo}),
      head("Fields"), one.fields ? code(JSON.stringify(one.fields, null, 2), "fields") : soft("The stream no longer has this entry: it was deleted or trimmed.")];
  },
};

// -- channels --
const PUBLISH = /^S?PUBLISH$/i;
// The messages that were published, newest first: recorded calls, each with the number of subscribers that received it.
function published(fake, channel) {
  return entries.list.filter((row) => row.fake === fake.name && row.data?.words?.some(([name, to]) => PUBLISH.test(name) && (channel === undefined || to === channel))).slice(-50).reverse()
    .flatMap((row) => row.data.words.map((words, at) => ({row, words, at})).filter(({words: [name, to]}) => PUBLISH.test(name) && (channel === undefined || to === channel)));
}
const messagesTable = (messages) => messages.length ? table("published messages", ["time", "channel", "message", "received by"], messages, ({row, words: [, to, text], at}) => [el("a", {href: link(["activity", row.number])}, withDay(new Date(row.at_us / 1000).toISOString())), short(to, 60), short(text ?? "", 300), row.data.words.length === 1 ? row.text.answer : short([row.response?.decoded].flat()[at]?.result ?? "")]) : soft("No message was published yet.");
const publishForm = (fake, channel) => form("Publish", "Publish", [{name: "channel", label: "channel", value: channel, needed: true, list: async () => (await list(fake, "channels", {limit: 500})).items.filter(({kind}) => kind !== "pattern").map(({name}) => name)}, {name: "message", label: "message", wide: true}],
  async ({channel: to, message}, inputs) => { const many = await run(fake, "PUBLISH", to, message); emptied(inputs, "message"); inputs.message.focus(); return done("Received by ", el("a", {href: link(["activity", change.row])}, count(many, "subscriber")), "."); }, {open: channel !== undefined, edits: false, copied: false, overwrites: ({message}) => message ? null : "Publish an empty message?", confirms: () => "Publish an empty message"});
const matchesGlob = (pattern) => new RegExp(`^${pattern.replace(/[.+^${}()|\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".")}$`, "s");
const channels = {
  list: "channels", noun: "channel", about: (one) => ["channel", one.name], facet: "kind", key: (one) => one.id, columns: ["channel", "kind", "subscribers"], fields: ["name", "kind", null],
  row: (one) => [short(one.name, 120), pill(one.kind), one.subscribers.map((each) => short(each.name || `client ${each.id}, ${each.address}`, 60)).join("; ")],
  tools: (fake) => publishForm(fake), below: (found, page) => { page.node.querySelector(".list > .tools > .form").hidden = page.id !== undefined; return [el("h2", {}, "Messages as they are published"), messagesTable(published(page.fake))]; }, version: () => entries.list.at(-1)?.number,
  empty: () => empty("No subscribers.", "A channel appears here while a client subscribes to it. Messages that are published are listed below, whether somebody receives them or not."),
  detail: (one, page) => [title(one.name), table("subscribers", ["client", "name", "address"], one.subscribers, (each) => [number(each.id), each.name || el("span", {class: "soft"}, "no name"), each.address]), publishForm(page.fake, one.kind === "pattern" ? "" : one.name),
    head("Messages"), messagesTable(one.kind === "pattern" ? published(page.fake).filter(({words: [, to]}) => matchesGlob(one.name).test(to)) : published(page.fake, one.name))],
};

// -- search indexes --
// The hits of a query as a table, with a column for each field that one of them has.
function hits(fake, found) {
  if (!found.length) return soft("Nothing was found.");
  const rows = found.map(([key, score, fields = []]) => ({key, score, fields: Object.fromEntries(Array.isArray(fields) ? fields : Object.entries(fields))})), names = [...new Set(rows.flatMap(({fields}) => Object.keys(fields)))].slice(0, 12);
  return table("hits", ["key", "score", ...names], rows, ({key, score, fields}) => [el("a", {href: link(["fake", fake.name, "keys", key])}, short(key, 120)), score === undefined ? "" : Number(Number(score).toPrecision(5)), ...names.map((name) => short(fields[name] ?? "", 200))]);
}
const indexes = {
  list: "indexes", noun: "index", key: (one) => one.name, columns: ["index", "fields", "documents", "pending"], fields: ["name", null, "documents", "pending"],
  row: (one) => [one.name, one.fields.map((field) => field.field).join(", "), number(one.documents), number(one.pending)],
  empty: () => empty("No search indexes yet.", "SEARCH.CREATE makes one. Run it in the command box, for example:", code("SEARCH.CREATE books ON HASH PREFIX 1 book: SCHEMA title TEXT price F64", "example")),
  detail: (one, page) => [title(one.name), facts({documents: number(one.documents), pending: number(one.pending)}),
    table("schema", ["field", "type", "options"], one.fields, (field) => [field.field, field.type, field.options.join(" ")]),
    form("Query", "Search", [{name: "filter", label: "filter, as JSON", kind: "area", value: JSON.stringify({[one.fields[0]?.field ?? "field"]: "word"}), wide: true, needed: true}, {name: "limit", label: "at most", kind: "number", value: "10"}],
      async ({filter, limit}) => { json(filter, "The filter"); return hits(page.fake, await run(page.fake, "SEARCH.QUERY", one.name, filter, "LIMIT", limit || 10)); }, {edits: false})],
};

export const tabs = [
  {name: "keys", title: "Keys", counted: "keys", make: (fake) => new ListPage(fake, "keys", keys)},
  {name: "commands", title: "Command box", make: async (fake) => (await import("./commands.js")).boxOf(fake)},
  {name: "channels", title: "Channels", counted: "channels", make: (fake) => new ListPage(fake, "channels", channels)},
  {name: "pending", title: "Pending entries", counted: "pending", make: (fake) => new ListPage(fake, "pending", pending)},
  {name: "indexes", title: "Search indexes", counted: "indexes", make: (fake) => new ListPage(fake, "indexes", indexes)},
];
