// The destinations of a queue: what answers the deliveries to which addresses.
import {LivePage, done, el, empty, form, removal, short, table} from "./dom.js";
import {ask, path, query} from "./api.js";
import {withoutScheme} from "./elements.js";
import {recorded, undoOf, undoable} from "./history.js";

// Forms that forward the deliveries to an address, or answer them.
export function destinationForms(fake, url) {
  const place = path(fake, "/destinations"), what = url ? withoutScheme(url) : "an address", address = {name: "url", label: "deliveries to", value: url, note: "https://app.example", needed: true};
  const set = async (to, answer, text) => { await recorded(fake, `answer deliveries to ${to}`, () => ask("POST", place, {url: to, answer})); return done(text); };
  const options = {open: false, undo: undoOf(fake), confirms: () => "Replace the answer", overwrites: async ({url: to}) => (await ask("GET", place)).some((one) => one.url === to) && `Deliveries to ${to} are answered already. Replace that?`};
  return el("div", {class: "forms"},
    form(`Forward ${what} to …`, "Forward", [address, {name: "target", label: "go to your application at", note: "http://127.0.0.1:3000", needed: true}],
      ({url: to, target}) => set(to, {forward: target}, `Deliveries to ${to} are forwarded to ${target}.`), options),
    form(`Answer ${what} with …`, "Answer", [address, {name: "status", label: "status", kind: "number", value: "200", needed: true}, {name: "body", label: "body", kind: "area", wide: true}],
      ({url: to, status, body}) => set(to, body ? {status: Number(status), body} : Number(status), `Deliveries to ${to} are answered with ${status}.`), options));
}
const described = (answer) => answer === null ? "by code" : answer.forward ? `forwarded to ${answer.forward}` : [answer].flat().map((one) => one.status ? `${one.status} ${short(one.body ?? "", 80)}`.trim() : String(one)).join(", then ");
export const destinationsPage = (fake) => new LivePage(path(fake, "/destinations"), (found) => found.length ? table("destinations", ["deliveries to", "answer", ""], found, (one) => [one.url, described(one.answer), removal("Remove", `Remove the destination ${one.url}`, undoable(fake, `Removed the destination ${one.url}.`, () => recorded(fake, `remove the destination ${one.url}`, () => ask("DELETE", path(fake, `/destinations${query({url: one.url})}`)))))])
  : empty("No destinations.", "The queue delivers to loopback addresses. Forward other addresses to your application, or answer them."), destinationForms(fake));
