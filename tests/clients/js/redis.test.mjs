// @upstash/redis and @upstash/ratelimit, against the servers in FAKE_KV_SERVERS.
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { IpDenyList, MultiRegionRatelimit, Ratelimit } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis";
import { noting, testSurface } from "./surface.mjs";

const servers = JSON.parse(process.env.FAKE_KV_SERVERS);
// What the engine behind the servers cannot do, and why: tests that need it are skipped with that.
const lacks = JSON.parse(process.env.FAKE_KV_LACKS ?? "{}");

const needs = (...names) => ({ skip: names.map((name) => lacks[name]).find(Boolean) ?? false });

function connect(name, options = {}) {
  return new Redis({ ...servers[name], enableTelemetry: false, ...options });
}

// Some of a time to live may have passed already.
const left = (found, all) => assert.ok(all - 20 <= found && found <= all, `${found} of ${all}`);

const until = async (condition, patience = 5000) => {
  const end = Date.now() + patience;
  while (!(await condition())) {
    assert.ok(Date.now() < end, "nothing happened");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

describe("single commands", () => {
  const redis = connect("single", { enableAutoPipelining: false });

  test("strings keep their types", async () => {
    assert.equal(await redis.set("k", "v", { ex: 100 }), "OK");
    assert.equal(await redis.get("k"), "v");
    left(await redis.ttl("k"), 100);
    assert.equal(await redis.set("k", "w", { nx: true }), null);
    await redis.set("doc", { a: [1, "x", null], b: true });
    assert.deepEqual(await redis.get("doc"), { a: [1, "x", null], b: true });
    await redis.set("text", "h\u00e9 \u4e2d \u{1f600}");
    assert.equal(await redis.get("text"), "h\u00e9 \u4e2d \u{1f600}");
    assert.equal(await redis.incrbyfloat("f", 1.5), 1.5);
    assert.deepEqual(await redis.mget("k", "none"), ["v", null]);
    assert.equal(await redis.getdel("k"), "v");
  });

  test("hashes, lists, sets and sorted sets", async () => {
    assert.equal(await redis.hset("h", { a: 1, b: "x" }), 2);
    assert.deepEqual(await redis.hgetall("h"), { a: 1, b: "x" });
    assert.equal(await redis.hgetall("none"), null);
    assert.equal(await redis.rpush("l", "a", "b"), 2);
    assert.equal(await redis.lmove("l", "m", "left", "right"), "a");
    assert.deepEqual(await redis.lrange("l", 0, -1), ["b"]);
    assert.equal(await redis.sadd("s", "a", "b"), 2);
    assert.equal(await redis.sintercard(["s", "s"]), 2);
    await redis.zadd("z", { score: 1.5, member: "a" }, { score: 2, member: "b" });
    assert.deepEqual(await redis.zrange("z", 0, -1, { withScores: true }), ["a", 1.5, "b", 2]);
    assert.equal(await redis.zscore("z", "a"), 1.5);
  });

  test("fields that expire", needs("HEXPIRE"), async () => {
    await redis.hset("fields", { a: 1, b: "x" });
    assert.deepEqual(await redis.hexpire("fields", "a", 100), [1]);
    const [first, second] = await redis.httl("fields", ["a", "b"]);
    left(first, 100);
    assert.equal(second, -1);
    assert.deepEqual(await redis.hpexpire("fields", "a", 20), [1]);
    await until(async () => (await redis.hget("fields", "a")) === null);
    assert.deepEqual(await redis.hgetall("fields"), { b: "x" });
  });

  test("scans and streams", async () => {
    const [cursor, keys] = await redis.scan(0, { match: "z*", withType: true });
    assert.equal(cursor, "0");
    assert.deepEqual(keys, [{ key: "z", type: "zset" }]);
    const id = await redis.xadd("st", "*", { n: 1 });
    assert.deepEqual(await redis.xrange("st", "-", "+"), { [id]: { n: 1 } });
    await redis.xgroup("st", { type: "CREATE", group: "g", id: "0" });
    const read = await redis.xreadgroup("g", "c", "st", ">");
    assert.equal(read[0][1][0][0], id);
    assert.equal(await redis.xack("st", "g", id), 1);
  });

  test("documents", needs("JSON.SET"), async () => {
    assert.equal(await redis.json.set("j", "$", { a: [1, 2], n: 1 }), "OK");
    assert.deepEqual(await redis.json.get("j"), { a: [1, 2], n: 1 });
    assert.deepEqual(await redis.json.get("j", "$.a"), [[1, 2]]);
    assert.deepEqual(await redis.json.numincrby("j", "$.n", 2), [3]);
    assert.deepEqual(await redis.json.arrappend("j", "$.a", 3), [3]);
    assert.deepEqual(await redis.json.mget(["j", "none"], "$.n"), [[3], null]);
    assert.equal(await redis.json.del("j", "$.a"), 1);
  });

  test("arrays: values, ranges and holes", needs("ARSET"), async () => {
    assert.equal(await redis.arset("array", 0, "a", { b: 1 }), 2);
    assert.equal(await redis.armset("array", { 0: "A", 5: 7 }), 1);
    assert.equal(await redis.armset("array", [[1, "b"], ["6", "g"]]), 1);
    assert.equal(await redis.arget("array", 5), 7);
    assert.equal(await redis.arget("array", 3), null);
    assert.deepEqual(await redis.armget("array", 6, 3, 0), ["g", null, "A"]);
    assert.deepEqual(await redis.argetrange("array", 6, 4), ["g", 7, null]);
    assert.deepEqual(await redis.argetrange("none", 0, 1), [null, null]);
    assert.deepEqual(await redis.arscan("array", 1, 100), [["1", "b"], ["5", 7], ["6", "g"]]);
    assert.deepEqual(await redis.arscan("array", 0, 100, { limit: 1 }), [["0", "A"]]);
    assert.equal(await redis.arcount("array"), 4);
    assert.equal(await redis.arlen("array"), "7");
    assert.equal(await redis.type("array"), "array");
    assert.equal(await redis.ardel("array", 6, 6, 99), 1);
    assert.equal(await redis.ardelrange("array", [0, 2], [4, 9]), 3);
    assert.equal(await redis.exists("array"), 0);
    await assert.rejects(redis.argetrange("array", 0, 1000000), /range exceeds maximum of 1000000/);
    await assert.rejects(redis.arset("array", -1, "x"), /ERR invalid array index/);
  });

  test("arrays: appending", needs("ARSET"), async () => {
    assert.equal(await redis.arinsert("log", "a", "b"), "1");
    assert.equal(await redis.arnext("log"), "2");
    assert.equal(await redis.arseek("log", 5), 1);
    assert.equal(await redis.arseek("none", 5), 0);
    assert.equal(await redis.arinsert("log", "f"), "5");
    assert.deepEqual(await redis.arlastitems("log", 2), [null, "f"]);
    assert.equal(await redis.arring("ring", 3, "a", "b", "c"), "2");
    assert.equal(await redis.arring("ring", 3, "d"), "0");
    assert.deepEqual(await redis.arlastitems("ring", 3, { rev: true }), ["d", "c", "b"]);
    const info = await redis.arinfo("ring");
    assert.deepEqual(info, {
      len: "3", count: 3, sliceSize: 4096, slices: 1, directorySize: 1, superDirEntries: 0,
      nextInsertIndex: "1",
    });
    const full = await redis.arinfo("ring", { full: true });
    assert.deepEqual([full.denseSlices, full.sparseSlices, full.avgSparseSize], [0, 1, 3]);
    await assert.rejects(redis.arinfo("none"), /no such key/);
  });

  test("arrays: large indexes are strings", needs("ARSET"), async () => {
    const high = "18446744073709551613";
    assert.equal(await redis.arset("high", high, "x"), 1);
    assert.equal(await redis.arlen("high"), "18446744073709551614");
    assert.deepEqual(await redis.arscan("high", 0, "18446744073709551614"), [[high, "x"]]);
    assert.deepEqual(await redis.argrep("high", "-", "+", { predicates: [{ exact: "x" }] }), [high]);
    assert.equal(await redis.arseek("high", high), 1);
    assert.equal(await redis.arnext("high"), high);
    assert.equal(await redis.arinsert("high", "y"), high);
    assert.equal(await redis.arinsert("high", "z"), "18446744073709551614");
    assert.equal(await redis.arnext("high"), null);
    await assert.rejects(redis.arinsert("high", "q"), /insert index overflow/);
    assert.equal((await redis.arinfo("high")).len, "18446744073709551615");
  });

  test("arrays: searching and arithmetic", needs("ARSET"), async () => {
    await redis.arset("lines", 0, "error: disk", "ok", "ERROR: net", "apricot");
    const found = (options) => redis.argrep("lines", "-", "+", options);
    assert.deepEqual(await found({ predicates: [{ match: "error" }], noCase: true }), ["0", "2"]);
    assert.deepEqual(await found({ predicates: [{ exact: "ok" }, { exact: "apricot" }], limit: 1 }), ["1"]);
    assert.deepEqual(await found({ predicates: [{ re: "^[a-z]+$" }], withValues: true }), [["1", "ok"], ["3", "apricot"]]);
    assert.deepEqual(await found({ predicates: [{ glob: "a*" }, { match: "cot" }], combine: "and" }), ["3"]);
    await redis.arset("numbers", 0, 1, 2, "x", 4.5);
    assert.equal(await redis.arop("numbers", 0, 3, "SUM"), 7.5);
    assert.equal(await redis.arop("numbers", 0, 1, "max"), 2);
    assert.equal(await redis.arop("numbers", 0, 1, "xor"), 3);
    assert.equal(await redis.arop("numbers", 0, 3, { match: "x" }), 1);
    assert.equal(await redis.arop("numbers", 2, 2, "SUM"), null);
    const pipeline = redis.pipeline();
    pipeline.arinsert("piped", "a").arscan("piped", 0, 9).arop("piped", 0, 9, "USED").arlen("piped");
    assert.deepEqual(await pipeline.exec(), ["0", [["0", "a"]], 1, "1"]);
  });

  test("errors say which command", async () => {
    await redis.set("word", "x");
    await assert.rejects(redis.incr("word"), /ERR value is not an integer.*command was/);
    await assert.rejects(connect("single", { token: "no" }).ping(), /WRONGPASS/);
    await assert.rejects(redis.exec(["NOSUCH"]), /not available/);
  });

  test("raw commands and telemetry", async () => {
    assert.equal(typeof (await redis.exec(["MEMORY", "USAGE", "word"])), "number");
    const noisy = connect("single", { enableTelemetry: true });
    assert.equal(await noisy.ping(), "PONG");
    assert.equal(await redis.ping(["hi"]), "hi");
    assert.equal(await redis.echo("hi"), "hi");
    assert.ok((await redis.time()).length === 2);
  });

  test("the read-only token", async () => {
    const reader = connect("single", { token: servers.single.readOnlyToken });
    assert.equal(await reader.get("word"), "x");
    await assert.rejects(reader.set("word", "y"), /NOPERM/);
    await assert.rejects(reader.scan(0), /NOPERM/);
  });
});

describe("scripts and functions", () => {
  const redis = connect("scripts");

  test("by text and by digest", async () => {
    const script = redis.createScript("return ARGV[1]");
    assert.equal(await script.exec([], ["hi"]), "hi");
    await redis.scriptFlush();
    assert.equal(await script.exec([], ["again"]), "again");
    assert.deepEqual(await redis.eval("return {KEYS[1], ARGV[1]}", ["k"], ["a"]), ["k", "a"]);
    const sha = await redis.scriptLoad("return 1");
    assert.equal(await redis.evalsha(sha, [], []), 1);
    assert.deepEqual(await redis.scriptExists(sha, "none"), [1, 0]);
    const reading = redis.createScript("return redis.call('GET', KEYS[1])", { readonly: true });
    assert.equal(await reading.exec(["none"], []), null);
    await assert.rejects(
      redis.evalRo("return redis.call('SET', KEYS[1], 1)", ["k"], []),
      /not allowed from read-only scripts/,
    );
  });

  test("libraries", async () => {
    const code = `#!lua name=mylib
      redis.register_function('hello', function(keys, args) return 'hi ' .. args[1] end)
      redis.register_function{function_name='peek', flags={'no-writes'},
        callback=function(keys, args) return redis.call('GET', keys[1]) end}`;
    assert.equal(await redis.functions.load({ code, replace: true }), "mylib");
    assert.equal(await redis.functions.call("hello", [], ["you"]), "hi you");
    await redis.set("k", "v");
    assert.equal(await redis.functions.callRo("peek", ["k"], []), "v");
    const [library] = await redis.functions.list({ libraryName: "my*", withCode: true });
    assert.equal(library.libraryName, "mylib");
    assert.equal(library.functions.length, 2);
    assert.equal(await redis.functions.delete("mylib"), "OK");
    assert.equal(await redis.functions.flush(), "OK");
  });
});

describe("several at once", () => {
  test("pipelines and transactions", async () => {
    const redis = connect("several");
    const pipeline = redis.pipeline();
    pipeline.set("a", 1).incr("a").hset("h", { f: "v" }).hgetall("h");
    assert.deepEqual(await pipeline.exec(), ["OK", 2, 1, { f: "v" }]);
    const failing = redis.pipeline().set("w", "x").incr("w").get("w");
    await assert.rejects(failing.exec(), /Command 2 \[ incr \] failed/);
    const kept = await redis.pipeline().incr("w").get("w").exec({ keepErrors: true });
    assert.match(kept[0].error, /not an integer/);
    assert.equal(kept[1].result, "x");
    assert.deepEqual(await redis.multi().set("b", "y").get("b").exec(), ["OK", "y"]);
    await assert.rejects(redis.multi().exec(), /Pipeline is empty/);
  });

  test("commands of one tick go together", async () => {
    const redis = connect("auto", { enableAutoPipelining: true });
    const replies = await Promise.all([
      redis.set("a", "1"),
      redis.incr("a"),
      redis.hset("h", { f: "v" }),
    ]);
    assert.deepEqual(replies, ["OK", 2, 1]);
    // Apart, because what the client groups with what is its own business.
    assert.equal(await redis.get("a"), 2);
  });

  test("documents go together too", needs("JSON.SET"), async () => {
    const redis = connect("several", { enableAutoPipelining: true });
    const replies = await Promise.all([
      redis.json.set("j", "$", { n: 1 }),
      redis.json.numincrby("j", "$.n", 2),
    ]);
    assert.deepEqual(replies, ["OK", [3]]);
  });
});

describe("messages", () => {
  const redis = connect("messages");

  test("channels", async (t) => {
    const subscription = redis.subscribe(["news", "more"]);
    // An open stream would keep the process from its end.
    t.after(() => subscription.unsubscribe());
    const seen = [];
    subscription.on("message", (data) => seen.push(data));
    // Each channel has a stream of its own, and nothing orders one against the other.
    await until(async () => (await redis.publish("news", { n: 1 })) === 1);
    await until(() => seen.length >= 1);
    await until(async () => (await redis.publish("more", "plain, with a comma")) === 1);
    await until(() => seen.length >= 2);
    assert.deepEqual(seen, [
      { channel: "news", message: { n: 1 } },
      { channel: "more", message: "plain, with a comma" },
    ]);
    assert.deepEqual(subscription.getSubscribedChannels().sort(), ["more", "news"]);
    await subscription.unsubscribe();
    await until(async () => (await redis.publish("news", "x")) === 0);
  });

  test("patterns", async (t) => {
    const subscription = redis.psubscribe("user:*");
    t.after(() => subscription.unsubscribe());
    const seen = [];
    subscription.on("pmessage", (data) => seen.push(data));
    await until(async () => (await redis.publish("user:1", { on: true })) === 1);
    await until(() => seen.length >= 1);
    assert.deepEqual(seen[0], { pattern: "user:*", channel: "user:1", message: { on: true } });
    await subscription.unsubscribe();
  });
});

describe("rate limits", () => {
  const redis = connect("limits");
  const kinds = {
    fixed: Ratelimit.fixedWindow(2, "1 d"),
    sliding: Ratelimit.slidingWindow(2, "1 d"),
    bucket: Ratelimit.tokenBucket(1, "1 d", 2),
  };
  for (const [name, limiter] of Object.entries(kinds)) {
    test(name, async () => {
      const limit = noting("ratelimit", new Ratelimit({ redis, limiter, prefix: name, ephemeralCache: false }));
      const found = [];
      for (let n = 0; n < 3; n++) found.push((await limit.limit("ann")).success);
      assert.deepEqual(found, [true, true, false]);
      const { remaining } = await limit.getRemaining("ann");
      assert.equal(remaining, 0);
      await limit.resetUsedTokens("ann");
      assert.equal((await limit.blockUntilReady("ann", 1000)).success, true);
    });
  }

  test("analytics, deny lists and a dynamic limit", async () => {
    const options = { redis, limiter: kinds.fixed, prefix: "watched", analytics: true, enableProtection: true };
    const limit = noting("ratelimit", new Ratelimit({ ...options, dynamicLimits: true, ephemeralCache: false }));
    await redis.sadd("watched:denyList:all", "bad");
    await IpDenyList.disableIpDenyList(redis, "watched");
    const good = await limit.limit("ann", { ip: "1.1.1.1" });
    await good.pending;
    assert.equal(good.success, true);
    const bad = await limit.limit("bad");
    await bad.pending;
    assert.equal(bad.success, false);
    assert.equal(bad.reason, "denyList");
    // The published list of addresses comes from elsewhere; here, from this test.
    const fetch = globalThis.fetch;
    globalThis.fetch = (url, options) =>
      String(url).startsWith("http://127.0.0.1")
        ? fetch(url, options)
        : Promise.resolve(new Response("6.6.6.6\n7.7.7.7"));
    try {
      await IpDenyList.updateIpDenyList(redis, "watched", 6);
    } finally {
      globalThis.fetch = fetch;
    }
    assert.deepEqual((await redis.smembers("watched:denyList:all")).sort(), [
      "6.6.6.6",
      "7.7.7.7",
      "bad",
    ]);
    assert.equal((await limit.limit("eve", { ip: "6.6.6.6" })).reason, "denyList");
    await limit.setDynamicLimit({ limit: 5 });
    assert.equal((await limit.getDynamicLimit()).dynamicLimit, 5);
    const keys = await redis.keys("watched*");
    assert.ok(keys.some((key) => key.startsWith("watched:events")), String(keys));
  });

  test("several regions share a limit", async () => {
    const limiter = MultiRegionRatelimit.slidingWindow(2, "1 d");
    const regions = [redis, connect("single")];
    const limit = new MultiRegionRatelimit({ redis: regions, limiter, prefix: "regions", ephemeralCache: false });
    for (const expected of [true, true, false]) {
      const { success, pending } = await limit.limit("ann");
      await pending;
      assert.equal(success, expected);
    }
  });
});

testSurface({
  objects: { ratelimit: new Ratelimit({ redis: connect("limits"), limiter: Ratelimit.fixedWindow(1, "1 d") }) },
  functions: 6,
  excused: {
    "ratelimit.limiter": "the algorithm, given to the constructor",
    "ratelimit.ctx": "the client's own transport",
    "ratelimit.primaryRedis": "given to the constructor",
    "ratelimit.getRatelimitResponse": "private in the type definitions",
    "ratelimit.applyTimeout": "private in the type definitions",
    "ratelimit.submitAnalytics": "private in the type definitions",
    "ratelimit.getKey": "private in the type definitions",
    "ratelimit.getDefinedMembers": "private in the type definitions",
  },
});
