// A record of the functions and parameters of a client that its tests use, and tests that fail for the others.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const used = new Set();
const usedParameters = new Set();

/** Note the names of all fields in the parameters of a function, except those inside `metadata`. */
export function noteParameters(value) {
  if (Array.isArray(value)) for (const item of value) noteParameters(item);
  else if (value !== null && typeof value === "object") {
    for (const [name, part] of Object.entries(value)) {
      usedParameters.add(name);
      if (name !== "metadata") noteParameters(part);
    }
  }
}

/** The object, with each call of a function noted. `inner` has the labels of objects that functions return. */
export function noting(label, object, inner = {}) {
  return new Proxy(object, {
    get(target, name) {
      const value = target[name];
      if (typeof value !== "function") return value;
      return (...parameters) => {
        used.add(`${label}.${name}`);
        noteParameters(parameters);
        const result = value.apply(target, parameters);
        return name in inner ? noting(inner[name], result) : result;
      };
    },
  });
}

/** The names of an object's public functions, and of those of its class. */
const publicFunctions = (label, object) =>
  [...Object.keys(object), ...Object.getOwnPropertyNames(Object.getPrototypeOf(object))]
    .filter((name) => name !== "constructor" && typeof object[name] === "function")
    .map((name) => `${label}.${name}`);

/** Map each name in lists of names to the reason why no test passes it. */
export const named = (reason, ...lines) =>
  Object.fromEntries(lines.flatMap((line) => line.split(" ")).map((name) => [name, reason]));

/** Define the tests. `notPassed` maps the fields in the client's declarations that no caller passes to reasons. */
export function testSurface({ objects, functions, declarations, fields, notPassed }) {
  test("no public function of the client was left out", () => {
    const known = Object.entries(objects).flatMap(([label, object]) => publicFunctions(label, object));
    assert.ok(known.length >= functions, known.join(" "));
    assert.deepEqual(known.filter((name) => !used.has(name)), []);
  });

  test("no parameter of the client was left out", () => {
    const field = /^\s+(?:readonly |protected |private )*([A-Za-z_]\w*)\??:/gm;
    const texts = declarations.map((file) => readFileSync(new URL(`node_modules/${file}`, import.meta.url), "utf8"));
    const declared = new Set(texts.flatMap((text) => [...text.matchAll(field)].map(([, name]) => name)));
    assert.ok(declared.size > fields);
    assert.deepEqual([...declared].filter((name) => !usedParameters.has(name) && !(name in notPassed)), []);
    // A name that the client no longer has needs no reason.
    assert.deepEqual(Object.keys(notPassed).filter((name) => !declared.has(name)), []);
  });
}
