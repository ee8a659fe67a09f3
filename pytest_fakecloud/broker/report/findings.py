"""Findings about brokers: offsets that a group committed one too high or too low."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.bodies import items_of, parsed
from ...core.calls import Call
from ...reporting.accesses import ReportSubject
from ...reporting.calls import executed
from ...reporting.findings import about
from ...reporting.lookups import Lookups
from ...reporting.model import Finding
from ...reporting.observed import ObservedTest
from ..fake import Broker
from ..model import GroupDescription, TopicPartition
from ..views import description_of
from .accesses import GROUP
from .calls import RecordPosition, group_of, received_by
from .lookups import BrokerLookups


def _calls_of(test: ObservedTest, fake: Broker) -> list[Call]:
    """Return the calls of a broker except those of groups of which a call is not known in full."""
    calls = test.calls_of(fake)
    unknown = {
        call.facts.get("group") for call in calls if call.reached and (call.cut or (
            call.route == "consume" and executed(call) and type(parsed(call.response_body)) is not list
        ))
    }  # fmt: skip
    return [call for call in calls if call.facts.get("group") not in unknown - {None}]


def _consume_calls(
    test: ObservedTest, fake: Broker
) -> dict[str, list[tuple[Call, list[RecordPosition]]]]:
    """Return the successful consume calls of each group, with the records that they returned."""
    calls_by_group: dict[str, list[tuple[Call, list[RecordPosition]]]] = {}
    for call in _calls_of(test, fake):
        if call.route == "consume" and executed(call):
            calls_by_group.setdefault(group_of(call), []).append((call, received_by(call)))
    return calls_by_group


def _committed_positions(call: Call) -> list[RecordPosition]:
    """Return the offsets that a call committed, even if its answer was lost."""
    items = items_of(call.request_body) if call.route == "commit" and executed(call) else []
    return [RecordPosition.of(item) for item in items if type(item.get("offset")) is int]


def _commits_of(test: ObservedTest, fake: Broker, group: str) -> dict[RecordPosition, int]:
    """Return the offsets that a group committed, with the numbers of the last calls that did."""
    return {
        position: call.number
        for call in _calls_of(test, fake) if group_of(call) == group
        for position in _committed_positions(call)
    }  # fmt: skip


def commit_too_high(test: ObservedTest, fake: Broker) -> Iterator[Finding]:
    """Find commits of an offset beyond the end, or beyond the last record that was received, with the
    partitions in which the offset is the next one (``fits``).
    """
    last_offset: dict[str, dict[tuple[str, int], int]] = {}
    for call in _calls_of(test, fake):
        group = group_of(call)
        received = last_offset.setdefault(group, {})
        for position in received_by(call):
            partition = position.topic, position.partition
            received[partition] = max(position.offset, received.get(partition, -1))
        for position in _committed_positions(call):
            ends = test.lookups.of(BrokerLookups).end_offsets.get((fake.name, position.topic), ())
            if position.partition >= len(ends):
                continue
            last, end = received.get((position.topic, position.partition)), ends[position.partition]
            fits = [f"{topic}-{number}" for (topic, number), offset in received.items()
                    if topic == position.topic and offset + 1 == position.offset]  # fmt: skip
            is_beyond = position.offset > (end if last is None else last + 1)
            if is_beyond or (last is None and fits):
                subject = ReportSubject(GROUP, group, fake.name)
                yield about(
                    "commit_too_high", call, subject, partition=position.of_partition, end=end,
                    beyond=position.offset > end, offset=position.offset, last=last,
                    next=0 if last is None else last + 1, fits=fits,
                )  # fmt: skip


def commit_too_low(test: ObservedTest, fake: Broker) -> Iterator[Finding]:
    """Find groups that commit the offsets of records, and not the next ones, and so receive again a
    record whose offset they had committed.
    """
    for group, consumed in _consume_calls(test, fake).items():
        commits = _commits_of(test, fake, group)
        first: dict[RecordPosition, int] = {}
        for call, positions in consumed:
            repeated = [
                position for position in positions
                if position in first and first[position] < commits.get(position, 0) < call.number
                and _commits_own_offsets(test, fake, group, position)
            ]  # fmt: skip
            for position in repeated:
                subject = ReportSubject(GROUP, group, fake.name)
                yield about(
                    "commit_too_low", call, subject, [commits[position], first[position]],
                    partition=position.of_partition, offset=position.offset, next=position.offset + 1,
                )  # fmt: skip
            first = dict.fromkeys(positions, call.number) | first


def own_offset_committed(test: ObservedTest, fake: Broker) -> Iterator[Finding]:
    """Find groups that are one record behind in a partition, because they committed the offset of the
    last record that they had received, and not the next one.
    """
    groups = {view.name: description_of(view) for view in fake.groups()}
    for group, consumed in _consume_calls(test, fake).items():
        received = {position: call.number for call, positions in consumed for position in positions}
        described = groups.get(group)
        if described is None:
            continue
        behind = {
            RecordPosition(tp.topic, tp.partition, offset)
            for tp, offset in described.committed.items() if described.lag.get(tp) == 1
        }  # fmt: skip
        for position, number in _commits_of(test, fake, group).items():
            if (
                position in behind
                and received.get(position, number) < number
                and _commits_own_offsets(test, fake, group, position)
            ):
                commit = next(call for call in test.calls_of(fake) if call.number == number)
                subject = ReportSubject(GROUP, group, fake.name)
                yield about(
                    "own_offset_committed", commit, subject, [received[position]],
                    partition=position.of_partition, offset=position.offset, next=position.offset + 1,
                )  # fmt: skip


def _commits_own_offsets(
    test: ObservedTest, fake: Broker, group: str, position: RecordPosition
) -> bool:
    """Return whether a group commits the offsets of records themselves, and not the next ones: of the
    first record that it received, or each time that of the last.
    """
    received: list[int] = []
    commits: list[tuple[int, list[int]]] = []
    for call in _calls_of(test, fake):
        positions = [*received_by(call), *_committed_positions(call)]
        is_of_group = group_of(call) == group
        offsets = [own.offset for own in positions if is_of_group and own[:2] == position[:2]]
        received += offsets if call.route == "consume" else ()
        commits += [
            (offset, list(received)) for offset in offsets if call.route == "commit" and received
        ]
    is_first = bool(commits) and commits[0][0] == min(commits[0][1])
    return is_first or all(offset == max(before) for offset, before in commits)


DETECTORS = (commit_too_high, commit_too_low, own_offset_committed)


def unfinished(broker: Broker, lookups: Lookups) -> Iterator[Finding]:
    """Yield findings about records that a consumer group has not read."""
    for view in broker.groups():
        name, group = view.name, description_of(view)
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
            subject = ReportSubject(GROUP, name, broker.name)
            yield Finding("group_behind", broker.name, (), (subject,), values)


def _read_to_the_end(broker: Broker, group: GroupDescription) -> set[TopicPartition]:
    """Return the partitions whose consumer has received all records and commits automatically."""
    return {
        tp for member in group.members if member.config.auto_commit
        for tp, position in member.position.items()
        if position is not None and position >= broker.topic(tp.topic).end_offsets[tp.partition]
    }  # fmt: skip
