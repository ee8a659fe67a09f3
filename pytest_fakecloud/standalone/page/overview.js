// The first page: what runs and where to connect, what is due next, what failed, and what happened last.
import {about, addresses, copyButton, count, el, link, micros, move, number, pageHead, product, redraw, short, table, tokenButton, tools, when, withoutPassword, withoutSchemes, words} from "./dom.js";
import {ask, path} from "./api.js";
import {FORMATS} from "./connect.js";
import {hasFailed} from "./elements.js";
import {isExpected} from "./errors.js";
import {entries, journal, likeOf} from "./journal.js";
import {errorsElement, isInjected, lettersLinks, openFailures, siteOf} from "./problems.js";

// So many kinds of the last calls, and so many events and kinds of errors, that all parts are on the first screen.
const MOST = 5, FEW = 3, LAST = 5000;
const NOUNS = {keys: "key", vectors: "vector", topics: "topic", groups: "group", messages: "message", runs: "run", schedules: "schedule"};
const shortened = (text) => withoutSchemes(text).replace(/\b(\w{8})\w{16,}(\w{4})\b/g, "$1…$2");
const isoOfRow = (row) => new Date(row.at_us / 1000).toISOString();

// Until the older rows are read, the rows that are known are neither all nor those that failed.
const loading = () => el("span", {class: "soft", role: "status"}, "Loading…");

// The newest rows, those that are alike together. So many are looked at that calls which an application repeats leave room for others.
function lastKinds() {
  const kinds = new Map();
  for (let at = entries.list.length - 1; at >= 0 && kinds.size < MOST && entries.list.length - at < LAST; at--) { const row = entries.list[at], kind = likeOf(row); if (!kinds.has(kind)) kinds.set(kind, []); kinds.get(kind).push(row); }
  return [...kinds.values()];
}
export class OverviewPage {
  constructor(state) {
    Object.assign(this, {state, body: el("div", {class: "overview"})});
    this.node = el("div", {class: "page"}, pageHead("Overview"), this.body);
  }
  async refresh() {
    const {fakes} = this.state(), [due, problems, env, ...lists] = await Promise.all([ask("GET", "/due?fold=yes"), ask("GET", "/problems"), this.env ?? ask("GET", "/env"), ...fakes.map((fake) => ask("GET", path(fake, "/lists")).catch(() => ({})))]);
    this.env = env;
    const last = lastKinds(), failed = openFailures(problems), shape = JSON.stringify([fakes, due, lists, problems.causes, problems.dead_letters, last, failed.length, entries.list.length, journal.older]);
    if (shape === this.shape) return;
    this.shape = shape;
    redraw(this.body, el("div", {}, this.running(fakes, lists), this.failed(failed, problems)), el("div", {}, this.due(due), this.last(last)));
  }
  running(fakes, lists) {
    return el("section", {"aria-label": "What runs"}, el("h2", {}, "What runs"), table("fakes", ["fake", "address", "holds", "recorded"], fakes, (fake) => {
      const at = fakes.indexOf(fake), holds = Object.entries(NOUNS).filter(([name]) => lists[at][name]).map(([name, noun]) => count(lists[at][name], noun)).join(", ");
      return [[el("a", {href: link(["fake", fake.name])}, fake.name), el("div", {}, el("small", {class: "soft"}, product(fake)))], addresses(fake).map((address) => el("div", {class: "nowrap mono"}, withoutPassword(address), " ", copyButton(address, `Copy the address ${withoutPassword(address)} of ${fake.name}`), address === fake.url ? tokenButton(fake) : null)), holds || "nothing yet", journal.older ? loading() : el("a", {href: link(["activity"], {fake: fake.name})}, count(entries.list.filter((row) => row.fake === fake.name).length, "row"))];
    }), tools(copyButton(() => FORMATS[".env"](this.env), "Copy the .env of your application", "Copy the .env of your application"), el("a", {href: "#/connect"}, "Connect in your language")));
  }
  last(rows) {
    return el("section", {"aria-label": "What happened last"}, el("h2", {}, el("a", {href: "#/activity"}, "What happened last")), rows.length ? table("last rows", ["time", "call", "answer"], rows, ([row, ...others]) => [when(isoOfRow(row)), [el("a", {href: link(["activity", row.number])}, short(shortened(row.text.what), 90)), others.length ? el("span", {class: "soft nowrap"}, ` and ${number(others.length)} like it`) : null], el("span", {class: !hasFailed(row) ? "ok" : isExpected(row) ? "soft" : "bad"}, short(shortened(row.text.answer), 40))])
      : el("p", {class: "soft"}, "No requests yet. Each request to a fake appears here with the data before and after it."));
  }
  // What is next, and then what is planned before keys that expire, which are many in some applications.
  due({now, due: all, kinds}) {
    const [planned, expiries] = [false, true].map((whether) => all.filter(({kind}) => (kind === "expiry") === whether)), due = [...new Set([...all.slice(0, 1), ...planned, ...expiries])].slice(0, FEW + 1).sort((one, other) => micros(one.at) - micros(other.at));
    const sum = (lines) => lines.reduce((many, one) => many + one.count, 0), {expiry = 0, ...others} = kinds, rest = (many, kind, noun) => (many -= sum(due.filter((one) => (one.kind === "expiry") === kind))) ? count(many, noun) : null;
    const more = [rest(Object.values(others).reduce((one, other) => one + other, 0), false, "other event"), rest(expiry, true, "expiring key")].filter(Boolean);
    return el("section", {"aria-label": "What is due next"}, el("h2", {}, el("a", {href: "#/time"}, "What is due next")), due.length ? [table("next events", ["in", "event", ""], due, (one) => {
      const what = short(shortened(one.what), 120);
      const text = one.count > 1 ? "Move to the first" : "Move there";
      return [about(micros(one.at) - micros(now)), [one.item ? el("a", {href: link(["fake", one.fake, one.list, one.item])}, what) : what, el("small", {class: "soft"}, when(one.at), one.count > 1 ? [" to ", when(one.until)] : null)], el("button", {type: "button", "aria-label": `${text}: ${one.what} at ${one.at}`, onclick: () => move({action: "move_to", to: one.at})}, text)];
    }), more.length ? el("p", {class: "soft"}, `Also planned: ${more.join(" and ")}.`) : null]
      : el("p", {class: "soft"}, "Nothing is planned. Delays, retries, schedules and TTLs use the clock above: freeze it, or move it."));
  }
  failed(rows, {causes, dead_letters: letters}) {
    const named = causes.slice(0, FEW).map(({violations: [one]}) => `${words(one.kind)} ${shortened(siteOf(one))}`), violations = causes.flatMap((cause) => cause.violations).length, injected = rows.filter(isInjected).length, real = rows.filter((row) => !isExpected(row) && !isInjected(row)), ignored = rows.length - real.length - injected;
    return el("section", {"aria-label": "What failed"}, el("h2", {}, el("a", {href: "#/problems"}, "What failed")), tools(violations ? el("a", {href: "#/problems"}, `${count(violations, "violation")}: ${named.join(", ")}${causes.length > FEW ? ", …" : ""}`) : null, journal.older ? loading() : null, lettersLinks(letters)),
      real.length ? errorsElement(real, letters, FEW) : violations || letters.length || journal.older ? null : el("p", {class: "soft"}, "Nothing failed. Try what your application does if something does: add a fault to a fake."), injected ? el("p", {}, el("a", {href: link(["activity"], {status: "fault"})}, `${count(injected, "failure")} by injected faults`)) : null, ignored ? el("p", {}, el("a", {href: link(["activity"], {status: "expected"})}, `${count(ignored, "error")} that clients expect`)) : null);
  }
}
