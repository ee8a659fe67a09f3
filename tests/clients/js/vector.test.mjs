// @upstash/vector, unmodified, over its whole surface, against all five kinds of index.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { beforeEach, test } from "node:test";
import { FusionAlgorithm, Index, QueryMode, WeightingStrategy } from "@upstash/vector";
import { named, noteParameters, noting, testSurface } from "./surface.mjs";

const connections = JSON.parse(process.env.FAKE_VECTOR_INDEXES);

function open(kind, options = {}) {
  const configuration = { ...connections[kind], ...options };
  noteParameters(configuration);
  return new Index(configuration);
}
const clients = Object.fromEntries(
  Object.keys(connections).map((kind) => [kind, noting("index", open(kind), { namespace: "namespace" })]),
);
const { dense, sparse, hybrid } = clients;
const everything = { includeVectors: true, includeMetadata: true, includeData: true };
const ids = (records) => records.map((record) => record?.id ?? null);

beforeEach(async () => {
  for (const client of Object.values(clients)) {
    await client.reset({ all: true });
    for (const name of await client.listNamespaces()) if (name) await client.deleteNamespace(name);
  }
});

const records = {
  dense: (n) => ({ id: `id-${n}`, vector: [1, n], metadata: { n }, data: `d${n}` }),
  sparse: (n) => ({
    id: `id-${n}`,
    sparseVector: { indices: [0, n + 1], values: [0.5, 1] },
    metadata: { n },
    data: `d${n}`,
  }),
  hybrid: (n) => ({ ...records.dense(n), ...records.sparse(n) }),
  "dense with embedding": (n) => ({ id: `id-${n}`, data: `text number ${n}`, metadata: { n } }),
  "hybrid with embedding": (n) => records["dense with embedding"](n),
};
const queries = {
  dense: { vector: [1, 0] },
  sparse: { sparseVector: { indices: [0], values: [1] } },
  hybrid: { vector: [1, 0], sparseVector: { indices: [0], values: [1] } },
  "dense with embedding": { data: "text number 3" },
  "hybrid with embedding": { data: "text number 3" },
};

for (const [kind, client] of Object.entries(clients)) {
  for (const name of ["", "ns"]) {
    test(`the whole life of a ${kind} index, namespace '${name}'`, async () => {
      const target = name ? client.namespace(name) : client;
      const made = [0, 1, 2, 3, 4].map(records[kind]);
      assert.equal(await target.upsert(made), "Success");
      assert.equal(await target.upsert(made[0]), "Success");

      const fetched = await target.fetch(["id-3", "missing"], everything);
      assert.equal(fetched[1], null);
      const { vector, sparseVector, ...rest } = fetched[0];
      const expected = records[kind](3);
      assert.deepEqual(rest, { id: "id-3", metadata: { n: 3 }, data: expected.data });
      if (!kind.includes("embedding")) {
        assert.deepEqual(vector, expected.vector);
        assert.deepEqual(sparseVector, expected.sparseVector);
      }
      assert.equal(vector !== undefined, kind !== "sparse");
      assert.equal(sparseVector !== undefined, !kind.startsWith("dense"));
      assert.deepEqual(await target.fetch(["id-1"]), [{ id: "id-1" }]);
      assert.equal((await target.fetch({ prefix: "id-" })).length, 5);
      assert.deepEqual(ids(await target.fetch({ ids: ["id-4"] })), ["id-4"]);

      const page = await target.range({ cursor: 0, limit: 2, prefix: "id-", ...everything });
      assert.deepEqual([ids(page.vectors), page.nextCursor], [["id-0", "id-1"], "2"]);
      assert.deepEqual(page.vectors[1].metadata, { n: 1 });
      const last = await target.range({ cursor: "4", limit: 1 });
      assert.deepEqual(last, { nextCursor: "", vectors: [{ id: "id-4" }] });

      const query = { ...queries[kind], topK: 3, filter: "n >= 1", ...everything };
      const hits = await target.query(query);
      assert.equal(hits.length, 3);
      assert.ok(hits.every((hit) => hit.metadata.n >= 1 && hit.data));
      const { result, fetchNext, stop } = await target.resumableQuery({ ...query, maxIdle: 60 });
      const more = await fetchNext(10);
      assert.equal(new Set([...ids(result), ...ids(more)]).size, 4);
      assert.deepEqual(await fetchNext(1), []);
      assert.equal(await stop(), "Success");
      await assert.rejects(stop(), /not been started/);

      const info = await client.info();
      assert.deepEqual(info.namespaces[name], { vectorCount: 5, pendingVectorCount: 0 });
      assert.equal(info.pendingVectorCount, 0);
      assert.equal(info.denseIndex !== undefined, kind !== "sparse");
      assert.equal(info.sparseIndex !== undefined, !kind.startsWith("dense"));

      const overwrite = { id: "id-0", metadata: { a: 1, n: 7 } };
      assert.deepEqual(await target.update(overwrite), { updated: 1 });
      const patch = { id: "id-0", metadata: { a: null }, metadataUpdateMode: "PATCH" };
      assert.deepEqual(await target.update(patch), { updated: 1 });
      assert.deepEqual(await target.fetch(["id-0"], { includeMetadata: true }), [
        { id: "id-0", metadata: { n: 7 } },
      ]);
      assert.deepEqual(await target.update({ id: "missing", data: "x" }), { updated: 0 });
      assert.deepEqual(await target.update({ id: "id-0", data: "changed" }), { updated: 1 });

      assert.deepEqual(await target.delete("id-0"), { deleted: 1 });
      assert.deepEqual(await target.delete(["id-1", "missing"]), { deleted: 1 });
      assert.deepEqual(await target.delete({ ids: ["id-2"] }), { deleted: 1 });
      assert.deepEqual(await target.delete({ prefix: "id-3" }), { deleted: 1 });
      assert.deepEqual(await target.delete({ filter: "n = 4" }), { deleted: 1 });
      await target.upsert(made);
      assert.equal(await target.reset(), "Success");
      assert.deepEqual(await target.range({ cursor: 0, limit: 1 }), {
        nextCursor: "",
        vectors: [],
      });
    });
  }
}

test("namespaces by option, listed and deleted", async () => {
  const namespace = "by option";
  await dense.upsert({ id: 33, vector: [0.1, 0.2] }, { namespace });
  await dense.upsert([{ id: "b", vector: [1, 2] }], { namespace: "other/deep" });
  assert.deepEqual(await dense.listNamespaces(), ["", namespace, "other/deep"]);
  assert.deepEqual(await dense.fetch([33], { includeVectors: true, namespace }), [
    { id: "33", vector: [0.1, 0.2] },
  ]);
  assert.deepEqual(ids(await dense.query({ vector: [1, 2], topK: 1 }, { namespace })), ["33"]);
  assert.equal((await dense.range({ cursor: "", limit: 5 }, { namespace })).vectors.length, 1);
  assert.deepEqual(await dense.update({ id: 33, vector: [1, 2] }, { namespace }), { updated: 1 });
  const resumable = { vector: [1, 2], topK: 1, maxIdle: 60 };
  const { result, stop } = await dense.resumableQuery(resumable, { namespace });
  assert.deepEqual(ids(result), ["33"]);
  await stop();
  assert.deepEqual(await dense.delete(33, { namespace }), { deleted: 1 });
  await dense.reset({ namespace: "other/deep" });
  assert.equal((await dense.info()).vectorCount, 0);
  assert.equal(await dense.deleteNamespace("other/deep"), "Success");
  await assert.rejects(dense.deleteNamespace("gone"), /Namespace gone for the index .* does not exist/);
});

test("queryMany answers lists of lists, also for one query", async () => {
  await dense.upsert([0, 1, 2].map(records.dense));
  const one = { vector: [1, 0], topK: 1 };
  const two = { vector: [0, 1], topK: 2, filter: "n < 9" };
  assert.deepEqual((await dense.queryMany([one, two])).map(ids), [["id-0"], ["id-2", "id-1"]]);
  assert.deepEqual((await dense.queryMany([one])).map(ids), [["id-0"]]);
  const embedded = clients["hybrid with embedding"];
  await embedded.upsert([{ id: "a", data: "hello world" }]);
  const many = await embedded.queryMany([{ data: "hello", topK: 1 }, { data: "x", topK: 1 }]);
  assert.deepEqual(many.map(ids), [["a"], ["a"]]);
});

test("fused scores, digit for digit", async () => {
  await hybrid.upsert([
    { id: "id0", vector: [0.1, 0.2], sparseVector: { indices: [0, 1], values: [0.1, 0.2] } },
    { id: "id1", vector: [0.2, 0.3], sparseVector: { indices: [1, 2], values: [0.2, 0.3] } },
    { id: "id2", vector: [0.3, 0.4], sparseVector: { indices: [2, 3], values: [0.3, 0.4] } },
  ]);
  const rrf = {
    vector: [0.1, 0.1],
    sparseVector: { indices: [3, 4], values: [0.1, 0.2] },
    topK: 1,
    fusionAlgorithm: FusionAlgorithm.RRF,
  };
  assert.deepEqual(await hybrid.query(rrf), [{ id: "id2", score: 0.033333335 }]);
  const { result, fetchNext, stop } = await hybrid.resumableQuery({
    vector: [0.1, 0.1],
    sparseVector: { indices: [0], values: [0.1] },
    topK: 2,
    maxIdle: 60,
    fusionAlgorithm: FusionAlgorithm.DBSF,
    weightingStrategy: WeightingStrategy.IDF,
  });
  assert.deepEqual(result, [
    { id: "id2", score: 0.617851 },
    { id: "id0", score: 0.5 },
  ]);
  assert.deepEqual(await fetchNext(1), [{ id: "id1", score: 0.5 }]);
  await stop();
  const missing = { vector: [3, 4] };
  await hybrid.upsert({ id: "a", ...records.hybrid(1) });
  await assert.rejects(hybrid.update({ id: "a", ...missing }), /both vector and sparseVector/);
});

test("query modes", async () => {
  const client = clients["hybrid with embedding"];
  await client.upsert([
    { id: "a", data: "Hello world" },
    { id: "b", data: "Vector databases" },
  ]);
  const query = (queryMode) => client.query({ data: "hello", topK: 5, queryMode });
  assert.deepEqual(ids(await query(QueryMode.HYBRID)), ["a", "b"]);
  assert.deepEqual(ids(await query(QueryMode.DENSE)), ["a", "b"]);
  assert.deepEqual(ids(await query(QueryMode.SPARSE)), ["a"]);
});

test("the service's errors are the client's", async () => {
  await assert.rejects(
    dense.upsert({ id: "a", vector: [1, 2, 3] }),
    /Invalid vector dimension: 3, expected: 2/,
  );
  await assert.rejects(dense.upsert({ id: "a", data: "x" }), /Embedding data for this index/);
  await assert.rejects(dense.query({ data: "x", topK: 1 }), /Embedding data for this index/);
  await assert.rejects(dense.delete({}), /Only and only one of the ids, prefix, or filter/);
  await assert.rejects(dense.query({ vector: [1, 2], topK: 1, filter: "a[" }), /Invalid filter/);
  await assert.rejects(sparse.upsert({ id: "a", vector: [1, 2] }), /requires sparse vectors/);
  await assert.rejects(dense.upsert({ id: "a", vector: [NaN, 1] }), /expected a number, got null/);
  await assert.rejects(open("dense", { token: "wrong" }).info(), /Unauthorized/);
});

test("the bare address is a JSON error", async () => {
  const { url, token } = connections.dense;
  const headers = { Authorization: `Bearer ${token}` };
  const answer = await fetch(url, { method: "POST", headers, body: "{}" });
  assert.equal(answer.status, 404);
  assert.equal((await answer.json()).status, 404);
});

test("an aborted request is answered by the client itself", async () => {
  const controller = new AbortController();
  controller.abort("stopped");
  assert.equal(await open("dense", { signal: controller.signal }).info(), "stopped");
});

test("transport settings: a connection that fails is tried again", async () => {
  let waits = 0;
  const backoff = () => {
    waits += 1;
    return 1;
  };
  const retry = { retries: 2, backoff };
  const nowhere = open("dense", { url: "http://127.0.0.1:9", retry, cache: "no-cache" });
  await assert.rejects(nowhere.info(), /fetch failed/);
  assert.equal(waits, 2);
  const once = open("dense", { url: "http://127.0.0.1:9", retry: false });
  await assert.rejects(once.info(), /fetch failed/);
  const index = open("dense", { cache: false, enableTelemetry: false });
  assert.equal((await index.info()).dimension, 2);
});

test("from the environment", async () => {
  process.env.UPSTASH_VECTOR_REST_URL = connections.sparse.url;
  process.env.UPSTASH_VECTOR_REST_TOKEN = connections.sparse.token;
  assert.equal((await new Index().info()).sparseIndex !== undefined, true);
  const { url, token } = connections.hybrid;
  const env = { UPSTASH_VECTOR_REST_URL: url, UPSTASH_VECTOR_REST_TOKEN: token };
  const client = Index.fromEnv(env, { enableTelemetry: false });
  assert.equal((await client.info()).denseIndex.dimension, 2);
});

const dist = "@upstash/vector/dist/";
testSurface({
  objects: { index: open("dense"), namespace: open("dense").namespace("ns") },
  functions: 21,
  excused: named("the client's own transport", "index.client namespace.client"),
  declarations: readdirSync(new URL(`node_modules/${dist}`, import.meta.url))
    .filter((file) => /^(vector-.*|nodejs)\.d\.mts$/.test(file))
    .map((file) => dist + file),
  fields: 50,
  notPassed: {
    ...named(
      "a field of an answer",
      "deleted updated score result error vectors nextCursor fetchNext stop dimension indexSize",
      "similarityFunction vectorCount pendingVectorCount namespaces denseIndex sparseIndex embeddingModel",
    ),
    ...named("part of the client's own transport", "baseUrl body headers path client payload endpoint request"),
    ...named("passed in the environment", "UPSTASH_VECTOR_REST_TOKEN UPSTASH_VECTOR_REST_URL"),
  },
});
