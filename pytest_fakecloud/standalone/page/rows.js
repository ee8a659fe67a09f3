// The rows of the timeline. Each is kept once, even if rows arrive twice, late or out of order. Of more than `most`, the oldest are dropped; a fake with many rows does not push out those of the others (see `_excess` of the journal). They are dropped 2 % at a time, because a list that only grows at its end is drawn faster. `list` is a new array after each change.
export class Rows {
  constructor(most = 10000) { this.most = most; this.spare = Math.floor(most / 50); this.whole = this.cleared = 0; this.known = new Map(); this.list = []; this.floors = new Map(); this.dropped = new Map(); }

  // Adds the rows of a response that contains all rows after a number.
  cover(found) { this.whole = Math.max(this.whole, ...found.map((row) => row.number)); this.merge(found); }

  // Adds or replaces rows. An older copy of a call, without its answer, replaces nothing.
  merge(found) {
    let grown = false, isOrdered = true;
    const list = this.list.slice();
    for (const row of found) {
      if (row.number <= Math.max(this.cleared, this.floors.get(row.fake) ?? 0)) continue;
      const known = this.known.get(row.number);
      if (known?.done && !row.done) continue;
      this.known.set(row.number, row);
      grown = true;
      if (known) list[list.lastIndexOf(known)] = row;
      else { isOrdered &&= !list.length || list.at(-1).number < row.number; list.push(row); }
    }
    if (!grown) return;
    this.list = isOrdered ? list : list.sort((one, other) => one.number - other.number);
    if (this.list.length > this.most + this.spare) this.drop();
  }

  drop() {
    const groups = new Map();
    for (const row of this.list) if (groups.has(row.fake)) groups.get(row.fake).push(row); else groups.set(row.fake, [row]);
    const byFake = [...groups].sort(([, one], [, other]) => one.length - other.length);
    let left = this.most;
    for (const [at, [fake, rows]] of byFake.entries()) {
      const share = Math.min(rows.length, Math.floor(left / (byFake.length - at))), gone = rows.slice(0, rows.length - share);
      left -= share;
      for (const {number} of gone) this.known.delete(number);
      if (gone.length) { this.floors.set(fake, gone.at(-1).number); this.dropped.set(fake, (this.dropped.get(fake) ?? 0) + gone.length); }
    }
    this.list = this.list.filter((row) => this.known.has(row.number));
  }
  // The number up to which all rows are known. Request more after it.
  get latest() { return Math.max(this.whole, this.cleared); }

  // The number up to which all rows are known and done.
  get cursor() { const first = this.list.find((row) => !row.done); return first ? Math.min(first.number - 1, this.latest) : this.latest; }

  begin() { this.known.clear(); this.list = []; this.whole = this.cleared = 0; this.floors.clear(); this.dropped.clear(); }

  // Forgets all rows and ignores later updates of them.
  clear() { this.cleared = Math.max(this.latest, this.list.at(-1)?.number ?? 0); this.known.clear(); this.list = []; this.dropped.clear(); }
}
// Runs `work` one at a time. Calls during a run share one run after it.
export function oneAtATime(work) {
  let last = Promise.resolve(), next = null;
  return () => next ??= last = last.catch(() => {}).then(() => { next = null; return work(); });
}
