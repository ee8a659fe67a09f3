import type { CloudOptions } from "./index.js"

declare module "vitest" {
  interface ProvidedContext {
    /** The options of the cloud of each test file. */
    fakecloud: CloudOptions
  }
}
