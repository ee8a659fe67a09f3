import type {
  ClockData,
  CloudOptions,
  Control,
  FaultData,
  FaultOptions,
  Json,
  KeptCloud,
  Moved,
  ViolationData,
} from "./control-api.js"

export type * from "./control-api.js"

/** Fields of the items of a list, each with the value that it must have, or a pattern of it. */
export type Where = Record<string, unknown>

/** The clock that the fakes of a cloud share. A duration is a number of seconds, or e.g. `"90m"`. */
export interface Clock {
  /** Move the clock forward; deliveries and timers that become due on the way run. */
  advance(by: string | number): Promise<Moved>
  /** Move the clock forward to a time; a string is in ISO format, with an offset. */
  moveTo(to: string | Date): Promise<Moved>
  /** Move the clock forward to the next planned event. */
  advanceToNext(): Promise<Moved>
  freeze(): Promise<Moved>
  resume(): Promise<Moved>
  now(): Promise<Date>
}

/** The injected faults of the fakes, which are given by name: `"kv_server"`, `"queue"`. */
export interface Faults {
  /**
   * Inject a fault: `inject("kv_server", "respond", { args: [503], command: "SET", times: 1 })`. The
   * options besides `args`, `times` and `skip` select the calls that it affects.
   */
  inject(fake: string, kind: string, options?: Omit<FaultOptions, "kind"> & Record<string, Json>): Promise<FaultData>
  /** Return the faults of a fake, and the last of those that are used up. */
  list(fake: string): Promise<FaultData[]>
  /** Remove all faults of a fake. */
  clear(fake: string): Promise<void>
}

/** A message that a queue has sent to a callback URL. */
export interface CallbackItem {
  id: string
  url: string
  kind: string
  state: string
  [field: string]: Json
}

/** A run of a workflow; `state` is `started`, `success`, `failed` or `canceled`. */
export interface WorkflowRunItem {
  id: string
  url: string
  state: string
  created: string
  completed: string | null
  steps: number
  label: string
  [field: string]: Json
}

/** Fakes that share a clock, a seed and a journal, with their control API. */
export interface Cloud extends AsyncDisposable {
  /** The id of an isolated cloud; null for the cloud of a server, and for a closed one. */
  readonly id: string | null
  /** The address of the cloud's control API and console. */
  readonly url: string
  /** The token of the control API. */
  readonly token: string
  /** The environment variables that the official clients read. */
  readonly env: Readonly<Record<string, string>>
  readonly clock: Clock
  readonly faults: Faults
  /** Call an endpoint of the control API: its method, its path below `/__control__`, and its body. */
  readonly control: Control
  /**
   * Call a method that Python tests call on a fake, or on the cloud (null), and return its result:
   * `call("kv_server", "assert_called", ["SET"], { key: "session:*" })`. If the method raises, it rejects
   * with an error whose `type` is the name of the exception's class.
   */
  call<T = Json>(object: string | null, name: string, args?: Json[], kwargs?: Record<string, Json>): Promise<T>
  /** Start over as for a new test. */
  begin(): Promise<ClockData>
  /** Return the strict-mode violations: what a Python test would fail for. */
  violations(): Promise<ViolationData[]>
  /** Return the items of a list of a fake that match. */
  list<T = Json>(fake: string, list: string, where?: Where): Promise<T[]>
  /** Return the callbacks and failure callbacks that the fake `queue` has sent or will send. */
  callbacks(where?: Where): Promise<CallbackItem[]>
  /** Return the workflow runs of the fake `queue`, newest first. */
  workflowRuns(where?: Where): Promise<WorkflowRunItem[]>
  /** Make the report of a test that has failed, and keep a copy of the cloud for the console. */
  reportFailure(test: string, error: unknown): Promise<KeptCloud>
  /** Close an isolated cloud with its fakes. */
  close(): Promise<void>
}

/** Options of a cloud; `services` maps `kv`, `vector`, `broker` and `queue` to their settings. */
export interface StartOptions extends CloudOptions {
  /** Whether the cloud's variables are set in `process.env` until it is closed. */
  setEnv?: boolean
}

/**
 * Start an isolated cloud, on the server of `pytest-fakecloud run` or `serve`, whose variables are in
 * the environment. Without one, a server starts that ends with this process.
 */
export function startCloud(options?: StartOptions): Promise<Cloud>

/** Return the cloud of the server, with which an application has started that has its variables. */
export function connectCloud(): Promise<Cloud>

/** Return the cloud of the running test file. */
export function currentCloud(): Cloud

/** Set the cloud of the running test file, in another global object if that is given. */
export function setCurrentCloud(cloud: Cloud | undefined, global?: object): void

/** The environment variables of the current cloud. */
export const env: Readonly<Record<string, string>>
/** The clock of the current cloud. */
export const clock: Clock
/** The injected faults of the current cloud. */
export const faults: Faults
/** Call a method of a fake of the current cloud. */
export const call: Cloud["call"]
/** Call an endpoint of the control API of the current cloud. */
export const control: Control
