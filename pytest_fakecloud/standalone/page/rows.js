// The rows of the timeline. Each is kept once, even if rows arrive twice, late or out of order.
export class Rows {
  constructor(most = 10000) { this.most = most; this.floor = this.whole = 0; this.known = new Map(); this.list = []; }

  // Adds the rows of a response that contains all rows after a number.
  cover(found) { this.whole = Math.max(this.whole, ...found.map((row) => row.number)); this.merge(found); }

  // Adds or replaces rows. An older copy of a call, without its answer, replaces nothing.
  merge(found) {
    let grown = false;
    for (const row of found) {
      if (row.number <= this.floor) continue;
      const known = this.known.get(row.number);
      if (known?.done && !row.done) continue;
      this.known.set(row.number, row);
      grown = true;
    }
    if (!grown) return;
    this.list = [...this.known.values()].sort((one, other) => one.number - other.number);
    for (const row of this.list.splice(0, Math.max(0, this.list.length - this.most))) { this.known.delete(row.number); this.floor = row.number; }
  }

  // The number up to which all rows are known. Request more after it.
  get latest() { return Math.max(this.whole, this.floor); }

  // The number up to which all rows are known and done.
  get cursor() { const first = this.list.find((row) => !row.done); return first ? Math.min(first.number - 1, this.latest) : this.latest; }

  begin() { this.known.clear(); this.list = []; this.floor = this.whole = 0; }

  // Forgets all rows and ignores later updates of them.
  clear() { this.floor = Math.max(this.latest, this.list.at(-1)?.number ?? 0); this.known.clear(); this.list = []; }
}

// Runs `work` one at a time. Calls during a run share one run after it.
export function oneAtATime(work) {
  let last = Promise.resolve(), next = null;
  return () => next ??= last = last.catch(() => {}).then(() => { next = null; return work(); });
}
