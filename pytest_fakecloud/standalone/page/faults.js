// Injected faults of a fake as sentences, and a form with the fields of each kind.
import {LivePage, act, copies, count, done, el, empty, form, link, number, own, pill, plural, removal, say, words} from "./dom.js";
import {ask, change, path} from "./api.js";
import {entries} from "./journal.js";

const whole = (name, label, value, note) => ({name, label, kind: "number", value, note});
const read = {number: (text) => text === "" ? undefined : Number(text), text: (text) => text === "" ? undefined : text};
// The slot of a fault of nodes: a number, or a key in it.
const slot = {fields: [{name: "slot", label: "slot, or a key in it", note: "that of the command's keys"}], args: ({slot: text}) => text === "" ? [] : [/^\d+$/.test(text) ? Number(text) : text]};
const step = (text) => /^\d+$/.test(text.trim()) ? Number(text) : text.trim() === "ok" ? null : text.trim();
// For each kind: its description, its fields, and how fields become arguments. For other kinds, the form has the server's description and one field for all arguments.
const KINDS = {
  respond: {does: "Answer with an error instead of doing the request", says: ([status, body]) => `answers ${status ?? "an error"}${body ? ` with this body: ${body}` : ""} and is not carried out`, fields: [whole("status", "status", "503"), {name: "body", label: "body", note: "the service's own"}], args: ({status, body}) => [read.number(status), ...(body ? [body] : [])]},
  delay: {does: "Wait before doing the request", says: ([wait]) => `waits ${wait} before it is carried out`, fields: [{name: "seconds", label: "wait", value: "2s"}], args: ({seconds}) => [seconds]},
  drop: {does: "Close the connection before doing the request", says: () => "loses its connection before it is carried out", fields: [], args: () => []},
  lose_response: {does: "Do the request, then close the connection without an answer", says: () => "is carried out, but the connection closes without an answer", fields: [], args: () => []},
  hang: {does: "Never answer", says: () => "gets no answer", fields: [], args: () => []},
  truncate: {does: "Break the connection in the middle of the answer", says: ([keep]) => `is carried out, but its answer breaks off after ${keep == null ? "half of it" : `${keep} bytes`}`, fields: [whole("keep", "bytes that arrive", "", "half")], args: ({keep}) => keep === "" ? [] : [Number(keep)]},
  down: {does: "Be down: refuse connections, or answer with a status", says: ([status]) => status == null ? "is refused, as if nothing listened" : `answers ${status}, as if the service were down`, fields: [whole("status", "or answer with status", "", "no answer")], args: ({status}) => status === "" ? [] : [Number(status)]},
  rate_limit: {does: "Limit the rate", says: ([requests, per]) => `beyond ${requests} in each ${per} answers 429`, fields: [whole("requests", "requests", "2"), {name: "per", label: "in each", value: "1s"}], args: ({requests, per}) => [Number(requests), per]},
  random: {does: "Fail a share of the requests", says: ([rate, step]) => `fails in ${Math.round(rate * 100)} % of all cases, with ${step ?? "ok"}`, fields: [{name: "rate", label: "share, from 0 to 1", value: "0.5"}, {name: "step", label: "with status, drop or hang", value: "503"}], args: ({rate, step: what}) => [Number(rate), step(what)]},
  sequence: {does: "Fail the next requests one after the other", says: ([steps]) => `gets the next of these answers: ${[steps].flat().map((one) => one ?? "ok").join(", ")}`, fields: [{name: "steps", label: "steps: status, ok, drop or hang", value: "503, ok, 429"}], args: ({steps}) => [steps.split(",").map(step)]},
  duplicate: {does: "Deliver twice", of: "delivery", says: () => "is made twice"}, reorder: {does: "Change the order", of: "delivery", says: () => "changes places with another one"}, tamper: {does: "Change the body after signing", of: "delivery", says: () => "has another body than the one that was signed"}, crash_after_response: {does: "Forget the answer of the destination and deliver again", of: "delivery", says: () => "is made again, as if its answer had been lost"},
  drop_callback: {does: "Lose callbacks", of: "callback", says: () => "is lost"}, wrong_key: {does: "Sign with a wrong key", of: "delivery", says: () => "is signed with a wrong key"}, next_key: {does: "Sign with the next key", of: "delivery", says: () => "is signed with the next key"}, expired_token: {does: "Sign with an expired token", of: "delivery", says: () => "is signed with an expired token"}, unsigned: {does: "Send without a signature", of: "delivery", says: () => "has no signature"},
  moved: {does: "Move the slot of a command to the next node, and answer MOVED", says: () => "moves its slot to the next node and answers MOVED", ...slot}, ask: {does: "Move the keys of a slot to the next node first, and answer ASK", says: () => "moves the keys of its slot to the next node and answers ASK", ...slot},
  failover: {does: "Let the node fail, so that its replica takes over", says: () => "lets the node fail, so that its replica takes over", fields: [], args: () => []}, cluster_down: {does: "Answer that the cluster is down", says: () => "answers that the cluster is down", fields: [], args: () => []},
  partial_produce: {does: "Store only the first messages of a batch", says: ([keep]) => `stores only the first ${count(keep, "message")} of its batch`, fields: [whole("keep", "messages to store", "1")], args: ({keep}) => [Number(keep)]},
  burst_limit: {does: "Reject listings and changes: burst limit", says: ([limit]) => `beyond ${limit} is rejected by the burst limit`, fields: [whole("limit", "limit", "100")], args: ({limit}) => [Number(limit)]}, daily_limit: {does: "Reject publishing: daily limit", says: ([limit]) => `beyond ${limit} is rejected by the daily limit`, fields: [whole("limit", "limit", "1000")], args: ({limit}) => [Number(limit)]},
};
const MATCHERS = {kv_server: ["command", "key", "route"], vector_index: ["namespace", "route"], broker: ["topic", "group", "route"], queue: ["url", "label", "queue", "route"]};
const NOTES = {command: "SET", key: "user:1", route: "/path", namespace: "films", topic: "orders", group: "billing", url: "https://app.example/hook", label: "mail", queue: "ordered"};

// What a fault does, as a sentence. Those that were not made here have the server's description only.
export function sentence({kind, description, where, times, skip, made}) {
  const {does, of: noun = "request", says} = own(KINDS, kind) ?? {}, {command, ...others} = where, end = times == null ? ", until you remove this fault." : ".";
  const which = `${command ? `${command} ` : ""}${noun}`, about = Object.entries(others).filter(([, value]) => value != null).map(([name, value]) => ` of ${name === "url" ? "the URL" : `the ${name}`} ${value}`).join("");
  const subject = `${times == null ? "Each" : times === 1 ? "The next" : `Each of the next ${number(times)}`} ${times > 1 ? plural(which) : which}${about}${skip ? `, after ${number(skip)} that pass,` : ""}`;
  if (says && made) return `${subject} ${says(made.args ?? [])}${end}`;
  return `${subject}: ${!does ? words(description) : description === kind ? does : `${does} (${description})`}${end}`;
}

const MOST_ROWS = 5, left = ({active, times, hits}) => active && times != null ? `, ${number(times - hits)} of ${number(times)} left` : "";
export class FaultsPage extends LivePage {
  constructor(fake) {
    const adding = el("div");
    super(path(fake, "/faults"), (faults) => this.drawn(faults));
    this.node.append(adding);
    Object.assign(this, {fake, adding});
  }
  async go() {
    const {fault_kinds: kinds} = await ask("GET", path(this.fake, "/view"));
    this.choose(kinds, kinds.includes("respond") ? "respond" : kinds[0]);
    await super.go();
  }
  choose(kinds, kind) {
    const about = own(KINDS, kind) ?? {fields: [{name: "args", label: "arguments, as JSON", note: "[503]"}], args: ({args}) => args ? JSON.parse(args) : []}, matchers = own(MATCHERS, this.fake.fixture) ?? ["route"];
    const made = form("Add a fault", "Add fault", [{name: "kind", label: "what it does", options: kinds.map((one) => ({value: one, label: own(KINDS, one)?.does ?? words(one)})), value: kind, wide: true}, ...(about.fields ?? []),
      ...matchers.map((name) => ({name: `only-${name}`, label: `only for ${name}`, note: `any, or ${NOTES[name]}`})), whole("times", "how many times", "", "until removed"), whole("skip", "let pass first", "", "0")],
    async (values) => {
      const {where, times, skip} = readIn(values);
      await ask("POST", this.path, {kind: values.kind, args: (about.args ?? (() => []))(values), ...where, times, skip});
      this.typed = false;
      await this.refresh();
      this.choose(kinds, kind);
      this.adding.querySelector(".out").replaceChildren(done(`Added: ${sentenceOf(values)}`), copies({...change}));
      this.adding.querySelector(".preview").replaceChildren();
    });
    const preview = el("p", {class: "field wide preview", role: "status"}), readIn = (values) => ({where: Object.fromEntries(matchers.map((name) => [name, read.text(values[`only-${name}`] ?? "")])), times: read.number(values.times), skip: read.number(values.skip)});
    const sentenceOf = (values) => { try { return sentence({kind, description: values.args ?? kind, ...readIn(values), made: {args: (about.args ?? (() => []))(values)}}); } catch { return "…"; } };
    const draw = () => { const values = Object.fromEntries(new FormData(made.querySelector("form"))); preview.replaceChildren(sentenceOf(values), el("span", {class: "soft"}, Object.values(readIn(values).where).some(Boolean) ? "" : ` Calls of a running application count too. To spare them, limit it to a ${matchers.join(" or a ")}.`)); };
    // What was typed for another kind stays in the fields that both have.
    if (this.typed) {
      for (const field of made.querySelectorAll("input")) field.value = this.adding.querySelector(`[name="${field.name}"]`)?.value ?? field.value;
      made.querySelector("form").dataset.typed = "yes";
    }
    made.addEventListener("input", ({target}) => { this.typed ||= target.name !== "kind"; draw(); });
    made.querySelector("[type=submit]").before(preview);
    draw();
    made.querySelector("select").addEventListener("change", (event) => { this.choose(kinds, event.target.value); this.adding.querySelector("select").focus(); });
    this.adding.replaceChildren(made);
  }
  version() { return entries.list.at(-1)?.number; }
  async remove(one = "") { await ask("DELETE", this.path + one); say("Fault removed.", "good"); this.adding.querySelector(".out").replaceChildren(); }
  drawn(faults) {
    return faults.length ? [el("ul", {class: "sentences"}, faults.map((one) => el("li", {}, el("span", {}, sentence(one)), " ", one.hits ? el("a", {href: link(["activity"], {fake: this.fake.name, status: "fault"})}, pill(`hit ${one.hits === 1 ? "once" : `${number(one.hits)} times`}${left(one)}`, "wait")) : pill(`not hit yet${left(one)}`), " ", one.active ? null : pill("used up"),
      one.rows.length ? el("span", {class: "soft"}, "by ", one.rows.slice(-MOST_ROWS).map((row, at) => [at ? ", " : "", el("a", {href: link(["activity", row])}, `#${row}`), ` ${entries.known.get(row)?.actor ?? ""}`])) : null,
      one.made ? [copies({method: "POST", path: this.path, body: one.made}, `the fault: ${sentence(one)}`), one.active ? null : act("Add again", `Add again: ${sentence(one)}`, () => ask("POST", this.path, one.made))] : null,
      removal("Remove", `Remove the fault: ${sentence(one)}`, () => this.remove(`/${one.id}`))))),
    faults.length > 1 ? removal("Remove all…", "Remove all faults", () => this.remove(), {question: "Remove all faults of this fake?"}) : null]
      : empty("No faults.", "An injected fault makes this fake misbehave on purpose, so that you see what your application does. Add one below.");
  }
}
