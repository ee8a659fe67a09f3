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

// A message's attempts on a time axis. The planned next attempt is hollow.
export function ladder(message) {
  const wide = Math.min(640, room()), label = Math.min(260, wide * .6), row = 22;
  const steps = message.attempts.map((one) => ({at: micros(one.at), good: one.status >= 200 && one.status < 300, words: one.status ?? (one.state === "in flight" ? "in flight" : "no answer")}));
  if (message.next) steps.push({at: micros(message.next), planned: true, words: "planned"});
  const first = steps[0].at, whole = Math.max(1, steps.at(-1).at - first), parts = [];
  steps.forEach((step, number) => {
    const x = 16 + (wide - label) * (step.at - first) / whole, y = 14 + row * number, before = steps[number - 1];
    if (before) parts.push(svg("path", {class: "step", d: `M${before.x} ${before.y}V${y}H${x}`}));
    Object.assign(step, {x, y});
    parts.push(svg("circle", {class: step.planned ? "planned" : step.good ? "good" : "bad", cx: x, cy: y, r: 5}),
      svg("text", {x: x + 10, y: y + 4}, clipped(`${number + 1}: ${step.words}${before ? " after " + span(step.at - before.at) : ""}`, wide - x - 10)));
  });
  return picture(`${message.attempts.length} attempts in ${span(steps.at(-1).at - first)}`, wide, row * steps.length + 8, parts);
}

// A consumer group: a lane for each partition with its member, position and lag.
export function lanes(group, topics) {
  const wide = Math.min(760, room()), label = Math.min(170, wide * .36), row = 30;
  const bounds = new Map(topics.flatMap((topic) => topic.partitions.map((one) => [`${topic.name}-${one.partition}`, one])));
  const owners = group.members.flatMap((member) => member.assignment.map((one) => [one, member.name]));
  const owner = new Map(owners), names = group.members.map((member) => member.name);
  const all = group.partitions.map((one) => ({...one, start: 0, end: 0, ...(bounds.get(one.partition) || {}), name: one.partition}));
  const longest = Math.max(1, ...all.map((one) => one.end - one.start)), end = wide - 76, parts = [];
  all.forEach((one, index) => {
    const y = 4 + row * index, x = (offset) => label + (end - label) * (Math.min(Math.max(offset, one.start), one.end) - one.start) / longest;
    const read = x(one.end - one.lag), who = owner.get(one.name);
    parts.push(svg("text", {x: 0, y: y + 11}, clipped(one.name, label - 6)),
      svg("text", {x: 0, y: y + 24, class: "small"}, clipped(who || "no member", label - 6)),
      svg("rect", {class: "lane", x: label, y: y + 3, width: Math.max(2, x(one.end) - label), height: 18}),
      svg("rect", {class: `member m${who === undefined ? "x" : names.indexOf(who) % 6}`, x: label, y: y + 3, width: Math.max(0, read - label), height: 18},
        titled(`${one.name}: ${who || "no member"} has committed ${one.committed ?? "nothing"}`)),
      one.lag > 0 ? svg("rect", {class: "lag", x: read, y: y + 3, width: Math.max(2, x(one.end) - read), height: 18}, titled(`${one.lag} behind the end`)) : null,
      one.position == null ? null : svg("path", {class: "position", d: `M${x(one.position)} ${y}V${y + 24}`}, titled(`position ${one.position}`)),
      svg("text", {x: end + 6, y: y + 16, class: one.lag ? "behind" : ""}, one.lag ? `lag ${one.lag}` : "caught up"));
  });
  const told = all.map((one) => `${one.name}: ${owner.get(one.name) || "no member"}, lag ${one.lag}`).join("; ");
  return picture(`group ${group.name}. ${told}`, wide, row * all.length + 4, parts);
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

// A workflow run on a time axis. Each row is a message of the run: a pale bar while it waits, a solid
// bar from its first to its last attempt, and a dot for each attempt.
export function gantt(run) {
  const wide = Math.min(760, room()), label = Math.min(180, wide * .34), row = 24, end = wide - 12, parts = [], told = [];
  const names = new Map(run.record.steps.flatMap((group) => group.steps).filter((step) => step.stepName).map((step) => [step.messageId, step.stepName]));
  const rows = run.messages.map((one) => ({name: names.get(one.id), from: micros(one.created), tries: one.tries.map((each) => ({at: micros(each.at), good: each.status >= 200 && each.status < 300, status: each.status})), next: one.next && micros(one.next)}));
  if (!rows.length) return "";
  const first = rows[0].from, last = Math.max(...rows.flatMap((one) => [one.from, one.next ?? 0, ...one.tries.map((each) => each.at)]), run.completed ? micros(run.completed) : 0);
  const x = (at) => label + (end - label) * (at - first) / Math.max(1, last - first);
  rows.forEach((one, index) => {
    const y = 6 + row * index, begun = one.tries[0]?.at ?? one.next ?? one.from, until = one.tries.at(-1)?.at ?? begun, name = one.name === "init" ? "start" : one.name ? `after ${one.name}` : "next step";
    const failed = one.tries.filter((each) => !each.good).length;
    const text = `${name}: ${begun > one.from ? `waits ${span(begun - one.from)}, ` : ""}${one.tries.length} attempt${one.tries.length === 1 ? "" : "s"}${failed ? `, ${failed} failed` : ""}${one.next ? ", next planned" : ""}`;
    told.push(text);
    parts.push(svg("text", {x: 0, y: y + 12}, clipped(name, label - 8)), svg("rect", {class: "wait", x: x(one.from), y: y + 4, width: Math.max(1, x(Math.max(begun, one.next ?? 0)) - x(one.from)), height: 9, rx: 2}, titled(text)),
      svg("rect", {class: failed ? "span failing" : "span", x: x(begun), y: y + 4, width: Math.max(3, x(until) - x(begun)), height: 9, rx: 2}, titled(text)),
      ...one.tries.map((each) => svg("circle", {class: each.good ? "good" : "bad", cx: x(each.at), cy: y + 8.5, r: 4}, titled(each.status ? `answered ${each.status}` : "no answer"))),
      one.next ? svg("circle", {class: "planned", cx: x(one.next), cy: y + 8.5, r: 4}, titled("planned")) : null);
  });
  const bottom = 6 + row * rows.length + 14;
  parts.push(svg("text", {x: label, y: bottom, class: "small"}, "0 s"), svg("text", {x: end, y: bottom, class: "small", "text-anchor": "end"}, span(last - first)));
  return picture(`time of the run. ${told.join("; ")}`, wide, bottom + 6, parts);
}

// The steps of a workflow run from top to bottom, parallel steps side by side.
export function graph(run) {
  const wide = Math.min(640, room()), high = 40, gap = 26, parts = [], told = [];
  let before = [], y = 4;
  for (const group of run.steps) {
    const across = Math.max(1, Math.min(group.steps.length, Math.floor(wide / 110))), each = wide / across, now = [];
    group.steps.forEach((step, index) => {
      const column = index % across, line = Math.floor(index / across), width = Math.min(230, each - 10);
      const x = each * column + (each - width) / 2, top = y + line * (high + 8), kind = (step.state || "STEP_PROGRESS").replace("STEP_", "").toLowerCase();
      const name = step.stepName || (group.type === "next" ? "next step" : step.messageId);
      const detail = [step.stepType, kind, step.callResponseStatus, step.errors ? `${step.errors.length} failed` : null].filter((one) => one != null).join(" · ");
      told.push(`${name}: ${detail}`);
      parts.push(svg("rect", {class: `node ${kind}`, x, y: top, width, height: high, rx: 6}, titled(`${name}: ${detail}`)),
        svg("text", {x: x + 8, y: top + 16}, clipped(String(name), width - 14)), svg("text", {x: x + 8, y: top + 31, class: "small"}, clipped(detail, width - 14)));
      if (line === 0) for (const [fromX, fromY] of before) parts.unshift(svg("path", {class: "edge", d: `M${fromX} ${fromY}V${fromY + gap / 2}H${x + width / 2}V${top}`}));
      now.push([x + width / 2, top + high]);
    });
    y += Math.ceil(group.steps.length / across) * (high + 8) - 8 + gap;
    before = now.slice(-across);
  }
  return picture(`workflow run ${run.workflowRunId}. ${told.join("; ")}`, wide, Math.max(20, y - gap + 4), parts);
}
