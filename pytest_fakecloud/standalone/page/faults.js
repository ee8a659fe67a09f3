// Injected faults of a fake as sentences, and a form with the fields of each kind.

import {LivePage, act, copies, done, el, empty, form, link, number, own, pill, words} from "./dom.js";
import {ask, path} from "./api.js";

const whole = (name, label, value, note) => ({name, label, kind: "number", value, note});
const read = {number: (text) => text === "" ? undefined : Number(text), text: (text) => text === "" ? undefined : text};
// The slot of a fault of nodes: a number, or a key in it.
const slot = {fields: [{name: "slot", label: "slot, or a key in it", note: "that of the command's keys"}], args: ({slot: text}) => text === "" ? [] : [/^\d+$/.test(text) ? Number(text) : text]};
const step = (text) => /^\d+$/.test(text.trim()) ? Number(text) : text.trim() === "ok" ? null : text.trim();
// For each kind: its description, its fields, and how fields become arguments. For other kinds, the form has
// the server's description and one field for all arguments.
const KINDS = {
  respond: {does: "Answer with an error instead of doing the request", fields: [whole("status", "status", "503"), {name: "body", label: "body", note: "the service's own"}], args: ({status, body}) => [read.number(status), ...(body ? [body] : [])]},
  delay: {does: "Wait before doing the request", fields: [{name: "seconds", label: "wait", value: "2s"}], args: ({seconds}) => [seconds]},
  drop: {does: "Close the connection before doing the request", fields: [], args: () => []},
  lose_response: {does: "Do the request, then close the connection without an answer", fields: [], args: () => []},
  hang: {does: "Never answer", fields: [], args: () => []},
  truncate: {does: "Break the connection in the middle of the answer", fields: [whole("keep", "bytes that arrive", "", "half")], args: ({keep}) => keep === "" ? [] : [Number(keep)]},
  down: {does: "Be down: refuse connections, or answer with a status", fields: [whole("status", "or answer with status", "", "no answer")], args: ({status}) => status === "" ? [] : [Number(status)]},
  rate_limit: {does: "Limit the rate", fields: [whole("requests", "requests", "2"), {name: "per", label: "in each", value: "1s"}], args: ({requests, per}) => [Number(requests), per]},
  random: {does: "Fail a share of the requests", fields: [{name: "rate", label: "share, from 0 to 1", value: "0.5"}, {name: "step", label: "with status, drop or hang", value: "503"}], args: ({rate, step: what}) => [Number(rate), step(what)]},
  sequence: {does: "Fail the next requests one after the other", fields: [{name: "steps", label: "steps: status, ok, drop or hang", value: "503, ok, 429"}], args: ({steps}) => [steps.split(",").map(step)]},
  duplicate: {does: "Deliver twice"}, reorder: {does: "Change the order"}, tamper: {does: "Change the body after signing"}, crash_after_response: {does: "Forget the answer of the destination and deliver again"},
  drop_callback: {does: "Lose callbacks"}, wrong_key: {does: "Sign with a wrong key"}, next_key: {does: "Sign with the next key"}, expired_token: {does: "Sign with an expired token"}, unsigned: {does: "Send without a signature"},
  moved: {does: "Move the slot of a command to the next node, and answer MOVED", ...slot}, ask: {does: "Move the keys of a slot to the next node first, and answer ASK", ...slot},
  failover: {does: "Let the node fail, so that its replica takes over", fields: [], args: () => []}, cluster_down: {does: "Answer that the cluster is down", fields: [], args: () => []},
  partial_produce: {does: "Store only the first messages of a batch", fields: [whole("keep", "messages to store", "1")], args: ({keep}) => [Number(keep)]},
  burst_limit: {does: "Reject listings and changes: burst limit", fields: [whole("limit", "limit", "100")], args: ({limit}) => [Number(limit)]}, daily_limit: {does: "Reject publishing: daily limit", fields: [whole("limit", "limit", "1000")], args: ({limit}) => [Number(limit)]},
};
const MATCHERS = {kv_server: ["command", "route"], vector_index: ["namespace", "route"], broker: ["topic", "group", "route"], queue: ["url", "label", "queue", "route"]};
const NOTES = {command: "SET", route: "POST /publish", namespace: "films", topic: "orders", group: "billing", url: "https://app.example/hook", label: "mail", queue: "ordered"};

// The effect of a fault: its kind, and the server's description if that has details.
function effect({kind, description}) {
  const does = own(KINDS, kind)?.does;
  return !does ? words(description) : description === kind ? does : `${does} (${description})`;
}
export function sentence(one) {
  const does = effect(one), where = Object.entries(one.where);
  const to = where.length ? `, for ${where.map(([name, value]) => `${name} ${value}`).join(" and ")}` : ", for every request";
  const often = one.times == null ? "" : `, ${one.times === 1 ? "once" : `${number(one.times)} times`}`, after = one.skip ? `, after ${number(one.skip)} that pass` : "";
  return `${does}${to}${often}${after}.`;
}

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
      ...matchers.map((name) => ({name: `only-${name}`, label: `only for ${name}`, note: NOTES[name]})), whole("times", "how often", "", "until removed"), whole("skip", "let pass first", "", "0")],
    async (values) => {
      const where = Object.fromEntries(matchers.map((name) => [name, read.text(values[`only-${name}`])]));
      await ask("POST", this.path, {kind: values.kind, args: (about.args ?? (() => []))(values), ...where, times: read.number(values.times), skip: read.number(values.skip)});
      this.typed = false;
      await this.refresh();
      return done("Added.");
    });
    // What was typed for another kind stays in the fields that both have.
    if (this.typed) {
      for (const field of made.querySelectorAll("input")) field.value = this.adding.querySelector(`[name="${field.name}"]`)?.value ?? field.value;
      made.querySelector("form").dataset.typed = "yes";
    }
    made.addEventListener("input", ({target}) => { this.typed ||= target.name !== "kind"; });
    made.querySelector("select").addEventListener("change", (event) => { this.choose(kinds, event.target.value); this.adding.querySelector("select").focus(); });
    this.adding.replaceChildren(made);
  }
  async remove(one = "") { await ask("DELETE", this.path + one); this.adding.querySelector(".out").replaceChildren(); }
  drawn(faults) {
    return faults.length ? [el("ul", {class: "sentences"}, faults.map((one) => el("li", {}, el("span", {}, sentence(one)), " ", one.hits ? el("a", {href: link(["activity"], {fake: this.fake.name, status: "fault"})}, pill(`hit ${one.hits === 1 ? "once" : `${number(one.hits)} times`}`, "wait")) : pill("not hit yet"), " ", one.active ? null : pill("used up"),
      one.made ? [copies({method: "POST", path: this.path, body: one.made}, `the fault: ${sentence(one)}`), one.active ? null : act("Add again", `Add again: ${sentence(one)}`, () => ask("POST", this.path, one.made))] : null,
      act("Remove", `Remove the fault: ${sentence(one)}`, () => this.remove(`/${one.id}`))))),
    faults.length > 1 ? act("Remove all…", "Remove all faults", () => this.remove(), {question: "Remove all faults of this fake?"}) : null]
      : empty("No faults.", "An injected fault makes this fake misbehave on purpose. Add one below; it applies to the next request.");
  }
}
