// The client's development mode adopts a queue that has the public development credentials.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, Receiver } from "@upstash/qstash";
import { idle, startHandler } from "./queue-support.mjs";

let handler;

before(async () => {
  process.env.QSTASH_DEV_PORT = new URL(process.env.QSTASH_URL).port;
  process.env.QSTASH_DEV = "true";
  for (const name of Object.keys(process.env)) {
    if (name.startsWith("QSTASH_") && !name.startsWith("QSTASH_DEV")) delete process.env[name];
  }
  handler = await startHandler();
});
after(() => handler.close());

test("a client without address and token finds the queue, its receiver has the keys", async () => {
  await new Client({ enableTelemetry: false }).publish({ url: `${handler.url}/x`, body: "text" });
  assert.equal(await idle(), 1);
  const signature = handler.requests[0].headers["upstash-signature"];
  assert.ok(await new Receiver().verify({ signature, body: "text", url: `${handler.url}/x` }));
});
