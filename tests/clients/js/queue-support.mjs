// Helpers for the tests of the queue's clients: a handler, control of the queue, a record of calls.
import http from "node:http";
import { control } from "./control.mjs";
import { complete, noteParameters, propertyNames } from "./surface.mjs";

const { QSTASH_URL, QSTASH_TOKEN } = process.env;

export const connection = { baseUrl: QSTASH_URL, token: QSTASH_TOKEN };

export const idle = () => control("idle");
export const advance = (duration) => control("advance", duration);
export const reset = () => control("reset");
export const now = () => control("now");

/** A handler application: keeps every request, answers `statuses` in turn, then 200. */
export async function startHandler(respond) {
  const requests = [];
  const handler = { requests, statuses: [], respond };
  const server = http.createServer((incoming, outgoing) => {
    const chunks = [];
    incoming.on("data", (chunk) => chunks.push(chunk));
    incoming.on("end", async () => {
      const request = {
        method: incoming.method,
        url: incoming.url,
        headers: incoming.headers,
        body: Buffer.concat(chunks).toString(),
      };
      requests.push(request);
      const answer = handler.respond
        ? await handler.respond(request)
        : { status: handler.statuses.shift() ?? 200, body: '{"answered":true}' };
      outgoing.writeHead(answer.status, answer.headers ?? { "content-type": "application/json" });
      outgoing.end(answer.body);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  handler.url = `http://127.0.0.1:${server.address().port}`;
  handler.at = (path) => requests.filter((request) => request.url.split("?")[0] === path);
  handler.clear = () => {
    requests.length = 0;
    handler.statuses.length = 0;
  };
  handler.close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return handler;
}

/**
 * Note every call of the public methods of these objects; `check()` fails for those never called, and for objects
 * of the client that are not among them.
 */
export function recorder(objects, excused = {}) {
  const known = new Set();
  const used = new Set();
  const wrapped = new Set();
  for (const [label, object] of Object.entries(objects)) {
    const prototype = Object.getPrototypeOf(object);
    for (const name of Object.getOwnPropertyNames(prototype)) {
      const { value } = Object.getOwnPropertyDescriptor(prototype, name);
      if (name === "constructor" || typeof value !== "function") continue;
      const path = `${label}.${name}`;
      if (path in excused) continue;
      known.add(path);
      if (wrapped.has(value)) continue;
      const wrapper = function (...parameters) {
        used.add(path);
        noteParameters(parameters);
        return value.apply(this, parameters);
      };
      wrapped.add(wrapper);
      Object.defineProperty(prototype, name, { value: wrapper, writable: true });
    }
  }
  const prototypes = new Set(Object.values(objects).map((object) => Object.getPrototypeOf(object)));
  for (const [label, object] of Object.entries(objects)) {
    for (const name of propertyNames(object)) {
      const path = `${label}.${name}`;
      const part = object[name];
      const isOther = part !== null && typeof part === "object" && !prototypes.has(Object.getPrototypeOf(part));
      if (isOther && !(path in excused)) known.add(path);
    }
  }
  return { check: () => complete([...known].filter((path) => !used.has(path)), "recorder") };
}
