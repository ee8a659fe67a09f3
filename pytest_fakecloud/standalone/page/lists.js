// A list of a fake, searched and paged by the server, with the selected item beside it.
import {DISCARD, KINDS, act, code, confirmed, count, detailBar, el, empty, go, isLoading, isTyped, isTyping, link, number, own, plural, redraw, saveButton, short, shown, tools, visible, words} from "./dom.js";
import {change, item, list} from "./api.js";
import {border} from "./elements.js";
import {offerUndo} from "./history.js";
import {entries} from "./journal.js";

const LIMIT = 100;

// Adds Cancel, which Esc presses, to an edit form. A form that is always open has it only while text is typed.
export function withCancel(details, close) {
  const form = details.querySelector("form"), isOpen = details.open;
  form.querySelector(".fields").append(el("button", {type: "button", class: isOpen ? "cancel late" : "cancel", onclick: async () => {
    if (form.dataset.typed === "yes" && !await confirmed(...DISCARD)) return;
    form.dataset.typed = "no";
    Object.assign(details, {open: isOpen});
    document.activeElement.blur();
    close();
  }}, "Cancel"));
  return details;
}
const textOf = (cell) => [cell].flat(4).map((part) => part?.textContent ?? part ?? "").join("");
// A text whose beginning is that of the row above or below: where there is little room, this part gives way first.
const LEAST_SAME = 22;
function cutElement(text, others) {
  if (typeof text !== "string") return text;
  const until = (other) => { let at = 0; while (at < other.length && other[at] === text[at]) at++; return at; };
  const [same] = /^.*?(?=[\p{L}\d_]*$)/su.exec(text.slice(0, Math.max(0, ...others.filter((other) => typeof other === "string" && other !== text).map(until))));
  return same.length < LEAST_SAME ? text : el("span", {class: "cut", title: short(text, 500)}, el("span", {}, visible(same)), el("span", {}, visible(text.slice(same.length))));
}
// `spec` is {list, noun, columns, row, detail, hasItem, filters, facet, facetNames, tools, empty, bulk, key}:
// `about` returns what an item is in the recorded calls, with its name, or null and a text that they contain.
// with `wraps`, the last column has two lines; `always` are parameters of each request, `unsent` those of the address that are not, `row` returns the cells of an item, `detail` the content of the panel beside the list.
export class ListPage {
  constructor(fake, tab, spec) {
    Object.assign(this, {fake, tab, spec, turn: 0, chosen: new Set(), drawn: {}, isReload: isLoading()});
    this.body = el("div", {class: "list-body"}); this.outside = el("p", {class: "banner", role: "status", hidden: true}, `The ${spec.noun} that is open is not among those listed here.`);
    this.bar = el("div", {class: "tools"});
    this.counted = el("span", {class: "soft", role: "status", id: "count"}, "Loading…");
    this.clear = el("button", {type: "button", class: "clear", hidden: true, "aria-label": "Clear all filters", onclick: () => { this.search.value = ""; this.change(this.cleared()); this.search.focus(); }}, "Clear");
    this.facets = el("div", {class: "facets", role: "group", "aria-label": "filter"});
    this.search = el("input", {type: "search", id: "search", placeholder: spec.searchNote ?? `Search ${plural(spec.noun)}`, "aria-label": `search ${plural(spec.noun)}`, oninput: () => this.change({search: this.search.value})});
    this.fields = (spec.filters ?? []).map(({name, label, note, options, type, list: known}) => {
      const input = options ? el("select", {name, "aria-label": label}) : el("input", {name, type: type ?? "text", placeholder: note, "aria-label": label, size: type ? 14 : 26, title: label, list: known && `${name}-names`});
      // The names to choose from are read when the filter is used.
      if (known) { const names = el("datalist", {id: `${name}-names`}); input.addEventListener("focus", async () => { names.replaceChildren(...(await list(fake, known, {limit: 500})).items.map((one) => el("option", {value: one.name ?? one.key ?? one.id}))); input.after(names); }); }
      input.addEventListener("change", () => this.change({[name]: input.value}));
      return {name, options, input};
    });
    if (spec.moreFilters) this.more = el("details", {class: "form filters"}, el("summary", {}, "Filters"), el("div", {class: "fields"}, this.fields.map(({input}) => el("label", {class: "field"}, input.getAttribute("aria-label"), input))));
    this.side = el("section", {class: "detail", "aria-label": "details", tabindex: -1, hidden: true});
    this.node = el("div", {class: "split"}, el("section", {class: "list", "aria-label": plural(spec.noun)},
      tools(this.search, this.more ?? this.fields.map(({input}) => input.placeholder?.startsWith(input.getAttribute("aria-label")) ? input : el("label", {}, `${input.getAttribute("aria-label")} `, input)), spec.tools?.(fake, this), this.bar, this.counted, saveButton(`${fake.name}-${tab}.json`, async () => JSON.stringify(await this.all(), null, 1), `Save these ${plural(spec.noun)} as JSON`, "↓ JSON"), this.clear, this.facets), this.outside, this.body), border("width of the list", 52), this.side);
    // Only one form is open over the list.
    for (const one of this.node.querySelectorAll(".list .form:not(.filters)")) one.name = "forms";
    this.stop = new AbortController();
    addEventListener("keydown", (event) => this.step(event), {signal: this.stop.signal});
  }
  leave() { this.stop.abort(); clearTimeout(this.timer); }
  get base() { return ["fake", this.fake.name, this.tab]; }
  address(id, values = this.values) { return link(id === undefined ? this.base : [...this.base, {raw: id}], values); }
  rowLink(id) { return this.body.querySelector(`tbody a[data-key="${CSS.escape(id)}"]`); }
  // Where the details take the place of the list, they begin at their top, and the list is found where it was left.
  place(opens) { if (!matchMedia("(max-width: 1080px)").matches) return; if (opens) { this.left = scrollY; scrollTo(0, 0); } else scrollTo(0, this.left ?? 0); }

  // Changes search or filters and returns to the first page.
  change(values) {
    if (this.stop.signal.aborted) return; // An input that loses the focus tells its change late.
    clearTimeout(this.timer);
    this.changes = {...this.changes, ...values};
    this.timer = setTimeout(() => { const given = this.changes; this.changes = {}; go(link(this.base, {...this.values, after: "", before: "", ...given}), {replace: true}); }, 150);
  }

  async go(route) {
    if (route.raw[3] !== this.id) { this.opens = !this.steps; this.steps = false; }
    // The page with the item that was open stays when its details are closed, until other filters or another page are asked for.
    const asked = JSON.stringify(route.query), [,,, id] = route.raw;
    Object.assign(this, {id, values: route.query, near: id ?? (asked === this.asked ? this.near : undefined), asked});
    // What is being typed is not in the address yet.
    if (this.changes?.search === undefined) this.search.value = route.query.search ?? "";
    for (const {name, options, input} of this.fields) {
      if (options) {
        const known = await options(this.fake);
        input.replaceChildren(...known.map((one) => el("option", {value: one.value ?? one}, one.label ?? one)));
        if (route.query[name] === undefined && known.length && !input.dataset.any) { this.values = {...this.values, [name]: known[0].value ?? known[0]}; }
      }
      if (document.activeElement !== input) input.value = this.values[name] ?? "";
    }
    // The filters stay closed, so that a narrow screen shows the list, and say which of them are set.
    this.clear.hidden = !Object.keys(this.cleared()).some((name) => this.values[name]);
    const set = this.fields.filter(({input}) => input.value).map(({input}) => `${input.getAttribute("aria-label")} ${input.value}`);
    if (this.more) this.more.firstChild.textContent = set.length ? `Filters: ${set.join(", ")}` : "Filters";
    this.body.ariaBusy = "true";
    try { await this.refresh(); } finally { this.body.ariaBusy = null; }
  }
  // The values of a list without filters; a part that is always chosen, such as a namespace, is none.
  cleared() { return Object.fromEntries(["search", this.spec.facet, ...this.fields.filter(({options}) => !options).map(({name}) => name)].filter(Boolean).map((name) => [name, ""])); }

  async refresh() {
    const turn = ++this.turn, {id, spec} = this;
    if (this.rejected === location.hash) return; // It stays so until the address changes.
    if (spec.needs && !this.values[spec.needs]) { this.counted.textContent = ""; redraw(this.body, spec.empty(this)); return; }
    let page;
    try { page = await list(this.fake, spec.list, {limit: LIMIT, ...spec.always, ...this.values, ...spec.unsent, around: spec.rawId ? this.near : this.near && decodeURIComponent(this.near)}); }
    catch (error) { if (turn === this.turn && error.status) { this.rejected = error.status < 500 ? location.hash : null; this.drawn.list = this.counted.textContent = ""; this.bar.replaceChildren(); redraw(this.body, empty("Nothing is shown.", error.message)); } throw error; }
    if (turn !== this.turn) return;
    Object.assign(this, {page, near: page.items.some((one) => this.idOf(one) === this.near) ? this.near : id});
    this.drawList(page);
    if (id === undefined) { this.closeItem(); return; }
    let found;
    try { found = spec.item ? await spec.item(this.fake, id) : spec.hasItem ? await item(this.fake, spec.list, id, this.itemValues()) : page.items.find((one) => spec.key(one) === decodeURIComponent(id)) ?? null; }
    catch (error) { if (error.status !== 404) throw error; found = {gone: error.message}; }
    if (turn !== this.turn) return;
    this.drawItem(id, found);
    this.outside.hidden = !found || found.gone || page.folders || page.items.some((one) => this.idOf(one) === id); if (this.opens) this.rowLink(id)?.closest("tr").scrollIntoView({block: "nearest"});
    // A reader goes on in the details that were opened, but not who moves along the list or types a search. After a reload, the keys move along the list.
    if (this.opens && !isTyping()) (this.isReload && this.rowLink(id) || this.side.querySelector("h2[tabindex]") || this.side).focus({preventScroll: true});
    this.opens = this.isReload = false;
  }
  // The list has less room beside details, so its rows move. That of the item stays under the pointer, where there is something to scroll.
  split(id, isChosen) { const row = this.rowLink(id)?.closest("tr"), top = row?.getBoundingClientRect().top; this.node.classList.toggle("chosen", isChosen); if (row && matchMedia("(min-width: 1081px)").matches) scrollBy(0, row.getBoundingClientRect().top - top); }
  // A reader who was in the details goes on at their row.
  closeItem() {
    this.isReload = false;
    if (this.side.hidden) return;
    const isInside = this.side.contains(document.activeElement) || document.activeElement.contains(this.node);
    this.side.hidden = this.outside.hidden = true;
    this.split(this.shown, false);
    this.drawn.item = "";
    // A form that is gone is no longer an edit in progress.
    this.side.replaceChildren(); this.place(false);
    if (isInside) (this.rowLink(this.shown) ?? this.search).focus({preventScroll: true});
  }
  itemValues() { return Object.fromEntries((this.spec.itemFilters ?? []).map((name) => [name, this.values[name]])); }

  drawList(page) {
    // Calls can have named what no item matches any more.
    const {spec, values: {search}} = this, kind = own(KINDS, spec.list), gone = search && page.items.length === page.matching ? [...new Set(entries.list.flatMap(({fake, subjects = []}) => fake === this.fake.name ? subjects.filter((one) => one.kind === kind && one.name?.toLowerCase().includes(search.toLowerCase())).map(({name}) => name) : []))].filter((name) => page.items.every((one) => spec.key(one) !== name)).slice(-5) : [];
    const shape = JSON.stringify([page, gone, this.id, this.values.sort, [...this.chosen], spec.unsent && this.values, spec.version?.()]);
    if (shape === this.drawn.list) return;
    this.drawn.list = shape;
    const last = page.first + page.items.length - 1, whole = count(page.total, spec.noun);
    this.counted.textContent = !page.total ? "" : !page.items.length ? `0 found in ${whole}`
      : `${number(page.first)}–${number(last)} of ${page.matching === page.total ? whole : `${number(page.matching)} found in ${whole}`}`;
    if (page.folders) this.counted.textContent = `${count(page.folders.length, this.spec.folder)}, ${count(page.matching, spec.noun)} directly in the root${this.values.search ? ", of those found" : ""}`;
    this.drawFacets(page);
    const lost = gone.length ? [el("p", {class: "soft"}, page.items.length ? "Calls also name: " : "It is not here, but calls name it: ", gone.map((name, at) => [at ? ", " : "", el("a", {href: spec.gone ? this.address(encodeURIComponent(name)) : link(["activity"], {kind, name, of: this.fake.name})}, `the history of ${short(name, 60)}`)]))] : [];
    const filtered = this.values.search || this.values[spec.facet] || page.total;
    redraw(this.bar, spec.bar?.(page, this), spec.bulk && page.items.length ? this.bulkTools(page) : null); this.bar.classList.toggle("some-chosen", this.chosen.size > 0);
    redraw(this.body, spec.above?.(page, this), page.items.length ? [this.rows(page), ...lost] : page.folders?.length ? null : filtered ? empty(`No ${spec.noun} matches.`, `Search looks at all ${whole}. Clear the search or the filter to see them.`, ...lost) : spec.empty(this),
      page.previous || page.next ? this.pager(page) : null, spec.below?.(page, this));
  }

  rows(page) {
    // Beside the details, a list leaves out the columns of `spec.aside`, which they show too, and what is the same in all rows, which tells none apart.
    const {spec} = this, cells = page.items.map((one) => spec.row(one, this)), isSame = (at) => at > 0 && cells.length > 2 && cells.every((row) => textOf(row[at]) === textOf(cells[0][at]));
    const columns = spec.columns.map((name, at) => ({class: isSame(at) ? "same" : spec.aside?.includes(name) ? "aside" : ""})), last = columns.findLast((column) => !column.class);
    if (last) last.class = spec.wraps ? "fill wraps" : "fill";
    return el("div", {class: "wide-table"}, el("table", {class: "rows"}, el("thead", {}, el("tr", {}, spec.bulk ? el("td", {class: "check"}) : null, spec.columns.map((name, at) => this.headElement(name, spec.fields?.[at], columns[at])))),
      el("tbody", {}, page.items.map((one, row) => {
        const id = this.idOf(one), [first, ...rest] = cells[row].map((cell, at) => cutElement(cell, [cells[row - 1]?.[at], cells[row + 1]?.[at]]));
        return el("tr", {class: id === this.id ? "chosen" : null, onclick: (event) => { if (!event.target.closest("a, button, input, label") && !String(getSelection())) go(this.address(id)); }},
          spec.bulk ? el("td", {class: "check"}, el("input", {type: "checkbox", "aria-label": `choose ${spec.key(one)}`, "data-key": `choose ${id}`, checked: this.chosen.has(spec.key(one)),
            onclick: (event) => this.choose(page.items.indexOf(one), event)})) : null,
          el("td", {class: `mono ${columns[0].class}`}, el("a", {href: this.address(id), "data-key": id, "aria-current": id === this.id ? "true" : null}, shown(first))),
          rest.map((cell, at) => el("td", {class: `mono ${columns[at + 1].class}`, "data-name": /^[\d<]/.test(textOf(cell)) ? spec.columns[at + 1] : null}, columns[at + 1].class.startsWith("fill") ? el("div", {class: "lines"}, shown(cell ?? "")) : shown(cell ?? ""))));
      }))));
  }
  choose(at, {target, shiftKey}) {
    const from = shiftKey ? Math.min(at, this.clicked ?? at) : at, until = shiftKey ? Math.max(at, this.clicked ?? at) : at;
    for (const one of this.page.items.slice(from, until + 1)) this.chosen[target.checked ? "add" : "delete"](this.spec.key(one));
    this.clicked = at;
    this.drawList(this.page);
  }
  headElement(name, field, column) {
    const {sort} = this.values, order = field && sort === field ? "ascending" : field && sort === "-" + field ? "descending" : null;
    return el("th", {...column, scope: "col", "aria-sort": order}, !field ? name : el("button", {type: "button", "data-key": `sort ${name}`, onclick: () => go(link(this.base, {...this.values, after: "", before: "", sort: this.values.sort === field ? "-" + field : field}))}, name, {ascending: " ↑", descending: " ↓"}[order]));
  }
  idOf(one) { return one.id !== undefined && this.spec.rawId ? one.id : encodeURIComponent(this.spec.key(one)); }

  pager(page) {
    const at = (text, values) => values ? el("a", {class: "button", href: link(this.base, {...this.values, after: "", before: "", ...values}), onclick: () => scrollTo(0, 0)}, text) : el("span", {class: "button off"}, text);
    return el("nav", {class: "tools", "aria-label": "pages of the list"}, at("← Previous", page.previous && {before: page.previous}), at("Next →", page.next && {after: page.next}));
  }
  drawFacets(page) {
    if (!this.spec.facet || !page.facets) return;
    this.facets.hidden = Boolean(page.folders);
    const chosen = this.values[this.spec.facet] ?? "", all = Object.values(page.facets).reduce((sum, one) => sum + one, 0);
    redraw(this.facets, [["", all], ...Object.entries({...chosen && {[chosen]: 0}, ...page.facets})].map(([value, many]) => el("button", {type: "button", class: "facet", "aria-pressed": String(value === chosen), "data-key": `facet ${value}`,
      onclick: () => this.change({[this.spec.facet]: value})}, `${value ? own(this.spec.facetNames ?? {}, value) ?? words(value) : "all"} `, el("small", {}, number(many)))));
  }
  bulkTools(page) {
    const here = page.items.map(this.spec.key), every = here.every((id) => this.chosen.has(id));
    for (const id of this.chosen) if (!here.includes(id)) this.chosen.delete(id);
    return tools(el("label", {class: "check"}, el("input", {type: "checkbox", checked: every, "aria-label": `all ${here.length} on this page`, "data-key": "choose all", onchange: (event) => {
      for (const id of here) this.chosen[event.target.checked ? "add" : "delete"](id);
      this.drawList(this.page);
    }}), `all ${here.length}`), this.chosen.size ? this.spec.bulk.map(({text, work, note, undone, ...looks}) =>
      act(`${text} ${this.chosen.size}${note ? "…" : ""}`, `${text} ${count(this.chosen.size, this.spec.noun)}`, async () => { const items = page.items.filter((one) => this.chosen.has(this.spec.key(one))); await this.inParts(text, work, items, undone); this.chosen.clear(); }, {...looks, question: note && `${text} ${count(this.chosen.size, this.spec.noun)}? ${note}`}))
      : null, every && !page.folders && page.matching > here.length ? this.spec.bulk.filter(({among}) => !among || (this.values[this.spec.facet] || among) === among && page.facets[among]).map((one) => this.bulkOfFound(one, page)) : null);
  }
  async all() {
    const items = [];
    for (let page = {next: ""}; page.next !== null; items.push(...page.items)) page = await list(this.fake, this.spec.list, {...this.values, ...this.spec.unsent, view: "", before: "", after: page.next, limit: 500});
    return items;
  }
  // A bulk action can be undone: the items, or all data of the fake, are then as they were before its first call.
  async inParts(text, work, items, undone) {
    const {key, name, noun, section} = this.spec, keys = items.map(key), many = count(keys.length, noun);
    let first;
    for (let at = 0; at < keys.length; at += 100) { await work(this.fake, keys.slice(at, at + 100), this); first ??= change.row; }
    offerUndo(this.fake, first, section?.(this), name && items.map(name), `${undone} ${many}.`, {last: change.row});
  }
  // Acts on all items that the search and the filters find when the button is pressed, after a question with their number. Later items are not in it.
  bulkOfFound({text, work, undone, note = "", applies = () => true, ...looks}, {matching}) {
    const {noun, key} = this.spec, items = [];
    return act(`${text} ${count(matching, noun)} found…`, `${text} all ${plural(noun)} found`, () => this.inParts(text, work, items, undone), {...looks, question: async () => {
      items.splice(0, items.length, ...(await this.all()).filter(applies));
      const keys = items.map(key);
      if (!keys.length) throw new Error(`No ${noun} that this search finds can be chosen to ${text.toLowerCase()}.`);
      return [el("p", {id: "question"}, `${text} the ${count(keys.length, noun)} that this search finds? ${note}`), code(keys.slice(0, 8).map((one) => short(one, 60)).join("\n") + (keys.length > 8 ? `\n… and ${number(keys.length - 8)} more` : ""), `${plural(noun)} that this search finds`)];
    }});
  }

  drawItem(id, found) {
    const shape = JSON.stringify([id, found, this.spec.version?.()]);
    // A form that changed the item shows what was typed, even if the item is as it was drawn again.
    if (shape === this.drawn.item && !this.side.querySelector("form[data-sent]")) return;
    const another = id !== this.shown, opens = this.side.hidden;
    if (!another && isTyped(this.side)) return;
    Object.assign(this, {shown: id, drawn: {...this.drawn, item: shape}});
    if (opens) this.place(true);
    this.side.hidden = false;
    this.split(id, true);
    const parts = !found || found.gone ? [empty(`There is no ${this.spec.noun} ${short(this.spec.named?.(id) ?? decodeURIComponent(id), 80)}.`, ...this.spec.gone?.(id, this) ?? [found?.gone ?? "It was deleted, the fake was reset, or it never existed."])] : this.spec.detail(found, this);
    for (const part of parts.flat(4)) for (const one of part instanceof Element ? [part, ...part.querySelectorAll("details")] : []) if (one.matches(".form:has(> form.act)")) withCancel(one, () => { this.drawn.item = ""; this.refresh(); });
    const name = found && !found.gone && (this.spec.list === "dead-letters" ? found.message : found.public_id ?? this.spec.key(found));
    redraw(this.side, detailBar(this.address(), name, name && this.aboutOf(found, name)), ...parts);
    if (another) this.side.scrollTop = 0;
  }
  // The filter of Activity that finds the calls about an item: by what it is, or by how calls name it.
  aboutOf(found, name) {
    const {about, list: place} = this.spec, [kind, of] = about?.(found) ?? [own(KINDS, place), name];
    return kind ? {kind, name: of, of: this.fake.name} : {search: of};
  }
  // j and k move between rows wherever the focus is, arrow keys only within the list.
  step(event) {
    const {key, target} = event;
    if (key === "Escape" && target === this.search && !target.value) { target.blur(); return; }
    if (["ArrowDown", "Enter"].includes(key) && target === this.search) { event.preventDefault(); this.body.querySelector("tbody a[data-key]")?.focus(); return; }
    const form = key === "Escape" && !document.querySelector("dialog[open]") && this.node.contains(target) && target.closest("form.act")?.parentNode;
    if (form) { event.preventDefault(); const cancel = form.querySelector(".cancel"); if (cancel) cancel.click(); else { form.open = false; form.firstChild.focus(); } return; }
    if (key === "Escape" && this.id !== undefined && !isTyping() && !document.querySelector("dialog[open]")) { go(this.address(), {replace: true}); return; }
    const by = {j: 1, k: -1, ...this.body.contains(target) || target.matches("h2[tabindex]") ? {ArrowDown: 1, ArrowUp: -1} : {}}[key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey || isTyping() || document.querySelector("dialog[open]")) return;
    const links = [...this.body.querySelectorAll("tbody a[data-key]")], at = links.indexOf(this.body.querySelector("tr:focus-within a[data-key]") ?? this.body.querySelector("tr.chosen a[data-key]"));
    event.preventDefault();
    const to = links[at < 0 ? 0 : Math.max(0, Math.min(links.length - 1, at + by))];
    to?.focus();
    if (to && this.id !== undefined && to.hash !== location.hash) { this.steps = true; go(to.hash, {replace: true}); }
  }
}
