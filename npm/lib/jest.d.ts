/**
 * A test environment of Jest for Node.js, in which each test file has a cloud. The options of the cloud
 * are in `testEnvironmentOptions.fakecloud`.
 */
declare const CloudEnvironment: (new (config: unknown, context: unknown) => object) & {
  /** Return such an environment that is based on another one, such as that of jsdom. */
  withCloud<Base extends new (...parameters: never[]) => object>(base: Base): Base
}

export = CloudEnvironment
