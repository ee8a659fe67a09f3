// The clock in the header of every page.

import {$, attempt, day, el, time} from "./dom.js";
import {ask} from "./api.js";

let clock = {};
export function showClock(found) {
  clock = found;
  const now = $("now");
  now.replaceChildren(el("span", {class: "date"}, day(clock.now)), " ", time(clock.now), el("small", {}, clock.mode === "frozen" ? " UTC, frozen" : " UTC"));
  now.title = clock.mode === "frozen" ? "The clock is frozen: time passes only when you advance it." : "The clock runs.";
  $("freeze").textContent = clock.mode === "frozen" ? "Resume" : "Freeze";
  $("freeze").dataset.mode = clock.mode;
  $("next").disabled = !clock.next_due;
  $("next").title = clock.next_due ? `next due at ${clock.next_due}` : "nothing is planned";
}
export async function move(body) {
  await attempt(async () => showClock(await ask("POST", "/clock", body)));
  document.dispatchEvent(new Event("changed"));
}
export function clockButtons() {
  // A narrow screen shows the other buttons on request.
  $("clock-more").addEventListener("click", () => $("clock-more").setAttribute("aria-expanded", String($("clock-more").getAttribute("aria-expanded") !== "true")));
  for (const button of document.querySelectorAll("[data-by]")) button.addEventListener("click", () => move({action: "advance", by: button.dataset.by}));
  $("advance").addEventListener("submit", (event) => { event.preventDefault(); move({action: "advance", by: $("by").value}); });
  $("next").addEventListener("click", () => move({action: "advance_to_next"}));
  $("freeze").addEventListener("click", () => move({action: clock.mode === "frozen" ? "resume" : "freeze"}));
}
