import assert from "node:assert";
import test from "node:test";
import {readFileSync} from "node:fs";

// The file has the name that browsers want, which not every Node takes for a module.
const source = readFileSync(new URL("../../../pytest_fakecloud/standalone/page/rows.js", import.meta.url), "utf-8");
const {Rows, oneAtATime} = await import("data:text/javascript," + encodeURIComponent(source));

const row = (number, done = true, fake = "kv_server") => ({number, done, fake});
const turn = () => new Promise((resolve) => setImmediate(resolve));

// A journal that grows, and whose answers are as late as they like to be.
class Journal {
  constructor() { this.rows = []; this.asked = 0; this.atOnce = 0; this.most = 0; }
  write(many, done = true) { for (let i = 0; i < many; i++) this.rows.push(row(this.rows.length + 1, done)); }
  settle(number) { this.rows[number - 1] = row(number); return this.rows[number - 1]; }
  async after(number) {
    this.asked++; this.most = Math.max(this.most, ++this.atOnce);
    const found = this.rows.filter((one) => one.number > number);
    for (let i = 0; i < 1 + this.asked % 5; i++) await turn();
    this.atOnce--;
    return found;
  }
}

test("calls are shown once however refreshes and the stream overlap", async () => {
  const journal = new Journal(), rows = new Rows();
  const refresh = oneAtATime(async () => { rows.cover(await journal.after(rows.cursor)); });
  const running = [];
  while (journal.rows.length < 4400) {
    const before = journal.rows.length;
    journal.write(44);
    running.push(refresh(), refresh(), refresh());
    rows.merge(journal.rows.slice(before, before + 30));
    rows.merge(journal.rows.slice(Math.max(0, before - 10), before + 5));
    await turn();
  }
  await Promise.all(running);
  await refresh();
  assert.deepStrictEqual(rows.list.map((one) => one.number), Array.from({length: 4400}, (_, i) => i + 1));
  assert.strictEqual(journal.most, 1);
});

test("an answer replaces the call under way, and is not taken back", () => {
  const rows = new Rows();
  rows.cover([row(1), row(2, false), row(3)]);
  assert.strictEqual(rows.cursor, 1);
  assert.strictEqual(rows.latest, 3);
  rows.merge([row(2)]);
  assert.strictEqual(rows.cursor, 3);
  rows.merge([row(2, false)]);
  assert.deepStrictEqual(rows.list, [row(1), row(2), row(3)]);
});

test("news comes in any order", () => {
  const rows = new Rows();
  rows.merge([row(3), row(1)]);
  assert.strictEqual(rows.latest, 0);
  rows.merge([row(2)]);
  assert.deepStrictEqual(rows.list.map((one) => one.number), [1, 2, 3]);
});

test("what was forgotten does not come back", () => {
  const rows = new Rows(10);
  for (let number = 1; number <= 100; number++) rows.merge([row(number)]);
  rows.merge([row(5), row(50)]);
  assert.deepStrictEqual(rows.list.map((one) => one.number), [91, 92, 93, 94, 95, 96, 97, 98, 99, 100]);
  rows.clear();
  rows.merge([row(99), row(100)]);
  assert.deepStrictEqual(rows.list, []);
  assert.strictEqual(rows.cursor, 100);
  rows.merge([row(101)]);
  assert.deepStrictEqual(rows.list, [row(101)]);
  assert.strictEqual(rows.dropped.size, 0);
});

test("a fake with many rows does not push out those of the others", () => {
  const rows = new Rows(10);
  rows.merge([row(1, true, "queue"), row(2, true, "queue")]);
  for (let number = 3; number <= 100; number++) rows.merge([row(number)]);
  assert.deepStrictEqual(rows.list.map((one) => one.number), [1, 2, 93, 94, 95, 96, 97, 98, 99, 100]);
  assert.deepStrictEqual([...rows.dropped], [["kv_server", 90]]);
  rows.merge([row(50), row(2, true, "queue")]);
  assert.strictEqual(rows.list.length, 10);
});

test("who asks meanwhile gets one more run, after it", async () => {
  const runs = [];
  let release;
  const work = oneAtATime(() => { runs.push("run"); return new Promise((resolve) => { release = resolve; }); });
  const first = work();
  await turn();
  const second = work(), third = work();
  assert.strictEqual(second, third);
  await turn();
  assert.strictEqual(runs.length, 1);
  release(); await first; await turn(); await turn();
  assert.strictEqual(runs.length, 2);
  release(); await second;
  const fourth = work(); await turn(); release(); await fourth;
  assert.strictEqual(runs.length, 3);
});

test("a run that fails is told to who asked, and the next one runs", async () => {
  let count = 0;
  const work = oneAtATime(async () => { if (++count === 1) throw new Error("gone"); return count; });
  const first = assert.rejects(work(), /gone/);
  await turn();
  const second = work();
  await first;
  assert.strictEqual(await second, 2);
  assert.strictEqual(await work(), 3);
});
