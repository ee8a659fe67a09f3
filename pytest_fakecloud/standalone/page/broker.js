// A broker: topics with partitions, records by offset or time, consumer groups with their lag.
import {both, code, copyButton, count, done, el, emptied, empty, facts, form, head, json, laidOut, link, number, pill, removal, room, short, soft, table, title, tools, when} from "./dom.js";
import {ask, call, item, list, sendWell} from "./api.js";
import {offsets} from "./elements.js";
import {columnsElement} from "./columns.js";
import {recorded, undoOf, undoable, versionsElement} from "./history.js";
import {ListPage} from "./lists.js";

const names = (fake) => async () => (await list(fake, "topics", {limit: 500})).items.map((one) => one.name);
const topicsOf = async (fake) => (await names(fake)()).map((name) => ({value: name, label: name}));

const create = (fake) => form("Create a topic", "Create", [{name: "name", label: "name", needed: true}, {name: "partitions", label: "partitions", kind: "number", value: "1"}],
  async ({name, partitions}, inputs) => { await recorded(fake, `create the topic ${name}`, () => call(fake, "create_topic", name, Number(partitions || 1))); emptied(inputs, "name"); return done("Created ", el("a", {href: link(["fake", fake.name, "topics", name])}, name), "."); }, {open: false, undo: undoOf(fake)});
const produce = (fake, known) => form("Produce", "Produce", [...known ? [] : [{name: "topic", label: "topic", needed: true, list: names(fake)}], {name: "value", label: "value", kind: "area", wide: true}, {name: "key", label: "key"},
  {name: "partition", label: "partition", kind: "number", note: "by key"}, {name: "headers", label: "headers, as JSON", note: '{"trace": "7"}'}],
async ({topic = known, value, key, partition, headers}, inputs) => {
  const given = headers ? Object.entries(json(headers, "The headers")).map(([name, text]) => ({key: name, value: String(text)})) : null;
  const made = await sendWell(fake, "POST", "/produce", {topic, value, ...(key ? {key} : {}), ...(partition ? {partition: Number(partition)} : {}), ...(given ? {headers: given} : {})});
  const [one] = [made].flat();
  emptied(inputs, "value", "key", "headers");
  return done(`Written to partition ${one.partition} at `, el("a", {href: link(["fake", fake.name, "records", `${one.partition}-${one.offset}`], {topic})}, `offset ${one.offset}`), ".");
}, {open: false, undo: undoOf(fake)});
const consume = (fake) => form("Consume", "Consume", [{name: "group", label: "group", value: "console", needed: true}, {name: "instance", label: "instance", value: "one", needed: true},
  {name: "topic", label: "topic", needed: true, list: names(fake)}, {name: "from", label: "a new group begins at", options: ["earliest", "latest"]}],
async ({group, instance, topic, from}) => {
  const records = await sendWell(fake, "GET", `/consume/${[group, instance, topic].map(encodeURIComponent).join("/")}`, "", {"Kafka-Auto-Offset-Reset": from});
  return records.length ? [done(`Consumed ${count(records.length, "record")}.`), table("consumed records", ["partition", "offset", "key", "value"], records, (one) => [one.partition, one.offset, one.key, short(one.value, 300)])] : soft("No new records for this group.");
}, {open: false, undo: undoOf(fake)});

// The lag of a group in a partition, which leads to the first record that the group has not committed.
const lagOf = (fake, each) => !each ? soft("not read") : el("a", {class: each.lag ? "fault" : "", href: linkFrom(fake, each), title: `committed ${each.committed ?? "nothing"}, position ${each.position ?? "unknown"}`}, number(each.lag));
const linkFrom = (fake, {partition, committed, start}) => { const at = partition.lastIndexOf("-"); return link(["fake", fake.name, "records"], {topic: partition.slice(0, at), partition: partition.slice(at + 1), offset: committed ?? start}); };
const topics = {
  list: "topics", noun: "topic", hasItem: true, key: (one) => one.name, columns: ["topic", "partitions", "records"], fields: ["name", null, "records"],
  row: (one) => [one.name, number(one.partitions.length), number(one.records)],
  tools: (fake) => create(fake),
  empty: () => empty("No topics yet.", "Create one above, or start the server with: pytest-fakecloud serve --broker 'topics={\"orders\": 2}'"),
  detail: (one, page) => [title(one.name), el("p", {}, el("a", {href: link(["fake", page.fake.name, "records"], {topic: one.name})}, `Show its ${count(one.records, "record")}`)),
    produce(page.fake, one.name), table("partitions", ["partition", "first offset", "next offset", "records", ...one.groups.map(({name}) => `lag of ${name}`)], one.partitions, (each) => [el("a", {href: link(["fake", page.fake.name, "records"], {topic: one.name, partition: each.partition})}, String(each.partition)), number(each.start), number(each.end), number(each.end - each.start), ...one.groups.map(({partitions}) => lagOf(page.fake, partitions.find(({partition}) => partition === `${one.name}-${each.partition}`)))]),
    one.groups.length ? el("p", {class: "soft"}, "Groups: ", one.groups.map(({name, lag}, at) => [at ? ", " : "", el("a", {href: link(["fake", page.fake.name, "groups", name])}, name), ` ${number(lag)} behind`])) : soft("No consumer group has offsets of this topic. Those of a group without members are removed by their age."),
    form("Add partitions", "Add", [{name: "count", label: "how many", kind: "number", value: "1"}], async ({count: many}) => { await recorded(page.fake, `add partitions to ${one.name}`, () => call(page.fake, "topic.add_partitions", one.name, Number(many))); return done("Added."); }, {open: false, undo: undoOf(page.fake)}),
    tools(removal("Delete all records…", `Delete all records of ${one.name}`, undoable(page.fake, `Deleted the records of ${one.name}.`, () => recorded(page.fake, `delete the records of ${one.name}`, async () => {
      for (const each of one.partitions) await ask("POST", "/call", {object: page.fake.name, name: "topic.delete_records", args: [one.name], kwargs: {before: each.end, partition: each.partition}});
    })), {question: `Delete all ${count(one.records, "record")} of ${one.name}? Offsets go on from where they are.`}),
    removal("Delete topic…", `Delete the topic ${one.name}`, undoable(page.fake, `Deleted the topic ${one.name}.`, async () => { await recorded(page.fake, `delete the topic ${one.name}`, () => call(page.fake, "topic.delete", one.name)); location.hash = page.address(); }), {question: `Delete the topic ${one.name} with its records and committed offsets?`}))],
};

const records = {
  list: "records", noun: "record", about: (one) => [null, `${one.topic}-${one.partition}@${one.offset}`], hasItem: true, itemFilters: ["topic"], needs: "topic", key: (one) => one.id, columns: ["partition-offset", "time", "key", "value"], fields: ["id", "at", "key", "value"],
  filters: [{name: "topic", label: "topic", options: topicsOf}, {name: "partition", label: "partition", note: "partition", type: "number"}, {name: "offset", label: "from offset", note: "from offset", type: "number"}, {name: "at", label: "from time", note: "from time, 2026-01-01T00:00Z"}],
  tools: (fake, page) => {
    const forms = el("div", {class: "forms"}, produce(fake), consume(fake));
    // A form that is opened has the topic of the list.
    forms.addEventListener("toggle", ({target}) => { const topic = target.querySelector("[name=topic]"); if (target.open && target.querySelector("form").dataset.typed !== "yes") topic.value = page.values.topic ?? ""; }, true);
    return forms;
  },
  row: (one) => [one.id, when(one.at), one.key ?? "", short(one.value, 200)],
  empty: () => empty("No records yet.", "A record appears when your application produces one. Produce one above to try."),
  detail: (one) => [title(`${one.topic} ${one.id}`), facts({partition: String(one.partition), offset: number(one.offset), time: both(one.at) + " UTC", key: one.key ?? "no key"}),
    tools(copyButton(one.value, "Copy value", "Copy value")), head("Value"), code(laidOut(one.value), "value"),
    head("Headers"), one.headers.length ? table("headers", ["name", "value"], one.headers, (pair) => pair) : soft("This record has no headers.")],
};

// The lag of the partitions of a group over time. Beyond eight, the others are one.
const MOST_PARTITIONS = 7;
function lagElement({lag_over_time: points}) {
  const names = [...new Set(points.map(({partition}) => partition))].sort(), kindOf = (name) => String(Math.min(MOST_PARTITIONS, names.indexOf(name)));
  const kinds = Object.fromEntries(names.map((name) => [kindOf(name), names.indexOf(name) < MOST_PARTITIONS ? name : "others"]));
  return points.some(({lag}) => lag) ? [head("Lag over time"), columnsElement("lag over time, by partition", points.map(({partition, at_us: at, lag}) => ({at, kind: kindOf(partition), value: lag})), {kinds, level: true, isClock: true, noun: "record", pixels: room()})] : null;
}
// The partitions of a group that a version changed, with what was before and after it. A group that no longer reads a partition has no offsets of it.
const OFFSETS = ["committed", "position", "end", "owner"], same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
function partitionsTable(before, after) {
  const changed = Object.keys({...before, ...after}).filter((name) => !same(before?.[name], after?.[name]));
  return changed.length ? table("what changed", ["partition", ...OFFSETS], changed, (name) => {
    const old = before?.[name], now = after?.[name] ?? {end: old.end};
    return [name, ...OFFSETS.map((field) => !old || same(old[field] ?? null, now[field] ?? null) ? now[field] ?? "none" : `${old[field] ?? "none"} → ${now[field] ?? "none"}`)];
  }) : soft("No partitions.");
}
const hasCommitted = ({partitions}) => partitions.some(({committed}) => committed != null);
// Without a committed offset, the lag counts from where the member began, such as the end of a topic.
const uncommitted = (partitions) => `nothing committed, ${count(partitions.reduce((sum, {start, end}) => sum + end - start, 0), "record")}`;
const groups = {
  list: "groups", noun: "group", hasItem: true, key: (one) => one.name, columns: ["group", "state", "lag", "members"], fields: ["name", "state", "total_lag"],
  row: (one) => [one.name, pill(one.state), one.total_lag ? el("span", {class: "fault"}, number(one.total_lag)) : hasCommitted(one) || !one.partitions.length ? "0" : "0, nothing committed", number(one.members.length)],
  empty: () => empty("No consumer groups.", "A group appears when a client first consumes a topic, and is removed with its offsets some time after its last member has left. Consume one on the Records tab to try."),
  detail: (one, page) => {
    const drop = (member) => removal("Remove…", `Remove ${member.name} from ${one.name}`, undoable(page.fake, `Removed ${member.name}.`, () => recorded(page.fake, `remove ${member.name} from ${one.name}`, () => call(page.fake, "group.leave", one.name, member.name))), {question: `Remove the instance ${member.name}? Its partitions go to the others.`});
    return [title(one.name), facts({state: pill(one.state), generation: number(one.generation), lag: `${number(one.total_lag)}${hasCommitted(one) || !one.partitions.length ? "" : `: ${uncommitted(one.partitions)} in its partitions, which a group that begins at the earliest offset would read`}`}),
      lagElement(one), head("Members"), one.members.length ? table("members", ["instance", "state", "partitions", ""], one.members, (member) => [member.name, member.state, member.assignment.join(", "), drop(member)]) : soft("No members. Committed offsets stay until their retention ends."),
      head("Offsets"), one.partitions.length ? el("ul", {class: "span-legend"}, ["committed", "delivered", "waiting"].map((name) => el("li", {}, el("i", {class: `trace-${name}`}), name))) : null, !one.partitions.length ? soft("It has no member and no committed offset, and no known row tells of a topic that it has read.") : table("offsets", ["partition", "lag", "committed", "position", "end", "member"], one.partitions, (each) => [[el("a", {href: linkFrom(page.fake, each)}, each.partition), offsets(each)], each.lag ? el("span", {class: "fault"}, number(each.lag)) : "0", each.committed ?? "none", each.position ?? "", number(each.end), each.owner ?? "no member"]),
      form("Set a committed offset", "Set", [{name: "partition", label: "topic and partition", options: [...new Set([...one.partitions.map((each) => each.partition), ...one.can_commit])]}, {name: "offset", label: "offset", kind: "number", value: "0"}],
        async ({partition, offset}) => { const at = partition.lastIndexOf("-"); await recorded(page.fake, `commit ${offset} of ${partition} for ${one.name}`, () => call(page.fake, "commit", one.name, partition.slice(0, at), Number(partition.slice(at + 1)), Number(offset))); return done("Set."); }, {open: false, undo: undoOf(page.fake), overwrites: async ({partition}) => {
          const committed = ({partitions}) => partitions.find((each) => each.partition === partition)?.committed, now = committed(await item(page.fake, "groups", encodeURIComponent(one.name)));
          return now === committed(one) ? null : `The committed offset of ${partition} was changed meanwhile, to ${now}. Overwrite it?`;
        }}), versionsElement(page.fake, `group ${one.name}`, "", {changesOf: partitionsTable})];
  },
};

export const tabs = [
  {name: "topics", title: "Topics", counted: "topics", make: (fake) => new ListPage(fake, "topics", topics)},
  {name: "records", title: "Records", make: (fake) => new ListPage(fake, "records", records)},
  {name: "groups", title: "Consumer groups", counted: "groups", make: (fake) => new ListPage(fake, "groups", groups)},
];
