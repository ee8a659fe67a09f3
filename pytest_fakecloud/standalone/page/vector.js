// A vector index: records of a namespace, nearest neighbours, metadata filters.
import {act, code, count, done, el, emptied, empty, facts, form, go, head, json, link, number, redraw, removal, room, short, soft, svg, table, title, tools} from "./dom.js";
import {ask, change, item, list, path, sendWell} from "./api.js";
import {historyButton, offerUndo, sectionOf, undoable, versionsElement} from "./history.js";
import {ListPage} from "./lists.js";

const clipped = (text, pixels) => { const most = Math.max(3, Math.floor(pixels / 6.3)); return text.length > most ? text.slice(0, most - 1) + "…" : text; };
// All vectors, projected onto a plane and coloured by a field of their metadata, with the last query and its hits. Those that do not match are pale.
function plot({points: shown, fields, groups: names, has_ranges: hasRanges, query: last}, page) {
  const query = last && last.point ? last : null, {colour = ""} = page.values;
  if (!shown?.length) return null;
  const wide = Math.min(640, room()), high = Math.round(wide * .42), found = new Set(query ? query.found : []), kindOf = (group) => `kind-${group === null ? "none" : `${hasRanges ? "scale-" : ""}${group}`}`;
  const points = [...shown.map((vector) => vector.point), ...(query ? [query.point] : [])];
  // Both axes have the same scale, the largest at which all points fit.
  const [middle, reach] = [0, 1].map((axis) => points.map((point) => point[axis])).reduce(([middles, reaches], all) => {
    const [least, most] = all.reduce(([low, high_], value) => [Math.min(low, value), Math.max(high_, value)], [Infinity, -Infinity]);
    return [[...middles, (least + most) / 2], [...reaches, Math.max(1e-9, (most - least) / 2)]];
  }, [[], []]);
  const scale = Math.min((wide / 2 - 60) / reach[0], (high / 2 - 24) / reach[1]);
  const at = ([x, y]) => [wide / 2 + (x - middle[0]) * scale, high / 2 - (y - middle[1]) * scale];
  const labels = [], isFree = ([x, y]) => !labels.some(([left, top]) => Math.abs(left - x) < 76 && Math.abs(top - y) < 13) && labels.push([x, y]);
  const radius = shown.length > 300 ? 2.5 : 4;
  const many = shown.filter((vector) => vector.matches).length, order = (vector) => found.has(vector.id) + vector.matches;
  const parts = shown.toSorted((one, other) => order(one) - order(other)).flatMap((vector) => {
    const [x, y] = at(vector.point), isFound = found.has(vector.id), isOpen = encodeURIComponent(vector.id) === page.id, hue = colour ? ` ${kindOf(vector.group)}` : "";
    return [svg("circle", {class: `vector${hue}${isOpen ? " open" : isFound ? " found" : vector.matches ? "" : " faded"}`, cx: x, cy: y, r: isFound || isOpen ? 6 : radius, onclick: () => go(page.address(encodeURIComponent(vector.id)))}, svg("title", {}, `${vector.id}${colour && vector.value !== null ? ` ${colour}: ${short(vector.value, 160)}` : ""}`)),
      (many <= wide / 32 && vector.matches || isFound || isOpen) && isFree([x, y]) ? svg("text", {x: x + 8, y: y + 4, class: "small"}, clipped(vector.id, Math.max(20, wide - x - 8))) : null];
  });
  if (query) {
    const [x, y] = at(query.point);
    parts.push(svg("path", {class: "query", d: `M${x - 8} ${y}H${x + 8}M${x} ${y - 8}V${y + 8}`}, svg("title", {}, "the last query")),
      svg("text", {x: x + 10, y: y - 6}, "last query"));
  }
  const others = colour && shown.some(({group}) => group === null);
  return [fields.length ? tools(el("label", {}, "Colour by ", el("select", {"aria-label": "Colour by", onchange: ({target}) => page.change({colour: target.value})}, ["", ...fields].map((name) => el("option", {value: name, selected: name === colour}, name || "nothing")))),
    colour ? el("ul", {class: "span-legend"}, [...names, ...others ? ["other"] : []].map((name, at_) => el("li", {}, el("i", {class: kindOf(at_ < names.length ? at_ : null)}), short(name, 40)))) : null) : null,
    svg("svg", {class: "picture", role: "img", viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, "aria-label": `${count(many, "vector")}${many < shown.length ? ` of ${number(shown.length)}` : ""}, projected onto a plane${colour ? ` and coloured by ${colour}` : ""}${query ? `, and the last query, which found ${query.found.join(", ") || "nothing"}` : ""}`}, parts), soft(`Each dot is a vector. The axes are the two principal components, along which the vectors differ most: vectors whose dots are far apart differ.${query ? " Dots with a border are those that the last query found." : ""}`)];
}

const inside = (namespace) => namespace ? "/" + encodeURIComponent(namespace) : "";
const numbers = (text) => json(/^\s*\[/.test(text) ? text : `[${text.trim().split(/[\s,]+/)}]`, "The vector");
const namespaceOf = (page) => page.values?.namespace ?? "";
const known = async (fake) => (await list(fake, "namespaces", {limit: 500})).items.map((one) => ({value: one.name, label: `${one.name || "(default)"} · ${number(one.count)}`}));

function hits(found, page) {
  if (!found.length) return soft("Nothing was found. Check the filter and the namespace.");
  return table("hits", ["id", "score", "metadata", "data"], found, (one) => [el("a", {href: page.address(encodeURIComponent(one.id))}, one.id), one.score.toFixed(4), short(one.metadata ?? "", 200), short(one.data ?? "", 200)]);
}
// The label says the dimension as soon as it is known.
const vectorLabel = (fake) => { const text = el("span", {}, "vector or text"); ask("GET", path(fake, "/lists")).then(({info}) => { if (info.dimension) text.textContent = `vector of ${count(info.dimension, "number")}, or text`; }, () => {}); return text; };
// The fields of a query, which are in the address, with what they are at first. The list has none of them.
const QUERY = {by: "vector", what: "", most: "5", where: ""}, queryOf = (values = {}) => JSON.stringify(Object.keys(QUERY).map((name) => values.what && values[name] || QUERY[name]));
const query = (fake, page) => form("Query", "Query", [{name: "by", label: "by", options: ["vector", "text"]}, {name: "most", label: "at most", kind: "number", value: QUERY.most},
  {name: "where", label: "only hits with", note: "price < 10"}, {name: "what", label: vectorLabel(fake), note: "0.1, 0.2, …", wide: true, needed: true}],
async (typed) => {
  const {by, what, most, where} = typed;
  page.queried = queryOf({...page.values, ...typed});
  if (queryOf(page.values) !== page.queried) go(page.address(page.id, {...page.values, ...typed}));
  return [where ? soft(`With the metadata filter ${where}`) : null, hits((await sendWell(fake, "POST", (by === "text" ? "/query-data" : "/query") + inside(namespaceOf(page)),
    {...(by === "text" ? {data: what} : {vector: numbers(what)}), topK: Number(most), includeMetadata: true, includeData: true, ...where && {filter: where}})).result, page)];
}, {open: false, edits: false});
// Asks the query of the address again, after a reload or on the way back to it.
function askAgain(page) {
  const asking = page.node.querySelector("form[aria-label=Query]");
  if (queryOf(page.values) === (page.queried ?? queryOf())) return;
  page.queried = queryOf(page.values);
  for (const [at, name] of Object.keys(QUERY).entries()) asking.elements[name].value = JSON.parse(page.queried)[at];
  asking.parentNode.open = Boolean(page.values.what);
  if (page.values.what) asking.requestSubmit(); else asking.querySelector(".out").replaceChildren();
}
let upserted;
const upsert = (fake, page) => form("Upsert", "Upsert", [{name: "id", label: "id", needed: true}, {name: "by", label: "from", options: ["vector", "text"]}, {name: "what", label: vectorLabel(fake), note: "0.1, 0.2, …", wide: true, needed: true},
  {name: "metadata", label: "metadata, as JSON", note: '{"genre": "drama"}'}, {name: "namespace", label: "namespace", note: "the one that is shown"}],
async ({id, by, what, metadata, namespace}, inputs) => {
  await sendWell(fake, "POST", (by === "text" ? "/upsert-data" : "/upsert") + inside(namespace || namespaceOf(page)), {id, ...(by === "text" ? {data: what} : {vector: numbers(what)}), ...(metadata ? {metadata: json(metadata, "The metadata")} : {})});
  upserted = [sectionOf(namespace || namespaceOf(page)), [id]];
  emptied(inputs, "id", "what", "metadata");
  return done("Upserted ", el("a", {href: page.address(encodeURIComponent(id), {namespace: namespace || namespaceOf(page)})}, id), ".");
}, {open: false, undo: (row, text) => offerUndo(fake, row, ...upserted, text), overwrites: async ({id, namespace}) => {
  try { await item(fake, "vectors", encodeURIComponent(id), {namespace: namespace || namespaceOf(page)}); return `The vector ${id} exists. Overwrite it?`; } catch (error) { if (error.status === 404) return null; throw error; }
}, confirms: ({id}) => `Overwrite ${id}`});

const remove = (fake, ids, page) => sendWell(fake, "POST", "/delete" + inside(namespaceOf(page)), {ids});
const vectors = {
  list: "vectors", noun: "vector", hasItem: true, itemFilters: ["namespace"], key: (one) => one.id, columns: ["id", "metadata, data"], fields: ["id"],
  filters: [{name: "namespace", label: "namespace", options: known}, {name: "filter", label: "list where", note: "price < 10"}],
  tools: (fake, page) => el("div", {class: "forms"}, query(fake, page), upsert(fake, page)),
  row: (one) => [one.id, [one.metadata, one.data].filter(Boolean).join(" · ")],
  always: {points: "all"}, unsent: {by: "", what: "", most: "", where: ""}, below: (found, page) => { askAgain(page); return plot(found, page); }, section: (page) => sectionOf(namespaceOf(page)), name: (one) => one.id, bulk: [{text: "Delete", isRisky: true, work: remove, undone: "Deleted", note: "The notice that follows can undo it."}],
  empty: () => empty("No vectors in this namespace yet.", "A vector appears when your application upserts one. Upsert one above to try."),
  detail: (one, page) => {
    const near = el("div");
    return [title(one.id), facts({namespace: one.namespace || "(default)", dimension: one.vector ? number(one.vector.length) : ""}),
      tools(one.vector ? act("Nearest neighbours", `Find the nearest neighbours of ${one.id}`, async () => {
        const found = (await sendWell(page.fake, "POST", "/query" + inside(one.namespace), {vector: one.vector, topK: 11, includeMetadata: true, includeData: true, ...page.values.filter && {filter: page.values.filter}})).result;
        redraw(near, head(page.values.filter ? `Nearest neighbours with ${page.values.filter}` : "Nearest neighbours"), hits(found.filter((hit) => hit.id !== one.id).slice(0, 10), page));
      }) : null, removal("Delete", `Delete the vector ${one.id}`, async () => { await remove(page.fake, [one.id], page); location.hash = page.address(); offerUndo(page.fake, change.row, sectionOf(one.namespace), [one.id], `Deleted ${short(one.id, 60)}.`); }), historyButton()),
      near, form("Edit the metadata", "Save", [{name: "metadata", label: "metadata, as JSON", kind: "area", value: one.metadata ? JSON.stringify(one.metadata, null, 2) : "{}", wide: true, needed: true}],
        async ({metadata}) => { await sendWell(page.fake, "POST", "/update" + inside(one.namespace), {id: one.id, metadata: json(metadata, "The metadata")}); document.activeElement.blur(); return done("Saved."); },
        {open: false, undo: (row, text) => offerUndo(page.fake, row, sectionOf(one.namespace), [one.id], text), overwrites: async () => {
          const now = await item(page.fake, "vectors", encodeURIComponent(one.id), {namespace: one.namespace});
          return JSON.stringify(now.metadata) === JSON.stringify(one.metadata) ? null : `The metadata is now ${short(now.metadata, 80)}. Overwrite it?`;
        }}), head("Metadata"), one.metadata ? code(JSON.stringify(one.metadata, null, 2), "metadata") : soft("This vector has no metadata."),
      one.data ? [head("Data"), code(one.data, "data")] : null, one.vector ? [head("Vector"), code(one.vector.map((value) => Number(value.toPrecision(6))).join(", "), "vector")] : null,
      one.sparseVector ? [head("Sparse vector"), code(JSON.stringify(one.sparseVector), "sparse vector")] : null, versionsElement(page.fake, sectionOf(one.namespace), one.id)].flat();
  },
};

const namespaces = {
  list: "namespaces", noun: "namespace", about: (one) => ["namespace", one.name], key: (one) => one.name || "(default)", columns: ["namespace", "vectors"], fields: ["name", "count"],
  row: (one) => [one.name || "(default)", number(one.count)],
  empty: () => empty("No namespaces."),
  detail: (one, page) => [title(one.name || "(default)"), el("p", {}, el("a", {href: link(["fake", page.fake.name, "vectors"], {namespace: one.name})}, `Show its ${count(one.count, "vector")}`)),
    tools(removal("Delete all vectors…", `Delete all vectors of ${one.name || "the default namespace"}`, undoable(page.fake, "Deleted its vectors.", () => sendWell(page.fake, "POST", "/reset" + inside(one.name))), {question: `Delete all ${count(one.count, "vector")} of ${one.name || "the default namespace"}?`}),
      one.name ? removal("Delete namespace…", `Delete the namespace ${one.name}`, undoable(page.fake, `Deleted the namespace ${one.name}.`, async () => { await sendWell(page.fake, "POST", "/delete-namespace" + inside(one.name)); location.hash = page.address(); }), {question: `Delete the namespace ${one.name} with its vectors?`}) : null)],
};

export const tabs = [
  {name: "vectors", title: "Vectors", counted: "vectors", make: (fake) => new ListPage(fake, "vectors", vectors)},
  {name: "namespaces", title: "Namespaces", counted: "namespaces", make: (fake) => new ListPage(fake, "namespaces", namespaces)},
];
