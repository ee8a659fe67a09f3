// Moves of the clock, and what they caused.

import {both, clockNow, count, el, link, micros, moving, say, short, showClock} from "./dom.js";
import {ask} from "./api.js";
import {restoreButton} from "./history.js";

// The last moves of the clock by which something became due, as links with the time that they reached.
export const moves = [], MOST_MOVES = 5;
// Without a time, a move goes to the next event, also if it is the expiry of a key.
export async function moved(body) {
  if (moving.text) throw new Error("The clock is still moving. Wait until it has arrived.");
  if (body.action === "move_to" && !body.to) {
    const {next} = await ask("GET", "/clock");
    if (!next) throw new Error("Nothing is planned any more.");
    body = {...body, to: next.at};
  }
  moving.text = `Moving the clock${body.to ? ` to ${both(body.to) || body.to} UTC` : ""}…`;
  const looking = setInterval(() => ask("GET", "/state").then((state) => showClock(state.clock), () => {}), 500), began = clockNow();
  let found;
  moving.until = null;
  try { say(moving.text, "busy"); found = await ask("POST", "/clock", {...body, undoable: true}); } finally { clearInterval(looking); moving.text = ""; say(""); }
  showClock(found);
  const isStopped = moving.until !== null && micros(found.now) < micros(moving.until), {fired, expired} = found;
  // Hundreds of keys may expire, among which the other events would not be found.
  const events = found.events.filter(({kind}) => kind !== "expiry"), linked = () => [events.length ? el("a", {href: link(["time"], {moved: found.now})}, `${count(events.length, "event")} became due`) : null, events.length && expired.length ? ", " : null,
    expired.length ? el("a", {href: link(["activity"], {from: micros(began) + 1, to: micros(found.now), status: "expired"})}, `${count(expired.length, "key")} expired`) : null].filter(Boolean);
  // Only the last move can be undone.
  const undo = async () => { showClock(await ask("POST", "/clock/undo")); moves.splice(0, moves.length, ...moves.filter(({now}) => now !== found.now)); return {}; };
  const back = () => found.undoable ? restoreButton("Undo the move…", "Undo the move of the clock", "/clock/undo", undo, "All data and the clock") : "", clock = {freeze: "The clock is frozen at", resume: "The clock runs again, from"}[body.action] ?? "It is";
  moves.splice(0, moves.length, ...[fired.length ? {now: found.now, linked, events, back} : null, ...moves.map((move) => found.undoable ? {...move, back: () => ""} : move)].filter(Boolean).slice(0, MOST_MOVES));
  // The notice of a stopped move stays, because where it ended was not chosen.
  say([`${isStopped ? `Stopped at ${both(found.now)} UTC, before ${both(moving.until)}.` : `${clock} ${both(found.now)} UTC.`}${fired.length ? " " : ""}`, ...linked(), `${fired.length ? `${isStopped && events.length ? `, the last: ${short(events.at(-1).what, 80)}` : ""}.` : isStopped ? " Nothing became due." : ""}`, back()], isStopped ? "busy" : "good");
  return !isStopped;
}
