// @ts-check
// Every method and option of @upstash/redis, with an answer of the type that the client declares: the TypeScript compiler
// compares the types of the expected answers with the declarations, and Node the answers with the expected ones.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";

import { Redis } from "@upstash/redis";
import { named, noting, propertyNames, publicFunctions, testSurface } from "./surface.mjs";

const NOW_S = 1767225600;
const [server, another] = JSON.parse(process.env.FAKE_KV_SERVERS ?? "[]");
const options = { enableTelemetry: false, enableAutoPipelining: false };
const bare = new Redis({ ...server, ...options });

/** @type {Record<string, string>} */
const EXCUSED = {
  "redis.client": "the client's own transport",
  "redis.opts": "settings, given to the constructor",
  "redis.autoPipeline": "protected; redis.test.mjs sends commands of one tick together",
  "redis.addTelemetry": "protected; called by the constructor",
  "redis.search": "search.test.mjs calls its methods",
  "redis.pipeline": "redis.test.mjs and the last test below",
  "redis.multi": "redis.test.mjs",
  "redis.subscribe": "redis.test.mjs",
  "redis.psubscribe": "redis.test.mjs",
  "redis.use": "wraps the client's own transport, sends nothing",
  "vectorIndex.client": "the client's own transport",
  "script.redis": "the client that the script belongs to",
  "script.initPromise": "the digest of the script, which the methods wait for",
  "script.init": "private, called by the methods",
  "script.digest": "private, called by the methods",
  "bitfield.client": "the client's own transport",
  "bitfield.chain": "private, called by the methods",
  "bitfield.execOperation": "private, called by exec()",
};
/** @type {Record<string, string>} */
const NOT_IN_PIPELINES = {
  "redis.exec": "sends the pipeline itself",
  "redis.createScript": "an object that sends commands of its own",
  "redis.vector": "objects that send commands of their own",
};

/** @type {[string, unknown[], Promise<unknown>][]} */
const calls = [];
const inner = {
  bitfield: "bitfield", createScript: "script", createIndex: "vectorIndex", index: "vectorIndex",
};
const redis = noting("redis", bare, inner, (path, parameters, answer) => {
  if (answer instanceof Promise) calls.push([path, parameters, answer]);
});

/**
 * Compare an answer, whose type must be the declared one.
 * @template T
 * @param {Promise<T>} answer
 * @param {NoInfer<T>} expected
 */
const answers = async (answer, expected) => assert.deepStrictEqual(await answer, expected);

test("strings", async () => {
  await answers(redis.set("k", "v"), "OK");
  await answers(redis.set("k", "w", { nx: true }), null);
  await answers(redis.get("k"), "v");
  await answers(redis.append("k", "w"), 2);
  await answers(redis.strlen("k"), 2);
  await answers(redis.getrange("k", 1, 1), "w");
  await answers(redis.setrange("k", 1, "x"), 2);
  await answers(redis.getset("k", "new"), "vx");
  await answers(redis.getex("k", { ex: 100 }), "new");
  await answers(redis.getdel("k"), "new");
  await answers(redis.mset({ a: 1, b: "x" }), "OK");
  await answers(redis.mget("a", "b", "none"), [1, "x", null]);
  await answers(redis.msetnx({ a: 2, c: 2 }), 0);
  await answers(redis.setnx("a", 2), 0);
  await answers(redis.setex("e", 100, "x"), "OK");
  await answers(redis.psetex("e", 100_000, "x"), "OK");
  await answers(redis.incr("n"), 1);
  await answers(redis.incrby("n", 4), 5);
  await answers(redis.decr("n"), 4);
  await answers(redis.decrby("n", 3), 1);
  await answers(redis.incrbyfloat("n", 0.5), 1.5);
});

test("bits", async () => {
  await answers(redis.setbit("bits", 7, 1), 0);
  await answers(redis.getbit("bits", 7), 1);
  await answers(redis.bitcount("bits", 0, -1), 1);
  await answers(redis.bitpos("bits", 1), 7);
  await answers(redis.bitop("not", "not", "bits"), 1);
  const field = redis.bitfield("field").set("u8", 0, 5).get("u8", 0).incrby("u8", 0, 1);
  await answers(field.overflow("FAIL").incrby("u8", 0, 255).exec(), [0, 5, 6, /** @type {any} */ (null)]);
});

test("keys", async () => {
  await answers(redis.exists("a", "b", "none"), 2);
  await answers(redis.touch("a", "none"), 1);
  await answers(redis.type("a"), "string");
  await answers(redis.copy("a", "a2"), "COPIED");
  await answers(redis.copy("a", "a2"), "NOT_COPIED");
  await answers(redis.rename("a2", "a3"), "OK");
  await answers(redis.renamenx("a3", "b"), 0);
  await answers(redis.unlink("a3", "none"), 1);
  await answers(redis.del("b"), 1);
  await answers(redis.expire("a", 100), 1);
  await answers(redis.ttl("a"), 100);
  await answers(redis.pexpire("a", 5000, "LT"), 1);
  await answers(redis.pttl("a"), 5000);
  await answers(redis.expireat("a", NOW_S + 9), 1);
  await answers(redis.pexpireat("a", (NOW_S + 8) * 1000), 1);
  await answers(redis.persist("a"), 1);
  await answers(redis.keys("a*"), ["a"]);
  await answers(redis.scan(0, { match: "a*" }), ["0", ["a"]]);
});

test("hashes", async () => {
  await answers(redis.hset("h", { f: 1, g: "x" }), 2);
  await answers(redis.hsetnx("h", "f", 2), 0);
  await answers(redis.hmset("h", { i: 5 }), "OK");
  await answers(redis.hget("h", "g"), "x");
  await answers(redis.hmget("h", "f", "none"), { f: 1, none: null });
  await answers(redis.hgetall("h"), { f: 1, g: "x", i: 5 });
  await answers(redis.hexists("h", "f"), 1);
  await answers(redis.hstrlen("h", "g"), 1);
  await answers(redis.hlen("h"), 3);
  await answers(redis.hkeys("h"), ["f", "g", "i"]);
  await answers(redis.hvals("h"), [1, "x", 5]);
  await answers(redis.hincrby("h", "f", 2), 3);
  await answers(redis.hincrbyfloat("h", "f", 0.5), 3.5);
  await answers(redis.hscan("h", 0), ["0", ["f", 3.5, "g", "x", "i", 5]]);
  await answers(redis.hset("one", { f: 1 }), 1);
  await answers(redis.hrandfield("one"), "f");
  await answers(redis.hrandfield("one", 2), ["f"]);
  await answers(redis.hrandfield("one", 2, true), { f: 1 });
  await answers(redis.hdel("h", "i"), 1);
  await answers(redis.hsetex("h", { expiration: { ex: 100 } }, { t: "x" }), 1);
  await answers(redis.hgetex("h", { ex: 50 }, "t", "none"), { t: "x", none: null });
  await answers(redis.hgetdel("h", "t", "none"), { t: "x", none: null });
});

test("fields that expire", async () => {
  await answers(redis.hexpire("h", ["f", "none"], 100), [1, -2]);
  await answers(redis.httl("h", "f"), [100]);
  await answers(redis.hpexpire("h", "f", 5000), [1]);
  await answers(redis.hpttl("h", ["f", "g"]), [5000, -1]);
  await answers(redis.hexpireat("h", "f", NOW_S + 9), [1]);
  await answers(redis.hexpiretime("h", "f"), [NOW_S + 9]);
  await answers(redis.hpexpireat("h", "f", (NOW_S + 8) * 1000), [1]);
  await answers(redis.hpexpiretime("h", "f"), [(NOW_S + 8) * 1000]);
  await answers(redis.hpersist("h", ["f", "g", "none"]), [1, -1, -2]);
});

test("lists", async () => {
  await answers(redis.rpush("l", "a", "b"), 2);
  await answers(redis.lpush("l", "z"), 3);
  await answers(redis.lpushx("none", "z"), 0);
  await answers(redis.rpushx("l", "c"), 4);
  await answers(redis.lrange("l", 0, -1), ["z", "a", "b", "c"]);
  await answers(redis.linsert("l", "before", "a", "y"), 5);
  await answers(redis.lindex("l", 1), "y");
  await answers(redis.lset("l", 1, "x"), "OK");
  await answers(redis.lpos("l", "b"), 3);
  await answers(redis.llen("l"), 5);
  await answers(redis.lrem("l", 0, "x"), 1);
  await answers(redis.ltrim("l", 0, 2), "OK");
  await answers(redis.lmove("l", "l2", "left", "right"), "z");
  await answers(redis.lmpop(2, ["none", "l2"], "LEFT"), ["l2", ["z"]]);
  await answers(redis.lpop("l"), "a");
  await answers(redis.rpop("l", 2), /** @type {any} */ (["b"]));
});

test("sets", async () => {
  await answers(redis.sadd("s", "a", "b", "c"), 3);
  await answers(redis.sadd("t", "b", "5"), 2);
  await answers(redis.scard("s"), 3);
  await answers(redis.sismember("s", "a"), 1);
  await answers(redis.smismember("s", ["a", "z"]), [1, 0]);
  await answers(redis.smembers("t"), ["b", /** @type {any} */ (5)]);
  await answers(redis.sdiff("s", "t"), ["a", "c"]);
  await answers(redis.sinter("s", "t"), ["b"]);
  await answers(redis.sintercard(["s", "t"], { limit: 1 }), 1);
  await answers(redis.sunion("s", "t"), ["a", "b", "c", 5]);
  await answers(redis.sdiffstore("d", "s", "t"), 2);
  await answers(redis.sinterstore("d", "s", "t"), 1);
  await answers(redis.sunionstore("d", "s", "t"), 4);
  await answers(redis.smove("s", "t", "a"), 1);
  await answers(redis.srem("t", "a", "z"), 1);
  await answers(redis.sscan("s", 0), ["0", ["c", "b"]]);
  await answers(redis.srem("s", "b"), 1);
  await answers(redis.srandmember("s"), "c");
  await answers(redis.spop("s", 2), ["c"]);
});

test("sorted sets", async () => {
  await answers(redis.zadd("z", { score: 1, member: "a" }, { score: 2.5, member: "b" }), 2);
  await answers(redis.zadd("z", { incr: true }, { score: 2, member: "c" }), 2);
  await answers(redis.zcard("z"), 3);
  await answers(redis.zcount("z", 1, 2), 2);
  await answers(redis.zincrby("z", 1, "c"), 3);
  await answers(redis.zscore("z", "b"), 2.5);
  await answers(redis.zmscore("z", ["a", "none"]), [1, /** @type {any} */ (null)]);
  await answers(redis.zrank("z", "b"), 1);
  await answers(redis.zrevrank("z", "b"), 1);
  await answers(redis.zrange("z", 0, 1, { withScores: true }), ["a", 1, "b", 2.5]);
  await answers(redis.zscan("z", 0), ["0", ["a", 1, "b", 2.5, "c", 3]]);
  await answers(redis.zdiffstore("d", 2, "z", "none"), 3);
  await answers(redis.zinterstore("d", 2, ["z", "z"], { aggregate: "max" }), 3);
  await answers(redis.zunion(2, ["z", "none"], { withScores: true }), ["a", 1, "b", 2.5, "c", 3]);
  await answers(redis.zunionstore("d", 2, ["z", "none"], { weights: [2, 1] }), 3);
  await answers(redis.zpopmax("d"), ["c", 6]);
  await answers(redis.zpopmin("d", 2), ["a", 2, "b", 5]);
  await answers(redis.zremrangebyrank("z", 0, 0), 1);
  await answers(redis.zremrangebyscore("z", 3, "+inf"), 1);
  await answers(redis.zlexcount("z", "-", "+"), 1);
  await answers(redis.zremrangebylex("z", "[b", "[b"), 1);
  await answers(redis.zrem("z", "b"), 0);
});

test("places and estimates", async () => {
  await answers(redis.geoadd("geo", { longitude: 1, latitude: 2, member: "p" }), 1);
  await answers(redis.geopos("geo", "p"), [{ lng: 0.9999999403953552, lat: 2.000000185646549 }]);
  await answers(redis.geohash("geo", "p", "none"), ["s02equ04ve0", null]);
  await answers(redis.geoadd("geo", { ch: true }, { longitude: 1, latitude: 2.001, member: "q" }), 1);
  await answers(redis.geodist("geo", "p", "q", "KM"), 0.1111);
  const near = /** @type {const} */ ({ type: "BYRADIUS", radius: 1, radiusType: "KM" });
  const center = { type: /** @type {const} */ ("FROMMEMBER"), member: "p" };
  await answers(redis.geosearch("geo", center, near, "ASC", { withDist: true }), [{ member: "p", dist: 0 }, { member: "q", dist: 0.1111 }]);
  await answers(redis.geosearchstore("geo2", "geo", center, near, "ASC"), 2);
  await answers(redis.pfadd("hll", "a", "b"), 1);
  await answers(redis.pfcount("hll"), 2);
  await answers(redis.pfmerge("hll2", "hll"), "OK");
});

test("streams", async () => {
  await answers(redis.xadd("x", "1-0", { f: 1 }), "1-0");
  await answers(redis.xadd("x", "2-0", { f: "b" }), "2-0");
  await answers(redis.xlen("x"), 2);
  await answers(redis.xrange("x", "-", "+", 1), { "1-0": { f: 1 } });
  await answers(redis.xrevrange("x", "+", "-", 1), { "2-0": { f: "b" } });
  await answers(redis.xread("x", "1-0"), [["x", [["2-0", ["f", "b"]]]]]);
  /** @type {any} */
  const xgroup = redis.xgroup;
  await answers(xgroup("x", { type: "CREATE", group: "g", id: "0" }), "OK");
  await answers(xgroup("x", { type: "CREATECONSUMER", group: "g", consumer: "c" }), 1);
  await answers(redis.xreadgroup("g", "c", "x", ">", { count: 2 }), [["x", [["1-0", ["f", 1]], ["2-0", ["f", "b"]]]]]);
  await answers(redis.xpending("x", "g", "-", "+", 1), [["1-0", "c", 0, 1]]);
  await answers(redis.xclaim("x", "g", "d", 0, "1-0"), [["1-0", ["f", 1]]]);
  await answers(redis.xautoclaim("x", "g", "d", 0, "0", { count: 1, justId: true }), ["2-0", ["1-0"], []]);
  const group = ["name", "g", "consumers", 2, "pending", 2, "last-delivered-id", "2-0", "entries-read", 2, "lag", 0];
  await answers(redis.xinfo("x", { type: "GROUPS" }), [group]);
  await answers(redis.xack("x", "g", "1-0"), 1);
  await answers(redis.xackdel("x", "g", "KEEPREF", "2-0", "2-0"), [1, 1]);
  await answers(redis.xdelex("x", "KEEPREF", "1-0", "9-0"), [1, -1]);
  await answers(redis.xadd("x", "3-0", { f: 1 }), "3-0");
  await answers(redis.xdel("x", "3-0"), 1);
  await answers(redis.xtrim("x", { strategy: "MAXLEN", threshold: 0 }), 0);
});

test("documents", async () => {
  await answers(redis.json.set("j", "$", { a: [1, 2], n: 1.5, s: "x", b: true, o: { k: 1 } }), "OK");
  await answers(redis.json.get("j", "$.n"), [1.5]);
  await answers(redis.json.mget(["j", "none"], "$.n"), [[1.5], null]);
  await answers(redis.json.mset({ key: "j2", path: "$", value: { n: 1 } }), "OK");
  await answers(redis.json.merge("j", "$.o", { m: 2 }), "OK");
  await answers(redis.json.type("j", "$.a"), ["array"]);
  await answers(redis.json.arrappend("j", "$.a", 3, 4), [4]);
  await answers(redis.json.arrindex("j", "$.a", 3), [2]);
  await answers(redis.json.arrinsert("j", "$.a", 0, 0), [5]);
  await answers(redis.json.arrlen("j", "$.a"), [5]);
  await answers(redis.json.arrpop("j", "$.a"), [4]);
  await answers(redis.json.arrtrim("j", "$.a", 0, 1), [2]);
  await answers(redis.json.numincrby("j", "$.n", 1), [2.5]);
  await answers(redis.json.nummultby("j", "$.n", 3), [7.5]);
  await answers(redis.json.objkeys("j", "$.o"), [["k", "m"]]);
  await answers(redis.json.objlen("j", "$.o"), [2]);
  await answers(redis.json.resp("j", "$.n"), [7.5]);
  await answers(redis.json.strappend("j", "$.s", '"y"'), [2]);
  await answers(redis.json.strlen("j", "$.s"), [2]);
  await answers(redis.json.toggle("j", "$.b"), [0]);
  await answers(redis.json.clear("j", "$.a"), 1);
  await answers(redis.json.del("j", "$.a"), 1);
  await answers(redis.json.forget("j", "$.s"), 1);
});

test("scripts and functions", async () => {
  await answers(redis.eval("return ARGV[1]", [], ["hi"]), "hi");
  await answers(redis.evalRo("return KEYS[1]", ["k"], []), "k");
  const sha1 = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
  await answers(redis.scriptLoad("return 1"), sha1);
  await answers(redis.scriptExists(sha1, "none"), [1, 0]);
  await answers(redis.evalsha(sha1, [], []), 1);
  await answers(redis.evalshaRo(sha1, [], []), 1);
  await answers(redis.scriptFlush(), "OK");
  const script = redis.createScript("return ARGV[1]");
  await answers(script.eval([], ["a"]), "a");
  await answers(script.evalsha([], ["b"]), "b");
  await answers(script.exec([], ["c"]), "c");
  const code = "#!lua name=lib\nredis.register_function{function_name='f', callback=function() return 'f' end, "
    + "flags={'no-writes'}}";
  await answers(redis.functions.load({ code }), "lib");
  const fn = { name: "f", description: undefined, flags: ["no-writes"] };
  await answers(redis.functions.list(), [{ libraryName: "lib", engine: "LUA", functions: [fn], libraryCode: undefined }]);
  await answers(redis.functions.call("f"), "f");
  await answers(redis.functions.callRo("f"), "f");
  await answers(redis.functions.stats(), { engines: { LUA: { librariesCount: 1, functionsCount: 1 } } });
  await answers(redis.functions.delete("lib"), "OK");
  await answers(redis.functions.flush(), "OK");
});

test("arrays", async () => {
  await answers(redis.arset("ar", 0, "a", "b"), 2);
  await answers(redis.armset("ar", { 5: "abc", 7: 3 }), 2);
  await answers(redis.arget("ar", 0), "a");
  await answers(redis.armget("ar", 0, 9), ["a", null]);
  await answers(redis.argetrange("ar", 0, 2), ["a", "b", null]);
  await answers(redis.arcount("ar"), 4);
  await answers(redis.arlen("ar"), "8");
  await answers(redis.arscan("ar", 0, 5, { limit: 2 }), [["0", "a"], ["1", "b"]]);
  await answers(redis.argrep("ar", 0, 7, { predicates: [{ glob: "a*" }] }), ["0", "5"]);
  const found = redis.argrep("ar", 0, 7, { predicates: [{ exact: "B" }], noCase: true, withValues: true, limit: 1 });
  await answers(found, [["1", "b"]]);
  await answers(redis.arop("ar", 7, 7, "SUM"), 3);
  await answers(redis.arop("ar", 0, 7, { match: "a" }), 1);
  await answers(redis.ardel("ar", 0, 9), 1);
  await answers(redis.ardelrange("ar", [1, 2], [7, 7]), 2);
  await answers(redis.arinsert("log", "x", "y"), "1");
  await answers(redis.arnext("log"), "2");
  await answers(redis.arlastitems("log", 2, { rev: true }), ["y", "x"]);
  await answers(redis.arseek("log", 0), 1);
  await answers(redis.arring("log", 2, "z"), "0");
  const { len, count, nextInsertIndex } = await redis.arinfo("log");
  assert.deepEqual({ len, count, nextInsertIndex }, { len: "2", count: 2, nextInsertIndex: "1" });
});

test("vectors", async () => {
  const index = await redis.vector.createIndex({ name: "vectors", dimension: 3, metric: "COSINE" });
  await answers(index.add("a", [1, 0, 0]), 1);
  await answers(index.add("a", { base64: "AACAPwAAAAAAAAAA" }), 0);
  await answers(index.get("a"), [1, 0, 0]);
  await answers(index.query({ vector: [1, 0, 0], topK: 1, profile: "PRECISE" }), [{ id: "a", score: 1 }]);
  await answers(index.count(), 1);
  await answers(index.info(), { dimension: 3, metric: "COSINE" });
  await answers(index.delete("a"), 1);
  await answers(redis.vector.index("vectors").drop(), 1);
});

test("options of strings, hashes and lists", async () => {
  await answers(redis.set("o", 1, { px: 5000 }), "OK");
  await answers(redis.set("o", 2, { xx: true, keepTtl: true, get: true }), 1);
  await answers(redis.pttl("o"), 5000);
  await answers(redis.set("o", 3, { exat: NOW_S + 9 }), "OK");
  await answers(redis.getex("o", { pxat: (NOW_S + 8) * 1000 }), 3);
  await answers(redis.copy("o", "l", { replace: true }), "COPIED");
  await answers(redis.hsetex("oh", { conditional: "FNX", expiration: { ex: 9 } }, { f: "x" }), 1);
  await answers(redis.hsetex("oh", { expiration: { keepttl: true } }, { f: "y" }), 1);
  await answers(redis.httl("oh", "f"), [9]);
  await answers(redis.rpush("ol", "a", "b", "a"), 3);
  await answers(redis.lpos("ol", "a", { rank: -1, maxLen: 2 }), 2);
  await answers(redis.type("ol"), "list");
  await answers(redis.scan(0, { match: "ol", type: "list", withType: true }), ["0", [{ key: "ol", type: "list" }]]);
});

test("options of sorted sets and places", async () => {
  await answers(redis.zadd("oz", { nx: true }, { score: 1, member: "a" }, { score: 2, member: "b" }), 2);
  await answers(redis.zadd("oz", { xx: true, ch: true }, { score: 3, member: "b" }, { score: 9, member: "c" }), 1);
  await answers(redis.zadd("oz", { gt: true }, { score: 1, member: "b" }), 0);
  await answers(redis.zadd("oz", { lt: true }, { score: 2, member: "b" }), 0);
  await answers(redis.zrange("oz", "(1", "+inf", { byScore: true }), ["b"]);
  await answers(redis.zrange("oz", "+", "-", { byLex: true, rev: true, offset: 1, count: 1 }), ["a"]);
  await answers(redis.zinterstore("od", 1, ["oz"], { weight: 2 }), 2);
  const place = { type: /** @type {const} */ ("FROMLONLAT"), coordinate: { lon: 1, lat: 2 } };
  const box = /** @type {const} */ ({ type: "BYBOX", rect: { width: 1, height: 1 }, rectType: "KM" });
  const all = { withCoord: true, withHash: true, count: { limit: 1, any: true } };
  const hit = { member: "p", hash: "3378080408407459", coord: { long: 0.9999999403953552, lat: 2.000000185646549 } };
  await answers(redis.geosearch("geo", place, box, "ASC", all), [hit]);
  await answers(redis.geosearchstore("geo3", "geo", place, box, "ASC", { storeDist: true }), 2);
});

test("options of streams", async () => {
  const trim = /** @type {const} */ ({ type: "MAXLEN", comparison: "=", threshold: 2 });
  await answers(redis.xadd("none", "*", { f: 1 }, { nomkStream: true }), /** @type {any} */ (null));
  await answers(redis.xadd("ox", "1-0", { f: 1 }, { trim }), "1-0");
  /** @type {any} */
  const xgroup = redis.xgroup;
  await answers(xgroup("ox", { type: "CREATE", group: "g", id: "0", options: { MKSTREAM: true, ENTRIESREAD: 0 } }), "OK");
  await answers(redis.xreadgroup("g", "c", "ox", ">"), [["ox", [["1-0", ["f", 1]]]]]);
  await answers(redis.xpending("ox", "g", "-", "+", 1, { idleTime: 1 }), []);
  // The client sends TIME with IDLE only, and both of them.
  const claim = { idleMS: 5, timeMS: NOW_S * 1000, retryCount: 7, force: true, lastId: 1 };
  await answers(redis.xclaim("ox", "g", "d", 0, "1-0", claim), [["1-0", ["f", 1]]]);
  await answers(redis.xadd("ox", "2-0", { f: 2 }), "2-0");
  await answers(redis.xreadgroup("g", "c", "ox", ">", { NOACK: true }), [["ox", [["2-0", ["f", 2]]]]]);
  await answers(redis.xtrim("ox", { strategy: "MAXLEN", exactness: "=", threshold: 1 }), 1);
});

test("options of documents, scripts and arrays", async () => {
  await answers(redis.json.get("j", { indent: " ", newline: "", space: "" }, "$.n"), [7.5]);
  const code = "#!lua name=lib\nredis.register_function('f', function() return 'f' end)";
  await answers(redis.functions.load({ code, replace: true }), "lib");
  const fn = { name: "f", description: undefined, flags: [] };
  const library = { libraryName: "lib", engine: "LUA", functions: [fn], libraryCode: code };
  await answers(redis.functions.list({ libraryName: "lib", withCode: true }), [library]);
  await answers(redis.createScript("return 1", { readonly: true }).evalRo([], []), 1);
  await answers(redis.scriptFlush({ sync: true }), "OK");
  const predicates = [{ re: "^b" }, { match: "b" }];
  await answers(redis.argrep("ar", 0, 7, { predicates, combine: "AND" }), []);
  const { denseSlices, sparseSlices } = await redis.arinfo("log", { full: true });
  assert.deepEqual([denseSlices, sparseSlices], [0, 1]);
});

test("the server", async () => {
  await answers(redis.ping(), "PONG");
  await answers(redis.echo("hi"), "hi");
  await answers(redis.time(), [NOW_S, 0]);
  await answers(redis.clientSetinfo("LIB-NAME", "x"), "OK");
  await answers(redis.publish("channel", "x"), 0);
  await answers(redis.exec(["STRLEN", "e"]), 1);
  await answers(redis.flushdb(), "OK");
  await answers(redis.set("only", 1), "OK");
  await answers(redis.dbsize(), 1);
  await answers(redis.randomkey(), "only");
  await answers(redis.flushall([{ async: true }]), "OK");
});

test("a pipeline has the same methods and answers", async () => {
  const pipeline = new Redis({ ...another, ...options }).pipeline();
  const own = new Set(propertyNames(pipeline));
  const notInPipelines = { ...EXCUSED, ...NOT_IN_PIPELINES };
  const lacking = publicFunctions("redis", bare, notInPipelines).filter((/** @type {string} */ path) => !own.has(path.split(".")[1]));
  assert.deepEqual(lacking, []);
  const expected = [];
  for (const [path, parameters, answer] of calls) {
    const [, ...names] = path.split(".");
    if (`redis.${names[0]}` in NOT_IN_PIPELINES) continue;
    const method = names.pop() ?? "";
    /** @type {any} */
    const part = names.reduce((object, name) => /** @type {any} */ (object)[name], pipeline);
    part[method](...parameters);
    expected.push(await answer);
  }
  assert.deepStrictEqual(await pipeline.exec(), expected);
});

testSurface({
  objects: {
    redis: bare,
    bitfield: bare.bitfield("k"),
    script: bare.createScript("return 1"),
    vectorIndex: bare.vector.index("vectors"),
  },
  functions: 220,
  excused: EXCUSED,
  declarations: readdirSync(new URL("node_modules/@upstash/redis", import.meta.url))
    .filter((file) => /^error-.*\.d\.ts$/.test(file))
    .map((file) => `@upstash/redis/${file}`),
  fields: 400,
  notPassed: {
    ...named(
      "a positional parameter",
      "centerPoint destination encoding end entries member1 member2 milliseconds minIdleTime operation option opts",
      "seconds shape source start timestamp unit whereFrom whereTo",
    ),
    ...named(
      "passed by search.test.mjs",
      "aggregations alias combineMode dataType depth distance existsOk factor fast field fields filter from highlight",
      "indexName interval keyed language missing modifier noStem noTokenize order orderBy percents postTag preTag prefix",
      "minDocCount ranges schema scoreFunc scoreMode select sigma size skipInitialScan slop stream to transpositionCostOne",
    ),
    ...named(
      "a field of an answer",
      "avg avgDenseFill avgDenseSize avgSparseSize buckets channel children coord data denseSlices description",
      "directorySize dist docCount docCountErrorUpperBound engine engines error flags functionsCount hash len",
      "librariesCount libraryCode lng long lower lowerPopulation lowerSampling max message min nextInsertIndex pattern",
      "pmessage prefixes punsubscribe result sliceSize slices sparseSlices stdDeviation stdDeviationBounds",
      "stdDeviationPopulation stdDeviationSampling sum sumOfSquares sumOtherDocCount superDirEntries unsubscribe upper",
      "upperPopulation upperSampling values variance variancePopulation varianceSampling",
    ),
    ...named(
      "a setting of the client",
      "agent automaticDeserialization backend backoff cache enableAutoPipelining enableTelemetry keepAlive",
      "latencyLogging platform readYourWrites responseEncoding retries retry runtime sdk",
    ),
    ...named(
      "part of the client's own transport",
      "baseUrl body command commandOptions deserialize headers client isStreaming multiExec onMessage request serialize",
      "signal streamOptions upstashSyncToken",
    ),
    ...named("a field or a function that EXCUSED names", "addTelemetry autoPipeline functions multi pipeline psubscribe subscribe use"),
    ...named("private in the type definitions", "script sha1"),
    ...named("passed by redis.test.mjs", "keepErrors"),
    ...named("rejected by the REST API, which has no blocking commands", "blockMS"),
  },
});
