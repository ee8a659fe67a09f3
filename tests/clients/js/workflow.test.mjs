// @upstash/workflow, unmodified: served by a real HTTP server, driven by the queue, time virtual.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { Client as QStash, Receiver } from "@upstash/qstash";
import {
  Client,
  StepTypes,
  WorkflowContext,
  WorkflowNonRetryableError,
  WorkflowRetryAfterError,
  serve,
} from "@upstash/workflow";
import { advance, connection, idle, now, recorder, reset, startHandler } from "./queue-support.mjs";

const client = new Client({ ...connection, enableTelemetry: false });
const qstashClient = new QStash({ ...connection, retry: false, enableTelemetry: false });
const receiver = new Receiver({
  currentSigningKey: process.env.QSTASH_CURRENT_SIGNING_KEY,
  nextSigningKey: process.env.QSTASH_NEXT_SIGNING_KEY,
});
const surface = recorder(
  { client, dlq: client.dlq },
  { "client.client": "the queue's client", "dlq.client": "the queue's client" },
);
const flows = {};
const events = [];
const failures = [];
let server;
let third;

/** A workflow at `/name`; what its steps do is told apart by the path. */
function workflow(name, route, options = {}) {
  const failureFunction = async ({ context, failStatus, failResponse }) => {
    failures.push({ name, status: failStatus, text: failResponse, payload: context.requestPayload });
  };
  const handlers = serve(route, {
    qstashClient,
    receiver,
    url: `${server.url}/${name}`,
    failureFunction,
    ...options,
  });
  flows[name] = handlers.handler;
}

before(async () => {
  third = await startHandler();
  server = await startHandler(async (request) => {
    const flow = flows[request.url.slice(1).split("?")[0]];
    if (!flow) return { status: 404, body: "no such workflow" };
    const answer = await flow(
      new Request(server.url + request.url, {
        method: request.method,
        headers: Object.entries(request.headers).filter(([name]) => name !== "transfer-encoding"),
        body: request.body,
      }),
    );
    return {
      status: answer.status,
      headers: Object.fromEntries(answer.headers),
      body: await answer.text(),
    };
  });
});
after(async () => {
  await server.close();
  await third.close();
});
beforeEach(async () => {
  await reset();
  third.clear();
  server.requests.length = 0;
  events.length = 0;
  failures.length = 0;
});

const url = (name) => `${server.url}/${name}`;
const logOf = async (workflowRunId) => (await client.logs({ workflowRunId })).runs[0];
const names = (run) => run.steps.flatMap((group) => group.steps.map((step) => step.stepName));

test("run, sleep, sleepUntil, call: days within milliseconds", async () => {
  const start = await now();
  const until = Math.floor(start / 1000) + 20 * 86_400;
  workflow("steps", async (context) => {
    const first = await context.run("first", () => ({ got: context.requestPayload }));
    await context.sleep("nap", 3600);
    await context.sleep("day", "1d");
    await context.sleepUntil("date", until);
    const answer = await context.call("third", {
      url: `${third.url}/x`,
      method: "PUT",
      body: JSON.stringify({ q: 1 }),
      headers: { "X-Own": "2" },
      retries: 2,
      retryDelay: "1000",
      timeout: 30,
      flowControl: { key: "calls", parallelism: 1 },
    });
    events.push(first, answer.status, answer.body);
    return "the end";
  });
  third.statuses.push(500, 200);
  const { workflowRunId } = await client.trigger({
    url: url("steps"),
    body: { order: 7 },
    headers: { "X-User": "me" },
    label: "mine",
  });
  await idle();
  assert.deepEqual(events, [{ got: { order: 7 } }, 200, { answered: true }]);
  assert.equal(third.requests.length, 2);
  assert.equal(third.requests[0].method, "PUT");
  assert.equal(third.requests[0].headers["x-own"], "2");
  assert.equal(third.requests[0].body, '{"q":1}');
  assert.ok((await now()) >= until * 1000);
  const run = await logOf(workflowRunId);
  assert.equal(run.workflowState, "RUN_SUCCESS");
  assert.equal(run.workflowRunResponse, '"the end"');
  assert.equal(run.label, "mine");
  assert.deepEqual(names(run), ["init", "first", "nap", "day", "date", "third"]);
  for (const group of run.steps) {
    for (const step of group.steps) assert.ok(StepTypes.includes(step.stepType));
  }
  const callbacks = server.requests.filter((request) => request.headers["upstash-workflow-callback"]);
  assert.equal(callbacks.length, 1);
  const call = run.steps.at(-1).steps[0];
  assert.equal(call.callUrl, `${third.url}/x`);
  assert.equal(call.callMethod, "PUT");
  assert.equal(call.callBody, '{"q":1}');
  assert.deepEqual(call.callHeaders["X-Own"], ["2"]);
  assert.equal(call.callResponseStatus, 200);
  // The trigger's headers come back on every step, without the client sending them again.
  assert.ok(server.requests.every((request) => request.headers["x-user"] === "me"));
});

test("parallel steps", async () => {
  workflow("parallel", async (context) => {
    const results = await Promise.all([
      context.run("a", () => 1),
      context.run("b", () => 2),
      context.sleep("nap", "1h"),
      context.call("third", { url: third.url }),
    ]);
    await context.run("sum", () => events.push([results[0] + results[1], results[3].status]));
  });
  const { workflowRunId } = await client.trigger({ url: url("parallel") });
  await idle();
  assert.deepEqual(events, [[3, 200]]);
  const run = await logOf(workflowRunId);
  assert.equal(run.workflowState, "RUN_SUCCESS");
  assert.ok(run.steps.some((group) => group.type === "parallel" && group.steps.length === 4));
  assert.ok(run.steps.every((group) => group.type !== "next"));
  const steps = run.steps.flatMap((group) => group.steps);
  assert.equal(steps.find((step) => step.stepName === "third").callUrl, third.url);
});

test("a parallel step over a quota", async () => {
  workflow("quota", async (context) => {
    await Promise.all([
      context.run("a", () => 1),
      context.call("third", { url: third.url, retries: 1_000_000 }),
    ]);
  });
  const { workflowRunId } = await client.trigger({ url: url("quota"), retries: 3 });
  await idle();
  const run = await logOf(workflowRunId);
  assert.equal(run.workflowState, "RUN_FAILED");
  assert.deepEqual(run.steps.map((group) => group.type), ["sequential", "parallel"]);
  const [done, failed] = run.steps[1].steps;
  assert.deepEqual([done.stepName, done.state], ["a", "STEP_SUCCESS"]);
  assert.deepEqual([failed.stepName, failed.state], ["third", "STEP_FAILED"]);
  assert.deepEqual(failed.errors.map((error) => error.status), [489]);
  assert.match(failed.errors[0].body, /quota maxRetries exceeded/);
  assert.equal(failures.length, 1);
});

test("waiting for an event: notified, timed out, and notified before", async () => {
  workflow("waits", async (context) => {
    const { eventData, timeout } = await context.waitForEvent("wait", "event", { timeout: "2d" });
    events.push([eventData, timeout]);
  });
  const first = await client.trigger({ url: url("waits") });
  await advance("1h");
  const waiters = await client.getWaiters({ eventId: "event" });
  assert.equal(waiters.length, 1);
  assert.equal(waiters[0].url, url("waits"));
  const notified = await client.notify({ eventId: "event", eventData: { a: 1 } });
  assert.equal(notified.length, 1);
  assert.equal(notified[0].error, "");
  await advance("1m");
  assert.deepEqual(events, [[{ a: 1 }, false]]);
  assert.deepEqual(await client.getWaiters({ eventId: "event" }), []);
  const run = await logOf(first.workflowRunId);
  assert.equal(run.workflowState, "RUN_SUCCESS");
  const wait = run.steps.at(-1).steps[0];
  assert.equal(wait.waitTimeout, false);
  assert.equal(wait.waitTimeoutDeadline, run.workflowRunCreatedAt + 2 * 86_400_000);
  assert.equal(wait.waitTimeoutDuration, "172800s");

  await client.trigger({ url: url("waits") });
  await idle();
  assert.deepEqual(events.at(-1), [undefined, true]);

  const early = await client.trigger({ url: url("waits"), delay: "10s" });
  await client.notify({
    eventId: "event",
    eventData: "early",
    workflowRunId: early.workflowRunId,
  });
  await advance("1m");
  assert.deepEqual(events.at(-1), ["early", false]);
});

test("a workflow notifies another one", async () => {
  workflow("listener", async (context) => {
    events.push((await context.waitForEvent("wait", "news", { timeout: "1d" })).eventData);
  });
  workflow("speaker", async (context) => {
    const { notifyResponse } = await context.notify("tell", "news", { hot: true });
    events.push(notifyResponse.length);
  });
  await client.trigger({ url: url("listener") });
  await advance("1m");
  await client.trigger({ url: url("speaker") });
  await advance("1m");
  assert.deepEqual(events.sort(), [1, { hot: true }]);
});

test("webhooks", async () => {
  let target;
  workflow("hooked", async (context) => {
    const webhook = await context.createWebhook("make");
    target = webhook.webhookUrl;
    const { request, timeout } = await context.waitForWebhook("wait", webhook, "1d");
    events.push([timeout, request.method, await request.text()]);
  });
  await client.trigger({ url: url("hooked") });
  await advance("1m");
  const answer = await fetch(target, { method: "POST", body: "from outside" });
  assert.equal(answer.status, 200);
  await advance("1m");
  assert.deepEqual(events, [[false, "POST", "from outside"]]);
});

test("invoking another workflow", async () => {
  const { createWorkflow, serveMany } = await import("@upstash/workflow/nextjs");
  const starts = {};
  const inner = createWorkflow(async (context) => {
    starts[context.workflowRunId] = context.workflowRunCreatedAt;
    const doubled = await context.run("double", () => context.requestPayload.n * 2);
    if (context.requestPayload.n < 0) throw new WorkflowNonRetryableError("negative");
    return { doubled };
  });
  const outer = createWorkflow(async (context) => {
    starts[context.workflowRunId] = context.workflowRunCreatedAt;
    await context.sleep("nap", "1h");
    const good = await context.invoke("good", { workflow: inner, body: { n: 4 } });
    const bad = await context.invoke("bad", { workflow: inner, body: { n: -1 }, retries: 0 });
    events.push([good.body, good.isFailed, bad.body, bad.isFailed]);
  });
  const many = serveMany(
    { inner, outer },
    { qstashClient, receiver, baseUrl: `${server.url}` },
  );
  flows.inner = flows.outer = (request) => many.POST(request);
  const start = await now();
  const { workflowRunId } = await client.trigger({ url: url("outer") });
  await idle();
  assert.deepEqual(events, [[{ doubled: 8 }, false, undefined, true]]);
  const { runs } = await client.logs({ count: 10 });
  const invoked = runs.filter((run) => run.invoker?.workflowRunId === workflowRunId);
  assert.deepEqual(invoked.map((run) => run.workflowState).sort(), ["RUN_FAILED", "RUN_SUCCESS"]);
  assert.equal(starts[workflowRunId], start);
  const steps = (await logOf(workflowRunId)).steps.flatMap((group) => group.steps);
  const good = steps.find((step) => step.stepName === "good");
  assert.ok(invoked.some((run) => run.workflowRunId === good.invokedWorkflowRunId));
  assert.equal(good.invokedWorkflowUrl, url("inner"));
  assert.equal(good.invokedWorkflowCreatedAt, start + 3_600_000);
  assert.equal(good.invokedWorkflowRunBody, '{"n":4}');
  assert.deepEqual(good.invokedWorkflowRunHeaders["Content-Type"], ["application/json"]);
  for (const run of invoked) {
    assert.equal(run.invoker.workflowRunCreatedAt, start);
    assert.equal(starts[run.workflowRunId], start + 3_600_000);
  }
});

test("failures: retries, the failure function, the dead letter, resume and restart", async () => {
  let broken = true;
  workflow("fails", async (context) => {
    await context.run("first", () => events.push("first"));
    if (broken) throw new Error("boom");
    await context.run("second", () => events.push("second"));
  });
  const trigger = () =>
    client.trigger({ url: url("fails"), body: { order: 7 }, retries: 1, retryDelay: "1000" });
  const { workflowRunId } = await trigger();
  await idle();
  assert.deepEqual(failures, [
    { name: "fails", status: 500, text: "boom", payload: { order: 7 } },
  ]);
  const run = await logOf(workflowRunId);
  assert.equal(run.workflowState, "RUN_FAILED");
  assert.equal(run.failureFunction.state, "CALLBACK_SUCCESS");
  const { messages } = await client.dlq.list();
  assert.equal(messages.length, 1);
  assert.equal(messages[0].workflowRunId, workflowRunId);
  assert.equal(messages[0].failureCallbackInfo.state, "CALLBACK_SUCCESS");

  broken = false;
  const resumed = await client.dlq.resume({ dlqId: messages[0].dlqId, retries: 2 });
  assert.notEqual(resumed.workflowRunId, workflowRunId);
  await idle();
  assert.deepEqual(events, ["first", "second"]);
  assert.equal((await logOf(resumed.workflowRunId)).workflowState, "RUN_SUCCESS");
  assert.equal((await client.dlq.list()).messages.length, 0);

  broken = true;
  await trigger();
  await idle();
  broken = false;
  const [letter] = (await client.dlq.list({ count: 5, filter: { responseStatus: 500 } })).messages;
  const { workflowRuns } = await client.dlq.restart([letter.dlqId]);
  assert.equal(workflowRuns.length, 1);
  await idle();
  assert.deepEqual(events, ["first", "second", "first", "first", "second"]);

  broken = true;
  await trigger();
  await idle();
  assert.equal((await client.dlq.delete({ all: true })).deleted, 1);
});

test("a redacted run: its steps receive it, and its logs and dead letters hide it", async () => {
  let broken = true;
  workflow("secret", async (context) => {
    const out = await context.run("first", () => `${context.requestPayload} out`);
    if (broken) throw new Error(out);
    events.push(out, context.headers.get("x-user"));
  });
  await client.trigger({
    url: url("secret"),
    body: "hush",
    headers: { "X-User": "hush" },
    redact: { body: true, header: ["X-User"] },
    retries: 0,
  });
  await idle();
  const [letter] = (await client.dlq.list()).messages;
  const { runs } = await client.logs();
  const [first] = runs[0].steps.at(-2).steps;
  assert.match(first.out, /^REDACTED:[0-9a-f]{64}$/);
  assert.match(first.headers["X-User"][0], /^REDACTED:/);
  assert.match(runs[0].failureFunction.failResponse, /^REDACTED:/);
  assert.match(letter.body, /^REDACTED:/);
  assert.doesNotMatch(JSON.stringify([letter, runs, await qstashClient.logs()]), /hush|aHVza/);
  assert.deepEqual(failures.map(({ payload, text }) => [payload, text]), [["hush", "hush out"]]);
  broken = false;
  await client.dlq.resume({ dlqId: letter.dlqId });
  await idle();
  assert.deepEqual(events, ["hush out", "hush"]);
});

test("a failure function that fails can be called again", async () => {
  let broken = true;
  workflow("fails", async () => {}, {
    failureFunction: async () => {
      if (broken) throw new Error("no");
      failures.push("called");
    },
  });
  workflow("fails", async (context) => {
    await context.run("first", () => {
      throw new Error("boom");
    });
  }, {
    failureFunction: async () => {
      if (broken) throw new Error("no");
      failures.push("called");
    },
  });
  const { workflowRunId } = await client.trigger({ url: url("fails"), retries: 0 });
  await advance("3s");
  assert.equal((await logOf(workflowRunId)).failureFunction.state, "CALLBACK_FAIL");
  broken = false;
  const letters = (await client.dlq.list({ filter: { workflowRunId } })).messages;
  assert.equal(letters.length, 1);
  const [letter] = letters;
  assert.equal(letter.failureCallbackInfo.state, "CALLBACK_FAIL");
  assert.equal(letter.failureCallbackInfo.responseStatus, 500);
  await client.dlq.retryFailureFunction({ dlqId: letter.dlqId });
  await idle();
  assert.deepEqual(failures, ["called"]);
  assert.equal((await logOf(workflowRunId)).failureFunction.state, "CALLBACK_SUCCESS");
});

test("a failure URL that fails shows in the dead letter of the run", async () => {
  workflow("fails", async () => {
    throw new Error("boom");
  }, { failureFunction: undefined });
  const failureUrl = `${third.url}/failure`;
  third.statuses.push(500);
  const { workflowRunId } = await client.trigger({ url: url("fails"), retries: 0, failureUrl });
  await advance("3s");
  assert.equal(third.at("/failure").length, 1);
  const [letter] = (await client.dlq.list({ filter: { workflowRunId } })).messages;
  assert.equal(letter.failureCallbackInfo.state, "CALLBACK_FAIL");
});

test("a run that is cancelled while a step of it runs ends without an error", async () => {
  workflow("cut", async (context) => {
    await context.run("first", () => client.cancel(context.workflowRunId));
    events.push("never");
  });
  const { workflowRunId } = await client.trigger({ url: url("cut"), retries: 0 });
  await idle();
  assert.deepEqual([events, failures], [[], []]);
  assert.equal((await logOf(workflowRunId)).workflowState, "RUN_CANCELED");
  assert.equal((await client.dlq.list()).messages.length, 0);
});

test("errors that say when, or that never, to try again", async () => {
  let tries = 0;
  workflow("later", async (context) => {
    await context.run("first", () => {
      tries += 1;
      if (tries === 1) throw new WorkflowRetryAfterError("busy", "1h");
      events.push("done");
    });
  });
  const start = await now();
  await client.trigger({ url: url("later") });
  await idle();
  assert.deepEqual(events, ["done"]);
  assert.ok((await now()) - start >= 3_600_000);
  workflow("never", async (context) => {
    await context.run("first", () => {
      throw new WorkflowNonRetryableError("hopeless");
    });
  });
  const { workflowRunId } = await client.trigger({ url: url("never"), retries: 3 });
  await idle();
  assert.equal((await logOf(workflowRunId)).workflowState, "RUN_FAILED");
  assert.equal(failures.length, 1);
  assert.equal(server.requests.filter((request) => request.url === "/never").length, 2);
});

test("cancelling: from outside, from inside, by filter", async () => {
  workflow("long", async (context) => {
    await context.sleep("long", "5d");
    events.push("never");
  });
  workflow("gives-up", async (context) => {
    await context.run("first", () => 1);
    await context.cancel();
  });
  const runs = await client.trigger([1, 2, 3, 4].map(() => ({ url: url("long"), label: "mine" })));
  await advance("1m");
  const [one, two] = runs.map((run) => run.workflowRunId);
  assert.deepEqual(await client.cancel(one), { cancelled: 1 });
  assert.deepEqual(await client.cancel([one, two]), { cancelled: 1 });
  assert.deepEqual(await client.cancel({ filter: { workflowUrl: url("lon") } }), { cancelled: 0 });
  assert.deepEqual(await client.cancel({ urlStartingWith: url("lon") }), { cancelled: 2 });
  assert.deepEqual(await client.cancel({ all: true }), { cancelled: 0 });
  const inside = await client.trigger({ url: url("gives-up") });
  await idle();
  assert.deepEqual(events, []);
  assert.equal((await logOf(inside.workflowRunId)).workflowState, "RUN_CANCELED");
  assert.equal((await logOf(one)).workflowState, "RUN_CANCELED");
});

test("a REST trigger starts one run, after the client has answered", async () => {
  workflow("rest", async (context) => {
    events.push(await context.run("first", () => context.requestPayload));
  });
  const response = await fetch(`${connection.baseUrl}/v2/trigger/${url("rest")}`, {
    method: "POST",
    headers: {
      Authorization: `Bearer ${connection.token}`,
      "Content-Type": "application/json",
      "Upstash-Forward-X-User": "me",
      "Upstash-Label": "mine",
      "Upstash-Retries": "1",
    },
    body: '{"order":7}',
  });
  const { workflowRunId } = await response.json();
  await idle();
  assert.deepEqual(events, [{ order: 7 }]);
  const { runs } = await client.logs();
  assert.deepEqual(runs.map((run) => run.workflowRunId), [workflowRunId]);
  assert.equal(runs[0].workflowState, "RUN_SUCCESS");
  assert.equal(runs[0].label, "mine");
  assert.deepEqual(names(runs[0]), ["init", "first"]);
  const logged = runs[0].steps[0].steps[0].headers;
  assert.deepEqual(logged["Content-Type"], ["application/json"]);
  assert.deepEqual(logged["X-User"], ["me"]);
  const [question, ...later] = server.requests.map((request) => request.headers);
  assert.ok(question["upstash-workflow-unknown-sdk"]);
  assert.ok(later.every((headers) => !headers["upstash-workflow-unknown-sdk"]));
  assert.ok(later.every((headers) => headers["upstash-max-retries"] === "1"));
  assert.ok(later.every((headers) => headers["x-user"] === "me"));
});

test("a call of another workflow starts a run there", async () => {
  workflow("called", async (context) => {
    await context.run("first", () => events.push(context.requestPayload));
  });
  workflow("calling", async (context) => {
    const { status } = await context.call("other", {
      url: url("called"),
      method: "POST",
      body: JSON.stringify({ order: 7 }),
    });
    events.push(status);
  });
  const { workflowRunId } = await client.trigger({ url: url("calling") });
  await idle();
  assert.deepEqual(events, [{ order: 7 }, 200]);
  const { runs } = await client.logs();
  assert.equal(runs.length, 2);
  assert.ok(runs.every((run) => run.workflowState === "RUN_SUCCESS"));
  assert.equal((await logOf(workflowRunId)).steps.at(-1).steps[0].callResponseStatus, 200);
});

test("a run id is taken once while the run lives", async () => {
  workflow("once", async (context) => {
    await context.sleep("nap", "1d");
    await context.run("end", () => events.push("end"));
  });
  await client.trigger({ url: url("once"), workflowRunId: "mine" });
  const again = client.trigger({ url: url("once"), workflowRunId: "mine" });
  await assert.rejects(again, /a workflow already exists/);
  await idle();
  assert.deepEqual(events, ["end"]);
});

test("logs: pages, states and filters", async () => {
  workflow("quick", async (context) => {
    await context.run("only", () => 1);
  });
  for (let index = 0; index < 3; index++) {
    await client.trigger({ url: url("quick"), label: `label-${index}` });
  }
  await idle();
  const page = await client.logs({ count: 2 });
  assert.equal(page.runs.length, 2);
  assert.equal((await client.logs({ cursor: page.cursor, count: 2 })).runs.length, 1);
  assert.equal((await client.logs({ state: "RUN_FAILED" })).runs.length, 0);
  assert.equal((await client.logs({ workflowUrl: url("quick") })).runs.length, 3);
  assert.equal((await client.logs({ filter: { label: "label-1" } })).runs.length, 1);
  await assert.rejects(client.logs({ filter: { nonsense: "x" } }), /unknown filter/);
});

test("no public method is left out", () => {
  surface.check();
  const used = [
    ...["run", "sleep", "sleepUntil", "call", "waitForEvent", "notify", "invoke", "cancel"],
    ...["createWebhook", "waitForWebhook"],
  ];
  const known = Object.getOwnPropertyNames(WorkflowContext.prototype).filter((name) => {
    const { value } = Object.getOwnPropertyDescriptor(WorkflowContext.prototype, name);
    return name !== "constructor" && typeof value === "function" && !name.startsWith("_");
  });
  const internal = ["addStep", "getCurrentStepName", "applyLabel"];
  assert.deepEqual(
    known.filter((name) => !used.includes(name) && !internal.includes(name)),
    [],
  );
});
