// `redis.vector` of @upstash/redis: every method and every form of a vector.
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { Redis } from "@upstash/redis";

const server = JSON.parse(process.env.FAKE_KV_SERVER);
const redis = new Redis({ ...server, enableTelemetry: false });

describe("a vector index", async () => {
  test("is created, described and dropped", async () => {
    const index = await redis.vector.createIndex({ name: "made", dimension: 3, metric: "COSINE" });
    assert.deepEqual(await index.info(), { dimension: 3, metric: "COSINE" });
    await redis.vector.createIndex({ name: "made", dimension: 3, metric: "COSINE", existsOk: true });
    await assert.rejects(redis.vector.createIndex({ name: "made", dimension: 3, metric: "COSINE" }), /Index made already exists/);
    await assert.rejects(redis.vector.createIndex({ name: "made", dimension: 4, metric: "COSINE", existsOk: true }), /different configuration/);
    assert.equal(await index.drop(), 1);
    assert.equal(await index.drop(), 0);
    assert.equal(await index.info(), null);
    assert.equal(await index.count(), 0);
    await assert.rejects(index.query({ vector: [1, 0, 0], topK: 1 }), /not found/);
  });

  test("adds, reads, counts and deletes vectors", async () => {
    const index = await redis.vector.createIndex({ name: "filled", dimension: 3, metric: "EUCLIDEAN" });
    assert.equal(await index.add("list", [1, 0, 0]), 1);
    assert.equal(await index.add("typed", new Float32Array([0.5, 0.25, 2])), 1);
    assert.equal(await index.add("base64", { base64: "zczMPc3MTD6amZk+" }), 1);
    assert.equal(await index.add("list", [0, 1, 0]), 0);
    assert.equal(await index.count(), 3);
    assert.deepEqual(await index.get("list"), [0, 1, 0]);
    assert.deepEqual(await index.get("typed"), [0.5, 0.25, 2]);
    assert.deepEqual(await index.get("base64"), [0.1, 0.2, 0.3]);
    assert.equal(await index.get("none"), null);
    assert.equal(await index.delete("list"), 1);
    assert.equal(await index.delete("list"), 0);
    await assert.rejects(index.add("short", [1, 0]), /expected 3, got 2/);
  });

  test("finds the nearest vectors", async () => {
    const index = await redis.vector.createIndex({ name: "near", dimension: 3, metric: "COSINE" });
    for (const [id, vector] of Object.entries({ x: [1, 0, 0], y: [0.9, 0.1, 0], 7: [0, 1, 0] })) await index.add(id, vector);
    const [first, second, ...others] = await redis.vector.index("near").query({ vector: [1, 0, 0], topK: 2, profile: "PRECISE" });
    assert.deepEqual([first, second.id, others], [{ id: "x", score: 1 }, "y", []]);
    assert.ok(second.score > 0.9 && second.score < 1);
    assert.deepEqual((await index.query({ vector: { base64: "AACAPwAAAAAAAAAA" }, topK: 9 })).map((hit) => hit.id), ["x", "y", "7"]);
  });
});
