"use strict"

const { ask, findServer } = require("./server.js")

/**
 * @typedef {import("./index.js").Cloud} CloudType
 * @typedef {import("./index.js").StartOptions} StartOptions
 * @typedef {import("./index.js").Where} Where
 */

const CURRENT = Symbol.for("pytest-fakecloud.cloud")
const URL = "PYTEST_FAKECLOUD_URL"
const TOKEN = "PYTEST_FAKECLOUD_TOKEN"
const PAGE = 500

/** @type {any} */
const shared = globalThis

/** Fakes that share a clock, with their control API. `index.d.ts` describes the members. */
class Cloud {
  /**
   * @param {import("./server.js").Server} server
   * @param {{ id: string | null, env: Record<string, string> }} cloud
   */
  constructor(server, { id, env }) {
    const { [URL]: url = server.url, [TOKEN]: token = server.token, ...variables } = env
    this.id = id
    this.url = url
    this.token = token
    this.env = variables
    this.server = server
    /** @type {(() => void)[]} */
    this.undo = []
    /** @type {CloudType["control"]} */
    this.control = /** @type {any} */ (
      (/** @type {string} */ method, /** @type {string} */ path, /** @type {unknown} */ body) =>
        ask(this, method, path, body)
    )
    const control = this.control
    /** @type {CloudType["clock"]} */
    this.clock = {
      advance: (by) => control("POST", "/clock", { action: "advance", by }),
      moveTo: (to) =>
        control("POST", "/clock", { action: "move_to", to: to instanceof Date ? to.toISOString() : to }),
      advanceToNext: () => control("POST", "/clock", { action: "advance_to_next" }),
      freeze: () => control("POST", "/clock", { action: "freeze" }),
      resume: () => control("POST", "/clock", { action: "resume" }),
      now: async () => new Date((await control("GET", "/clock")).now),
    }
    /** @type {CloudType["faults"]} */
    this.faults = {
      inject: (fake, kind, options = {}) => control("POST", `/fakes/${fake}/faults`, { ...options, kind }),
      list: (fake) => control("GET", `/fakes/${fake}/faults`),
      clear: async (fake) => void (await control("DELETE", `/fakes/${fake}/faults`)),
    }
  }

  /** @type {CloudType["call"]} */
  async call(object, name, args = [], kwargs = {}) {
    const result = await this.control("POST", "/call", { object, name, args, kwargs })
    if (!("raise" in result)) return result.value
    // Jest would format an error with the name AssertionError as one of node:assert.
    throw Object.assign(new Error(result.raise.text), { type: result.raise.type })
  }

  begin() {
    return this.control("POST", "/begin")
  }

  violations() {
    return this.control("GET", "/violations")
  }

  /** @param {Where} [where] */
  callbacks(where) {
    return this.list("queue", "callbacks", where)
  }

  /** @param {Where} [where] */
  workflowRuns(where) {
    return this.list("queue", "runs", where)
  }

  /** @type {CloudType["list"]} */
  async list(fake, list, where = {}) {
    const items = []
    let after = ""
    do {
      const page = await this.control("GET", `/fakes/${fake}/lists/${list}?limit=${PAGE}${after}`)
      items.push(...page.items)
      after = page.next ? `&after=${encodeURIComponent(page.next)}` : ""
    } while (after)
    return items.filter((item) => matches(item, where))
  }

  /** @type {CloudType["reportFailure"]} */
  async reportFailure(test, error) {
    if (this.id === null) {
      throw new Error("the cloud of a server has no report of its own: start a cloud with startCloud()")
    }
    const body = { test, failure: textOf(error), read: comparedBy(error) }
    const kept = await ask(this.server, "POST", `/clouds/${this.id}/failed`, body)
    // `pytest-fakecloud run` prints the reports below the output of its command.
    if (this.server.own) console.error(`${test}:\n${kept.report}`)
    return kept
  }

  async close() {
    for (const undo of this.undo.splice(0)) undo()
    if (this.id === null) return
    const { id } = this
    this.id = null
    await ask(this.server, "DELETE", `/clouds/${id}`)
  }

  [Symbol.asyncDispose]() {
    return this.close()
  }
}

/**
 * @param {any} item
 * @param {Where} where
 */
function matches(item, where) {
  return Object.entries(where).every(([name, expected]) =>
    expected instanceof RegExp ? expected.test(String(item[name])) : item[name] === expected,
  )
}

/**
 * Return an error as text; those of Vitest have no prototype, and anything may be thrown.
 *
 * @param {any} error
 */
function textOf(error) {
  if (error === null || typeof error !== "object") return String(error)
  return String(error.stack ?? error.message ?? JSON.stringify(error))
}

/**
 * Return what a failed assertion of Vitest (`actual`) or Jest (`matcherResult`) has compared.
 *
 * @param {any} error
 * @returns {unknown[]}
 */
function comparedBy(error) {
  const result = error?.matcherResult ?? error
  if (!result || typeof result !== "object" || !("actual" in result)) return []
  const read = [result.actual, result.expected]
  try {
    JSON.stringify(read)
  } catch {
    return [] // Not JSON, so no call has returned it.
  }
  return read
}

/** @param {StartOptions} [options] */
exports.startCloud = async function ({ setEnv = false, ...options } = {}) {
  const server = await findServer()
  const cloud = new Cloud(server, await ask(server, "POST", "/clouds", options))
  if (setEnv) setVariables(cloud)
  return cloud
}

exports.connectCloud = async function () {
  const server = await findServer()
  return new Cloud(server, { id: null, env: await ask(server, "GET", "/env") })
}

/**
 * Set the environment variables of a cloud until it is closed.
 *
 * @param {Cloud} cloud
 */
function setVariables(cloud) {
  const before = Object.keys(cloud.env).map((name) => /** @type {const} */ ([name, process.env[name]]))
  Object.assign(process.env, cloud.env)
  cloud.undo.push(() => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  })
}

/**
 * Make a cloud the one of the running tests. Of a global object, for a test that runs in a context.
 *
 * @type {typeof import("./index.js").setCurrentCloud}
 */
exports.setCurrentCloud = function (cloud, global = shared) {
  Reflect.set(global, CURRENT, cloud)
}

/** @returns {CloudType} */
exports.currentCloud = current
/** @returns {CloudType} */
function current() {
  const cloud = shared[CURRENT]
  if (cloud) return cloud
  throw new Error(
    'no test has a cloud: put "pytest-fakecloud/vitest" into setupFiles, set testEnvironment to "pytest-fakecloud/jest", or use startCloud()',
  )
}

/**
 * Return an object with the members that a part of the current cloud has when they are used.
 *
 * @param {() => any} part
 * @returns {any}
 */
function partOfCurrent(part) {
  return new Proxy(
    {},
    {
      get: (_, name) => part()[name],
      has: (_, name) => name in part(),
      ownKeys: () => Reflect.ownKeys(part()),
      getOwnPropertyDescriptor: (_, name) => Reflect.getOwnPropertyDescriptor(part(), name),
    },
  )
}

exports.env = partOfCurrent(() => current().env)
exports.clock = partOfCurrent(() => current().clock)
exports.faults = partOfCurrent(() => current().faults)
/** @type {CloudType["call"]} */
exports.call = (...parameters) => current().call(...parameters)
/** @type {CloudType["control"]} */
exports.control = /** @type {any} */ ((/** @type {[any, any]} */ ...parameters) => current().control(...parameters))
