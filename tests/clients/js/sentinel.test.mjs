// ioredis and node-redis with a sentinel, at the addresses in FAKE_SENTINEL.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import Redis from "ioredis";
import { createSentinel } from "redis";
import { control } from "./control.mjs";

const { host, port, password } = JSON.parse(process.env.FAKE_SENTINEL);

const until = async (condition, patience = 10_000) => {
  const end = Date.now() + patience;
  while (!(await condition())) {
    assert.ok(Date.now() < end, "nothing happened");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

test("ioredis follows the primary", async () => {
  await control("flush");
  const redis = new Redis({ sentinels: [{ host, port }], name: "mymaster", password, failoverDetector: true });
  const replica = new Redis({ sentinels: [{ host, port }], name: "mymaster", role: "slave", password });
  after(() => (redis.disconnect(), replica.disconnect()));
  assert.equal(await redis.incr("n"), 1);
  assert.equal(await replica.get("n"), "1");
  await assert.rejects(replica.incr("n"), /READONLY/);
  await control("failover", "n");
  // Its command was not executed, so it repeats it.
  assert.equal(await redis.incr("n"), 2);
  await control("switch");
  await until(async () => (await redis.incr("n").catch(() => 0)) >= 3);
});

test("node-redis follows the primary", async () => {
  await control("flush");
  const sentinel = createSentinel({
    name: "mymaster",
    sentinelRootNodes: [{ host, port }],
    nodeClientOptions: { password },
    replicaPoolSize: 1,
  });
  sentinel.on("error", () => {});
  await sentinel.connect();
  after(() => sentinel.destroy());
  assert.equal(await sentinel.set("n", "1"), "OK");
  assert.equal(await sentinel.get("n"), "1");
  await control("failover", "n");
  await until(async () => (await sentinel.incr("n").catch(() => 0)) === 2);
});
