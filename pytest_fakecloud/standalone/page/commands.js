// The command box of a key-value server. Loaded when it is opened.
import {$, code, confirmed, copyButton, count, el, json, laidOut, number, short, soft, table, tools, words} from "./dom.js";
import {ask, list, send} from "./api.js";
import {dump} from "./elements.js";
import {adviceOf} from "./errors.js";
import {offerUndo} from "./history.js";
import {BYTE, asRequest, byte, hexOf, nearest, split} from "./words.js";

// A reply in Base64, of which only OK is not, with the bytes that are not UTF-8 as in a word.
function fromBase64(reply) {
  if (typeof reply !== "string" || reply === "OK") return reply === null || typeof reply !== "object" ? reply : Array.isArray(reply) ? reply.map(fromBase64) : Object.fromEntries(Object.entries(reply).map(([name, value]) => [name, fromBase64(value)]));
  const letters = atob(reply);
  try { return new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(Uint8Array.from(letters, (letter) => letter.charCodeAt(0))); } catch { return letters.replace(/[\x80-\xff]/g, (letter) => byte(letter.charCodeAt(0).toString(16))); }
}
const PAIRED = new Set(["ARINFO", "HGETALL", "CONFIG GET", "HRANDFIELD", "XINFO STREAM"]), SCORED = /WITHSCORES/i, MOST = 200;
// Shows a reply like redis-cli, which distinguishes integers, nil and arrays from strings.
function typed(line, value) {
  const name = line[0].toUpperCase(), both = `${name} ${(line[1] ?? "").toUpperCase()}`;
  if (Array.isArray(value) && value.length && value.length % 2 === 0 && (PAIRED.has(name) || PAIRED.has(both) || line.some((word) => SCORED.test(word))))
    return [table("reply", line.some((word) => SCORED.test(word)) ? ["member", "score"] : ["field", "value"], value.slice(0, 2 * MOST).filter((_, at) => at % 2 === 0).map((field, at) => [field, value[2 * at + 1]]), (pair) => pair.map((one) => plain(one))), value.length > 2 * MOST ? soft(`The first ${MOST} of ${number(value.length / 2)}.`) : null];
  if (typeof value === "string" && BYTE.test(value)) return [code(dump([...value].map((letter) => BYTE.test(letter) ? hexOf(letter) : letter.charCodeAt(0).toString(16).padStart(2, "0")).join("")), "reply in hexadecimal")];
  const rows = plain(value).split("\n"), readable = typeof value === "string" ? laidOut(value) : value, isText = readable === value && typeof value === "string" && value.includes("\n");
  return [isText ? code(value, "reply as text") : code(rows.slice(0, MOST).join("\n"), "reply"), rows.length > MOST ? [soft(`The first ${MOST} of ${count(rows.length, "line")}.`), copyButton(rows.join("\n"), "Copy the whole reply", "Copy all")] : null, readable === value ? null : code(readable, "reply as JSON")].flat();
}
function plain(value, indent = "") {
  if (value === null) return "(nil)";
  if (typeof value === "number") return Number.isInteger(value) ? `(integer) ${value}` : `(double) ${value}`;
  if (typeof value === "boolean") return value ? "(true)" : "(false)";
  if (typeof value === "string") return JSON.stringify(value).replace(/\\udc([89a-f].)/g, "\\x$1");
  const rows = Array.isArray(value) ? value.map((one, at) => [`${at + 1})`, one]) : Object.entries(value).map(([field, one]) => [JSON.stringify(field) + ":", one]);
  if (!rows.length) return "(empty array)";
  return rows.map(([mark, one], at) => `${at ? indent : ""}${mark} ${plain(one, indent + " ".repeat(mark.length + 1))}`).join("\n");
}

const helps = new Map();
export async function help(fake) {
  if (!helps.has(fake.name)) helps.set(fake.name, new Map((await list(fake, "commands", {limit: 500})).items.map((command) => [command.name, command])));
  return helps.get(fake.name);
}

const EXAMPLES = ['SET greeting "hello you" EX 60', "HSET user:1 name Ada city London", "ZADD board 10 ada 7 bob", "SCAN 0 MATCH user:* COUNT 100"], boxes = new Map();
const isTouched = () => matchMedia("(pointer: coarse)").matches;
// A box stays with its commands and replies while the page is open.
export function boxOf(fake) { if (!boxes.has(fake.url)) boxes.set(fake.url, new CommandBox(fake)); return boxes.get(fake.url); }
class CommandBox {
  constructor(fake) {
    this.said = JSON.parse(sessionStorage.getItem(`said ${fake.name}`) ?? "[]");
    Object.assign(this, {fake, at: this.said.length});
    this.log = el("div", {class: "log", role: "log", "aria-label": "replies", tabindex: 0}, tools("Try:", EXAMPLES.map((line) => el("button", {type: "button", class: "facet mono", onclick: () => { this.input.value = line; this.input.focus(); this.suggest(); }}, line))));
    this.hint = el("p", {class: "soft hint", id: "hint", "aria-live": "polite"}, "Type a command; Tab completes it and the names of keys, arrow up brings back earlier ones. " + (isTouched() ? "Enter adds a line; Run runs all lines." : "Shift and Enter add a line; Enter runs all lines."));
    this.options = el("div", {class: "options", id: "options", role: "listbox", "aria-label": "completions", hidden: true});
    this.input = el("textarea", {id: "command", class: "mono", rows: 1, "aria-controls": "options", "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-label": "command", "aria-describedby": "hint", autocomplete: "off", spellcheck: "false", autocapitalize: "off",
      placeholder: EXAMPLES[0], oninput: () => this.suggest(), onkeydown: (event) => this.key(event)});
    this.node = el("div", {class: "commands"}, el("form", {"aria-label": "Run a command", onsubmit: (event) => { event.preventDefault(); this.run(); }},
      el("div", {class: "prompt"}, this.input, el("button", {type: "submit", class: "primary"}, "Run"), this.options), this.hint), this.log);
    Object.assign(this, {found: [], turn: 0});
  }
  async go() { if (matchMedia("(min-width: 700px)").matches) this.input.focus(); this.docs = await help(this.fake); if (this.input.value) this.suggest(); }

  nameIn(line) {
    const [first = "", second = ""] = line.trimStart().toUpperCase().split(/\s+/);
    return this.docs?.has(`${first} ${second}`) ? `${first} ${second}` : first;
  }
  get typed() {
    const {value, selectionStart: until} = this.input, from = value.lastIndexOf("\n", until - 1) + 1, line = value.slice(from, until).trimStart();
    return {line, until, from: until - line.length, word: /\S*$/.exec(line)[0]};
  }
  suggest() {
    this.input.rows = Math.min(12, this.input.value.split("\n").length);
    const {line, from} = this.typed, upper = line.toUpperCase(), known = this.docs?.get(this.nameIn(line)), turn = ++this.turn;
    const names = !line || !this.docs || this.docs.has(upper.trimEnd()) && upper.endsWith(" ") ? [] : [...this.docs.keys()].filter((name) => name.startsWith(upper)).sort((one, other) => one.length - other.length || one.localeCompare(other)).slice(0, 8);
    this.offer(names.map((name) => ({text: name, about: this.docs.get(name).summary ?? "", from})));
    this.hint.replaceChildren(...(known ? [el("b", {class: "mono"}, `${this.nameIn(line)} ${known.usage}`), ` ${known.summary ?? ""}`] : [line && !names.length && this.docs ? "No such command." : ""]));
    if (!names.length && known?.has_keys) this.suggestKeys(line, this.nameIn(line), turn).catch(() => {});
  }
  // Keys that begin with the last word, which may be left out only where the first key stands.
  async suggestKeys(line, name, turn) {
    const {word, until} = this.typed, prefix = word.replace(/^["']/, "");
    if (!prefix && line.trim().toUpperCase() !== name || line.toUpperCase() === name) return;
    const {items} = await list(this.fake, "keys", {search: prefix.replace(/[*?[\]\\]/g, "\\$&") + "*", limit: 8});
    if (turn === this.turn) this.offer(items.filter((one) => one.is_text && one.key !== prefix).map((one) => ({text: /^[^\s"'\\]+$/.test(one.key) ? one.key : JSON.stringify(one.key), about: words(one.type), from: until - word.length})));
  }
  offer(found) { Object.assign(this, {found, place: -1}); this.show(); }
  show() {
    this.options.hidden = !this.found.length;
    if (this.place >= 0 && this.found.length) this.input.setAttribute("aria-activedescendant", `option${this.place}`); else this.input.removeAttribute("aria-activedescendant");
    this.options.replaceChildren(...this.found.map((one, at) => el("div", {role: "option", id: `option${at}`, "aria-selected": String(at === this.place), onmousedown: (event) => { event.preventDefault(); this.take(one); }},
      el("b", {class: "mono"}, short(one.text, 80)), el("span", {class: "soft"}, ` ${one.about}`))));
  }
  take({text, from}) { this.input.setRangeText(`${text} `, from, this.input.selectionStart, "end"); this.suggest(); }
  key(event) {
    // The shortcut that leads here was pressed once more. The keyboard of a screen has no Shift Enter, so there Enter adds a line.
    if (event.key === "/" && !this.input.value) event.preventDefault();
    const open = this.found.length > 0;
    if (event.key === "Tab" && open && !event.shiftKey) { event.preventDefault(); this.take(this.found[Math.max(0, this.place)]); }
    else if (event.key === "Escape" && open) this.offer([]);
    else if (event.key === "Enter" && open && this.place >= 0) { event.preventDefault(); this.take(this.found[this.place]); }
    else if (event.key === "Enter" && !event.shiftKey && !isTouched()) { event.preventDefault(); this.run(); }
    else if (event.key === "ArrowDown" && open) { event.preventDefault(); this.place = (this.place + 1) % this.found.length; this.show(); }
    else if (event.key === "ArrowUp" && open && this.place > 0) { event.preventDefault(); this.place--; this.show(); }
    // Within several lines, the arrow keys move between these.
    else if (event.key === "ArrowUp" && !this.input.value.slice(0, this.input.selectionStart).includes("\n") || event.key === "ArrowDown" && !this.input.value.slice(this.input.selectionEnd).includes("\n")) {
      event.preventDefault();
      this.at = Math.max(0, Math.min(this.said.length, this.at + (event.key === "ArrowUp" ? -1 : 1)));
      this.input.value = this.said[this.at] ?? "";
      this.input.rows = Math.min(12, this.input.value.split("\n").length);
      this.offer([]);
    }
  }
  // Runs all lines, one after the other, if each can be split into words.
  async run() {
    const text = this.input.value.trim(), given = text.split("\n").map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
    if (!given.length) return;
    this.offer([]);
    let commands;
    try { commands = given.map((line) => [line, split(line)]); } catch (error) { this.hint.replaceChildren(el("span", {class: "bad"}, error.message)); return; }
    if (commands.some(([, [name]]) => /^FLUSH(ALL|DB)$/i.test(name)) && !await confirmed("Delete all keys? The notice that follows can undo it.", "Delete all keys", {isRisky: true})) return;
    if (!this.log.querySelector(".entry")) this.log.replaceChildren();
    this.at = this.said.push(text);
    sessionStorage.setItem(`said ${this.fake.name}`, JSON.stringify(this.said.slice(-100)));
    this.input.value = "";
    this.suggest();
    let before = null;
    const rows = [];
    for (const [line, argv] of commands) before = await this.send(line, argv, before, rows);
    // The keys that the commands changed can be put back, unless they changed other data too.
    const changes = (await Promise.all(rows.slice(0, 50).map((row) => ask("GET", `/journal/${row}/changes`)))).flatMap((one) => one.changes ?? []).filter(({section}) => section !== "scripts"), names = [...new Set(changes.map(({item: name}) => name))], isOfKeys = changes.every(({section}) => section === "keys");
    if (names.length) offerUndo(this.fake, rows[0], isOfKeys ? "keys" : undefined, isOfKeys ? names : undefined, `${changes.every(({after}) => after === null) ? "Removed" : "Changed"} ${isOfKeys ? count(names.length, "key") : "its data"}.`, {last: rows.at(-1)});
  }
  // The name of a command of this server, for one that it does not have.
  async meant([name], line) {
    const docs = await help(this.fake), meant = !docs.has(name.toUpperCase()) && nearest(name.toUpperCase(), [...docs.keys()].filter((one) => !one.includes(" ")));
    return meant ? el("p", {}, "Did you mean ", el("button", {type: "button", class: "facet mono", onclick: () => { this.input.value = line.replace(/^\s*\S+/, meant); this.input.focus(); this.suggest(); }}, meant), "?") : null;
  }
  advice(row) { const text = row && adviceOf(row, true); return text ? el("p", {class: "soft"}, text) : null; }
  // The newest replies are above, those of several lines in their order.
  async send(line, argv, before, rows) {
    const parts = [], entry = el("div", {class: "entry"}, el("p", {class: "mono tools"}, el("b", {}, `> ${line}`), el("span", {class: "soft"}, $("now").textContent)));
    if (before) before.after(entry); else this.log.prepend(entry);
    try {
      const {latest} = await ask("GET", "/state"), [target, body] = asRequest(argv), answer = await send(this.fake, "POST", target, body, {"Upstash-Encoding": "base64"});
      rows.push(answer.row);
      const row = (await ask("GET", `/journal?after=${latest}`)).findLast((one) => one.fake === this.fake.name && one.rules.is_received);
      for (const {description} of row?.faults ?? []) parts.push(el("p", {class: "fault"}, `Injected fault: ${description}`));
      if (answer.broken) parts.push(el("p", {class: "bad"}, `The connection was broken: ${words(answer.broken)}.`));
      else {
        const read = json(answer.body, "The answer");
        parts.push(...[read.error !== undefined ? [el("p", {class: "bad mono"}, `(error) ${read.error}`), await this.meant(argv, line) ?? this.advice(row)] : typed(argv, fromBase64(read.result))].flat().filter(Boolean));
      }
    } catch (error) { parts.push(el("p", {class: "bad"}, error.message)); }
    entry.append(...parts);
    document.dispatchEvent(new Event("changed"));
    return entry;
  }
}
