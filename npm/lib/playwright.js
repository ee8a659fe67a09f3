"use strict"

const { writeFile } = require("node:fs/promises")
const playwright = require("@playwright/test")
const { connectCloud, startCloud } = require("./index.js")

/** @typedef {import("./index.js").Cloud} Cloud */

const TIMEOUT_MS = 5000
const INTERVAL_MS = 50

exports.test = playwright.test.extend(
  /** @type {any} */ ({
    fakecloud: [undefined, { option: true, scope: "worker" }],

    workerCloud: [
      // Playwright reads the names of the fixtures from the parameter.
      async (
        /** @type {any} */ { fakecloud },
        /** @type {(cloud: Cloud) => Promise<void>} */ use,
        /** @type {import("@playwright/test").WorkerInfo} */ info,
      ) => {
        if (!fakecloud && info.config.workers > 1) {
          throw new Error(
            "the application and all tests share the cloud of the server: set workers: 1, or the option fakecloud, with which each worker starts a cloud",
          )
        }
        const cloud = await (fakecloud ? startCloud(fakecloud) : connectCloud())
        await use(cloud)
        await cloud.close()
      },
      { scope: "worker" },
    ],

    cloud: [
      async (
        /** @type {{ workerCloud: Cloud }} */ { workerCloud: cloud },
        /** @type {(cloud: Cloud) => Promise<void>} */ use,
        /** @type {import("@playwright/test").TestInfo} */ info,
      ) => {
        await cloud.begin()
        await use(cloud)
        const [violation] = await cloud.violations()
        const failed = info.status !== info.expectedStatus
        if (!failed && !violation) return
        // Reporters show where files are, and the content of texts.
        const file = info.outputPath("calls.har")
        await writeFile(file, JSON.stringify(await cloud.control("GET", "/archive")))
        await info.attach("calls.har", { path: file, contentType: "application/json" })
        const error = failed ? (info.error?.stack ?? info.error?.message) : violation?.what
        if (cloud.id !== null) {
          const { report } = await cloud.reportFailure(info.titlePath.join(" > "), error)
          await info.attach("report.txt", { body: report, contentType: "text/plain" })
        }
        if (violation) throw new Error(violation.what)
      },
      { auto: true },
    ],
  }),
)

/**
 * Return the outcome of a matcher: of a check that is repeated until it succeeds or the time is over.
 *
 * @param {boolean} isNot
 * @param {number} timeout
 * @param {() => Promise<string>} check returns what is wrong, or an empty string
 */
async function outcome(isNot, timeout, check) {
  const end = Date.now() + timeout
  let wrong = await check()
  while (wrong && !isNot && Date.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS))
    wrong = await check()
  }
  return { pass: !wrong, message: () => wrong || "expected none, found at least one" }
}

/**
 * Return a matcher that expects an item of a list of the queue.
 *
 * @param {string} list
 */
function listMatcher(list) {
  /**
   * @this {{ isNot: boolean }}
   * @param {Cloud} cloud
   * @param {import("./index.js").Where} [where]
   * @param {{ timeout?: number }} [options]
   */
  return function (cloud, where = {}, { timeout = TIMEOUT_MS } = {}) {
    return outcome(this.isNot, timeout, async () => {
      if ((await cloud.list("queue", list, where)).length) return ""
      const items = await cloud.list("queue", list)
      const shown = items.map((item) => `\n  ${JSON.stringify(item)}`).join("")
      const fields = JSON.stringify(where, (_, value) => (value instanceof RegExp ? String(value) : value))
      return `none of the ${list} matches ${fields}; there are ${items.length}${shown}`
    })
  }
}

exports.expect = playwright.expect.extend({
  toHaveCallback: listMatcher("callbacks"),
  toHaveWorkflowRun: listMatcher("runs"),

  /**
   * @this {{ isNot: boolean }}
   * @param {Cloud} cloud
   * @param {string} fake
   * @param {string} [what]
   * @param {Record<string, unknown>} [where]
   * @param {{ timeout?: number }} [options]
   */
  toHaveCall(cloud, fake, what, where = {}, { timeout = TIMEOUT_MS } = {}) {
    return outcome(this.isNot, timeout, () => failedAssertion(cloud, fake, what, where))
  },
})

/**
 * Return the text of a failed assertion, or an empty string; another error is thrown.
 *
 * @param {Cloud} cloud
 * @param {string} fake
 * @param {string | undefined} what
 * @param {Record<string, unknown>} where
 */
async function failedAssertion(cloud, fake, what, where) {
  try {
    await cloud.call(fake, "assert_called", what === undefined ? [] : [what], where)
    return ""
  } catch (error) {
    if (!(error instanceof Error && "type" in error && error.type === "AssertionError")) throw error
    return error.message
  }
}
