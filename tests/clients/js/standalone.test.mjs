// The npm clients against a stand-alone server, with nothing but its environment variables.
import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";
import { Kafka } from "@upstash/kafka";
import { Client } from "@upstash/qstash";
import { Redis } from "@upstash/redis";
import { Index } from "@upstash/vector";

const { env } = process;

async function control(path, body) {
  const answer = await fetch(`${env.PYTEST_FAKECLOUD_URL}/__control__${path}`, {
    method: body ? "POST" : "GET",
    headers: { Authorization: `Bearer ${env.PYTEST_FAKECLOUD_TOKEN}` },
    body: body && JSON.stringify(body),
  });
  assert.equal(answer.status, 200);
  return answer.json();
}

test("a key expires when the clock is advanced", async () => {
  const redis = Redis.fromEnv({ enableTelemetry: false });
  await redis.set("session", "ada", { ex: 1800 });
  assert.equal(await redis.get("session"), "ada");
  await control("/clock", { action: "advance", by: "31m" });
  assert.equal(await redis.get("session"), null);
});

test("vectors are found", async () => {
  const index = new Index();
  await index.upsert([{ id: "a", vector: [1, 0] }, { id: "b", vector: [0, 1] }]);
  const [hit] = await index.query({ vector: [1, 0.1], topK: 1 });
  assert.equal(hit.id, "a");
});

test("records are produced and read back", async () => {
  const kafka = new Kafka({
    url: env.UPSTASH_KAFKA_REST_URL,
    username: env.UPSTASH_KAFKA_REST_USERNAME,
    password: env.UPSTASH_KAFKA_REST_PASSWORD,
  });
  await kafka.producer().produce("orders", { item: "kettle" });
  const records = await kafka.consumer().fetch({ topic: "orders", partition: 0, offset: 0, timeout: 0 });
  assert.deepEqual(JSON.parse(records[0].value), { item: "kettle" });
});

test("a message is delivered to a server of this process", async () => {
  const received = [];
  const server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      received.push([request.headers["upstash-message-id"], body]);
      response.end("ok");
    });
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  try {
    const client = new Client({ token: env.QSTASH_TOKEN, baseUrl: env.QSTASH_URL });
    const url = `http://127.0.0.1:${server.address().port}/hook`;
    const { messageId } = await client.publishJSON({ url, body: { to: "ada" }, delay: 3600 });
    assert.deepEqual(received, []);
    await control("/clock", { action: "advance", by: "1h" });
    assert.deepEqual(received, [[messageId, '{"to":"ada"}']]);
  } finally {
    server.close();
  }
});

test("the journal tells what happened", async () => {
  const rows = await control("/journal");
  assert.deepEqual(new Set(rows.map((row) => row.fake)),
    new Set(["kv_server", "vector_index", "broker", "queue"]));
});
