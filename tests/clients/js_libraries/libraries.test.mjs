// Libraries that others wrote for @upstash/redis, @upstash/vector, ioredis and node-redis, with the
// servers in FAKE_LIBRARIES. Each top-level test has the name of its row in libraries.toml.
import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";

import { UpstashRedisAdapter } from "@auth/upstash-redis-adapter";
import { RedisSaver } from "@langchain/langgraph-checkpoint-redis";
import { RedisStore } from "@langchain/langgraph-checkpoint-redis/store";
import { UpstashRedisAdapter as OldAdapter } from "@next-auth/upstash-redis-adapter";
import { Admin, Client as Flags } from "@upstash/edge-flags";
import { Lock } from "@upstash/lock";
import { Query } from "@upstash/query";
import { Queue } from "@upstash/queue";
import { Realtime } from "@upstash/realtime";
import { Redis } from "@upstash/redis";
import { SemanticCache } from "@upstash/semantic-cache";
import { Index } from "@upstash/vector";
import { FlowProducer, Queue as BullQueue, QueueEvents, Worker } from "bullmq";
import IORedis from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { createStorage } from "unstorage";
import redisDriver from "unstorage/drivers/redis";
import upstashDriver from "unstorage/drivers/upstash";
import { z } from "zod/v4";
import { control } from "../js/control.mjs";

const { url, token, databaseUrl, vector } = JSON.parse(process.env.FAKE_LIBRARIES);
const redis = new Redis({ url, token });

const until = async (condition, patience = 5000) => {
  const end = Date.now() + patience;
  while (!(await condition())) {
    assert.ok(Date.now() < end, "nothing happened");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

beforeEach(() => control("flush"));

describe("unstorage", () => {
  const drivers = {
    upstash: () => upstashDriver({ url, token, base: "shop" }),
    redis: () => redisDriver({ url: databaseUrl, base: "shop" }),
  };
  for (const [name, driver] of Object.entries(drivers)) {
    test(name, async (t) => {
      const storage = createStorage({ driver: driver() });
      t.after(() => storage.getMount("").driver.getInstance().disconnect?.());
      await storage.setItem("basket:ada", { kettle: 1 });
      await storage.setItem("basket:ben", "none", { ttl: 60 });
      assert.deepEqual(await storage.getItem("basket:ada"), { kettle: 1 });
      assert.equal(await storage.hasItem("basket:eve"), false);
      assert.deepEqual((await storage.getKeys("basket")).sort(), ["basket:ada", "basket:ben"]);
      const items = await storage.getItems(["basket:ada", "basket:ben"]);
      assert.deepEqual(items.map((item) => item.value), [{ kettle: 1 }, "none"]);
      await control("advance", "61s");
      assert.equal(await storage.getItem("basket:ben"), null);
      await storage.removeItem("basket:ada");
      await storage.setItem("basket:eve", "1");
      await storage.clear();
      assert.deepEqual(await storage.getKeys(), []);
    });
  }
});

for (const [name, makeAdapter] of [["@auth/upstash-redis-adapter", UpstashRedisAdapter], ["@next-auth/upstash-redis-adapter", OldAdapter]]) {
  test(name, async () => {
    const adapter = makeAdapter(redis, { baseKeyPrefix: "app:" });
    const verified = new Date("2026-01-01T00:00:00Z");
    const user = await adapter.createUser({ id: "1", email: "ada@example.com", name: "Ada", emailVerified: verified });
    assert.equal((await adapter.getUser(user.id)).name, "Ada");
    assert.deepEqual((await adapter.getUserByEmail("ada@example.com")).emailVerified, verified);
    await adapter.linkAccount({ provider: "github", providerAccountId: "7", userId: user.id, type: "oauth" });
    const account = { provider: "github", providerAccountId: "7" };
    assert.equal((await adapter.getUserByAccount(account)).id, user.id);
    const expires = new Date(Date.now() + 3600_000);
    await adapter.createSession({ sessionToken: "s", userId: user.id, expires });
    const found = await adapter.getSessionAndUser("s");
    assert.equal(found.user.id, user.id);
    assert.deepEqual(found.session.expires, expires);
    await adapter.updateUser({ id: user.id, name: "Ada L." });
    assert.equal((await adapter.getUser(user.id)).name, "Ada L.");
    const verification = { identifier: "ada@example.com", token: "t" };
    await adapter.createVerificationToken({ ...verification, expires });
    assert.equal((await adapter.useVerificationToken(verification)).token, "t");
    assert.equal(await adapter.useVerificationToken(verification), null);
    await adapter.deleteSession("s");
    assert.equal(await adapter.getSessionAndUser("s"), null);
    await adapter.unlinkAccount(account);
    await adapter.deleteUser(user.id);
    assert.equal(await adapter.getUser(user.id), null);
  });
}

test("@upstash/lock", async () => {
  const options = { id: "billing", redis, lease: 10_000, retry: { attempts: 1, delay: 0 } };
  const [first, second] = [new Lock(options), new Lock(options)];
  assert.equal(await first.acquire(), true);
  assert.equal(await second.acquire(), false);
  assert.equal(await first.getStatus(), "ACQUIRED");
  assert.equal(await first.extend(5000), true);
  await control("advance", "12s");
  assert.equal(await second.acquire(), false);
  await control("advance", "4s");
  assert.equal(await first.getStatus(), "FREE");
  assert.equal(await second.acquire(), true);
  assert.equal(await first.release(), false);
  assert.equal(await second.release(), true);
});

test("@upstash/queue", async () => {
  const queue = new Queue({ redis, queueName: "mail", concurrencyLimit: 5 });
  await queue.sendMessage({ to: "ada" });
  await queue.sendMessage({ to: "ben" });
  assert.deepEqual((await queue.receiveMessage()).body, { to: "ada" });
  assert.deepEqual((await queue.receiveMessage()).body, { to: "ben" });
  assert.equal(await queue.receiveMessage(), null);
  // "block is not yet supported in Upstash Redis", say the types of @upstash/redis.
  await assert.rejects(queue.receiveMessage(1000), /not available: 'XREADGROUP'/);

  const options = { redis, queueName: "jobs", autoVerify: false, visibilityTimeout: 30_000 };
  const [first, second, third] = [1, 2, 3].map(() => new Queue(options));
  await first.sendMessage({ job: 7 });
  const message = await first.receiveMessage();
  assert.equal(await second.receiveMessage(), null);
  await control("advance", "31s");
  assert.deepEqual(await third.receiveMessage(), message);
  assert.equal(await third.verifyMessage(message.streamId), "VERIFIED");
});

test("@upstash/query", async () => {
  const query = new Query({ redis: new Redis({ url, token, automaticDeserialization: false }) });
  const users = query.createCollection("users");
  const byCompany = users.createIndex({ name: "by_company", terms: ["company"] });
  await users.set("1", { name: "Ada", company: "acme" });
  await users.set("2", { name: "Ben", company: "acme" });
  await users.set("3", { name: "Eve", company: "bolt" });
  const names = async (company) => (await byCompany.match({ company })).map(({ data }) => data.name).sort();
  assert.deepEqual(await names("acme"), ["Ada", "Ben"]);
  await users.update("2", { name: "Ben", company: "bolt" });
  assert.deepEqual(await names("bolt"), ["Ben", "Eve"]);
  await users.delete("3");
  assert.deepEqual(await names("bolt"), ["Ben"]);
  assert.equal((await users.get("1")).data.name, "Ada");
});

test("@upstash/edge-flags", async () => {
  const admin = new Admin({ redis });
  await admin.createFlag({ name: "dark" });
  await admin.createFlag({ name: "beta" });
  await assert.rejects(admin.createFlag({ name: "beta" }), /already exists/);
  const rules = [{ accessor: "country", compare: "in", target: ["FR"], value: false, version: "v1" }];
  await admin.updateFlag("dark", "production", { enabled: true, rules });
  assert.deepEqual((await admin.listFlags()).filter((flag) => flag.environment === "production").map((flag) => flag.name).sort(), ["beta", "dark"]);
  const flags = new Flags({ redis, environment: "production" });
  assert.equal(await flags.getFlag("dark", { country: "DE" }), true);
  assert.equal(await flags.getFlag("dark", { country: "FR" }), false);
  await admin.updateFlag("dark", "production", { enabled: false });
  assert.equal((await admin.getFlag("dark", "production")).enabled, false);
  await admin.deleteFlag("dark");
  await assert.rejects(flags.getFlag("dark", {}), /not found/);
});

test("@upstash/realtime", async (t) => {
  // The library pings once a minute, and does not stop after unsubscribe(): the client then closes the
  // stream, and the event that the library waits for never comes.
  const intervals = t.mock.method(globalThis, "setInterval").mock;
  t.after(() => intervals.calls.forEach(({ result }) => clearInterval(result)));
  const schema = { chat: { message: z.object({ text: z.string() }) } };
  const realtime = new Realtime({ schema, redis, history: { maxLength: 2, expireAfterSecs: 60 } });
  const room = realtime.channel("room");
  await room.emit("chat.message", { text: "one" });
  const seen = [];
  const options = { events: ["chat.message"], history: true, onData: ({ data }) => seen.push(data.text) };
  const unsubscribe = await room.subscribe(options);
  await room.emit("chat.message", { text: "two" });
  await room.emit("chat.message", { text: "three" });
  await until(() => seen.length === 3);
  unsubscribe();
  assert.deepEqual(seen, ["one", "two", "three"]);
  assert.deepEqual((await room.history()).map(({ data }) => data.text), ["two", "three"]);
  await assert.rejects(room.emit("chat.message", { text: 1 }));
  await control("advance", "61s");
  assert.deepEqual(await room.history(), []);
});

test("@upstash/semantic-cache", async () => {
  const cache = new SemanticCache({ index: new Index(vector), minProximity: 0.6, namespace: "answers" });
  await cache.set("capital of Turkey", "Ankara");
  await cache.set(["largest city of Europe", "green tea temperature"], ["Istanbul", "80 °C"]);
  assert.equal(await cache.get("the capital of Turkey"), "Ankara");
  assert.deepEqual(await cache.get(["green tea temperature", "wooden chairs"]), ["80 °C", undefined]);
  await cache.delete("capital of Turkey");
  assert.equal(await cache.get("capital of Turkey"), undefined);
  assert.equal(await cache.bulkDelete(["green tea temperature"]), 1);
  await cache.flush();
  assert.equal(await cache.get("largest city of Europe"), undefined);
});

test("bullmq", async (t) => {
  const connection = new IORedis(databaseUrl, { maxRetriesPerRequest: null });
  t.after(() => connection.disconnect());
  const queue = new BullQueue("mail", { connection });
  const events = new QueueEvents("mail", { connection });
  const flows = new FlowProducer({ connection });
  const tries = [];
  const process = async (job) => {
    tries.push(job.name);
    if (job.name === "unsteady" && job.attemptsMade === 0) throw new Error("no");
    return job.name === "parent" ? Object.values(await job.getChildrenValues()) : job.data.number * 2;
  };
  const worker = new Worker("mail", process, { connection });
  await Promise.all([events.waitUntilReady(), worker.waitUntilReady()]);
  const job = await queue.add("plain", { number: 4 }, { priority: 2 });
  assert.equal(await job.waitUntilFinished(events, 5000), 8);
  const unsteady = await queue.add("unsteady", { number: 5 }, { attempts: 2 });
  assert.equal(await unsteady.waitUntilFinished(events, 5000), 10);
  assert.deepEqual(tries, ["plain", "unsteady", "unsteady"]);
  const child = { name: "child", queueName: "mail", data: { number: 3 } };
  const flow = await flows.add({ name: "parent", queueName: "mail", data: {}, children: [child] });
  assert.deepEqual(await flow.job.waitUntilFinished(events, 5000), [6]);
  const late = await queue.add("late", { number: 6 }, { delay: 20 });
  assert.equal(await late.waitUntilFinished(events, 5000), 12);
  await queue.upsertJobScheduler("nightly", { pattern: "0 3 * * *" }, { name: "report" });
  assert.equal((await queue.getJobSchedulers()).length, 1);
  assert.equal((await queue.getJobCounts("completed")).completed, 5);
  await Promise.all([worker.close(), events.close(), flows.close(), queue.close()]);
});

test("rate-limiter-flexible", async (t) => {
  const client = new IORedis(databaseUrl);
  t.after(() => client.disconnect());
  const limiter = new RateLimiterRedis({ storeClient: client, points: 10, duration: 60, keyPrefix: "api" });
  for (let number = 9; number >= 0; number--) assert.equal((await limiter.consume("ada")).remainingPoints, number);
  await assert.rejects(limiter.consume("ada"), (refused) => refused.remainingPoints === 0 && refused.msBeforeNext > 0);
  await control("advance", "61s");
  assert.equal((await limiter.consume("ada", 3)).remainingPoints, 7);
  await limiter.block("ben", 30);
  await assert.rejects(limiter.consume("ben"));
  await limiter.penalty("ada", 2);
  assert.equal((await limiter.get("ada")).consumedPoints, 5);
  assert.equal(await limiter.delete("ada"), true);
});

// It lists checkpoints and finds the items of its store with FT.SEARCH of Redis's query engine, which
// neither Upstash nor the fake has.
test("@langchain/langgraph-checkpoint-redis", async (t) => {
  t.mock.method(console, "error", () => {});
  const saver = await RedisSaver.fromUrl(databaseUrl);
  t.after(() => saver.end());
  const thread = { configurable: { thread_id: "1", checkpoint_ns: "" } };
  const metadata = { source: "input", step: 0, parents: {} };
  const checkpoint = { v: 4, id: "c1", ts: "2026-01-01T00:00:00Z", channel_values: { total: 7 }, channel_versions: { total: 1 }, versions_seen: {} };
  const config = await saver.put(thread, checkpoint, metadata, { total: 1 });
  assert.deepEqual((await saver.getTuple(config)).checkpoint.channel_values, { total: 7 });
  await assert.rejects(saver.list(thread).next(), /FT.SEARCH/);
  const store = await RedisStore.fromConnString(databaseUrl);
  t.after(() => store.close());
  await assert.rejects(store.get(["users"], "ada"), /FT.SEARCH/);
});
