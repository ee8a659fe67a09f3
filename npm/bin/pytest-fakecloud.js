#!/usr/bin/env node
"use strict"

const { spawn } = require("node:child_process")
const { constants } = require("node:os")
const { programPath } = require("../lib/program.js")

const CANNOT_START = 3

/** @param {unknown} error */
function fail(error) {
  console.error(`pytest-fakecloud: ${error instanceof Error ? error.message : error}`)
  process.exit(CANNOT_START)
}

function main() {
  const program = spawn(programPath(), process.argv.slice(2), { stdio: "inherit" })
  program.on("error", fail)
  program.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : (code ?? 0)))
  for (const signal of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) {
    process.on(signal, () => {
      // A terminal sends Ctrl+C to the program, too, which a second one would end without a report.
      if (signal !== "SIGINT" || !process.stdin.isTTY) program.kill(signal)
    })
  }
}

try {
  main()
} catch (error) {
  fail(error)
}
