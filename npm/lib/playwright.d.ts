import type {
  Expect,
  PlaywrightTestArgs,
  PlaywrightTestOptions,
  PlaywrightWorkerArgs,
  PlaywrightWorkerOptions,
  TestType,
} from "@playwright/test"
import type { Cloud, CloudOptions, Where } from "./index.js"

export interface CloudFixtures {
  /** The cloud, which has started over for the test. */
  cloud: Cloud
}

export interface CloudWorkerFixtures {
  /**
   * Options with which each worker starts a cloud. By default all tests use the cloud of the server,
   * whose variables an application has that `pytest-fakecloud run` has started; set `workers: 1`.
   */
  fakecloud: CloudOptions | undefined
  /** The cloud of the worker, with the variables for an application that the worker starts. */
  workerCloud: Cloud
}

export const test: TestType<
  PlaywrightTestArgs & PlaywrightTestOptions & CloudFixtures,
  PlaywrightWorkerArgs & PlaywrightWorkerOptions & CloudWorkerFixtures
>

/** What a matcher waits for, at most for `timeout` real milliseconds (5000 by default). */
export interface Waiting {
  timeout?: number
}

export const expect: Expect<{
  /** Expect a call of a client: `toHaveCall("kv_server", "SET", { key: "order:*" })`. */
  toHaveCall(
    cloud: Cloud,
    fake: string,
    what?: string,
    where?: Record<string, unknown>,
    options?: Waiting,
  ): Promise<{ pass: boolean; message: () => string }>
  /** Expect a callback of the fake `queue` whose fields have these values or match these patterns. */
  toHaveCallback(cloud: Cloud, where?: Where, options?: Waiting): Promise<{ pass: boolean; message: () => string }>
  /** Expect a workflow run of the fake `queue`: `toHaveWorkflowRun({ url: /order/, state: "success" })`. */
  toHaveWorkflowRun(cloud: Cloud, where?: Where, options?: Waiting): Promise<{ pass: boolean; message: () => string }>
}>
