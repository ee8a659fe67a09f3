// Moves of the clock, and what they caused.
import {both, count, el, link, micros, moving, read, say, short, showClock} from "./dom.js";
import {ask} from "./api.js";
import {restoreButton} from "./history.js";

// Links to what a move of the clock caused. Time keeps its filters.
const filters = () => { const {parts, query} = read(); return parts[0] === "time" ? query : {}; };
export const linksOf = ({since, now, count: many, expired}) => [many ? el("a", {href: link(["time"], {...filters(), moved: now})}, `${count(many, "event")} became due`) : null, many && expired ? ", " : null,
  expired ? el("a", {href: link(["activity"], {from: micros(since) + 1, to: micros(now), status: "expired"})}, `${count(expired, "key")} expired`) : null].filter(Boolean);
export const undoButton = ({undoable}) => undoable ? restoreButton("Undo the move…", "Undo the move of the clock", "/clock/undo", async (own) => { showClock(await ask("POST", "/clock/undo", {own})); return {said: `The move is undone. ${own ? "What was written since has stayed" : "The clock and all data are as before it"}.`}; }) : "";
// Without a time, a move goes to the next event, also if it is the expiry of a key.
export async function moved(body) {
  if (moving.text) throw new Error("The clock is still moving. Wait until it has arrived.");
  if (body.action === "move_to" && !body.to) {
    const {next} = await ask("GET", "/clock");
    if (!next) throw new Error("Nothing is planned any more.");
    body = {...body, to: next.at};
  }
  moving.text = `Moving the clock${body.to ? ` to ${both(body.to) || body.to} UTC` : ""}…`;
  const looking = setInterval(() => ask("GET", "/state").then((state) => showClock(state.clock), () => {}), 500);
  let found;
  moving.until = null;
  try { say(moving.text, "busy"); found = await ask("POST", "/clock", {...body, undoable: true}); } finally { clearInterval(looking); moving.text = ""; say(""); }
  showClock(found);
  const isStopped = moving.until !== null && micros(found.now) < micros(moving.until), {result} = found, links = linksOf(result), clock = {freeze: "The clock is frozen at", resume: "The clock runs again, from"}[body.action] ?? "It is";
  // The notice of a stopped move stays, because where it ended was not chosen.
  say([`${isStopped ? `Stopped at ${both(found.now)} UTC, before ${both(moving.until)}.` : `${clock} ${both(found.now)} UTC.`}${links.length ? " " : ""}`, ...links, `${links.length ? `${isStopped && result.count ? `, the last: ${short(found.events.findLast(({kind}) => kind !== "expiry").what, 80)}` : ""}.` : isStopped ? " Nothing became due." : ""}`, undoButton(result)], isStopped ? "busy" : "good");
  return !isStopped;
}
