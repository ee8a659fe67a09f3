"""Findings about groups: commits beyond the end, records received twice, groups without commits."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...broker.model import CONSUMER_HEADERS
from ..bodies import parsed
from ..model import Finding
from .kv.commands import ADDING, commands
from .look import Look, about, about_group, executed, items_of

if TYPE_CHECKING:
    from ...core.calls import Call

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


def _group(call: Call) -> str:
    return str(call.facts.get("group"))


def _instance(call: Call) -> str:
    return str(call.facts.get("instance"))


def _received(call: Call) -> list[dict[str, Any]]:
    """Return the records that a consume call returned."""
    answer = parsed(call.answer) if call.route == "consume" and executed(call) else []
    return answer if isinstance(answer, list) else []


def _calls(look: Look, handle: Any) -> list[Call]:
    """Return the calls of a broker except those of groups of which a call is not known in full.

    What such a group has received and committed is unknown.
    """
    calls = look.calls_of(handle)
    unknown = {_group(call) for call in calls if call.reached and not _is_known(call)}
    return [
        call for call in calls if call.facts.get("group") is None or _group(call) not in unknown
    ]


def _is_known(call: Call) -> bool:
    consumed = call.route == "consume" and executed(call)
    return not call.cut and (not consumed or isinstance(parsed(call.answer), list))


def _consumed(look: Look, handle: Any) -> Iterator[tuple[Call, str, list[Place]]]:
    """Yield each successful consume call with its group and the records that it returned."""
    for call in _calls(look, handle):
        if call.route == "consume" and executed(call):
            yield (
                call,
                _group(call),
                [(one["topic"], one["partition"], one["offset"]) for one in _received(call)],
            )


def _committed(call: Call) -> list[dict[str, Any]]:
    """Return the offsets that a successful commit request contains."""
    return items_of(call.body) if call.route == "commit" and call.status == 200 else []


def commits(look: Look, handle: Any) -> Iterator[Finding]:
    """Find commits of an offset beyond the end, or beyond the last record that was received."""
    got: dict[tuple[Any, ...], int] = {}
    for call in _calls(look, handle):
        group = _group(call)
        for record in _received(call):
            place = group, record["topic"], record["partition"]
            got[place] = max(record["offset"], got.get(place, -1))
        for item in _committed(call):
            topic, partition, offset = item["topic"], item["partition"], item["offset"]
            ends = look.scene.ends.get((handle.name, topic), ())
            if partition >= len(ends) or not isinstance(offset, int):
                continue
            last = got.get((group, topic, partition))
            values = {"partition": f"{topic}-{partition}", "offset": offset, "last": last}
            if offset > ends[partition]:
                end = ends[partition]
                yield about_group("commit_beyond_end", call, group, end=end, **values)
            elif last is not None and offset > last + 1:
                yield about_group("commit_beyond_received", call, group, **values)


def unknown_header(look: Look, handle: Any) -> Iterator[Finding]:
    """Find headers that the broker ignored and whose name is similar to one that it reads."""
    told: set[str] = set()
    commits = [one for one in look.events("auto commit") if one.handle == handle.name]
    for call in _calls(look, handle):
        for name in call.headers:
            prefix, _, setting = name.lower().partition("-")
            if prefix != "kafka" or setting in CONSUMER_HEADERS or name in told:
                continue
            near = difflib.get_close_matches(setting, CONSUMER_HEADERS, 1)
            if not near:
                continue
            told.add(name)
            value, known = call.headers[name], f"{name[:6]}{near[0].title()}"
            own = []
            if near[0] == "enable-auto-commit" and value.lower() == "false":
                whose = call.facts.get("group"), call.facts.get("instance")
                own = [one for one in commits if one.number > call.number
                       and (one.data["group"], one.data["instance"]) == whose]  # fmt: skip
            committed = [f"{topic}-{at}={offset}"
                         for event in own for topic, at, offset in event.data["offsets"]]  # fmt: skip
            values = {"header": name, "known": known, "value": value, "committed": committed}
            rows = call.number, *(one.number for one in own)
            yield Finding("unknown_header", handle.name, rows, (), values)


def produced_again(look: Look, handle: Any) -> Iterator[Finding]:
    """Find produce requests that failed after appending records, and were then repeated."""
    failed: list[Call] = []
    for call in _calls(look, handle):
        if call.route != "produce" or call.cut:
            continue
        if call.status is None or call.status >= 500:
            failed.append(call)
            continue
        first = next((one for one in failed if one.body == call.body), None)
        if first is None or call.status != 200:
            continue
        values = {one.get("value") for one in items_of(call.body)}
        span = range(first.at_us // 1000, call.at_us // 1000 + 1)
        own = {(one["topic"], one["partition"], one["offset"])
               for one in items_of(call.answer) if "offset" in one}  # fmt: skip
        twice = [record.value for name in handle.topics() for record in handle.records(name)
                 if record.timestamp in span and record.value in values
                 and (name, record.partition, record.offset) not in own]  # fmt: skip
        if twice:
            found = {"status": first.status, "values": twice}
            yield Finding("produced_again", handle.name, (call.number, first.number), (), found)


def before_failure(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records that a group committed before a call to another fake failed, and that were not
    redelivered.
    """
    committed: dict[str, tuple[Call, int]] = {}
    received: dict[str, int] = {}
    known = {call.number for call in _calls(look, handle)}
    for call in look.calls:
        group = _group(call)
        if call.handle == handle.name and call.number not in known:
            continue
        if call.handle == handle.name and call.route == "consume":
            committed.pop(group, None)
            received[group] = len(_received(call))
        elif call.handle == handle.name and call.route == "commit" and call.status == 200:
            if received.get(group):
                committed[group] = call, received.pop(group)
        elif call.handle != handle.name and (call.status is None or call.status >= 500):
            for name, (commit, count) in committed.items():
                yield about_group("committed_before_failure", commit, name, records=count)
            committed.clear()


def twice(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records that a group received more than once."""
    got: dict[tuple[str, Place], list[Call]] = {}
    for call, group, places in _consumed(look, handle):
        for place in places:
            got.setdefault((group, place), []).append(call)
    alike: dict[tuple[str, tuple[str, ...], Call, Call], list[str]] = {}
    for (group, (topic, partition, offset)), calls in got.items():
        if len(calls) > 1:
            by = tuple(map(_instance, calls))
            record = f"{topic}-{partition}@{offset}"
            alike.setdefault((group, by, calls[0], calls[-1]), []).append(record)
    for (group, by, first, call), records in alike.items():
        repeated = _repeated(look, first, call)
        if repeated is not None:
            name, times = repeated
            values: dict[str, Any] = {"records": len(records), "command": name, "times": times}
            yield about_group("redelivered_and_repeated", call, group, **values)
        elif group not in _uncommitting(handle):
            values = {"records": records, "by": list(by)}
            values["last"] = _committed_last(look, handle, group, records, again=call)
            yield about_group("received_again", call, group, **values)


def _committed_last(
    look: Look, handle: Any, group: str, records: list[str], again: Call
) -> list[str]:
    """Return the commits of a redelivered record's own offset; the next offset would be correct."""
    found = []
    for call in _calls(look, handle):
        if call.number > again.number or _group(call) != group:
            continue
        for item in _committed(call):
            found.append(f"{item['topic']}-{item['partition']}@{item['offset']}")
    return [one.replace("@", "=") for one in records if one in found]


def skipped(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records between a committed offset and the next record that the group received."""
    committed: dict[tuple[Any, ...], int] = {}
    seen: dict[tuple[Any, ...], set[int]] = {}
    for call in _calls(look, handle):
        if not executed(call):
            continue
        group = _group(call)
        for item in _committed(call):
            if type(item.get("offset")) is int:
                committed[group, item["topic"], item["partition"]] = item["offset"]
        for record in _received(call):
            place = group, record["topic"], record["partition"]
            before, offset = committed.get(place), record["offset"]
            known = seen.setdefault(place, set())
            missed = range(before, offset) if before is not None and not known.intersection(
                range(before, offset)) else ()  # fmt: skip
            if missed and (not known or max(known) < missed[0]):
                start = handle.topic(record["topic"]).start_offsets[record["partition"]]
                values = {
                    "partition": f"{record['topic']}-{record['partition']}", "committed": before,
                    "received": offset, "skipped": len(missed), "start": start,
                    "deleted": max(0, min(start, offset) - before),
                    "latest": _resets_to_latest(handle, group, _instance(call)),
                }  # fmt: skip
                yield about_group("records_skipped", call, group, **values)
            known.add(offset)


def _resets_to_latest(handle: Any, group: str, instance: str) -> bool:
    return any(
        member.name == instance and member.config.auto_offset_reset == "latest"
        for member in handle.group(group).members
    )


def _repeated(look: Look, first: Call, again: Call) -> tuple[str, int] | None:
    """Return the command that was repeated most often after a redelivery, and the number of its
    repetitions.
    """
    before: list[list[str]] = []
    times: dict[str, int] = {}
    for handle in look.handles("kv"):
        for command in commands(look, handle):
            if command.name not in ADDING or command.entry.number < first.number:
                continue
            if command.entry.number < again.number:
                before.append(command.words)
            elif command.words in before:
                before.remove(command.words)
                times[command.name] = times.get(command.name, 0) + 1
    return max(times.items(), key=lambda one: one[1]) if times else None


def shared_group(look: Look, handle: Any) -> Iterator[Finding]:
    """Find groups shared by instances with dissimilar names, for example the instances of two
    services.
    """
    got: dict[str, dict[str, set[Place]]] = {}
    last: dict[str, Call] = {}
    for call, group, places in _consumed(look, handle):
        got.setdefault(group, {}).setdefault(_instance(call), set()).update(places)
        last[group] = call
    together = [(event.data["group"], event.data["assignment"].keys())
                for event in look.events("rebalance") if event.handle == handle.name]  # fmt: skip
    for group, instances in got.items():
        if not any(name == group and instances.keys() <= at_once for name, at_once in together):
            continue
        stems = {re.sub(r"[\W_\d]+", "", name) for name in instances}
        received = list(instances.values())
        unlike = len(stems) == len(instances) > 1 and all(len(stem) > 2 for stem in stems)
        if unlike and any(received) and not set.intersection(*received):
            yield about_group("shared_group", last[group], group, instances=list(instances))


def used_once(look: Look, handle: Any) -> Iterator[Finding]:
    """Find groups whose similarly named instances each consumed once, although partitions of
    earlier instances have unread records.
    """
    calls: dict[str, dict[str, list[Call]]] = {}
    for call, group, _ in _consumed(look, handle):
        calls.setdefault(group, {}).setdefault(_instance(call), []).append(call)
    for group, by in calls.items():
        once = list(by)[:-1]
        stems = {re.sub(r"\d+", "", name) for name in by}
        if len(by) < 3 or len(stems) > 1 or any(len(one) > 1 for one in by.values()):
            continue
        waiting = [
            f"{tp.topic}-{tp.partition}"
            for member in handle.group(group).members
            for tp in member.assignment
            if member.name in once
            and (position := member.position.get(tp)) is not None
            and position < handle.topic(tp.topic).end_offsets[tp.partition]
        ]
        if waiting:
            last = by[list(by)[-1]][0]
            values = {"instances": len(by), "partitions": waiting}
            yield about_group("instances_used_once", last, group, **values)


def began_at_the_end(look: Look, handle: Any) -> Iterator[Finding]:
    """Find groups without commits that started after existing records because their reset is
    ``latest``.
    """
    got: dict[tuple[str, str, int], set[int]] = {}
    first: dict[str, Call] = {}
    for call, group, places in _consumed(look, handle):
        first.setdefault(group, call)
        for topic, partition, offset in places:
            got.setdefault((group, topic, partition), set()).add(offset)
    for name, call in first.items():
        view = handle.group(name)
        for member in view.members:
            if member.config.auto_offset_reset != "latest":
                continue
            for tp, position in member.position.items():
                seen = got.get((name, tp.topic, tp.partition), set())
                start = handle.topic(tp.topic).start_offsets[tp.partition]
                reached = min(seen, default=position)
                if tp in view.committed or reached is None or reached <= start:
                    continue
                values = {"skipped": reached - start, "partition": f"{tp.topic}-{tp.partition}"}
                yield about_group("started_at_end", call, name, **values)


def _uncommitting(handle: Any) -> set[str]:
    """Return the groups that disabled automatic commits and have committed nothing."""
    return {
        name
        for name, view in ((name, handle.group(name)) for name in handle.groups())
        if view.members
        and not view.committed
        and not any(member.config.auto_commit for member in view.members)
    }


def never_committed(look: Look, handle: Any) -> Iterator[Finding]:
    """Find groups with automatic commits off that received records and committed nothing."""
    got: dict[str, list[Place]] = {}
    last: dict[str, Call] = {}
    for call, group, places in _consumed(look, handle):
        if places:
            got.setdefault(group, []).extend(places)
            last[group] = call
    for name, places in got.items():
        if name in _uncommitting(handle):
            values = {"records": len(set(places)), "deliveries": len(places)}
            yield about_group("never_committed", last[name], name, **values)


def without_order(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records without keys that one call received from several partitions."""
    for call in _calls(look, handle):
        records = _received(call)
        unkeyed: dict[str, set[int]] = {}
        for record in records:
            if not record.get("key"):
                unkeyed.setdefault(record["topic"], set()).add(record["partition"])
        for topic, partitions in unkeyed.items():
            if len(partitions) > 1 and len(records) > len(partitions):
                yield about("topic", "no_order", call, topic, partitions=len(partitions))


FINDINGS: tuple[Callable[[Look, Any], Iterator[Finding]], ...] = (
    commits,
    unknown_header,
    produced_again,
    before_failure,
    twice,
    began_at_the_end,
    shared_group,
    used_once,
    skipped,
    never_committed,
    without_order,
)
