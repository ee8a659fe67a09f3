// The official Kafka REST client over its whole surface, against one fake broker.
// Topics are made, faults set and time moved through FAKE_CONTROL; everything else is the client.
// FAKE_CANNOT names what the engine behind the fake cannot do, one thing a line. A test that is
// about nothing else is skipped; the others wait, as all do who use a real cluster: its groups take
// a moment to form, and it may answer with the records of one partition now and another's next.
import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";
import { Kafka, UpstashError } from "@upstash/kafka";
import { control } from "./control.mjs";
import { named, noteParameters, noting, testSurface } from "./surface.mjs";

const { UPSTASH_KAFKA_REST_URL, UPSTASH_KAFKA_REST_USERNAME, UPSTASH_KAFKA_REST_PASSWORD } = process.env;

const configuration = {
  url: UPSTASH_KAFKA_REST_URL + "/",
  username: UPSTASH_KAFKA_REST_USERNAME,
  password: UPSTASH_KAFKA_REST_PASSWORD,
};
noteParameters(configuration);
const kafka = noting("kafka", new Kafka(configuration));
const parts = { producer: kafka.producer(), consumer: kafka.consumer(), admin: kafka.admin() };
const producer = noting("producer", parts.producer);
const consumer = noting("consumer", parts.consumer);
const admin = noting("admin", parts.admin);

const cannot = (process.env.FAKE_CANNOT ?? "").split("\n");
const can = (what) => !cannot.includes(what);
/** The option that skips a test where the engine cannot do what it is about. */
const needs = (what) => ({ skip: can(what) ? false : `not possible here: ${what}` });

/** Let the client's waits between retries (0.5 to 8 s) pass at once; returns what they would have been. */
async function withoutWaiting(run) {
  const real = globalThis.setTimeout;
  const waits = [];
  globalThis.setTimeout = (callback, delay, ...rest) => {
    // The HTTP library keeps timers of its own; those must run as they are.
    if (new Error().stack.includes("upstash/kafka")) {
      waits.push(delay);
      return real(callback, 0, ...rest);
    }
    return real(callback, delay, ...rest);
  };
  try {
    await run();
  } finally {
    globalThis.setTimeout = real;
  }
  return waits;
}

/** What `look` finds as soon as it is something else than undefined or false. */
async function eventually(look, what) {
  const until = Date.now() + 30_000;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    assert.ok(Date.now() < until, `never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

let topic;
let group;
let serial = 0;

beforeEach(async () => {
  serial += 1;
  topic = `topic-${serial}`;
  group = `group-${serial}`;
  await control("create_topic", topic, 3);
});

const instance = "instance-1";
const earliest = { autoOffsetReset: "earliest", autoCommit: false };
const consume = (options = {}) =>
  consumer.consume({ consumerGroupId: group, instanceId: instance, topics: [topic], timeout: 0, ...earliest, ...options });

/** The instances of the test's group and the partitions of the test's topic that each one has. */
async function shares() {
  const found = (await parts.admin.consumers()).find((one) => one.name === group);
  return Object.fromEntries(
    (found?.instances ?? []).map(({ name, topics }) => [name, topics.find((t) => t.topic === topic)?.partitions ?? []]),
  );
}

/** Join the group, and wait until the instance has all partitions. */
async function join(options) {
  assert.deepEqual(await consume(options), []);
  await eventually(async () => (await shares())[instance]?.length === 3, "the group has formed");
}

/** The next records, at least so many: the in-memory engine gives them all at once. */
async function consumeSome(count, options) {
  const messages = await consume(options);
  if (can("groups without delay")) assert.ok(messages.length >= count, `${messages.length} of ${count} records`);
  await eventually(async () => {
    if (messages.length < count) messages.push(...(await consume(options)));
    return messages.length >= count;
  }, `${count} records are consumed`);
  return messages;
}
const inLogOrder = (messages) => messages.toSorted((a, b) => a.partition - b.partition);

describe("producer", () => {
  test("produce answers with one metadata object", async () => {
    const before = await control("now");
    const place = await producer.produce(topic, "hello");
    assert.deepEqual(Object.keys(place).sort(), ["offset", "partition", "timestamp", "topic"]);
    assert.equal(place.topic, topic);
    assert.equal(place.offset, 0);
    assert.ok(place.timestamp >= before && String(place.timestamp).length === 13);
  });

  test("produce takes partition, timestamp, key and headers", async () => {
    const headers = [
      { key: "b", value: "1" },
      { key: "a", value: "wörld" },
      { key: "b", value: "2" },
    ];
    const place = await producer.produce(topic, "välue 😀", { partition: 2, timestamp: 1234, key: "k", headers });
    assert.deepEqual(place, { topic, partition: 2, offset: 0, timestamp: 1234 });
    const [message] = await consumer.fetch({ topic, partition: 2, offset: 0, timeout: 0 });
    assert.deepEqual(message, { ...place, key: "k", value: "välue 😀", headers });
  });

  test("objects are serialised and come back as the exact string", async () => {
    await producer.produce(topic, { a: [1, { b: null }] }, { partition: 0 });
    const [message] = await consumer.fetch({ topic, partition: 0, offset: 0, timeout: 0 });
    assert.equal(message.value, '{"a":[1,{"b":null}]}');
    assert.deepEqual([message.key, message.headers], ["", []]);
  });

  test("a key chooses its partition as the Java client does", async () => {
    const places = [];
    for (const key of ["city", "abc", "abcd"]) places.push((await producer.produce(topic, "x", { key })).partition);
    assert.deepEqual(places, [1, 0, 2]);
  });

  test("produceMany answers in request order, over several topics", async () => {
    await control("create_topic", `${topic}-b`, 1);
    const places = await producer.produceMany([
      { topic, value: "one", partition: 1 },
      { topic: `${topic}-b`, value: { two: 2 } },
      { topic, value: "three", partition: 1, key: "k", headers: [{ key: "h", value: "v" }] },
    ]);
    assert.deepEqual(
      places.map((p) => [p.topic, p.partition, p.offset]),
      [[topic, 1, 0], [`${topic}-b`, 0, 0], [topic, 1, 1]],
    );
  });
});

describe("consumer without a group", () => {
  const seed = async () => {
    await control("create_topic", `${topic}-b`, 1);
    await producer.produceMany([0, 1, 2].map((partition) => ({ topic, partition, value: `p${partition}` })));
    await producer.produce(`${topic}-b`, "other");
  };
  const values = (messages) => messages.map((message) => message.value);

  test("fetch of one partition", async () => {
    await seed();
    assert.deepEqual(values(await consumer.fetch({ topic, partition: 1, offset: 0, timeout: 0 })), ["p1"]);
  });

  test("fetch fans out in parallel and keeps the request's order", async () => {
    await seed();
    const topicPartitionOffsets = [
      { topic: `${topic}-b`, partition: 0, offset: 0 },
      { topic, partition: 2, offset: 0 },
      { topic, partition: 0, offset: 0 },
    ];
    const calls = await control("calls", "fetch");
    const messages = await consumer.fetch({ topic, partition: 1, offset: 0, topicPartitionOffsets, timeout: 0 });
    assert.deepEqual(values(messages), ["other", "p2", "p0", "p1"]);
    assert.equal((await control("calls", "fetch")) - calls, 4);
  });

  test("fetch in one request", async () => {
    await seed();
    const topicPartitionOffsets = [{ topic, partition: 2, offset: 0 }, { topic: `${topic}-b`, partition: 0, offset: 0 }];
    const calls = await control("calls", "fetch");
    const messages = await consumer.fetch({ topicPartitionOffsets, timeout: 0 }, { parallel: false });
    assert.deepEqual(values(messages).sort(), ["other", "p2"]);
    assert.equal((await control("calls", "fetch")) - calls, 1);
  });

  test("fetch waits for a message", async () => {
    const waiting = consumer.fetch({ topic, partition: 0, offset: 0, timeout: 20_000 });
    await control("until_parked");
    await producer.produce(topic, "late", { partition: 0 });
    assert.deepEqual(values(await waiting), ["late"]);
  });
});

describe("consumer with a group", () => {
  test("consume delivers each message once, in order in its partition", async () => {
    await producer.produceMany([0, 0, 1].map((partition, n) => ({ topic, partition, value: `m${n}` })));
    let messages = await consumeSome(3);
    if (!can("groups without delay")) messages = inLogOrder(messages);
    assert.deepEqual(messages.map((m) => [m.partition, m.offset, m.value]), [[0, 0, "m0"], [0, 1, "m1"], [1, 0, "m2"]]);
    assert.deepEqual(await consume(), []);
  });

  test("consume of several topics", async () => {
    await control("create_topic", `${topic}-b`, 1);
    await producer.produceMany([{ topic, value: "a" }, { topic: `${topic}-b`, value: "b" }]);
    const messages = await consumeSome(2, { topics: [topic, `${topic}-b`] });
    assert.deepEqual(messages.map((m) => m.value).sort(), ["a", "b"]);
  });

  test("consume starts at the end unless told", async () => {
    await producer.produce(topic, "before");
    const untold = { autoOffsetReset: undefined, autoCommit: undefined };
    await join(untold);
    // A client of Kafka looks up where the end is only once it has its partitions.
    const [first] = await eventually(async () => {
      await producer.produce(topic, "after");
      const messages = await consume(untold);
      if (can("groups without delay")) assert.equal(messages.length, 1);
      return messages.length > 0 && messages;
    }, "something new is consumed");
    assert.equal(first.value, "after");
  });

  test("consume waits for a message", async () => {
    await join();
    const waiting = consume({ timeout: 20_000 });
    await control("until_parked");
    await producer.produce(topic, "late");
    assert.deepEqual((await waiting).map((m) => m.value), ["late"]);
  });

  test("commit stores the very number, one or several", async () => {
    await join();
    const { partition, offset } = await producer.produce(topic, "x", { partition: 1 });
    await consumer.commit({ consumerGroupId: group, instanceId: instance, offset: { topic, partition, offset } });
    const topicPartitions = [{ topic, partition: 1 }, { topic, partition: 0 }];
    const where = { consumerGroupId: group, instanceId: instance, topicPartitions };
    assert.deepEqual(await consumer.committed(where), [
      { topic, partition: 1, offset },
      { topic, partition: 0, offset: -1 },
    ]);
    const several = [{ topic, partition: 1, offset: 5 }, { topic, partition: 0, offset: 6 }];
    await consumer.commit({ consumerGroupId: group, instanceId: instance, offset: several });
    assert.deepEqual(await consumer.committed(where), several);
  });

  test("commit without an offset stores what was consumed", async () => {
    await producer.produceMany([{ topic, partition: 2, value: "a" }, { topic, partition: 2, value: "b" }]);
    await consumeSome(2);
    await consumer.commit({ consumerGroupId: group, instanceId: instance });
    const [committed] = await consumer.committed({
      consumerGroupId: group, instanceId: instance, topicPartitions: [{ topic, partition: 2 }],
    });
    assert.equal(committed.offset, 2);
  });

  test("auto commit runs on the interval of the first consume", async () => {
    await producer.produce(topic, "a", { partition: 0 });
    const where = { consumerGroupId: group, instanceId: instance, topicPartition: { topic, partition: 0 } };
    const committed = async () => (await admin.committedOffsets(where))[0].offset;
    if (can("virtual time")) {
      await consumeSome(1, { autoCommit: true, autoCommitInterval: 60_000 });
      assert.equal(await committed(), -1);
      await control("advance", "60s");
      assert.equal(await committed(), 1);
    } else {
      await consumeSome(1, { autoCommit: true, autoCommitInterval: 100 });
      await eventually(async () => (await committed()) === 1, "the offset is committed");
    }
  });

  test("no interval, no commit", async () => {
    await producer.produce(topic, "a", { partition: 0 });
    await consumeSome(1, { autoCommitInterval: 100 });
    await consumer.commit({ consumerGroupId: group, instanceId: instance, offset: { topic, partition: 1, offset: 7 } });
    const topicPartitions = [0, 1].map((partition) => ({ topic, partition }));
    const offsets = await admin.committedOffsets({ consumerGroupId: group, instanceId: instance, topicPartitions });
    assert.deepEqual(offsets.map((tp) => tp.offset), [-1, 7]);
  });

  test("an instance that joins gets its share and what was not committed", async () => {
    await producer.produceMany([0, 1, 2].map((partition) => ({ topic, partition, value: `p${partition}` })));
    await consumeSome(3);
    const second = { instanceId: "instance-2" };
    const [mine, theirs] = [[], await consume(second)];
    if (can("groups without delay")) assert.deepEqual(await shares(), { [instance]: [0, 1], "instance-2": [2] });
    // Who has which partition is the cluster's choice, but each one is somebody's and nobody's twice.
    const sizes = async () => Object.values(await shares()).map((partitions) => partitions.length).sort();
    await eventually(async () => (await sizes()).join() === "1,2", "the group has formed again");
    const has = await shares();
    await eventually(async () => {
      mine.push(...(await consume()));
      theirs.push(...(await consume(second)));
      return mine.length >= has[instance].length && theirs.length >= has["instance-2"].length;
    }, "both have their records");
    const numbers = (messages) => [...new Set(messages.map((m) => m.partition))].sort();
    assert.deepEqual([numbers(mine), numbers(theirs)], [has[instance], has["instance-2"]]);
  });
});

describe("admin", () => {
  test("topics", async () => {
    assert.equal((await admin.topics())[topic], 3);
  });

  test("consumers lists a group after one consume", async () => {
    await join();
    const found = (await admin.consumers()).find((one) => one.name === group);
    assert.deepEqual(found, {
      name: group,
      instances: [{ name: instance, topics: [{ topic, partitions: [0, 1, 2] }] }],
    });
  });

  test("removeConsumerInstance", async () => {
    await consume();
    assert.ok(instance in (await shares()));
    await admin.removeConsumerInstance(group, instance);
    assert.equal((await admin.consumers()).find((one) => one.name === group), undefined);
  });

  test("committedOffsets of one partition and of several", async () => {
    await join();
    await consumer.commit({ consumerGroupId: group, instanceId: instance, offset: { topic, partition: 0, offset: 3 } });
    const where = { consumerGroupId: group, instanceId: instance };
    assert.deepEqual(await admin.committedOffsets({ ...where, topicPartition: { topic, partition: 0 } }), [
      { topic, partition: 0, offset: 3 },
    ]);
    const topicPartitions = [{ topic, partition: 1 }, { topic, partition: 0 }];
    assert.deepEqual(
      (await admin.committedOffsets({ ...where, topicPartitions })).map((tp) => tp.offset),
      [-1, 3],
    );
  });

  const offsetAt = async (timestamp) =>
    (await admin.topicPartitionOffsets({ timestamp, topicPartition: { topic, partition: 0 } }))[0].offset;

  test("topicPartitionOffsets earliest and latest", async () => {
    await producer.produceMany([0, 0, 2].map((partition) => ({ topic, partition, value: "x" })));
    assert.deepEqual([await offsetAt("earliest"), await offsetAt("latest")], [0, 2]);
  });

  test("topicPartitionOffsets at a time", needs("offsets by time"), async () => {
    await producer.produceMany([50, 10, 90].map((timestamp) => ({ topic, partition: 0, timestamp, value: "x" })));
    assert.deepEqual([await offsetAt(10), await offsetAt(51), await offsetAt(91)], [0, 2, -1]);
  });

  test("topicPartitionOffsets at a time in seconds", async () => {
    const topicPartitions = [{ topic, partition: 0 }, { topic, partition: 1 }];
    const seconds = Math.floor(Date.now() / 1000);
    const offsets = await admin.topicPartitionOffsets({ timestamp: seconds, topicPartitions });
    assert.ok(offsets.every((tp) => typeof tp.offset === "number"));
  });
});

describe("errors and retries", () => {
  test("a failure is an UpstashError with the broker's words, after six requests", async () => {
    const calls = await control("calls", "produce");
    const waits = await withoutWaiting(() =>
      assert.rejects(producer.produce("no-such-topic", "x"), (error) => {
        assert.ok(error instanceof UpstashError);
        assert.equal(error.name, "UpstashError");
        assert.equal(error.status, 404);
        assert.match(error.message, /no-such-topic/);
        assert.equal(error.error, error.message);
        assert.equal(error.result, undefined);
        return true;
      }),
    );
    assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000]);
    assert.equal((await control("calls", "produce")) - calls, 6);
  });

  test("wrong credentials", async () => {
    const stranger = new Kafka({ url: UPSTASH_KAFKA_REST_URL, username: "x", password: "y" });
    await withoutWaiting(() => assert.rejects(stranger.admin().topics(), { name: "UpstashError", status: 401 }));
  });

  test("a broker that is overloaded for a moment", async () => {
    await control("fault", "answer", 503, "produce", 2);
    await withoutWaiting(() => producer.produce(topic, "x", { partition: 0 }));
    assert.equal((await consumer.fetch({ topic, partition: 0, offset: 0, timeout: 0 })).length, 1);
  });

  test("a lost answer is sent again: a true duplicate", async () => {
    await control("fault", "lose_response", null, "produce", 1);
    await withoutWaiting(() => producer.produce(topic, "once", { partition: 0 }));
    const messages = await consumer.fetch({ topic, partition: 0, offset: 0, timeout: 0 });
    assert.deepEqual(messages.map((m) => [m.offset, m.value]), [[0, "once"], [1, "once"]]);
  });
});

testSurface({
  objects: { kafka: new Kafka(configuration), ...parts },
  functions: 14,
  excused: named("the client's own transport", "kafka.client producer.client consumer.client admin.client"),
  declarations: ["@upstash/kafka/dist/index.d.ts"],
  fields: 25,
  notPassed: {
    ...named("a field of an answer", "status result error instances name partitions"),
    ...named("part of the client's own transport", "baseUrl body path retries"),
  },
});
