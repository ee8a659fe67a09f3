// Requests that are sent to a fake from the console, and recorded calls that are sent again.
import {breaksJson, code, count, done, el, form, json, laidOut, link, short, soft, table} from "./dom.js";
import {ask, path, send} from "./api.js";
import {commandsOf} from "./copying.js";
import {changesElement} from "./history.js";
import {split} from "./words.js";

// What an answer names, as links: messages, runs and schedules of a queue.
const NAMED = {messageId: ["messages", "message"], workflowRunId: ["runs", "run"], scheduleId: ["schedules", "schedule"]};
export function namedIn(fake, body) {
  let read;
  try { read = JSON.parse(body); } catch { return []; }
  return [read, read?.responses].flat(2).filter((one) => one && typeof one === "object").flatMap((one) => Object.keys(NAMED).filter((name) => typeof one[name] === "string").map((name) => [NAMED[name], one[name]]))
    .slice(0, 20).map(([[list, noun], id]) => el("a", {class: "button", href: link(["fake", fake.name, list, id])}, `Open the ${noun}`));
}
// What a row did: its call with the answer, and the data that it changed.
function effectElement(fake, number) {
  const place = el("div"), draw = ([row]) => row && place.replaceChildren(el("p", {class: "mono"}, `#${number} ${short(row.text.what, 200)} → `, el("span", {class: row.ok ? "ok" : "bad"}, short(row.text.answer, 120))), changesElement({...row, fake: fake.name}));
  if (number) ask("GET", `/journal?after=${number - 1}&limit=1`).then(draw, () => {});
  return place;
}
const rowLink = (row) => row ? el("a", {class: "button", href: link(["activity", row])}, "Open its row") : null;

export function answerElements(fake, answer) {
  if (answer.broken) return [el("p", {class: "fault"}, `A fault broke the connection: ${answer.broken}. `, rowLink(answer.row))];
  if (answer.replies) return [el("p", {class: answer.replies.some((reply) => reply?.error) ? "bad" : "ok"}, `${count(answer.replies.length, "reply")}${answer.replies.some((reply) => reply?.error) ? ", with an error" : ""}. `, rowLink(answer.row)), code(answer.replies.map((reply) => JSON.stringify(reply)).join("\n"), "replies"), effectElement(fake, answer.row)];
  const text = laidOut(answer.body);
  return [el("p", {class: answer.status < 400 ? "ok" : "bad"}, `Status ${answer.status} `, rowLink(answer.row), namedIn(fake, answer.body)), code(text.length > 50000 ? text.slice(0, 50000) + "…" : text, "answer"), el("details", {}, el("summary", {}, "Headers"), table("headers of the answer", ["header", "value"], answer.headers, (pair) => pair)), effectElement(fake, answer.row)];
}
export const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const quoted = (word) => /^[^\s"'\\]+$/.test(word) ? word : JSON.stringify(word);

// A form that sends a recorded call or delivery again, as it was or changed. What was not changed is sent as it was recorded.
export function sendAgain(row, fake, request, show) {
  const shown = (answer) => { show(answer, answerElements(fake, answer)); return done("Sent again: the result is at the top."); };
  const isDelivery = row.rules.is_sent, again = `/journal/${row.number}/again`, commands = isDelivery ? null : commandsOf(row)?.commands, options = {open: false, copied: false};
  if (commands) {
    const lines = commands.map((words) => words.map(quoted).join(" ")).join("\n");
    return form("Edit and send again", "Send again", [{name: "commands", label: "commands, one on each line", kind: "area", value: lines, wide: true, needed: true}],
      async ({commands: typed}) => shown(await ask("POST", again, typed === lines ? {} : {commands: typed.split("\n").filter((line) => line.trim()).map(split)})), options);
  }
  if (!request) return null;
  const sent = {...request, headers: JSON.stringify(request.headers)};
  return form("Edit and send again", "Send again", [{name: "method", label: "method", options: [...new Set([sent.method, ...METHODS])]}, {name: "target", label: isDelivery ? "path, which publishes the message" : "path", value: sent.target, wide: true, needed: true},
    {name: "headers", label: "headers, as JSON; the credentials are added", value: sent.headers, wide: true}, {name: "body", label: sent.is_cut ? "body, of which only the beginning was recorded" : "body", kind: "area", value: sent.body, wide: true}],
  async ({method, target, headers, body}) => {
    const typed = {method, target, headers, body}, all = {...typed, headers: json(headers || "{}", "The headers")};
    if (isDelivery) return shown(await ask("POST", path(fake, "/requests"), {...all, again_of: row.number}));
    const changed = Object.keys(typed).filter((name) => typed[name] !== sent[name] || name === "body" && sent.is_cut).map((name) => [name, all[name]]);
    return shown(await ask("POST", again, Object.fromEntries(changed)));
  }, {...options, overwrites: ({body}) => breaksJson(sent.body, body, "The body"), confirms: () => "Send it as it is"});
}
// A form for any request. It is sent like a client's: it meets faults and is recorded.
export const requestPage = (fake) => ({node: el("section", {class: "page"}, soft(`Send a request to ${fake.name} with its credentials. It meets injected faults and appears in Activity.`),
  form("Any request", "Send", [{name: "method", label: "method", options: METHODS}, {name: "target", label: "path", value: "/", wide: true, needed: true}, {name: "headers", label: "headers, as JSON", note: '{"X-Trace": "7"}', wide: true}, {name: "body", label: "body", kind: "area", wide: true}],
    async ({method, target, headers, body}) => answerElements(fake, await send(fake, method, target, body, headers ? json(headers, "The headers") : undefined))))});
