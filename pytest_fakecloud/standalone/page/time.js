// Due times, snapshots and problems.

import {act, count, day, done, el, empty, facts, form, micros, number, own, redraw, short, span, table, time, words} from "./dom.js";
import {ask} from "./api.js";
import {move, showClock} from "./clock.js";
import {strip} from "./pictures.js";

export class TimePage {
  constructor() {
    this.due = el("section");
    this.node = el("div", {class: "page"}, el("h1", {}, "Time"), el("p", {class: "soft"}, "Retries, delays, schedules and TTLs use this clock, not the wall clock."),
      form("Move the clock to a time", "Move", [{name: "to", label: "time", note: "2026-02-01T09:00:00Z", needed: true}], async ({to}) => { showClock(await ask("POST", "/clock", {action: "move_to", to})); return done("Moved."); }, {open: false}), this.due);
  }
  async go() { await this.refresh(); }
  async refresh() {
    const found = await ask("GET", "/due"), shape = JSON.stringify(found);
    if (shape === this.shape) return;
    this.shape = shape;
    const go = (one) => act("Go there", `Go there: ${one.what} at ${one.at}`, () => move({action: "move_to", to: one.at}));
    redraw(this.due, el("h2", {}, found.count ? `${count(found.count, "event")} planned` : "Nothing is planned"), found.count ? [strip(found.now, found.due), found.due.length < found.count ? el("p", {class: "soft"}, `The next ${found.due.length} of ${number(found.count)}:`) : null,
      table("due events", ["in", "at", "event", ""], found.due, (one) => [span(micros(one.at) - micros(found.now)), [el("span", {class: "nowrap"}, day(one.at)), " ", time(one.at)], short(one.what, 120), go(one)])]
      : empty("No timers.", "Delayed messages, retries, schedules and consumer sessions appear here with their due times."));
  }
}

export class SnapshotsPage {
  constructor() {
    this.listed = el("section");
    this.node = el("div", {class: "page"}, el("h1", {}, "Snapshots"), el("p", {class: "soft"}, "A snapshot saves the data of all fakes in the server's memory. Restoring it does not change clock, faults or activity."),
      form("Take a snapshot", "Take", [{name: "id", label: "name", note: "numbered"}], async ({id}) => { const taken = await ask("POST", "/snapshots", id ? {id} : {}); await this.refresh(); return done(`Taken: ${taken.id}.`); }), this.listed);
  }
  async go() { await this.refresh(); }
  async refresh() {
    const found = await ask("GET", "/snapshots"), at = (one) => `/snapshots/${encodeURIComponent(one.id)}`, shape = JSON.stringify(found);
    if (shape === this.shape) return;
    this.shape = shape;
    redraw(this.listed, found.length ? table("snapshots", ["snapshot", "", ""], found, (one) => [one.id, act("Restore…", `Restore ${one.id}`, () => ask("POST", at(one), {}), {question: `Restore the snapshot ${one.id}? The current data of all fakes is lost.`}), act("Delete", `Delete ${one.id}`, () => ask("DELETE", at(one)))])
      : empty("No snapshots yet.", "Take one above before you change much data."));
  }
}

// -- problems --

// For each kind: its meaning, and what to do about it with `serve`.
const ADVICE = {
  unstubbed: ({url}) => ["The queue delivers to loopback addresses only. Choose one:", ["Forward the address to your application: ", el("code", {}, `pytest-fakecloud serve --forward ${origin(url)}=http://127.0.0.1:3000`)],
    ["Or answer it from a state file, under \"destinations\": ", el("code", {}, "pytest-fakecloud serve --load state.json")]],
  unrouted: () => ["Your application called an address that this fake does not have. Compare method and path with the documentation of the service.", ["Check that your application uses the address and token of this fake: ", el("a", {href: "#/connect"}, "Connect")]],
  rejected_step: ({run_id: run}) => ["The queue rejected a step of a workflow run, for example because the run has ended. Workflow clients ignore this error, so the run does not continue.", run && [el("a", {href: `#/fake/queue/runs/${encodeURIComponent(run)}`}, "Show the run")]],
  no_workflow: ({url, run_id: run}) => ["Your application triggered a workflow at an address that serves no workflow, so the run failed.", ["Trigger the address at which your application serves the workflow, instead of ", el("code", {}, url)], run && [el("a", {href: `#/fake/queue/runs/${encodeURIComponent(run)}`}, "Show the run")]],
  unused_fault: () => ["Fewer requests than planned met this fault. Make the requests that it is for, or remove it on the Faults tab of the fake."],
  bug: () => ["This is a bug of pytest-fakecloud. Please report it with the text below."],
};
const origin = (url) => { try { return new URL(url).origin; } catch { return "https://app.example"; } };

export class ProblemsPage {
  constructor() { this.listed = el("section"); this.node = el("div", {class: "page"}, el("h1", {}, "Problems"), this.listed); }
  async go() { await this.refresh(); }
  async refresh() {
    const found = await ask("GET", "/problems"), shape = JSON.stringify(found);
    if (shape === this.shape) return;
    this.shape = shape;
    // Problems that differ only in the message are alike.
    const alike = Map.groupBy(found, ({kind, text, facts: {message_id: id, ...rest}}) => JSON.stringify(id ? [kind, rest] : [kind, text]));
    redraw(this.listed, found.length ? [...alike.values()].map((all) => this.problem(all[0], all.length))
      : empty("No problems.", "Strict-mode violations appear here, such as a delivery to an address that nothing answers."));
  }
  problem({kind, text, facts: known}, times) {
    const {handle, message_id: _, ...rest} = known, advice = own(ADVICE, kind)?.(known) ?? [];
    return el("article", {class: "problem"}, el("h2", {class: "bad"}, words(kind), times > 1 ? el("span", {class: "many"}, `${number(times)} times`) : null), facts({fake: handle, ...rest}), advice.filter(Boolean).map((line) => el("p", {}, line)),
      el("details", {open: !advice.length || kind === "bug"}, el("summary", {}, "As a test reports it"), el("pre", {tabindex: 0, role: "group", "aria-label": `problem: ${kind}`}, text)));
  }
}
