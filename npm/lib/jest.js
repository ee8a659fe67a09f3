"use strict"

const { setCurrentCloud, startCloud } = require("./index.js")

/**
 * Return a test environment of Jest, based on another one, in which each test file has a cloud.
 *
 * @param {any} Base
 * @returns {any}
 */
function withCloud(Base) {
  return class CloudEnvironment extends Base {
    /**
     * @param {any} config
     * @param {any} context
     */
    constructor(config, context) {
      super(config, context)
      /** @type {any} */
      this.cloud = undefined
      this.cloudOptions = config.projectConfig.testEnvironmentOptions.fakecloud
      this.testFile = require("node:path").relative(config.globalConfig.rootDir, context.testPath)
    }

    async setup() {
      await super.setup()
      this.cloud = await startCloud(this.cloudOptions)
      // The tests run in a context with a copy of the environment.
      Object.assign(this.global.process.env, this.cloud.env)
      setCurrentCloud(this.cloud, this.global)
    }

    async teardown() {
      await this.cloud?.close()
      await super.teardown()
    }

    /**
     * @param {any} event
     * @param {unknown} state
     */
    async handleTestEvent(event, state) {
      await super.handleTestEvent?.(event, state)
      if (event.name === "test_start") await this.cloud.begin()
      if (event.name === "test_done") await this.finish(event.test)
    }

    /** @param {any} test */
    async finish(test) {
      const [violation] = await this.cloud.violations()
      const [failure] = test.errors
      const error = Array.isArray(failure) ? (failure[0] ?? failure[1]) : failure
      if (!error && !violation) return
      const found = violation && new Error(violation.what)
      await this.cloud.reportFailure(this.nameOf(test), error ?? found)
      if (violation) test.errors.push(found)
    }

    /** @param {any} test */
    nameOf(test) {
      const names = [test.name]
      for (let block = test.parent; block?.parent; block = block.parent) names.unshift(block.name)
      return [this.testFile, ...names].join(" > ")
    }
  }
}

const { TestEnvironment } = require("jest-environment-node")

module.exports = withCloud(TestEnvironment)
module.exports.withCloud = withCloud
