// The rows of the live journal: read when the page opens, then followed over the stream of events.
import {ask, follow} from "./api.js";
import {Rows, oneAtATime} from "./rows.js";

export const entries = new Rows();
export const journal = {loaded: false, listeners: new Set()};
const NEWEST = 100, PART = 400;
// What calls have in common that an application repeats, such as "kv_server GET session:#".
export const likeOf = ({fake, operation, subjects: [subject] = []}) => [fake, operation, (subject?.name ?? "").replace(/\w*\d\w*/g, "#")].join(" ").trim();
let behind = true;
const came = [];

// The page waits between updates in proportion to the time of the last one, so that it stays responsive.
let spent = 0;
function tell() { const start = performance.now(); for (const listener of journal.listeners) listener(); spent = performance.now() - start; }
export const catchUp = oneAtATime(async () => {
  entries.merge(came.splice(0));
  if (!journal.loaded) await first();
  else if (behind) {
    behind = false;
    try {
      const {latest} = await ask("GET", "/state");
      for (let after = entries.cursor; after < latest; after += PART) entries.cover(await ask("GET", `/journal?after=${after}&limit=${PART}`));
    } catch (error) { behind = true; throw error; }
  }
  tell();
});
// The newest rows come first, then the older ones in parts, so that a part does not block the page.
async function first() {
  const {latest} = await ask("GET", "/state"), from = Math.max(0, latest - NEWEST);
  entries.cover(await ask("GET", `/journal?after=${from}&limit=${PART}`));
  journal.loaded = true;
  behind = false;
  if (!from) return;
  journal.older = true;
  older(from).catch(() => {}).then(() => { journal.older = false; tell(); document.dispatchEvent(new Event("happened")); });
}
async function older(until) {
  for (let after; until > entries.cleared; until = after) {
    after = Math.max(0, until - PART);
    entries.merge(await ask("GET", `/journal?after=${after}&limit=${until - after}`));
    tell();
  }
}
let planned = false, stream;
export function listen() {
  const again = () => setTimeout(listen, 1000);
  stream = new AbortController();
  behind = true;
  follow(entries.cursor, (row) => {
    came.push(row);
    if (planned) return;
    planned = true;
    setTimeout(() => { planned = false; catchUp().catch(() => {}); document.dispatchEvent(new Event("happened")); }, Math.max(120, 6 * spent));
  }, stream.signal).then(again, again);
  catchUp().catch(() => {});
}
// Forgets all entries: a restarted server numbers them from 1 again.
export function startOver() { entries.begin(); journal.loaded = false; stream.abort(); }
