"""Findings about brokers: commits, records received twice or skipped, members of groups."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...core.calls import Call, Event
from ...reporting.calls import Lookups, executed
from ...reporting.model import Finding, ReportRow, ReportSubject
from ...reporting.report import ObservedTest, about, about_entry, about_group
from ...reporting.values import items_of, parsed
from ..model import CONSUMER_HEADERS


class _Place(NamedTuple):
    """The position of a record, or an offset that a group committed."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, record: dict[str, Any]) -> _Place:
        return cls(record["topic"], record["partition"], record["offset"])

    def is_before(self, other: _Place) -> bool:
        return self[:2] == other[:2] and self.offset < other.offset

    @property
    def of_partition(self) -> str:
        return f"{self.topic}-{self.partition}"


def _group_of(call: Call) -> str:
    return str(call.facts.get("group"))


def _calls_of(test: ObservedTest, fake: Any) -> list[Call]:
    """Return the calls of a broker except those of groups of which a call is not known in full."""
    calls = test.calls_of(fake)
    unknown = {
        call.facts.get("group") for call in calls if call.reached and (call.cut or (
            call.route == "consume" and executed(call) and type(parsed(call.response_body)) is not list
        ))
    }  # fmt: skip
    return [call for call in calls if call.facts.get("group") not in unknown - {None}]


def _received_records(call: Call) -> list[dict[str, Any]]:
    answer = parsed(call.response_body) if call.route == "consume" and executed(call) else []
    return answer if isinstance(answer, list) else []


def _consume_calls(test: ObservedTest, fake: Any) -> dict[str, list[tuple[Call, list[_Place]]]]:
    """Return the successful consume calls of each group, with the records that they returned."""
    calls_by_group: dict[str, list[tuple[Call, list[_Place]]]] = {}
    for call in _calls_of(test, fake):
        if call.route == "consume" and executed(call):
            places = list(map(_Place.of, _received_records(call)))
            calls_by_group.setdefault(_group_of(call), []).append((call, places))
    return calls_by_group


def _committed_places(call: Call) -> list[_Place]:
    """Return the offsets that a call committed, even if its answer was lost."""
    items = items_of(call.request_body) if call.route == "commit" and executed(call) else []
    return [_Place.of(item) for item in items if type(item.get("offset")) is int]


def _groups_without_commits(test: ObservedTest, fake: Any) -> set[str]:
    """Return the groups that disabled automatic commits and have committed nothing."""
    # Offsets in a deleted topic are only in the journal.
    committed = {event.data["group"] for event in test.events("commit") if event.fake == fake.name}
    committed |= {group.name for group in fake.groups() if group._described().committed}
    calls = [call for call in _calls_of(test, fake) if call.route == "consume" and executed(call)]
    automatic = {
        _group_of(call) for call in calls
        if call.request_headers.get("Kafka-Enable-Auto-Commit", "true").lower() != "false"
    }  # fmt: skip
    return {_group_of(call) for call in calls} - committed - automatic


# -- commits ---------------------------------------------------------------------------------------


def commit_too_high(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find commits of an offset beyond the end, or beyond the last record that was received, with the
    partitions in which the offset is the next one (``fits``).
    """
    last_offset: dict[str, dict[tuple[str, int], int]] = {}
    for call in _calls_of(test, fake):
        group = _group_of(call)
        received = last_offset.setdefault(group, {})
        for place in map(_Place.of, _received_records(call)):
            partition = place.topic, place.partition
            received[partition] = max(place.offset, received.get(partition, -1))
        for place in _committed_places(call):
            ends = test.lookups.end_offsets.get((fake.name, place.topic), ())
            if place.partition >= len(ends):
                continue
            last, end = received.get((place.topic, place.partition)), ends[place.partition]
            fits = [f"{topic}-{number}" for (topic, number), offset in received.items()
                    if topic == place.topic and offset + 1 == place.offset]  # fmt: skip
            is_beyond = place.offset > (end if last is None else last + 1)
            if is_beyond or (last is None and fits):
                yield about_group(
                    "commit_too_high", call, group, partition=place.of_partition, end=end,
                    beyond=place.offset > end, offset=place.offset, last=last,
                    next=0 if last is None else last + 1, fits=fits,
                )  # fmt: skip


def unknown_header(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find headers that the broker ignored and whose name is similar to one that it reads."""
    sent = {name: (call, value) for call in reversed(_calls_of(test, fake))
            for name, value in call.request_headers.items()}  # fmt: skip
    for name, (call, value) in sent.items():
        prefix, _, setting = name.lower().partition("-")
        similar = difflib.get_close_matches(setting, CONSUMER_HEADERS, 1)
        if prefix == "kafka" and similar and similar[0] != setting:
            # Keep the spelling of the prefix "Kafka-".
            meant = f"{name[: len('kafka-')]}{similar[0].title()}"
            yield about_entry("unknown_header", call, header=name, known=meant, value=value)


def committed_before_failure(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find records committed before a call to another fake failed, which no later call repeated, and
    not redelivered.
    """
    commits: dict[str, tuple[Call, int]] = {}
    uncommitted: dict[str, list[_Place]] = {}
    call_numbers = {call.number for call in _calls_of(test, fake)}
    last = {repr((call.fake, call.target, call.request_body)): call for call in test.calls}
    for call in test.calls:
        group = _group_of(call)
        if call.fake != fake.name:
            is_last = last[repr((call.fake, call.target, call.request_body))] is call
            if is_last and (call.status is None or call.status >= 500):
                for name, (commit, count) in commits.items():
                    yield about_group("committed_before_failure", commit, name, records=count)
                commits.clear()
        elif call.number not in call_numbers:
            continue
        elif call.route == "consume":
            commits.pop(group, None)
            uncommitted[group] = list(map(_Place.of, _received_records(call)))
        elif call.route == "commit" and executed(call):
            received, ends = uncommitted.pop(group, []), _committed_places(call)
            uncommitted_places = [
                record_place
                for record_place in received
                if ends and not any(map(record_place.is_before, ends))
            ]
            if len(uncommitted_places) < len(received):
                commits[group], uncommitted[group] = (
                    (call, len(received) - len(uncommitted_places)),
                    uncommitted_places,
                )


def committed_automatically(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find automatic commits of records that the instance, which commits itself, did not commit."""
    committed: dict[tuple[object, ...], int] = {}
    for event in test.events("commit", "auto commit"):
        if event.fake != fake.name:
            continue
        instance, skipped = (event.data["group"], event.data["instance"]), 0
        for topic, partition, offset in event.data["offsets"]:
            place = *instance, topic, partition
            if event.kind == "commit":
                committed[place] = offset
            elif place in committed:
                skipped += max(0, offset - committed[place])
        if skipped:
            group, name = instance
            yield about_group(
                "committed_automatically", event, group, instance=name, records=skipped
            )


def never_committed(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find groups with automatic commits off that received records and committed nothing."""
    without_commits = _groups_without_commits(test, fake)
    for group, calls in _consume_calls(test, fake).items():
        received = [place for _, places in calls for place in places]
        if received and group in without_commits:
            last = [call for call, places in calls if places][-1]
            often = len(received) > (count := len(set(received)))
            values = {"records": count, "deliveries": len(received) if often else 0}
            yield about_group("never_committed", last, group, **values)


# -- deliveries ------------------------------------------------------------------------------------


def received_again(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find records that a group received more than once."""
    # Records that the same instances received in the same calls are one finding.
    together: dict[tuple[str, tuple[str, ...], Call, Call], list[_Place]] = {}
    for group, consumed in _consume_calls(test, fake).items():
        deliveries: dict[_Place, list[Call]] = {}
        for call, places in consumed:
            for place in places:
                deliveries.setdefault(place, []).append(call)
        for place, calls in deliveries.items():
            if len(calls) > 1:
                by = tuple(str(call.facts.get("instance")) for call in calls)
                together.setdefault((group, by, calls[0], calls[-1]), []).append(place)
    without_commits = _groups_without_commits(test, fake)
    commits = [
        (call.number, (_group_of(call), place))
        for call in _calls_of(test, fake)
        for place in _committed_places(call)
    ]
    for (group, by, first, again), places in together.items():
        repeated = _repeated_commands(test, first, again)
        if group in without_commits and not repeated:
            continue
        committed = {commit for number, commit in commits if number <= again.number}
        by_partition = {place.of_partition for name, place in committed if name == group}
        without = dict.fromkeys(place.of_partition for place in places) if by_partition else {}
        (command, times), *_ = [*repeated.most_common(1), ("", 0)]
        is_told = len(set(by)) == len(by) < 4
        last = [f"{place.of_partition}={place.offset}" for place in places if (group, place) in committed
                and _commits_own_offsets(test, fake, group, place)]  # fmt: skip
        yield about_group(
            "received_again", again, group, severity="cause" if repeated or last else "hint",
            records=[f"{place.of_partition}@{place.offset}" for place in places], last=last,
            often=len(by) if len(by) > 2 else 0, by=", then by ".join(by) if is_told else "",
            uncommitted=[partition for partition in without if partition not in by_partition],
            committed=sorted(by_partition), command=command, times=times,
        )  # fmt: skip


def _commits_own_offsets(test: ObservedTest, fake: Any, group: str, place: _Place) -> bool:
    """Return whether a group commits the offsets of records themselves, and not the next ones: of the
    first record that it received, or each time that of the last.
    """
    received: list[int] = []
    commits: list[tuple[int, list[int]]] = []
    for call in _calls_of(test, fake):
        places = [*map(_Place.of, _received_records(call)), *_committed_places(call)]
        offsets = [
            other_place.offset
            for other_place in places
            if other_place[:2] == place[:2] and _group_of(call) == group
        ]
        received += offsets if call.route == "consume" else ()
        commits += [
            (offset, list(received)) for offset in offsets if call.route == "commit" and received
        ]
    is_first = bool(commits) and commits[0][0] == min(commits[0][1])
    return is_first or all(offset == max(before) for offset, before in commits)


def _repeated_commands(test: ObservedTest, first: Call, again: Call) -> Counter[str]:
    """Return how often each command was repeated after a redelivery, by the command's name."""
    before: list[list[str]] = []
    repeated: Counter[str] = Counter()
    for write in test.writes:
        if not write.adds or write.number < first.number:
            continue
        if write.number < again.number:
            before.append(write.words)
        elif write.words in before:
            before.remove(write.words)
            repeated[write.name] += 1
    return repeated


def started_at_end(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find groups without commits whose reset ``latest`` made them start after existing records."""
    groups = {group_view.name: group_view._described() for group_view in fake.groups()}
    for group, calls in _consume_calls(test, fake).items():
        received: dict[str, set[int]] = {}
        for place in (place for _, places in calls for place in places):
            received.setdefault(place.of_partition, set()).add(place.offset)
        view = groups.get(group)
        committed = () if view is None else view.committed
        skipped: dict[str, int] = {}
        for member in () if view is None else view.members:
            at_end = member.config.auto_offset_reset == "latest"
            for tp, position in member.position.items() if at_end else ():
                partition = f"{tp.topic}-{tp.partition}"
                start = fake.topic(tp.topic).start_offsets[tp.partition]
                reached = min(received.get(partition, ()), default=position)
                if tp not in committed and reached is not None and reached > start:
                    skipped[partition] = reached - start
        if skipped:
            values = {"skipped": sum(skipped.values()), "partitions": list(skipped)}
            yield about_group("started_at_end", calls[0][0], group, **values)


def topic_mismatch(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find empty topics that were consumed, while other topics have records that were not."""
    consumed = {
        topic: call
        for calls in _consume_calls(test, fake).values()
        for call, _ in calls
        for topic in call.facts["topic"]
    }
    ends = {name: sum(offsets) for (owner, name), offsets in test.lookups.end_offsets.items()
            if owner == fake.name}  # fmt: skip
    others = [name for name, end in ends.items() if end and name not in consumed]
    is_empty = not any(map(ends.get, consumed))
    for topic, call in consumed.items() if others and is_empty else ():
        if topic in ends:
            yield about("topic", "topic_mismatch", call, topic, others=others)


def no_order(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find records without keys or given partitions that one call received from several partitions."""
    placed = set(_topics_with_placed_records(test, fake))
    for call in _calls_of(test, fake):
        records = _received_records(call)
        unkeyed: dict[str, set[int]] = {}
        for record in records:
            if not record.get("key") and record["topic"] not in placed:
                unkeyed.setdefault(record["topic"], set()).add(record["partition"])
        for topic, partitions in unkeyed.items():
            if len(partitions) > 1 and len(records) > len(partitions):
                values = {"partitions": len(partitions)}
                yield about("topic", "no_order", call, topic, severity="hint", **values)


def _topics_with_placed_records(test: ObservedTest, fake: Any) -> Iterator[str]:
    """Yield the topics of records that were produced to a given partition."""
    for call in test.calls_of(fake):
        for item in items_of(call.request_body) if call.route == "produce" else ():
            if item.get("partition") is not None:
                yield from [str(item["topic"])] if "topic" in item else call.facts["topic"]
    for action in test.actions_on(fake):
        arguments, named = action.call or ((), {})
        if action.kind == "produce" and arguments and named.get("partition") is not None:
            yield str(arguments[0])


# -- members ---------------------------------------------------------------------------------------


def shared_group(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find groups shared by instances with dissimilar names, such as those of two services."""
    assignments = [
        (event.data["group"], event.data["assignment"].keys())
        for event in test.events("rebalance")
        if event.fake == fake.name
    ]
    for group, calls in _consume_calls(test, fake).items():
        by_instance: dict[str, set[_Place]] = {}
        for call, places in calls:
            by_instance.setdefault(str(call.facts.get("instance")), set()).update(places)
        together = any(name == group and by_instance.keys() <= names for name, names in assignments)
        if not together and all(by_instance.values()):
            continue
        # Without numbers, and without random parts of names such as mail-5f2c91ab.
        names = (re.sub(r"\b[0-9a-f]{6,}\b", "", name) for name in by_instance)
        stems = {re.sub(r"[\W_\d]+", "", name) for name in names}
        differ = len(stems) == len(by_instance) > 1 and all(len(stem) > 2 for stem in stems)
        if differ and any(by_instance.values()) and not set.intersection(*by_instance.values()):
            values = {"instances": list(by_instance)}
            yield about_group("shared_group", calls[-1][0], group, severity="hint", **values)


FINDINGS = (
    commit_too_high, unknown_header, committed_before_failure, received_again,
    committed_automatically, started_at_end, topic_mismatch, shared_group, never_committed, no_order,
)  # fmt: skip
OF_TEST = ()


def unfinished(broker: Any, lookups: Lookups) -> Iterator[Finding]:
    """Yield findings about records that a consumer group has not read."""
    for view in broker.groups():
        name, group = view.name, view._described()
        read = _read_to_the_end(broker, group)
        gone = [member for member in group.members if member.state in ("closed", "crashed")]
        owners = {tp: member.name for member in gone for tp in member.assignment}
        behind: dict[tuple[int | None, str], dict[str, int]] = {}
        for tp, lag in group.lag.items():
            if lag and tp not in read:
                at = behind.setdefault((group.committed.get(tp), owners.get(tp, "")), {})
                at[f"{tp.topic}-{tp.partition}"] = lag
        for (committed, owner), lags in behind.items():
            values = {"group": name, "lag": lags, "committed": committed, "owner": owner}
            subject = ReportSubject("group", name, broker.name)
            yield Finding("group_behind", broker.name, (), (subject,), values, "hint")


def _read_to_the_end(broker: Any, group: Any) -> set[Any]:
    """Return the partitions whose consumer has received all records and commits automatically."""
    ends = set()
    for member in group.members:
        for tp, position in member.position.items() if member.config.auto_commit else ():
            end = broker.topic(tp.topic).end_offsets[tp.partition]
            if position is not None and position >= end:
                ends.add(tp)
    return ends


_FOLLOWING = {
    "consume": (("join", ""), ("rebalance", "join")),
    "commit": (("commit", ""),),
    "delete-consumer": (("leave", ""), ("rebalance", "leave")),
}
"""The events that each kind of call to a broker causes. Those of a rebalance include its cause."""


def addition(call: Call) -> tuple[object, set[str]] | None:
    """Return the records that a produce request appends (see `repeated_after_lost_answer`)."""
    return ((call.target, call.request_body), set()) if call.route == "produce" else None


def subjects(call: Call) -> Iterator[ReportSubject]:
    """Yield the topics and the group of a request."""
    for topic in call.facts.get("topic") or ():
        yield ReportSubject("topic", str(topic), call.fake)
    if call.facts.get("group"):
        yield ReportSubject("group", str(call.facts["group"]), call.fake)


def callers(rows: Iterable[ReportRow]) -> dict[int, ReportRow]:
    """Return the calls that caused the events of consumer groups, by the events' numbers: the last of
    a suitable kind. A rebalance that waits for other members to join has no such call.
    """
    latest: dict[tuple[object, ...], ReportRow] = {}
    callers = {}
    for row in rows:
        if isinstance(row.entry, Call) and row.entry.service == "broker":
            facts = row.entry.facts
            for effect in _FOLLOWING.get(row.entry.route, ()):
                latest[row.peer, facts.get("group"), facts.get("instance"), *effect] = row
        elif isinstance(row.entry, Event) and row.entry.service == "broker":
            data = row.entry.data
            kind, instance = data.get("cause") or ("", "")
            about = row.peer, data.get("group"), data.get("instance") or instance
            if row.operation == "rebalance started":
                latest.pop((*about, "rebalance", kind), None)
            elif caller := latest.get((*about, row.operation, kind)):
                callers[row.number] = caller
    return callers
