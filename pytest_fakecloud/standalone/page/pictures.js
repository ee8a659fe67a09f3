// Charts, drawn at the available width in pixels, so that text keeps its size.

import {micros, span} from "./dom.js";
import {svg} from "./elements.js";

function picture(told, wide, high, parts) {
  return svg("svg", {class: "picture", role: "img", "aria-label": told, viewBox: `0 0 ${wide} ${high}`, width: wide, height: high}, ...parts);
}
const room = () => Math.max(280, Math.min(900, (document.querySelector(".detail:not([hidden])") ?? document.getElementById("view")).clientWidth - 26));
const clipped = (text, pixels) => { const most = Math.max(3, Math.floor(pixels / 6.3)); return text.length > most ? text.slice(0, most - 1) + "…" : text; };
const titled = (text) => svg("title", {}, text);

// Due times on a logarithmic axis, which separates near events and still shows far ones.
export function strip(now, due) {
  const wide = room(), left = 12, right = wide - 20, from = micros(now);
  const after = due.map((one) => Math.max(0, micros(one.at) - from));
  const place = (us) => Math.log10(1 + us / 1e5), most = Math.max(place(6e7), ...after.map(place));
  const x = (us) => left + (right - left) * place(us) / most;
  const heights = new Map(), dots = [];
  due.forEach((one, index) => {
    const column = Math.round(x(after[index]) / 9), stacked = heights.get(column) || 0;
    heights.set(column, stacked + 1);
    if (stacked < 9) dots.push(svg("circle", {class: "due", cx: column * 9, cy: 88 - 9 * stacked, r: 4}, titled(`${one.what}: in ${span(after[index])}`)));
  });
  let last = -1e9;
  const ticks = [[0, "now"], [1e6, "1 s"], [1e7, "10 s"], [6e7, "1 m"], [6e8, "10 m"], [3.6e9, "1 h"], [2.16e10, "6 h"], [8.64e10, "1 d"], [6.048e11, "7 d"],
    [2.592e12, "30 d"], [3.1536e13, "1 year"]].filter(([us]) => place(us) <= most).flatMap(([us, word]) => {
    if (x(us) - last < 38) return [];
    last = x(us);
    return [svg("path", {class: "axis", d: `M${x(us)} 95V101`}), svg("text", {x: x(us), y: 114, "text-anchor": us === 0 ? "start" : x(us) > right - 20 ? "end" : "middle"}, word)];
  });
  return picture(due.length ? `${due.length} events are due, the first in ${span(after[0])}, the last shown in ${span(after.at(-1))}` : "nothing is planned",
    wide, 120, [svg("path", {class: "axis", d: `M${left} 98H${right}`}), ...ticks, ...dots]);
}

// Vectors projected onto a plane, with the last query and its hits.
export function plot(space) {
  const shown = space.vectors.filter((vector) => vector.point), query = space.query && space.query.point ? space.query : null;
  if (!shown.length) return null;
  const wide = Math.min(640, room()), high = Math.round(wide * .42), found = new Set(query ? query.found : []);
  const points = [...shown.map((vector) => vector.point), ...(query ? [query.point] : [])];
  // Both axes have the same scale, the largest at which all points fit.
  const [middle, reach] = [0, 1].map((axis) => points.map((point) => point[axis])).reduce(([middles, reaches], all) => {
    const [least, most] = [Math.min(...all), Math.max(...all)];
    return [[...middles, (least + most) / 2], [...reaches, Math.max(1e-9, (most - least) / 2)]];
  }, [[], []]);
  const scale = Math.min((wide / 2 - 60) / reach[0], (high / 2 - 24) / reach[1]);
  const at = ([x, y]) => [wide / 2 + (x - middle[0]) * scale, high / 2 - (y - middle[1]) * scale];
  const parts = shown.flatMap((vector) => {
    const [x, y] = at(vector.point);
    return [svg("circle", {class: found.has(vector.id) ? "vector found" : "vector", cx: x, cy: y, r: found.has(vector.id) ? 6 : 4}, titled(`${vector.id} ${JSON.stringify(vector.metadata ?? "").slice(0, 160)}`)),
      shown.length <= wide / 32 || found.has(vector.id) ? svg("text", {x: x + 8, y: y + 4, class: "small"}, clipped(vector.id, Math.max(20, wide - x - 8))) : null];
  });
  if (query) {
    const [x, y] = at(query.point);
    parts.push(svg("path", {class: "query", d: `M${x - 8} ${y}H${x + 8}M${x} ${y - 8}V${y + 8}`}, titled("the last query")),
      svg("text", {x: x + 10, y: y - 6}, "query"));
  }
  return picture(`${shown.length} vectors, projected onto a plane${query ? `, and the last query, which found ${query.found.join(", ") || "nothing"}` : ""}`, wide, high, parts);
}
