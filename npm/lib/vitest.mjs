/// <reference path="./vitest.d.mts" />
// A setup file for Vitest: each test file has a cloud, which starts before its modules are imported.
import { afterAll, afterEach, beforeEach, inject } from "vitest"
import { setCurrentCloud, startCloud } from "./index.js"

const cloud = await startCloud({ ...inject("fakecloud"), setEnv: true })
setCurrentCloud(cloud)

/** @param {import("vitest").RunnerTestCase} task */
function nameOf(task) {
  const names = [task.name]
  for (let suite = task.suite; suite && suite !== task.file; suite = suite.suite) names.unshift(suite.name)
  return [task.file.name, ...names].join(" > ")
}

beforeEach(async () => void (await cloud.begin()))
afterEach(async ({ task }) => {
  const [violation] = await cloud.violations()
  const error = task.result?.state === "fail" ? task.result.errors?.[0] : undefined
  if (error || violation) await cloud.reportFailure(nameOf(task), error ?? new Error(violation.what))
  if (violation) throw new Error(violation.what)
})
afterAll(() => cloud.close())
