// Clients of clusters: ioredis, node-redis and BullMQ, with the servers in FAKE_CLUSTERS.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";

import { Queue, Worker } from "bullmq";
import Redis from "ioredis";
import { createCluster } from "redis";
import { control } from "./control.mjs";

const clusters = JSON.parse(process.env.FAKE_CLUSTERS);
// A key for each of three nodes.
const keys = ["b", "c", "a"];

const until = async (condition, patience = 5000) => {
  const end = Date.now() + patience;
  while (!(await condition())) {
    assert.ok(Date.now() < end, "nothing happened");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

for (const [name, { host, port, password, nodes }] of Object.entries(clusters)) {
  describe(`ioredis Cluster, ${name}`, () => {
    const open = (options = {}) => {
      const cluster = new Redis.Cluster([{ host, port }], { redisOptions: { password }, ...options });
      after(() => cluster.disconnect());
      return cluster;
    };
    const cluster = open();

    test("commands reach their nodes", async () => {
      for (const key of keys) assert.equal(await cluster.set(key, key), "OK");
      for (const key of keys) assert.equal(await cluster.get(key), key);
      assert.equal(cluster.nodes("master").length, nodes);
      const sizes = await Promise.all(cluster.nodes("master").map((node) => node.dbsize()));
      assert.equal(sizes.reduce((sum, size) => sum + size), 3);
      await assert.rejects(cluster.mget("a", "b"), /CROSSSLOT/);
      assert.deepEqual(await cluster.mget("{t}1", "{t}2"), [null, null]);
    });

    test("transactions and scripts", async () => {
      assert.deepEqual(await cluster.multi().set("{t}1", 1).incr("{t}1").exec(), [[null, "OK"], [null, 2]]);
      cluster.defineCommand("twice", { numberOfKeys: 1, lua: "return redis.call('GET', KEYS[1]) * 2" });
      assert.equal(await cluster.twice("{t}1"), 4);
      await assert.rejects(cluster.eval("return 1", 2, "a", "b"), /CROSSSLOT/);
    });

    test("messages", async () => {
      const listener = open();
      const heard = [];
      listener.on("message", (channel, message) => heard.push(message));
      await listener.subscribe("news");
      for (const node of cluster.nodes("master")) await node.publish("news", "hello");
      await until(() => heard.length === nodes);
    });

    test("reads from replicas", async () => {
      const readers = open({ scaleReads: "slave" });
      await cluster.set("b", "read");
      assert.equal(await readers.get("b"), "read");
      // One node alone has no replica.
      assert.equal(readers.nodes("slave").length, nodes === 1 ? 0 : nodes);
    });
  });

  describe(`node-redis createCluster, ${name}`, () => {
    const open = async (options = {}) => {
      const cluster = createCluster({
        rootNodes: [{ url: `redis://${host}:${port}` }],
        defaults: { password },
        ...options,
      });
      await cluster.connect();
      after(() => cluster.destroy());
      return cluster;
    };

    test("commands reach their nodes", async () => {
      const cluster = await open();
      for (const key of keys) assert.equal(await cluster.set(key, key), "OK");
      for (const key of keys) assert.equal(await cluster.get(key), key);
      assert.equal(cluster.masters.length, nodes);
      assert.deepEqual(await cluster.multi().set("{t}1", "1").incr("{t}1").exec(), ["OK", 2]);
      await assert.rejects(cluster.eval("return 1", { keys: ["a", "b"], arguments: [] }), /CROSSSLOT/);
    });

    test("messages of shards", async () => {
      const cluster = await open();
      const heard = [];
      for (const key of keys) await cluster.sSubscribe(key, (message) => heard.push(message));
      for (const key of keys) assert.equal(await cluster.sPublish(key, key), 1);
      await until(() => heard.length === 3);
      assert.deepEqual(heard.sort(), [...keys].sort());
    });

    test("reads from replicas", async () => {
      const cluster = await open({ useReplicas: true });
      await cluster.set("b", "read");
      for (let i = 0; i < 4; i++) assert.equal(await cluster.get("b"), "read");
    });
  });

  if (nodes > 1) {
    // What clients do about a resharding and a failover.
    const faults = async (increment) => {
      await control("flush");
      for (const key of keys) await increment(key);
      await control("moved", "b");
      await control("ask", "c");
      await control("failover", "a");
      for (let i = 0; i < 2; i++) for (const key of keys) await increment(key);
      assert.deepEqual(await control("contents"), { a: "3", b: "3", c: "3" });
    };

    test("ioredis survives", async () => {
      const cluster = new Redis.Cluster([{ host, port }], { redisOptions: { password } });
      after(() => cluster.disconnect());
      await faults((key) => cluster.incr(key));
    });

    test("node-redis survives", async () => {
      const cluster = createCluster({ rootNodes: [{ url: `redis://${host}:${port}` }], defaults: { password } });
      cluster.on("error", () => {});
      await cluster.connect();
      after(() => cluster.destroy());
      // It does not repeat a command that it had sent before the connection ended.
      const incr = (key) => cluster.incr(key).catch((error) => (error.code === "ECONNRESET" ? incr(key) : Promise.reject(error)));
      await faults(incr);
    });
  }

  describe(`BullMQ, ${name}`, () => {
    const open = (prefix) => {
      const connection = new Redis.Cluster([{ host, port }], {
        redisOptions: { password, maxRetriesPerRequest: null },
      });
      after(() => connection.disconnect());
      return { connection, prefix };
    };

    test("jobs are done", async () => {
      const queue = new Queue("mails", open("{shop}"));
      const worker = new Worker("mails", async (job) => job.data.n * 2, open("{shop}"));
      const done = new Promise((resolve, reject) => {
        worker.on("completed", (job, result) => resolve(result));
        worker.on("failed", (job, error) => reject(error));
      });
      await queue.add("mail", { n: 21 });
      assert.equal(await done, 42);
      assert.equal((await queue.getJobCounts("completed")).completed, 1);
      await worker.close();
      await queue.close();
    });

    test("a prefix without a hash tag is refused", async () => {
      const queue = new Queue("mails", open("shop"));
      await assert.rejects(queue.add("mail", {}), /CROSSSLOT/);
      await queue.close();
    });
  });
}
