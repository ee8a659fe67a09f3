"""Findings about records that were written or received twice, skipped, or received without order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...model import Finding
from ..kv.commands import ADDING, commands
from ..look import Look, about, about_group, executed, items_of
from .calls import (
    Place,
    calls_of,
    committed_places,
    consume_calls,
    group_of,
    groups_without_commits,
    instance_of,
    place_of,
    received_records,
)  # fmt: skip

if TYPE_CHECKING:
    from ....core.calls import Call


def produced_again(look: Look, handle: Any) -> Iterator[Finding]:
    """Find produce requests that failed after appending records, and were then repeated."""
    failed: list[Call] = []
    for call in calls_of(look, handle):
        if call.route != "produce" or call.cut:
            continue
        if call.status is None or call.status >= 500:
            failed.append(call)
            continue
        first = next((one for one in failed if one.body == call.body), None)
        if first is None or call.status != 200:
            continue
        values = {one.get("value") for one in items_of(call.body)}
        milliseconds = range(first.at_us // 1000, call.at_us // 1000 + 1)
        own = {place_of(one) for one in items_of(call.answer) if "offset" in one}
        appended_before = [
            record.value
            for topic in handle.topics()
            for record in handle.records(topic)
            if record.timestamp in milliseconds
            and record.value in values
            and (topic, record.partition, record.offset) not in own
        ]
        if appended_before:
            found = {"status": first.status, "values": appended_before}
            yield Finding("produced_again", handle.name, (call.number, first.number), (), found)


def received_again(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records that a group received more than once."""
    deliveries: dict[tuple[str, Place], list[Call]] = {}
    for call, group, places in consume_calls(look, handle):
        for place in places:
            deliveries.setdefault((group, place), []).append(call)
    # Records that the same instances received in the same calls are one finding.
    together: dict[tuple[str, tuple[str, ...], Call, Call], list[Place]] = {}
    for (group, place), calls in deliveries.items():
        if len(calls) > 1:
            by = tuple(map(instance_of, calls))
            together.setdefault((group, by, calls[0], calls[-1]), []).append(place)
    without_commits = groups_without_commits(handle)
    for (group, by, first, again), places in together.items():
        repeated = _repeated_commands(look, first, again)
        if repeated:
            ((name, times),) = repeated.most_common(1)
            values: dict[str, Any] = {"records": len(places), "command": name, "times": times}
            yield about_group("redelivered_and_repeated", again, group, **values)
        elif group not in without_commits:
            committed = _commits_before(look, handle, again)
            own = [one for one in places if one in committed]
            values = {
                "records": [f"{one.of_partition}@{one.offset}" for one in places], "by": list(by),
                "last": [f"{one.of_partition}={one.offset}" for one in own],
            }  # fmt: skip
            yield about_group("received_again", again, group, **values)


def _repeated_commands(look: Look, first: Call, again: Call) -> Counter[str]:
    """Return how often each command was repeated after a redelivery, by the command's name."""
    before: list[list[str]] = []
    repeated: Counter[str] = Counter()
    for handle in look.handles("kv"):
        for command in commands(look, handle):
            if command.name not in ADDING or command.entry.number < first.number:
                continue
            if command.entry.number < again.number:
                before.append(command.words)
            elif command.words in before:
                before.remove(command.words)
                repeated[command.name] += 1
    return repeated


def _commits_before(look: Look, handle: Any, again: Call) -> set[Place]:
    """Return the offsets that a group committed up to a redelivery.

    A client that commits a record's own offset, instead of the next, receives the record again.
    """
    return {
        place
        for call in calls_of(look, handle)
        if call.number <= again.number and group_of(call) == group_of(again)
        for place in committed_places(call)
    }


def records_skipped(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records between a committed offset and the next record that the group received.

    Example: a group commits the offset 3 and next receives the record at 5, so it skipped two.
    """
    committed: dict[tuple[str, str, int], int] = {}
    received: dict[tuple[str, str, int], set[int]] = {}
    for call in calls_of(look, handle):
        if not executed(call):
            continue
        group = group_of(call)
        for place in committed_places(call):
            committed[group, place.topic, place.partition] = place.offset
        for place in map(place_of, received_records(call)):
            partition = group, place.topic, place.partition
            known, first = received.setdefault(partition, set()), committed.get(partition)
            if first is not None and first < place.offset and max(known, default=-1) < first:
                values = _skipped_values(handle, place, first, group, instance_of(call))
                yield about_group("records_skipped", call, group, **values)
            known.add(place.offset)


def _skipped_values(
    handle: Any, place: Place, committed: int, group: str, instance: str
) -> dict[str, Any]:
    start = handle.topic(place.topic).start_offsets[place.partition]
    return {
        "partition": place.of_partition,
        "committed": committed,
        "received": place.offset,
        "skipped": place.offset - committed,
        "start": start,
        "deleted": max(0, min(start, place.offset) - committed),
        "latest": any(
            member.name == instance and member.config.auto_offset_reset == "latest"
            for member in handle.group(group).members
        ),
    }


def started_at_end(look: Look, handle: Any) -> Iterator[Finding]:
    """Find groups without commits that started after existing records because their reset is
    ``latest``.
    """
    received: dict[tuple[str, str, int], set[int]] = {}
    first: dict[str, Call] = {}
    for call, group, places in consume_calls(look, handle):
        first.setdefault(group, call)
        for place in places:
            received.setdefault((group, place.topic, place.partition), set()).add(place.offset)
    for group, call in first.items():
        view = handle.group(group)
        for member in view.members:
            if member.config.auto_offset_reset != "latest":
                continue
            for tp, position in member.position.items():
                offsets = received.get((group, tp.topic, tp.partition), set())
                start = handle.topic(tp.topic).start_offsets[tp.partition]
                reached = min(offsets, default=position)
                if tp in view.committed or reached is None or reached <= start:
                    continue
                values = {"skipped": reached - start, "partition": f"{tp.topic}-{tp.partition}"}
                yield about_group("started_at_end", call, group, **values)


def no_order(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records without keys that one call received from several partitions."""
    for call in calls_of(look, handle):
        records = received_records(call)
        unkeyed: dict[str, set[int]] = {}
        for record in records:
            if not record.get("key"):
                unkeyed.setdefault(record["topic"], set()).add(record["partition"])
        for topic, partitions in unkeyed.items():
            if len(partitions) > 1 and len(records) > len(partitions):
                yield about("topic", "no_order", call, topic, partitions=len(partitions))
