// The frame of the console: navigation, clock, and the page of the current address, kept up to date.
import {$, DISCARD, attempt, clockButtons, confirmed, count, discard, dismiss, el, go, isTyping, link, missing, number, opened, own, pageOf, partName, product, read, redraw, say, short, showClock, showCurrent, soft, unsent} from "./dom.js";
import {NoToken, ask, connection, keep, signIn} from "./api.js";
import {catchUp, entries, listen, startOver} from "./journal.js";
import {oneAtATime} from "./rows.js";

const EVERY = 2000;
let state = {fakes: [], violations: 0}, page = null, place = null, shown = null;
const current = () => state;

const PAGES = {
  overview: {title: "Overview", make: async () => new (await import("./overview.js")).OverviewPage(current)},
  activity: {title: "Activity", make: async () => new (await import("./activity.js")).ActivityPage(current)},
  search: {title: "Search", key: "f", make: async () => new (await import("./search.js")).SearchPage(current)},
  connect: {title: "Connect", make: async () => new (await import("./connect.js")).ConnectPage(current)},
  time: {title: "Time", make: async () => (await import("./time.js")).timePage()},
  problems: {title: "Problems", make: async () => (await import("./problems.js")).problemsPage()},
  snapshots: {title: "Snapshots", make: async () => (await import("./time.js")).snapshotsPage(current)},
  isolated: {title: "Isolated clouds", make: async () => (await import("./time.js")).cloudsPage()},
};

// The earlier names of pages in addresses.
const RENAMED = {violations: "problems", find: "search"};

// -- navigation --
const isShown = ([name]) => name !== "isolated" || state.clouds;
function drawNav() {
  const {parts} = read(), of = parts[0] === "fake" && state.fakes.find((fake) => fake.name === parts[1]), letters = state.fakes.reduce((sum, fake) => sum + fake.dead_letters, 0), {kept, problems} = state, item = parts[of ? 3 : 1], what = `${count(state.violations, "violation")}, ${count(letters, "dead letter")}, each cause once, without failed calls`;
  document.title = `${problems ? `(${number(problems)}) ` : ""}${item ? `${parts[0] === "activity" ? "#" : ""}${short(item, 60)} · ` : ""}${of ? `${of.name} ${product(of)}` : own(PAGES, parts[0])?.title ?? ""} · fakecloud`; Object.assign($("problems"), {textContent: problems ? number(problems) : "", ariaLabel: `${count(problems, "problem")}: ${what}`});
  const entry = (where, text, mark) => el("a", {href: link(where), "data-key": where.join("/"), "aria-current": where.every((part, at) => part === parts[at]) ? "page" : null, onclick: ({ctrlKey, metaKey}) => { if (place === where.join("/") && !ctrlKey && !metaKey) page.again?.(); }}, text, mark ? el("span", {class: "many bad", title: where[0] === "problems" ? what : null}, String(mark)) : null);
  const badge = (fake, tab, many, text) => many ? el("a", {href: link(["fake", fake.name, tab]), class: `many ${tab === "faults" ? "fault" : "bad"}`, "data-key": `${fake.name} ${tab}`, "aria-label": `${count(many, tab.replace("-", " ").slice(0, -1))} of ${fake.name}`}, text) : null;
  const fakeEntry = (fake) => el("div", {class: "entry"}, entry(["fake", fake.name], [fake.name, el("small", {}, product(fake))]), badge(fake, "faults", fake.faults, count(fake.faults, "fault")), badge(fake, "dead-letters", fake.dead_letters, `${number(fake.dead_letters)} dead`));
  redraw($("nav"), Object.entries(PAGES).filter(isShown).map(([name, {title}]) => entry([name], name === "snapshots" && kept ? [title, el("small", {title: kept.file}, kept.failure ? "the state is not saved" : `state in ${kept.file.split(/[\\/]/).at(-1)}`)] : title, {problems, snapshots: kept?.failure ? "!" : 0, isolated: state.failed_clouds}[name])), el("span", {class: "group", "aria-hidden": "true"}, "Fakes"), state.fakes.map(fakeEntry));
  showCurrent($("nav"));
}
// Asks before leaving an unsent form. Other pages and tabs drop all forms, another item those beside the list.
let address = "", leaving = false;
async function leave() {
  const to = location.hash, [from, next] = [address, to].map((one) => read(one).parts), tab = from[0] === "fake" ? 3 : 1;
  const places = [...Array(tab).keys()].some((at) => from[at] !== next[at]) ? "#view" : from[tab] !== next[tab] ? ".detail" : "#none";
  if (unsent(places).length) {
    history.replaceState(null, "", address);
    if (leaving) return;
    leaving = true;
    const sure = await confirmed(...DISCARD);
    leaving = false;
    if (!sure) return;
    discard(places);
    history.replaceState(null, "", to);
  }
  await show();
}

const missingPage = (text) => ({node: el("div", {class: "page"}, el("h1", {}, "Not found"), missing(text, [...state.fakes.map(({name}) => [["fake", name], name]), ...Object.entries(PAGES).filter(isShown).map(([name, {title}]) => [[name], title])]))});

async function show() {
  // A notice ends with its page, but for one that offers to undo, and one that says why this page is shown.
  if (place !== null && pageOf(location.hash) !== pageOf(address) && !document.querySelector("#notice button:not([aria-label=Dismiss])")) { dismiss(); say(""); }
  address = location.hash;
  $("clock-more").setAttribute("aria-expanded", "false"); $("all-pages").checked = false;
  const route = read(), [first, second] = route.parts;
  if (!first || own(RENAMED, first)) { history.replaceState(null, "", link([first ? RENAMED[first] : "overview", ...route.parts.slice(1)], route.query)); return show(); }
  const fake = first === "fake" && state.fakes.find((one) => one.name === second);
  const wanted = fake ? `fake/${fake.name}` : own(PAGES, first) ? first : address, another = wanted !== place, {scrolled, open = {}} = history.state ?? {};
  if (another) {
    place = wanted;
    let made = null;
    await settled(async () => { made = fake ? await (await import("./fake.js")).open(fake) : await (own(PAGES, first)?.make() ?? missingPage(first === "fake" ? `There is no fake named ${second}.` : `The console has no page ${first}.`)); });
    // The address changed while the code was loaded, or the server has stopped.
    if (place !== wanted) return;
    if (!made) { place = null; return; }
    page?.leave?.();
    [page, shown] = [made, wanted];
    $("view").replaceChildren(page.node);
    scrollTo(0, 0);
  }
  // While the code of this page is loaded, the first call goes to the address when the code is there.
  if (shown !== wanted) return;
  drawNav();
  await settled(() => page.go?.(read()) ?? page.refresh?.());
  for (const part of $("view").querySelectorAll("details")) part.open = own(open, partName(part)) ?? part.open;
  // The timeline of Activity keeps its own place.
  if (another && scrolled && shown === wanted && !page.trace) scrollTo(0, scrolled);
}
// A page that a reader goes back to is scrolled as it was, once it is drawn, and the same parts of it are open.
history.scrollRestoration = "manual";
addEventListener("scrollend", () => history.replaceState({...history.state, scrolled: scrollY}, ""));
addEventListener("toggle", ({target}) => {
  const {open} = history.state ?? {}, name = target.localName === "details" && partName(target);
  if (name && own(open ?? {}, name) !== target.open) history.replaceState({...history.state, open: {...open, [name]: target.open}}, "");
}, true);
// What is opened comes into sight, its head above all.
addEventListener("click", ({target}) => {
  const head = target.closest?.("#view summary");
  if (head) setTimeout(() => { if (head.parentNode.open) for (const part of [head.parentNode, head]) part.scrollIntoView({block: "nearest"}); });
});
// Errors of a page that was left are dropped, and a lost connection has its own message.
let failing = false;
async function settled(work) {
  const before = page;
  try { await work(); if (failing) { failing = false; say(""); } } catch (error) { if (error instanceof NoToken) askForToken(); else if (!connection.lost && page === before) { failing = true; say(error.message); } }
}

// -- refreshing --
export const refresh = oneAtATime(async () => {
  const found = await ask("GET", "/state"), named = (one) => one.fakes.map((fake) => [fake.name, fake.url, fake.faults, fake.dead_letters]).join();
  const changed = named(found) !== named(state) || ["violations", "problems", "clouds", "failed_clouds"].some((name) => found[name] !== state[name]) || found.kept?.failure !== state.kept?.failure;
  state = found;
  // The journal was cleared elsewhere, by a reset or for another test.
  if (entries.list.length && found.latest < entries.list[0].number) { entries.clear(); catchUp().catch(() => {}); }
  showClock(state.clock);
  $("facts").textContent = `seed ${state.seed}`;
  if (changed) drawNav();
  if (page) await settled(() => page.refresh?.());
});
let planned = false;
function soon() {
  if (planned || connection.lost || document.hidden) return;
  planned = true;
  setTimeout(() => { planned = false; refresh().catch(() => {}); }, 250);
}

// -- stopped server, missing token --
// Whether the server has another row with the number of the newest known one, or none. A server that has started again numbers its rows from 1.
async function isRestarted() {
  const known = entries.list.at(-1);
  if (!known) return false;
  const row = (await ask("GET", `/journal?after=${known.number - 1}&limit=1`)).find(({number: one}) => one === known.number);
  return !row || row.at_us !== known.at_us || row.operation !== known.operation;
}
async function found() {
  const again = await isRestarted(), {parts, query} = read();
  if (again) {
    startOver();
    // The number of the details that are open is that of another row now.
    if (parts[0] === "activity" && parts[1]) go(link(["activity"], query), {replace: true});
  }
  await catchUp();
  if (place === null) await show();
  await refresh();
  if (again) say("The server was restarted. Its earlier calls are gone, and data that it does not keep.", "busy");
}
let asking = 0;
function sayLost() {
  const seen = connection.lastSeen, ago = Math.round((Date.now() - seen) / 1000);
  $("lost").replaceChildren(el("b", {}, `The server at ${location.host} does not answer. `), `It was last seen at ${seen.toLocaleTimeString("sv-SE")}${ago > 5 ? `, ${ago < 90 ? `${ago} seconds` : count(Math.round(ago / 60), "minute")} ago` : ""}. Start it again with the same ports, and this page reconnects.`);
}
connection.listeners.add((lost) => {
  $("lost").hidden = !lost;
  clearInterval(asking);
  if (lost) {
    sayLost();
    asking = setInterval(() => { sayLost(); fetch("/__control__/live").then(() => ask("GET", "/state")).catch((error) => { if (error instanceof NoToken) askForToken(); }); }, EVERY / 2);
  } else { say(""); found().catch(() => {}); }
});

function askForToken() {
  if ($("token")) return;
  const {origin} = location, place = origin === "http://127.0.0.1:7400" ? "" : ` --url ${origin}`, input = el("input", {id: "token-input", type: "password", autocomplete: "off", required: true}), wrong = el("p", {class: "bad", role: "alert"});
  const dialog = opened("token-title", {id: "token", oncancel: (event) => event.preventDefault()}, el("form", {onsubmit: async (event) => {
    event.preventDefault();
    keep(input.value.trim());
    try { await ask("GET", "/state"); dialog.remove(); await begin(); } catch { wrong.textContent = "The server rejects this token."; }
  }}, el("h2", {id: "token-title"}, "The console needs the control token"), isUsed ? el("p", {}, "This link has signed a browser in already. ") : null, el("p", {}, "Run ", el("code", {}, `pytest-fakecloud console${place}`), " to open this page signed in, or paste the token. ", el("code", {}, `pytest-fakecloud env${place}`), " prints it as PYTEST_FAKECLOUD_TOKEN."),
  el("label", {for: "token-input"}, "control token"), input, wrong, el("button", {type: "submit", class: "primary"}, "Open")));
}

// -- keys --
const SHORTCUTS = {"/": "search, or the command box; all fakes on a page without", "?": "show these keys", "Ctrl K, g f": "search all fakes", "g a, g c, …": "go to a page, by its first letter", "g 1, g 2, …": "go to a fake", "j k ↓ ↑": "next or previous row",
  "n p": "next or previous problem in Activity", "← →": "parent or first child of the row in Activity", Enter: "open the details", Esc: "close the details", Tab: "complete a command or a key in the command box", "Shift Enter": "add a line in the command box"};
function showShortcuts() {
  opened("keys", {}, el("form", {method: "dialog"}, el("h2", {id: "keys"}, "Keys"), el("dl", {class: "facts"}, Object.entries(SHORTCUTS).map(([key, does]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, does)))), el("button", {autofocus: true}, "Close")));
}
// The printed address was opened in a tab that shows the console already.
addEventListener("hashchange", () => { if (location.hash.startsWith("#code=")) location.reload(); });
addEventListener("beforeunload", (event) => { if (unsent("#view").length) event.preventDefault(); });
let going = 0;
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k" && !document.querySelector("dialog[open]")) { event.preventDefault(); go(link(["search"])); }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping() || document.querySelector("dialog[open]")) return;
  if (Date.now() - going < 1500) {
    going = 0;
    const to = Object.keys(PAGES).find((name) => (PAGES[name].key ?? name[0]) === event.key), fake = state.fakes[Number(event.key) - 1];
    if (to || fake) { event.preventDefault(); go(link(to ? [to] : ["fake", fake.name])); $("view").focus({preventScroll: true}); return; }
  }
  if (event.key === "g") going = Date.now();
  else if (event.key === "/") { const search = document.querySelector("main input[type=search]") ?? $("command"); event.preventDefault(); if (search) search.focus(); else go(link(["search"])); }
  else if (event.key === "?") showShortcuts();
});

// -- start --
let begun = false;
async function begin() {
  state = await ask("GET", "/state");
  showClock(state.clock);
  drawNav();
  if (!begun) $("view").replaceChildren(soft("Loading…"));
  await catchUp();
  // The address may change while the first page is loaded.
  if (!begun) addEventListener("hashchange", leave);
  await show();
  await refresh();
  document.documentElement.dataset.ready = "yes";
  if (begun) return;
  begun = true;
  if (sessionStorage.getItem("undo")) import("./history.js").then(({offerAgain}) => offerAgain()).catch(() => {});
  listen();
  document.addEventListener("changed", () => { soon(); });
  document.addEventListener("happened", soon);
  document.addEventListener("visibilitychange", soon);
  setInterval(soon, EVERY);
}
$("skip").addEventListener("click", () => $("view").focus());
$("keys-button").addEventListener("click", showShortcuts);
$("reset").addEventListener("click", async () => {
  if (!await confirmed("Reset all fakes to their baseline, the data with which the server began? Faults and Activity are cleared for good; the notice that follows can bring the data back.", "Reset", {isRisky: true})) return;
  await attempt(async () => { const {row} = await ask("POST", "/reset", {record: true}); entries.clear(); await catchUp(); await refresh(); (await import("./history.js")).undoOf()(row, "All fakes are reset."); });
});
clockButtons();
const isUsed = await signIn();
try { await begin(); } catch (error) { if (error instanceof NoToken) askForToken(); else say(error.message); }
