// Moves of the clock, and what they caused.

import {both, clockNow, count, el, link, micros, moving, say, short, showClock} from "./dom.js";
import {ask} from "./api.js";
import {restoreButton} from "./history.js";

// The last moves of the clock by which something became due, as links with the time that they reached.
export const moves = [], MOST_MOVES = 5;
export async function moved(body) {
  if (moving.text) throw new Error("The clock is still moving. Wait until it has arrived.");
  moving.text = `Moving the clock${body.to ? ` to ${both(body.to) || body.to} UTC` : ""}…`;
  const looking = setInterval(() => ask("GET", "/state").then((state) => showClock(state.clock), () => {}), 500);
  const began = clockNow();
  let found, latest;
  moving.until = null;
  try { ({latest} = await ask("GET", "/state")); say(moving.text, "busy"); found = await ask("POST", "/clock", body); } finally { clearInterval(looking); moving.text = ""; say(""); }
  showClock(found);
  const isStopped = moving.until !== null && micros(found.now) < micros(moving.until), {fired, expired} = found;
  // Hundreds of keys may expire, among which the other events would not be found.
  const gone = new Set(expired), events = fired.filter((line) => !gone.has(line)).map((line) => short(line.replace(/^\S+ /, ""), 80));
  const rows = (text, status) => el("a", {href: link(["activity"], {from: micros(began) + 1, to: micros(found.now), status})}, text);
  const linked = () => [events.length ? rows(`${count(events.length, "event")} became due`, gone.size ? "unexpired" : "") : null, events.length && gone.size ? ", " : null,
    gone.size ? rows(`${count(expired.length, "key")} expired`, "expired") : null].filter(Boolean);
  if (fired.length) moves.splice(0, moves.length, {now: found.now, linked, events}, ...moves.slice(0, MOST_MOVES - 1));
  const [first] = fired.length ? await ask("GET", `/journal?after=${latest}&limit=1`) : [], since = first && `/journal/${first.number}`;
  // The clock does not go back, but the data does.
  const back = first ? restoreButton("Restore all fakes…", "Restore all fakes to just before the move", `${since}/since`, () => ask("POST", `${since}/restore`, {}), "All fakes") : "";
  // The notice of a stopped move stays, because where it ended was not chosen.
  say([`${isStopped ? `Stopped at ${both(found.now)} UTC, before ${both(moving.until)}.` : `It is ${both(found.now)} UTC.`}${fired.length ? " " : ""}`, ...linked(), `${fired.length ? `${isStopped && events.length ? `, the last: ${events.at(-1)}` : ""}.` : isStopped ? " Nothing became due." : ""}`, back], isStopped ? "busy" : "good");
  return !isStopped;
}
