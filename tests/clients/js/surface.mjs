// A record of the functions and parameters of a client that its tests use, and tests that fail for the others.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
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

const isPart = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/**
 * The object, with each call of a function noted, also of the objects that it contains.
 * `inner` has the labels of objects that functions return, `listener` receives each call.
 * @template {object} T
 * @param {string} label
 * @param {T} object
 * @param {Record<string, string>} [inner]
 * @param {(path: string, parameters: unknown[], result: unknown) => void} [listener]
 * @returns {T}
 */
export function noting(label, object, inner = {}, listener = () => {}) {
  return new Proxy(object, {
    get(target, name, itself) {
      const value = target[name];
      const path = `${label}.${String(name)}`;
      if (isPart(value)) return noting(path, value, inner, listener);
      if (typeof value !== "function") return value;
      return (...parameters) => {
        used.add(path);
        noteParameters(parameters);
        const result = value.apply(target, parameters);
        listener(path, parameters, result);
        if (result === target) return itself;
        if (!(name in inner)) return result;
        const wrapped = (made) => noting(inner[name], made, inner);
        return result instanceof Promise ? result.then(wrapped) : wrapped(result);
      };
    },
  });
}

/** The names of all properties of an object and of its classes. */
export function propertyNames(object) {
  const names = new Set();
  for (let part = object; part && part !== Object.prototype; part = Object.getPrototypeOf(part)) {
    for (const name of Object.getOwnPropertyNames(part)) names.add(name);
  }
  names.delete("constructor");
  return [...names];
}

/** The paths of an object's public functions, and of those of the objects that it contains. */
export const publicFunctions = (label, object, excused = {}) =>
  propertyNames(object).flatMap((name) => {
    const path = `${label}.${name}`;
    if (path in excused) return [];
    const value = object[name];
    if (isPart(value)) return publicFunctions(path, value, excused);
    return typeof value === "function" ? [path] : [];
  });

/** Fail with the lines to add for public names that no test uses. */
export function complete(names, list) {
  const file = `tests/clients/js/${basename(process.argv[1])}`;
  const lines = [...names].map((name) => `    "${name}": "<reason>",`);
  if (lines.length > 0) assert.fail(`call these in ${file}, or add to \`${list}\` in it:\n${lines.join("\n")}`);
}

/** Map each name in lists of names to the reason why no test passes it. */
export const named = (reason, ...lines) =>
  Object.fromEntries(lines.flatMap((line) => line.split(" ")).map((name) => [name, reason]));

/**
 * @typedef {object} Surface
 * @property {Record<string, object>} objects
 * @property {number} functions
 * @property {Record<string, string>} [excused]
 * @property {string[]} [declarations]
 * @property {number} [fields]
 * @property {Record<string, string>} [notPassed]
 */

/**
 * Define the tests. `excused` maps functions, and objects with functions, that no test calls to reasons, and
 * `notPassed` the fields in the client's declarations that no caller passes or calls.
 * @param {Surface} surface
 */
export function testSurface({ objects, functions, excused = {}, declarations, fields, notPassed }) {
  test("no public function of the client was left out", () => {
    const parts = Object.entries(objects);
    const known = parts.flatMap(([label, object]) => publicFunctions(label, object, excused));
    assert.ok(known.length >= functions, known.join(" "));
    complete(known.filter((path) => !used.has(path)), "excused");
    const every = new Set(parts.flatMap(([label, object]) => propertyNames(object).map((name) => `${label}.${name}`)));
    assert.deepEqual(Object.keys(excused).filter((path) => used.has(path) || !every.has(path)), []);
  });

  if (declarations !== undefined) testParameters({ declarations, fields, notPassed });
}

/**
 * Define the test of the fields in the client's declarations, which are files in `node_modules`.
 * @param {{declarations: string[], fields?: number, notPassed?: Record<string, string>}} surface
 */
export function testParameters({ declarations, fields = 0, notPassed = {} }) {
  test("no parameter of the client was left out", () => {
    const field = /^\s+(?:readonly |protected |private )*([A-Za-z_]\w*)\??:/gm;
    const texts = declarations.map((file) => readFileSync(new URL(`node_modules/${file}`, import.meta.url), "utf8"));
    const declared = new Set(texts.flatMap((text) => [...text.matchAll(field)].map(([, name]) => name)));
    assert.ok(declared.size > fields);
    const called = new Set([...used].map((path) => path.split(".").at(-1)));
    complete([...declared].filter((name) => !usedParameters.has(name) && !called.has(name) && !(name in notPassed)), "notPassed");
    // A name that the client no longer has needs no reason.
    assert.deepEqual(Object.keys(notPassed).filter((name) => !declared.has(name)), []);
  });
}
