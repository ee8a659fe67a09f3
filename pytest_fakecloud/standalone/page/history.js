// The data of fakes over time: what a row changed, going back to just before it, and the versions of an item.
import {KINDS, act, attempt, both, confirmed, el, link, number, moment, own, redraw, say, short, soft, table, tools, unfold, when} from "./dom.js";
import {ask, change, path, query, sendWell} from "./api.js";
import {changesTable, count, fieldsOf, fold} from "./elements.js";
import {entries, journal} from "./journal.js";
import {oneAtATime} from "./rows.js";

// The list that shows the items of a section of the data, and what else its address needs. What is gone has its history in Activity, that of a key at its address.
const LISTS = {keys: "keys", messages: "messages", "dead letters": "dead-letters", schedules: "schedules", queues: "queues", "URL groups": "url-groups", "workflow runs": "runs", topics: "topics", groups: "groups"};
function addressOf({fake, section, item, before, after}) {
  const list = own(LISTS, section), [, namespace] = /^namespace (.+)$/s.exec(section) ?? [], [, group] = /^group (.+)$/s.exec(section) ?? [];
  if (group !== undefined) return link(["fake", fake, "groups", group]);
  if (after === null && list !== "keys") return own(KINDS, list ?? "") ? link(["activity"], {kind: KINDS[list], name: item, of: fake}) : null;
  if (section === "partitions") { const at = item.lastIndexOf("-"); return link(["fake", fake, "records"], {topic: item.slice(0, at), partition: item.slice(at + 1), offset: Math.min(before?.end ?? 0, after.end)}); }
  return list ? link(["fake", fake, list, item]) : section === "default namespace" || namespace !== undefined ? link(["fake", fake, "vectors", item], {namespace}) : null;
}

// Whether a row is that of a restore, or of another change without a call.
export const isOfConsole = (row) => row?.rules.is_inside && /^(restored|changed)$/.test(row.operation);
// -- changes, and restores that undo them --
// The changes between two times, as the control API returns them, counted and as tables.
export function changesSection({count: many, sums, changes, not_compared: missing}, names = ["before", "after"]) {
  const counts = Object.entries(sums).map(([fake, kinds]) => [fake, Object.entries(kinds).filter(([, some]) => some).map(([kind, some]) => `${number(some)} ${kind}`).join(", ")]).filter(([, text]) => text).map((pair) => pair.join(": "));
  const gone = changes.filter(({after}) => after === null), back = changes.filter(({returns}) => returns), kept = changes.filter(({after, returns}) => after !== null && !returns);
  return [el("p", {role: "status"}, many ? `${counts.join(" · ")}.` : missing.length ? "Nothing differs in the data that was compared." : "No data differs."), changes.length < many ? soft(`The first ${changes.length} of ${count(many, "change")}:`) : null,
    missing.length ? soft(`Not compared, because they are not in both, have too many items, or their earlier data is not known: ${missing.join(", ")}.`) : null, kept.length ? changesTable(kept, addressOf, names) : null, back.length ? fold(`${count(back.length, "expired item")} that come${back.length > 1 ? "" : "s"} back`, changesTable(back, addressOf, names), !kept.length) : null, gone.length ? fold(count(gone.length, gone.every(({expired}) => expired) ? "expired item" : gone.some(({expired}) => expired) ? "removed or expired item" : "removed item"), changesTable(gone, addressOf, names), !kept.length || gone.length <= 20) : null];
}
// What a restore does, which undoes the changes since then.
const undone = ({sums, changes, ...rest}) => ({...rest, sums: Object.fromEntries(Object.entries(sums).map(([fake, {added, changed, removed, expired = 0}]) => [fake, {added: removed + expired, changed, removed: added}])), changes: changes.map((change) => ({...change, expired: false, returns: change.expired, before: change.after, after: change.before}))});

// The changes since just before a row: all of them, or those of what `part` names.
const sinceOf = (row, {items, ...part} = {}) => `/journal/${row}/since${query({...part, items: items && JSON.stringify(items)})}`;
const preview = (label, note, found) => el("div", {id: "question", class: "preview"}, el("p", {}, el("b", {}, `${label}?`), note, found.changes.some(({section}) => section === "messages") ? " What destinations have received stays with them." : null), changesSection(undone(found), ["now", "restored"]));

// The question before a change by the rows from `row` to `last` is undone, if the data has changed since: it shows all that is taken back. Of a restore of all data, what was written since can stay: the answers of the question are then `keep` and `other`.
async function changedSince(row, last, part, isWhole) {
  // A restore and a recorded change have a row for each fake. Not each number is that of a row.
  const after = await ask("GET", `/journal?after=${last}&limit=8`);
  while (isOfConsole(after[0]) && after[0].number === last + 1) last = after.shift().number;
  const rows = after.map(({number: row_}) => row_), later = rows.length ? await ask("GET", sinceOf(Math.min(...rows), {...part, unknown: "ok"})) : {};
  if (!later.count && !later.why_unknown) return {};
  const own = isWhole && later.count ? await ask("GET", sinceOf(row, {own: "yes"})) : {}, why = own.why_not_own;
  if (!own.count) return {question: preview("Undo", ` The data ${later.count ? "has" : "may have"} changed since, and that is taken back too${why ? `: ${why}` : ""}.`, await ask("GET", sinceOf(row, part)))};
  return keeping("Undo the restore", " The data has changed since.", "restore", own, later);
}
// The question before a change is undone, and its answers: what was written `later` can stay, the undo then takes back its `own` changes only. What is `lost` goes anyway.
export function keeping(label, note, what, own, later, lost = {}) {
  const question = preview(label, note, own), part = (title, text, changes) => changes.count ? [el("p", {}, el("b", {}, title), text), ...changesSection(changes)].filter(Boolean) : [];
  question.firstChild.after(...part("Written since.", ` If you keep it, it stays as it is now, and does not go back to what it was before the ${what}.`, later), ...part("Written since, and taken back anyway,", " because only all data of these fakes can be put back.", lost), el("p", {}, el("b", {}, `Changed by the ${what}.`)));
  return later.count ? {question, keep: "Keep what was written since", other: "Take back everything"} : {question};
}
async function undo(row, part, {last = row, inverse, isWhole} = {}) {
  const {question, keep, other, run} = await inverse?.() ?? await changedSince(row, last, part, isWhole);
  const answer = !question || await confirmed(question, keep ?? (part.items ? `Undo the change of ${short(part.items[0], 40)}` : "Undo the change"), {other});
  if (!answer) return;
  await (run ? run() : ask("POST", `/journal/${row}/restore`, keep && answer === true ? {own: true} : part));
  say("Undone.", "good");
  document.dispatchEvent(new Event("changed"));
}
// A notice with a button that undoes a change: by `inverse`, which returns {question, run}, or null if it does not apply any more, or by a restore to just before the row, of all data or of what `part` names. What has changed since is overwritten after a question only.
function sayWithUndo(text, row, part, how = {}) {
  if (!row) { say(text, "good"); return; }
  say([text, el("button", {type: "button", class: "quiet", onclick: () => attempt(() => undo(row, part, how))}, "Undo"), el("a", {href: link(["activity", row]), title: "The row of the change, which says what can undo it later"}, `#${row}`)].flat(), "good");
  sessionStorage.setItem("undo", JSON.stringify({text: [text].flat().map((one) => one.textContent ?? one).join(""), row, part, ...how}));
}
// After a reload, the notice is there again, if the server still knows the row. The inverse of the change is lost with the page.
export async function offerAgain() {
  const kept = JSON.parse(sessionStorage.getItem("undo")), [found] = kept ? await ask("GET", `/journal?after=${kept.row - 1}&limit=1`) : [];
  if (found && found.number === kept.row) sayWithUndo(kept.text, kept.row, kept.part, kept);
}
export const offerUndo = (fake, row, section, items, text, how) => sayWithUndo(text, row, {fake: fake.name, section, items}, how);

// The undo of a form that changes a fake: all data of the fake is then as just before the row, or `first(row)`, if there were several calls.
export const undoOf = (fake, first = (row) => row) => (row, text) => sayWithUndo(text, first(row), {fake: fake?.name}, {last: row});
// Work on a fake, or on all without one, that a notice confirms and can undo. A change without a call is recorded first, so that there is a row to go back to.
export const undoable = (fake, text, work) => async () => { const answer = await work(); sayWithUndo(typeof text === "function" ? text(answer) : text, change.row, {fake: fake?.name}); };
export async function recorded(fake, what, work) { const {row} = await ask("POST", "/journal", {fake: fake?.name, what}), answer = await work(); change.row = row; return answer; }
// A button that restores data. It first shows what that changes, as the changes at an address undo it, and the restore can be undone. `restore` is told whether what was written since stays.
export function restoreButton(text, label, changes, restore, what, part = {}) {
  return act(text, label, async (keeps) => { const {row, said = `${what} ${what.startsWith("All") ? "are" : "is"} restored.`} = await restore(keeps); sayWithUndo(said, row, part, {isWhole: !part.items}); }, {question: async () => {
    const found = await ask("GET", `${changes}${changes.includes("?") ? "&" : "?"}as_restored=yes`), lost = Object.entries(found.not_restored).filter(([, many]) => many).map(([section, many]) => count(many, section.replace(/s$/, ""))).join(" and ");
    if (!found.count && !found.not_compared.length && !found.clock) throw new Error(`Nothing ${lost ? "else has changed since then, and nothing comes back" : "has changed since then, so there is nothing to restore"}${lost && `: the time of ${lost} has ended`}.`);
    if (found.clock) return found.later.count || found.lost.count ? keeping(label, ` The clock goes back to ${both(found.clock)} UTC.`, "move", found.own, found.later, found.lost) : preview(label, ` The clock goes back to ${both(found.clock)} UTC, and all data to what it was then.`, found);
    return preview(label, " The clock stays, so what was due since then happens at once. You can undo it." + (lost && ` Does not come back: ${lost}, whose time has ended by now.`), found);
  }});
}
// A button that restores to just before a row: all fakes, or what `part` names.
const restoreBefore = (row, text, what, {items, ...part}) => restoreButton(text, `${text.replace(/( to before this)?…$/, "")} to just before #${row}`, sinceOf(row, {items, ...part}), () => ask("POST", `/journal/${row}/restore`, {...part, ...items ? {items} : part.fake ? {} : {skip_unknown: true}}), what, {...part, ...items && {items}});

export const replacedField = async (fake, row, key, field) => { const {changes} = await ask("GET", `/journal/${row}/changes`); return hashOf(changes?.find(({item}) => item === key)?.before)?.[field]; };
// The fields of a hash, which are text if they were compared; null if they are not known whole.
function hashOf(one) { try { return typeof one?.value === "string" ? JSON.parse(one.value) : one?.value ?? {}; } catch { return null; } }
// A button that takes back what a row changed in a hash, and leaves its other fields as they are; null for other values and for those that are not known whole.
function undoFields({number: row, fake}, {section, item, before, after}) {
  const old = hashOf(before), made = hashOf(after), part = {fake, section, items: [item]};
  if (section !== "keys" || !after || [before, after].some((one) => one && one.type !== "hash") || !old || !made || /^b['"]|\\x[0-9a-f]{2}/.test([item, ...Object.entries({...made, ...old}).flat()].join(" "))) return null;
  const names = Object.keys({...old, ...made}).filter((name) => old[name] !== made[name]);
  // A field that has changed since stays, but an integer only loses what the row added to it.
  const plan = async () => {
    const now = hashOf((await ask("GET", sinceOf(row, part))).changes[0]?.after) ?? old, same = names.filter((name) => now[name] === made[name]), set = same.filter((name) => name in old), gone = same.filter((name) => !(name in old));
    const sums = names.filter((name) => !same.includes(name) && [now, made, old].every((fields) => /^-?\d{1,15}$/.test(fields[name] ?? ""))), stay = names.filter((name) => !same.includes(name) && !sums.includes(name)), wanted = {...now, ...Object.fromEntries([...set.map((name) => [name, old[name]]), ...gone.map((name) => [name, undefined]), ...sums.map((name) => [name, String(now[name] - made[name] + Number(old[name]))])])};
    if (stay.length === names.length) throw new Error(`${stay.join(", ")} of ${short(item, 60)} has changed since. To undo #${row} alone would lose that.`);
    return {now, wanted, stay, commands: [set.length && ["HSET", item, ...set.flatMap((name) => [name, old[name]])], gone.length && ["HDEL", item, ...gone], ...sums.map((name) => ["HINCRBY", item, name, old[name] - made[name]])].filter(Boolean)};
  };
  const only = (fields) => ({type: "hash", value: Object.fromEntries(names.filter((name) => fields[name] !== undefined).map((name) => [name, fields[name]]))}), what = `${short(names.length === 1 ? names[0] : count(names.length, "field"), 24)} of ${short(item, 60)}`;
  return names.length ? act("Undo only this…", `Undo only this, #${row}: ${what}`, async () => {
    const rows = [];
    for (const words of (await plan()).commands) { await sendWell({name: fake}, "POST", "/", words); rows.push(change.row); }
    sayWithUndo(`#${row} is undone: ${what}.`, rows[0], part, {last: rows.at(-1)});
  }, {question: async () => {
    const {now, wanted, stay} = await plan();
    return el("div", {id: "question", class: "preview"}, el("p", {}, el("b", {}, `Undo #${row}?`), " Other fields stay as they are", stay.length ? `, and so does what has changed since: ${stay.join(", ")}.` : "."), changesTable([{fake, section, item, before: only(now), after: only(wanted)}], undefined, ["now", "restored"]));
  }}) : null;
}
// What a row changed, before and after it, with buttons that go back to just before it.
export function changesElement(row) {
  const place = el("div", {class: "row-changes"}, soft("…")); ask("GET", `/journal/${row.number}/changes`).then(({changes, note, undo, why_no_undo: why}) => {
    const [first] = changes ?? [];
    place.replaceChildren(...[el("h4", {}, "Data before and after"), changes === null ? soft(note, " After the next call, the data is known again.") : changes.length > 20 ? fold(count(changes.length, "changed item"), changesTable(changes, addressOf)) : changes.length ? changesTable(changes, addressOf) : null, why ? soft(why) : null,
      undo ? el("div", {class: "tools"}, el("span", {class: "soft"}, "Undo:"), row.operation === "restored" && isOfConsole(row) ? el("button", {type: "button", onclick: () => attempt(() => undo(row.number, {fake: row.fake}, {isWhole: true}))}, "Undo this restore…") : null, changes.length === 1 && !isOfConsole(row) ? undoFields(row, first) : null,
        restoreBefore(row.number, `Restore ${changes.length === 1 ? short(first.item, 24) : count(changes.length, "item")} to before this…`, changes.length === 1 ? short(first.item, 60) : `All ${changes.length} items`, {fake: row.fake, ...undo})) : null,
      el("div", {class: "tools"}, el("span", {class: "soft"}, "Back to just before this:"),
        changes === null ? null : restoreBefore(row.number, `Restore ${row.fake}…`, row.fake, {fake: row.fake}), restoreBefore(row.number, changes === null ? "Restore the other fakes…" : "Restore all fakes…", "All fakes", {}))].filter(Boolean));
  }, (error) => place.replaceChildren(soft(error.message)));
  return place;
}

// -- versions --
// The section of a namespace in the data of a vector index.
export const sectionOf = (namespace) => namespace ? `namespace ${namespace}` : "default namespace";
// The item whose history was opened last: what is known of it stays while it is read again, for at most one request at a time.
let opened = {};
// Whoever comes back from a row goes on at its link.
function comeBack(history) { const back = history.left && history.place.querySelector(`a[href="${history.left}"]`); if (back) { history.left = null; back.focus({preventScroll: true}); back.scrollIntoView({block: "center"}); } }
const nameOf = (fake, section, item) => JSON.stringify([fake.name, section, item]);
function historyOf(fake, section, item, changesOf) {
  const name = nameOf(fake, section, item);
  if (opened.name !== name) {
    const history = opened = {name, unfolded: new Set(), parts: () => [el("p", {class: "soft", role: "status"}, "Loading…")], draw: () => { redraw(history.place, history.parts()); comeBack(history); }};
    history.read = oneAtATime(async () => {
      try {
        const {versions, parts, repeats, is_put_back: isPutBack} = await ask("GET", path(fake, `/versions${query({section, item, part: history.part})}`));
        // The row of the newest may not have arrived yet.
        const newest = versions.at(-1)?.number, arrived = () => { if (!entries.known.has(newest)) return; journal.listeners.delete(arrived); history.draw(); };
        if (newest && !entries.known.has(newest)) journal.listeners.add(arrived);
        const choice_ = parts.length ? tools(el("label", {}, "Field ", el("select", {"aria-label": "field of the history", onchange: ({target}) => { history.part = target.value; history.read(); }}, ["", ...parts].map((name) => el("option", {value: name, selected: name === (history.part ?? "")}, name || "all"))))) : null;
        history.parts = () => [choice_, ...versions.length ? versionsTable(fake, section, item, versions, changesOf, repeats, isPutBack) : [soft("None was recorded. ", el("a", {href: `#/activity?search=${encodeURIComponent(item)}`}, "Calls that name it"))]];
      } catch (error) { history.parts = () => [soft(error.message, " In Activity shows its calls.")]; }
      history.draw();
    });
  }
  return opened;
}
const MOST_VERSIONS = 50;
// A button that gives a key that has expired its last value again, without its TTL: just before the next row, it had expired already.
const againButton = (fake, key, {number}) => number ? act("Bring it back", `Bring back ${short(key, 60)} without its TTL`, async () => {
  const part = {fake: fake.name, section: "keys", items: [key]}, {row} = await ask("POST", `/journal/${number}/restore`, {...part, after: true});
  sayWithUndo(`${short(key, 60)} is back, without its TTL.`, row, part);
}) : "";
// The newest versions first, each with the value before it, and a button that gives the item this version again. A run of equal increments is one line until it is opened, from the value before the first to that after the last.
function versionsTable(fake, section, item, versions, changesOf, repeats, isPutBack) {
  const {unfolded, part} = opened, name = short(item, 60), items = {fake: fake.name, section, items: [item]};
  const all = versions.map((version, index) => { const before = versions[index - 1]?.fields ?? null, next = versions[index + 1]; return {...version, index, at: version.expired ?? version.at, before, next: next?.number, expires: next?.expired}; }).reverse();
  const [last, kept] = all, isGone = last.fields === null, rowOf = ({number: row}) => entries.known.get(row);
  const lines = all.flatMap((version) => {
    const repeat = repeats.find(({first, last: end}) => version.index >= first && version.index <= end), key = repeat && versions[repeat.first].number, isOpen = unfolded.has(key);
    if (!repeat || version.index < repeat.last) return repeat && !isOpen ? [] : [version];
    const times = el("button", {type: "button", class: "facet", "aria-expanded": String(isOpen), "data-key": `times ${key}`, onclick: () => { unfolded[isOpen ? "delete" : "add"](key); opened.draw(); }},
      `${repeat.by}, ${number(repeat.last - repeat.first + 1)} times`);
    return [isOpen ? {...version, times} : {...version, times, isFolded: true, before: versions[repeat.first - 1].fields}];
  });
  const madeBy = ({number: row, before, fields, expired}) => expired ? "the end of its TTL" : row ? el("a", {href: link(["activity", row]), onclick: ({currentTarget}) => { opened.left = currentTarget.getAttribute("href"); }}, short(entries.known.get(row)?.text.what ?? `#${row}`, 80))
    : before === null && fields !== null ? "there before" : "the clock, or the control API";
  const who = (row) => row && el("span", {class: "soft"}, ` · ${isOfConsole(row) ? "console" : row.actor}`);
  const value = (fields, other) => fields === null ? el("span", {class: "soft"}, "–") : fieldsOf(item, fields, other, {changed: other !== null});
  const back = (version) => section === "keys" && version.expires ? againButton(fake, item, version)
    : version.next && isPutBack ? restoreButton(isGone && version.index === kept.index ? "Bring it back…" : part ? "Restore the whole key…" : "Restore…", `Restore ${name} as of ${version.at.slice(0, 19).replace("T", " ")}`, sinceOf(version.next, items), () => ask("POST", `/journal/${version.next}/restore`, items), name, items)
      : version.index === last.index ? el("span", {class: "pill"}, "now") : "";
  const undo = ({number: row, before, fields: after, isFolded}) => row && !part && !isFolded ? undoFields({number: row, fake: fake.name}, {section, item, before, after}) : null;
  const after = ({fields, before, expired}) => fields === null ? el("span", {class: "soft"}, expired ? "expired" : "gone") : value(fields, before);
  const cells = (version) => [when(version.at), [madeBy(version), version.expired ? null : who(rowOf(version)), " ", version.times, " ", undo(version), " ", isGone && version.index >= kept?.index ? null : back(version)], value(version.before, version.fields), after(version)];
  return [isGone ? el("p", {role: "status"}, last.expired ? "It expired at " : "It was deleted at ", moment(last.at), last.expired ? "." : [", by ", madeBy(last), "."], " ", kept && back(kept)) : null,
    table("versions", changesOf ? ["time", "changes"] : ["time", "made by", "before", "after"], lines.slice(0, MOST_VERSIONS), (version) => changesOf ? [when(version.at), [madeBy(version), changesOf(version.before, version.fields)]] : cells(version)),
    ...lines.length > MOST_VERSIONS ? [soft(`The newest ${MOST_VERSIONS} of ${count(lines.length, "version")}. In Activity shows all calls.`)] : []];
}
// A button that opens the history below the value, and goes there.
export const historyButton = () => el("button", {type: "button", class: "quiet", onclick: ({currentTarget}) => { unfold(currentTarget.closest(".detail").querySelector("details.versions")); }}, "History ↓");
// The versions of an item, or with `changesOf`, which shows what one changed, of a whole section, with the rows that made them, read when the part is opened, and again when the item is drawn again.
export function versionsElement(fake, section, item, {open = false, changesOf} = {}) {
  // That of the item whose history was opened last is open again.
  const name = nameOf(fake, section, item), place = el("div"), load = () => { const history = Object.assign(historyOf(fake, section, item, changesOf), {place, isOpen: true}); history.draw(); history.read(); };
  return el("details", {open: open || opened.isOpen && opened.name === name, class: "form versions", "data-key": `versions ${section} ${item}`, ontoggle: ({target}) => { if (target.open) load(); else if (opened.name === name && target.isConnected) opened.isOpen = false; }}, el("summary", {}, "History"), place);
}
