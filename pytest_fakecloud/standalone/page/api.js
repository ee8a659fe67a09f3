// Access to the control API: token, requests, event stream and connection state.

const base = "/__control__";
let token = "";

export class NoToken extends Error {}

// Signs in with the one-time code in an address that the server printed (#code=…). The browser then
// keeps the token. Without one, the page asks for it. Returns whether the code of the address was used before, and no token is stored.
export async function signIn() {
  token = localStorage.getItem("token") ?? "";
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (!code) return false;
  history.replaceState(null, "", location.pathname);
  try { keep((await ask("POST", "/session", {code})).token); return false; } catch { return !token; }
}
export function keep(given) { token = given; localStorage.setItem("token", given); }

// -- requests --
export const connection = {lastSeen: null, lost: false, listeners: new Set()};
function heard(lost) {
  if (!lost) connection.lastSeen = new Date();
  if (connection.lost === lost) return;
  connection.lost = lost;
  for (const listener of connection.listeners) listener(lost);
}

async function reach(path, options) {
  let answer;
  try { answer = await fetch(base + path, options); }
  catch (error) { if (error.name !== "AbortError") heard(true); throw error; }
  heard(false);
  return answer;
}

export const COPIES = "/copies";
export const NO_ANSWER = "The server does not answer.";
// The last request that changed something, for the user to copy (which COPIES returns); `number` tells one from another, and `row` is that of a call.
export const change = {number: 0};
// Returns the text of the answer. A body that is a string is JSON already.
export async function askText(method, path, body) {
  let answer;
  try { answer = await reach(path, {method, headers: {Authorization: "Bearer " + token}, body: typeof body === "string" ? body : JSON.stringify(body)}); }
  catch { throw new Error(NO_ANSWER); }
  const text = await answer.text(), {error} = answer.ok ? {} : JSON.parse(text);
  if (answer.status === 401) throw new NoToken(error.message);
  if (error) throw Object.assign(new Error(error.message), {status: answer.status});
  if (method !== "GET" && path !== COPIES) Object.assign(change, {method, path, body, number: change.number + 1});
  return text;
}
export const ask = async (...request) => JSON.parse(await askText(...request));

export const path = (fake, rest = "") => `/fakes/${encodeURIComponent(fake.name)}${rest}`;
export const query = (values) => String(new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value != null))).replace(/^(?=.)/, "?");
export const list = (fake, name, values = {}) => ask("GET", path(fake, `/lists/${name}${query(values)}`));
// An item that does not exist is an Error with the status 404, but not a failed request, which browsers log.
export async function item(fake, name, id, values = {}) {
  const found = await ask("GET", path(fake, `/lists/${name}/${id}${query({...values, absent: "ok"})}`));
  if (found.gone !== undefined) throw Object.assign(new Error(found.gone), {status: 404});
  return found;
}
// Calls a method of a fake that has no HTTP endpoint, such as creating a topic.
export async function call(fake, name, ...args) {
  const answer = await ask("POST", "/call", {object: fake.name, name, args});
  if (answer.raise) throw new Error(answer.raise.text);
  return answer.value;
}
// Sends a request to a fake like a client; throws an Error for an error response.
export const send = (fake, method, target, body, headers, again) => ask("POST", path(fake, "/requests"), {method, target, body, headers, again_of: again});
export async function sendWell(fake, ...request) {
  const answer = await send(fake, ...request);
  change.row = answer.row;
  if (answer.broken) throw new Error(`A fault broke the connection: ${answer.broken}.`);
  if (answer.status >= 400) throw new Error([`${answer.status}: ${reason(answer.body)}`, answer.advice].filter(Boolean).join(". "));
  try { return JSON.parse(answer.body); } catch { return answer.body; }
}
function reason(body) { try { const read = JSON.parse(body); return read.error?.message ?? read.error ?? read.message ?? body; } catch { return body; } }

// -- the stream of events --
// Calls `each` for every journal entry after a number; returns when the stream ends.
export async function follow(after, each, signal) {
  const answer = await reach(`/journal/stream?after=${after}`, {headers: {Authorization: "Bearer " + token}, signal});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const {done, value} = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) { const data = part.split("\n").find((line) => line.startsWith("data: ")); if (data) each(JSON.parse(data.slice(6))); }
  }
}
