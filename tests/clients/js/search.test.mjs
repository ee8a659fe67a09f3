// `redis.search` of @upstash/redis: every method and every kind of field and filter.
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { Redis, s } from "@upstash/redis";
import { named, noting, testSurface } from "./surface.mjs";

const server = JSON.parse(process.env.FAKE_KV_SERVER);
const bare = new Redis({ ...server, enableTelemetry: false });
const redis = noting("redis", bare, { createIndex: "index", index: "index" });

const PRODUCTS = [
  { title: "Wireless headphones", price: 29.99, stock: 3, sold: true, added: "2026-01-01T00:00:00Z",
    brand: "acme", place: "/c/audio", maker: { name: "Ann Lee", size: 5 } },
  { title: "Running shoes", price: 40, stock: 0, sold: false, added: "2026-02-01T00:00:00Z",
    brand: "bolt", place: "/c/sport", maker: { name: "Bob", size: 50 } },
  { title: "Wired headphone", price: 10.5, stock: 12, sold: true, added: "2026-03-01T00:00:00Z",
    brand: "acme", place: "/c/audio/wire", maker: { name: "Cleo", size: 1 } },
];

const schema = s.object({
  title: s.string(),
  exact: s.string().noStem().noTokenize().from("title"),
  price: s.number(),
  stock: s.number("U64"),
  sold: s.boolean(),
  added: s.date().fast(),
  brand: s.keyword(),
  place: s.facet(),
  maker: s.object({ name: s.string(), size: s.number("I64") }),
});

const keys = (hits) => hits.map((hit) => hit.key);

async function products(name, dataType) {
  const index = await redis.search.createIndex({
    name, schema, dataType, prefix: [`${name}:`, `other-${name}:`], language: "english",
    skipInitialScan: true, existsOk: true,
  });
  for (const [at, product] of PRODUCTS.entries()) {
    if (dataType === "json") await redis.json.set(`${name}:${at}`, "$", product);
    else await redis.set(`${name}:${at}`, JSON.stringify(product));
  }
  assert.equal(await index.waitIndexing(), 1);
  return index;
}

for (const dataType of ["json", "string"]) {
  describe(`an index of ${dataType}`, async () => {
    const name = `i-${dataType}`;
    let index;
    test("is created and described", async () => {
      index = await products(name, dataType);
      const found = await index.describe();
      assert.equal(found.name, name);
      assert.equal(found.dataType, dataType);
      assert.deepEqual(found.prefixes, [`${name}:`, `other-${name}:`].sort());
      assert.equal(found.language, "english");
      assert.deepEqual(found.schema.exact, { type: "TEXT", noStem: true, noTokenize: true, from: "title" });
      assert.deepEqual(found.schema.price, { type: "F64", fast: true });
      assert.deepEqual(found.schema["maker.size"], { type: "I64", fast: true });
    });

    test("finds with every operator", async () => {
      const cases = [
        [{ title: "headphone" }, [0, 2]],
        [{ title: { $eq: "running shoe" } }, [1]],
        [{ title: { $fuzzy: "headphnoe" } }, [0, 2]],
        [{ title: { $fuzzy: { value: "headph", prefix: true } } }, [0, 2]],
        [{ title: { $fuzzy: { value: "headphnoe", distance: 1, transpositionCostOne: true } } }, [0, 2]],
        [{ title: { $phrase: "wireless headphones" } }, [0]],
        [{ title: { $phrase: { value: "headphones wireless", slop: 2 } } }, [0]],
        [{ title: { $regex: "Wire.*" } }, [0, 2]],
        [{ title: { $smart: "shoes" } }, [1]],
        [{ price: { $gt: 20 } }, [0, 1]],
        [{ stock: { $gte: 3, $lt: 12 } }, [0]],
        [{ sold: { $eq: false } }, [1]],
        [{ added: { $gte: "2026-02-01T00:00:00Z" } }, [1, 2]],
        [{ brand: { $in: ["acme"] } }, [0, 2]],
        [{ place: { $eq: "/c/audio" } }, [0, 2]],
        [{ "maker.name": { $eq: "lee" } }, [0]],
        [{ "maker.size": { $lte: 5 } }, [0, 2]],
        [{ $and: [{ brand: "acme" }, { price: { $lt: 20 } }] }, [2]],
        [{ $or: [{ brand: "bolt" }, { price: 10.5 }] }, [1, 2]],
        [{ $must: [{ sold: true }], $mustNot: [{ stock: 3 }] }, [2]],
      ];
      for (const [filter, wanted] of cases) {
        const hits = await index.query({ filter });
        assert.deepEqual(keys(hits).sort(), wanted.map((at) => `${name}:${at}`), JSON.stringify(filter));
        assert.deepEqual(await index.count({ filter }), { count: wanted.length });
      }
    });

    test("orders, pages and shows", async () => {
      const ordered = await index.query({ filter: {}, orderBy: { price: "ASC" } });
      assert.deepEqual(ordered.map((hit) => hit.score), [10.5, 29.99, 40]);
      assert.deepEqual(ordered[2].data, PRODUCTS[1]);
      const down = await index.query({ filter: {}, orderBy: { "maker.size": "DESC" }, limit: 1, offset: 1 });
      assert.deepEqual(keys(down), [`${name}:0`]);
      assert.deepEqual(await index.query({ filter: { price: 40 }, select: {} }), [
        { key: `${name}:1`, score: ordered[2].score && (await index.query({ filter: { price: 40 } }))[0].score },
      ]);
      const [hit] = await index.query({ filter: { price: 40 }, select: { price: true, "maker.name": true } });
      assert.deepEqual(hit.data, { price: 40, maker: { name: "Bob" } });
    });

    test("marks words", async () => {
      const filter = { title: { $eq: "shoes" } };
      const [hit] = await index.query({ filter, select: { title: true }, highlight: { fields: ["title"] } });
      assert.equal(hit.data.title, "Running <em>shoes</em>");
      const highlight = { fields: ["title"], preTag: "<b>", postTag: "</b>" };
      const [other] = await index.query({ filter, highlight });
      assert.equal(other.data.title, "Running <b>shoes</b>");
    });

    test("scores by fields", async () => {
      const scores = async (scoreFunc) =>
        Object.fromEntries((await index.query({ filter: {}, scoreFunc })).map((hit) => [hit.key.slice(-1), hit.score]));
      assert.equal((await scores("price"))[1], 41);
      assert.equal((await scores({ field: "price", modifier: "square", scoreMode: "replace" }))[1], 1600);
      const both = { fields: ["price", { field: "stock", factor: 2, missing: 1 }], combineMode: "multiply", scoreMode: "replace" };
      assert.equal((await scores(both))[2], 252);
    });

    test("aggregates", async () => {
      const found = await index.aggregate({
        filter: {},
        aggregations: {
          stats: { $stats: { field: "price" } },
          more: { $extendedStats: { field: "stock", sigma: 3 } },
          keyed: { $percentiles: { field: "price", percents: [50, 100] } },
          listed: { $percentiles: { field: "price", percents: [50], keyed: false } },
          terms: { $terms: { field: "brand" }, $aggs: { avg: { $avg: { field: "price" } } } },
          range: { $range: { field: "price", ranges: [{ to: 20 }, { from: 20, to: 40 }, { from: 40 }] } },
          histogram: { $histogram: { field: "price", interval: 20 } },
          facet: { $facet: { field: "place", path: "/c", depth: 2, minDocCount: 1, order: { count: "asc" } } },
          missing: { $avg: { field: "maker.size", missing: 0 } },
          cardinality: { $cardinality: { field: "brand" } },
        },
      });
      assert.deepEqual(found.stats, { count: 3, sum: 80.49, min: 10.5, max: 40, avg: 80.49 / 3 });
      assert.deepEqual(found.more.count, 3);
      assert.ok(found.more.stdDeviationBounds.upper > found.more.avg);
      assert.deepEqual(found.keyed, { values: { "50.0": 29.99, "100.0": 40 } });
      assert.deepEqual(found.listed, { values: [{ key: 50, value: 29.99 }] });
      assert.equal(found.terms.buckets[0].key, "acme");
      assert.equal(found.terms.buckets[0].docCount, 2);
      assert.ok(Math.abs(found.terms.buckets[0].avg.value - 20.245) < 1e-9);
      assert.equal(found.terms.sumOtherDocCount, 0);
      assert.deepEqual(found.range.buckets, [
        { key: "*-20", docCount: 1, to: 20 },
        { key: "20-40", docCount: 1, from: 20, to: 40 },
        { key: "40-*", docCount: 1, from: 40 },
      ]);
      assert.deepEqual(found.histogram.buckets, [
        { key: 0, docCount: 1 }, { key: 20, docCount: 1 }, { key: 40, docCount: 1 },
      ]);
      assert.equal(found.facet.path, "/c");
      assert.deepEqual(found.facet.children.map((child) => child.path), ["/c/sport", "/c/audio"]);
      assert.equal(found.missing.value, 56 / 3);
      assert.equal(found.cardinality.value, 2);
    });

    test("has other names and can be dropped", async () => {
      const alias = `a-${dataType}`;
      assert.equal(await index.addAlias({ alias }), 1);
      assert.equal(await redis.search.alias.add({ indexName: name, alias }), 2);
      assert.equal((await redis.search.alias.list())[alias], name);
      assert.deepEqual(await redis.search.index({ name: alias }).count({ filter: {} }), { count: 3 });
      assert.equal(await redis.search.alias.delete({ alias }), 1);
      assert.equal(await index.drop(), 1);
      assert.equal(await index.drop(), 0);
    });
  });
}

test("hashes have fields of the top only", async () => {
  const index = await redis.search.createIndex({
    name: "h", dataType: "hash", prefix: "h:", schema: s.object({ name: s.string(), score: s.number() }),
  });
  await redis.hset("h:1", { name: "Some words", score: "7.5" });
  await redis.hset("h:2", { name: "other words", score: "3" });
  const hits = await index.query({ filter: { name: { $eq: "word" } }, orderBy: { score: "ASC" } });
  assert.deepEqual(hits.map((hit) => hit.data), [{ name: "other words", score: 3 }, { name: "Some words", score: 7.5 }]);
});

test("entries of a stream are searched, and aggregated in pages", async () => {
  const index = await redis.search.createIndex({
    name: "ev", dataType: "stream", stream: "events", existsOk: true,
    schema: s.object({ message: s.string(), severity: s.number("U64"), service: s.keyword() }),
  });
  await redis.xadd("events", "1-0", { message: "Payment authorization failed", severity: 4, service: "checkout" });
  await redis.xadd("events", "2-0", { message: "Order completed", severity: 1, service: ["checkout", "orders"] });
  await index.waitIndexing();
  const found = await index.query({ filter: { message: "authorization", severity: { $gte: 3 } } });
  assert.deepEqual(found.map((hit) => [hit.key, hit.data.severity]), [["1-0", 4]]);
  assert.deepEqual(keys(await index.query({ filter: { service: "orders" } })), ["2-0"]);
  const ordered = await index.query({ orderBy: { severity: "ASC" }, select: { message: true } });
  assert.deepEqual(ordered.map((hit) => [hit.key, hit.data]), [["2-0", { message: "Order completed" }], ["1-0", { message: "Payment authorization failed" }]]);
  const described = await index.describe();
  assert.deepEqual([described.dataType, described.prefixes], ["stream", ["events"]]);
  assert.deepEqual(described.schema, { message: { type: "TEXT" }, severity: { type: "U64", fast: true }, service: { type: "KEYWORD" } });

  const severities = [];
  for (let after; ;) {
    const sources = [{ severity: { $terms: { field: "severity" } } }];
    const { pages } = await index.aggregate({ filter: {}, aggregations: { pages: { $composite: { sources, size: 1, after } } } });
    if (!pages.buckets.length) break;
    severities.push(pages.buckets[0].key.severity);
    after = pages.afterKey;
  }
  assert.deepEqual(severities, [1, 4]);
  await redis.xdel("events", "1-0");
  await index.waitIndexing();
  assert.deepEqual(await index.count({ filter: {} }), { count: 1 });
});

test("retrievers take the place of a filter", async () => {
  // Version 1.39.0 has no builder for HYBRID fields, and passes on every filter as JSON.
  const index = redis.search.index({ name: "hybrid" });
  const body = ["SEARCH.CREATE", "hybrid", "ON", "JSON", "PREFIX", "1", "hybrid:", "SCHEMA", "description", "HYBRID"];
  await fetch(server.url, { method: "POST", headers: { Authorization: `Bearer ${server.token}` }, body: JSON.stringify(body) });
  await redis.json.set("hybrid:1", "$", { description: "noise cancelling headphones" });
  await redis.json.set("hybrid:2", "$", { description: "running shoes" });
  await index.waitIndexing();
  const ann = { $ann: { field: "description", query: "noise cancelling headphones" } };
  const near = await index.query({ filter: ann });
  assert.deepEqual([near[0].key, near[0].score, near.length], ["hybrid:1", 1, 2]);
  const merged = await index.query({ filter: { $rrf: { retrievers: [{ description: "headphones" }, ann] } } });
  assert.deepEqual([merged[0].key, merged[0].score], ["hybrid:1", 2 / 61]);
  const standard = { $standard: { query: { description: { $eq: "shoes" } } } };
  assert.deepEqual(await index.count({ filter: standard }), { count: 1 });
});

test("an index that is not there", async () => {
  const index = redis.search.index({ name: "none" });
  assert.equal(await index.query({ filter: {} }), null);
  assert.deepEqual(await index.count({ filter: {} }), { count: -1 });
  assert.equal(await index.describe(), null);
  assert.equal(await index.waitIndexing(), 0);
  await assert.rejects(() => index.aggregate({ aggregations: { a: { $avg: { field: "x" } } } }), TypeError);
});

test("errors are told", async () => {
  const index = await redis.search.createIndex({
    name: "e", dataType: "json", prefix: "e:", schema: s.object({ name: s.string() }),
  });
  await assert.rejects(() => index.query({ filter: { name: { $not: "x" } } }), /Unknown field operator: \$not/);
  await assert.rejects(() => index.query({ filter: {}, limit: 0 }), /limit should be a positive number/);
});

testSurface({
  objects: { "redis.search": bare.search, index: bare.search.index({ name: "products" }) },
  functions: 12,
  excused: named("the client's own transport", "index.client"),
});
