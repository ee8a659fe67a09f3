"use strict"

const { spawn } = require("node:child_process")
const { programPath } = require("./program.js")

/** @typedef {{ url: string, token: string, own: boolean }} Server */

// Tests may replace the global function.
const { fetch } = globalThis

/** @type {Promise<Server> | undefined} */
let started

/**
 * Return the server in the environment, or else start one, which ends with this process.
 *
 * @returns {Promise<Server>}
 */
exports.findServer = function () {
  const { PYTEST_FAKECLOUD_URL: url, PYTEST_FAKECLOUD_TOKEN: token } = process.env
  if (url && token) return Promise.resolve({ url, token, own: false })
  started ??= start()
  return started
}

/** @returns {Promise<Server>} */
function start() {
  return new Promise((resolve, reject) => {
    const command = ["run", "--", process.execPath, require.resolve("./keep.js")]
    const program = spawn(programPath(), command, { stdio: ["pipe", "pipe", "inherit"] })
    let output = ""
    program.on("error", reject)
    program.on("exit", (code) => reject(new Error(`pytest-fakecloud ended with exit code ${code}`)))
    program.stdout.setEncoding("utf8").on("data", (/** @type {string} */ text) => {
      output += text
      if (!output.endsWith("\n")) return
      resolve({ ...JSON.parse(output), own: true })
      // Neither keeps this process from ending.
      program.unref()
      for (const pipe of [program.stdin, program.stdout]) /** @type {import("node:net").Socket} */ (pipe).unref()
    })
  })
}

/**
 * Send a request to a control API and return the JSON of its response.
 *
 * @param {{ url: string, token: string }} server
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
exports.ask = async function (server, method, path, body) {
  const headers = { Authorization: `Bearer ${server.token}` }
  const sent = body === undefined ? undefined : JSON.stringify(body)
  let response
  try {
    response = await fetch(`${server.url}/__control__${path}`, { method, headers, body: sent })
  } catch (error) {
    throw new Error(`no server responds at ${server.url}: run the tests with npx pytest-fakecloud run -- …`, {
      cause: error,
    })
  }
  /** @type {any} */
  const answer = await response.json()
  if (!response.ok) throw new Error(answer.error.message)
  return answer
}
