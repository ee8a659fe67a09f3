"""Topics, records and consumer groups of a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TypedDict

from ...cloud.fake import core_of
from ...core.calls import Event
from ...core.errors import ContractError
from ...core.timers import Timer, to_datetime
from ...inspect.data import (
    MOST_IN_VIEW,
    Item,
    Listing,
    NotFound,
    PageQuery,
    PlannedEvent,
    State,
    View,
    cut,
    natural,
    page_of,
    page_of_names,
    plain,
)
from ..engine.engine import MemoryEngine
from ..fake import Broker
from ..model import GroupDescription, Record, TopicPartition
from ..views import description_of

PREVIEW = 2000
"""Maximum number of characters of a value in a row of records."""


def _topics(fake: Broker) -> list[str]:
    return [topic.name for topic in fake.topics()]


def _groups(fake: Broker) -> list[str]:
    return [group.name for group in fake.groups()]


def planned(fake: Broker) -> dict[Timer, PlannedEvent]:
    """Return what the timers do that forget committed offsets of groups; nothing of a real server."""
    engine = core_of(fake).engine
    if not isinstance(engine, MemoryEngine):
        return {}
    with engine.state, engine.state.lock:
        return {
            timer: PlannedEvent(
                "removal", "groups", name, f"removal of the empty group {name} by its age"
            )
            for name, group in engine.state.groups.items()
            if (timer := group.timers.get("offset retention")) is not None
        }


def state(fake: Broker) -> State:
    """Return partitions, topics and groups, and what each group has read of the partitions."""
    partitions: dict[str, Item] = {}
    for name in _topics(fake):
        partitions |= _partition_items(fake, name)
    engine, groups = core_of(fake).engine, [description_of(view) for view in fake.groups()]
    sections: State = {"partitions": partitions}
    if isinstance(engine, MemoryEngine):
        with engine.state, engine.state.lock:
            sections["topics"] = {
                name: {
                    "retention (ms)": topic.retention_ms,
                    "retention (bytes)": topic.retention_bytes,
                }
                for name, topic in engine.state.topics.items()
            }
    sections["groups"] = {
        group.name: {
            "state": group.state,
            "generation": group.generation,
            "members": {member.name: member.state for member in group.members},
        }
        for group in groups
    }
    for group in groups:
        owners = {at: member for member, places in group.assignment.items() for at in places}
        sections[f"group {group.name}"] = {
            name: {
                "owner": owners.get(at), "committed": group.committed.get(at),
                "position": group.position.get(at),
                **partitions.get(name, {"start": 0, "end": 0}),
            }
            for at in dict.fromkeys([*group.lag, *group.committed, *owners])
            for name in [_name_of(at)]
        }  # fmt: skip
    return sections


def added(fake: Broker, section: str, before: Item | None, after: Item, item: str) -> list[View]:
    """Return the records that a partition has got between two states, of which the second is that of
    now: at most 20, oldest first.
    """
    topic, _, partition = item.rpartition("-")
    start = max(0 if before is None else before["end"], after["start"]) if "end" in after else 0
    if section != "partitions" or start >= after["end"]:
        return []
    return [
        _record(record)
        for record in fake.topic(topic).records
        if record.partition == int(partition) and start <= record.offset < after["end"]
    ][:_MOST_ADDED]


_MOST_ADDED = 20


def item_reader(fake: Broker, section: str, item: str) -> Callable[[], Item | None] | None:
    """Return a function that reads one partition; None for other items."""
    topic, _, number = item.rpartition("-")
    if section != "partitions" or not number.isdecimal():
        return None

    def read() -> Item | None:
        try:
            return _partition_items(fake, topic).get(item)
        except ContractError:
            return None  # There is no such topic.

    return read


def _partition_items(fake: Broker, name: str) -> dict[str, Item]:
    return {
        f"{name}-{partition['partition']}": {"start": partition["start"], "end": partition["end"]}
        for partition in _partitions(fake, name)
    }


def _partitions(fake: Broker, name: str) -> list[View]:
    topic = fake.topic(name)
    offsets = zip(topic.start_offsets, topic.end_offsets, strict=True)
    return [
        {"partition": number, "start": start, "end": end}
        for number, (start, end) in enumerate(offsets)
    ]


def _name_of(at: TopicPartition) -> str:
    return f"{at.topic}-{at.partition}"


def topics(fake: Broker, page_query: PageQuery) -> View:
    return page_of_names(_topics(fake), page_query, lambda name: _topic(fake, name))


def topic(fake: Broker, id: str, page_query: PageQuery) -> View:
    if id not in _topics(fake):
        raise NotFound(f"there is no topic {id!r:.200}")
    view = _topic(fake, id)
    return {**view, "groups": list(_groups_of_topic(fake, view))}


def _groups_of_topic(fake: Broker, topic: View) -> Iterator[View]:
    """Yield the groups that have read a topic, each with the topic's partitions."""
    names = _partition_items(fake, topic["name"])
    for group in _group_views(fake, _groups(fake)):
        partitions = [view for view in group["partitions"] if view["partition"] in names]
        if partitions:
            lag = sum(view["lag"] for view in partitions)
            yield {"name": group["name"], "lag": lag, "partitions": partitions}


def _topic(fake: Broker, name: str) -> View:
    partitions = _partitions(fake, name)
    count = sum(partition["end"] - partition["start"] for partition in partitions)
    return {"name": name, "records": count, "partitions": partitions}


def records(fake: Broker, page_query: PageQuery) -> View:
    """Return a page of a topic's records, newest first.

    With ``offset`` or ``at`` (a time), the page begins at that record and goes on to newer ones.
    """
    name = page_query.filters.get("topic", "")
    if name not in _topics(fake):
        raise NotFound(f"there is no topic {name!r:.200}: pass `topic`, the name of a topic")
    every = fake.topic(name).records
    sign = 1 if page_query.filters.get("offset") or page_query.filters.get("at") else -1
    page = page_of(
        _filtered(every, page_query),
        page_query,
        sort_key=lambda record: (sign * record.timestamp, record.partition, sign * record.offset),
        show=_record,
        text=lambda record: f"{record.key or ''}\n{record.value}",
    )
    return page | {"total": len(every)}


def _filtered(every: Iterable[Record], page_query: PageQuery) -> Iterator[Record]:
    partition, offset = page_query.number("partition"), page_query.number("offset")
    from_us = page_query.time_us("at")
    for record in every:
        if (
            (partition is None or record.partition == partition)
            and (offset is None or record.offset >= offset)
            and (from_us is None or record.timestamp >= from_us // 1000)
        ):
            yield record


def _record(record: Record) -> View:
    return {
        "id": f"{record.partition}-{record.offset}",
        "partition": record.partition,
        "offset": record.offset,
        "at": to_datetime(record.timestamp * 1000).isoformat(),
        "key": record.key,
        **cut("value", record.value, PREVIEW),
    }


def record(fake: Broker, id: str, page_query: PageQuery) -> View:
    """Return one record in full, by ``<partition>-<offset>``."""
    name = page_query.filters.get("topic", "")
    if name in _topics(fake):
        for record in fake.topic(name).records:
            if f"{record.partition}-{record.offset}" == id:
                return _record(record) | {
                    "topic": name,
                    "value": record.value,
                    "is_whole": True,
                    "headers": [list(pair) for pair in record.headers],
                }
    raise NotFound(
        f"topic {name!r:.200} has no record {id!r:.50}; the id is `<partition>-<offset>`, "
        "and old records are deleted when their retention ends"
    )


def groups(fake: Broker, page_query: PageQuery) -> View:
    """Return a page of consumer groups, which are found by their names and those of their members."""

    def text(view: View) -> str:
        return " ".join([view["name"], *(member["name"] for member in view["members"])])

    views = _group_views(fake, _groups(fake))
    return page_of(
        views,
        page_query,
        sort_key=lambda view: (natural(view["name"]),),
        show=lambda view: view,
        text=text,
    )


def group(fake: Broker, id: str, page_query: PageQuery) -> View:
    if id not in _groups(fake):
        raise NotFound(f"there is no consumer group {id!r:.200}")
    [view] = _group_views(fake, [id])
    names = [name for topic in _topics(fake) for name in _partition_items(fake, topic)]
    return {**view, "lag_over_time": _lag_over_time(fake, view), "can_commit": names}


_MOST_LAGS = 500
"""Number of intervals of which a partition's lag over time has points, if it has more."""


class LagView(TypedDict):
    """The lag of a partition from a time on."""

    partition: str
    at_us: int
    lag: int


def _lag_over_time(fake: Broker, group: View) -> list[LagView]:
    """Return how the lag of each partition changed, from the commits in the journal and the times of
    the records that the log still has.

    A partition begins with the first commit that the journal has, because what the group had read
    before is not known; without any, with the first record that it has not read.
    """
    commits: dict[str, list[tuple[int, int]]] = {}
    for event in fake.journal.entries:
        if isinstance(event, Event) and event.data.get("group") == group["name"]:
            for topic, number, offset in event.data.get("offsets") or ():
                commits.setdefault(f"{topic}-{number}", []).append((event.at_us, offset))
    topics = _topics(fake)
    points: list[LagView] = []
    for partition in group["partitions"]:
        name = partition["partition"]
        topic, _, number = name.rpartition("-")
        records = fake.topic(topic).records if topic in topics else ()
        of_partition = [record for record in records if record.partition == int(number)]
        # Producers choose the times of records, which need not be in the order of the log.
        times = accumulate((record.timestamp * 1000 for record in of_partition), max)
        ends = [record.offset + 1 for record in of_partition]
        written = list(zip(times, ends, strict=True))
        end = ends[-1] if ends else 0
        read = commits.get(name) or [(0, end - partition["lag"])]
        # A record is written before the commit of the same time that includes it.
        steps = sorted(
            [*((at_us, 0, offset) for at_us, offset in written),
             *((at_us, 1, offset) for at_us, offset in read)]
        )  # fmt: skip
        points += _lags(name, steps)
    return sorted(points, key=lambda point: point["at_us"])


def _lags(name: str, steps: Iterable[tuple[int, int, int]]) -> list[LagView]:
    """Return the lags after steps, which are times of records (0) and of commits (1) with offsets."""
    committed = end = None
    lags: dict[int, int] = {}
    for at_us, is_commit, offset in steps:
        if is_commit:
            committed = offset
        else:
            end = offset
        if committed is not None and end is not None and end >= committed:
            lags[at_us] = end - committed
    if len(lags) > _MOST_LAGS:
        first, last = min(lags), max(lags)
        width = (last - first) // _MOST_LAGS + 1
        highest: dict[int, int] = {}
        for at_us in sorted(lags, key=lambda at_us: lags[at_us]):
            highest[(at_us - first) // width] = at_us
        lags = {at_us: lags[at_us] for at_us in {*highest.values(), last}}
    return [{"partition": name, "at_us": at_us, "lag": lag} for at_us, lag in lags.items()]


def content(fake: Broker) -> View:
    """Return the topics with their newest records, and the consumer groups."""

    def show(name: str) -> View:
        all_records = fake.topic(name).records
        return {
            "name": name,
            "count": len(all_records),
            "partitions": _partitions(fake, name),
            "records": [plain(record._asdict()) for record in all_records[-MOST_IN_VIEW:]],
        }

    return {
        "topics": [show(name) for name in _topics(fake)],
        "groups": _group_views(fake, _groups(fake)),
    }


def _group_views(fake: Broker, names: Iterable[str]) -> list[View]:
    items_of_topics = {topic: _partition_items(fake, topic) for topic in _topics(fake)}
    topics_read = _topics_read(fake)
    return [
        _group_view(description_of(fake.group(name)), items_of_topics, topics_read.get(name, set()))
        for name in names
    ]


def _topics_read(fake: Broker) -> dict[str, set[str]]:
    """Return the topics that the members of each group have had, from the rebalances in the journal.

    A group without members and committed offsets does not know them.
    """
    topics: dict[str, set[str]] = {}
    for event in fake.journal.entries:
        if isinstance(event, Event) and event.data.get("assignment"):
            for places in event.data["assignment"].values():
                topics.setdefault(event.data["group"], set()).update(name for name, _ in places)
    return topics


def _group_view(
    group: GroupDescription, items_of_topics: Mapping[str, Mapping[str, Item]], topics: set[str]
) -> View:
    """Return a group with all partitions that it reads, has read or has committed.

    The lag of a partition that nobody reads and that has no committed offset is all its records.
    """
    places = {_name_of(at): at for at in group.lag}
    topics = topics | {at.topic for at in group.lag}
    bounds: dict[str, Item] = {}
    for topic in sorted(topics):
        bounds |= items_of_topics.get(topic, {})
    owners = {_name_of(at): member for member, all in group.assignment.items() for at in all}
    partitions = []
    for name, item in bounds.items():
        at = places.get(name)
        partitions.append({
            "partition": name,
            "committed": at and group.committed.get(at),
            "position": at and group.position.get(at),
            "lag": group.lag[at] if at else item["end"] - item["start"],
            "owner": owners.get(name),
            **item,
        })  # fmt: skip
    return {
        "name": group.name,
        "state": group.state,
        "generation": group.generation,
        "total_lag": sum(partition["lag"] for partition in partitions),
        "members": [
            {
                "name": member.name,
                "state": member.state,
                "assignment": [_name_of(at) for at in member.assignment],
            }
            for member in group.members
        ],
        "partitions": partitions,
    }


def counts(fake: Broker) -> dict[str, int]:
    return {"topics": len(_topics(fake)), "groups": len(_groups(fake))}


LISTS = {
    "topics": Listing(topics, topic),
    "records": Listing(records, record, ("topic", "partition", "offset", "at")),
    "groups": Listing(groups, group),
}
