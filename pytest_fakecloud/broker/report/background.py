"""What a broker knows about requests beside their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...core.bodies import parsed
from ...core.calls import Entry
from ...reporting.calls import calls_in, events_in, executed
from ...reporting.lookups import Lookups
from ..fake import Broker
from ..views import description_of
from .calls import group_of, positions_in, received_by, topics_of


@dataclass(frozen=True, slots=True)
class BrokerBackground:
    """What a broker knows about a request for records."""

    unfetched: Mapping[str, int] = field(default_factory=dict)
    """The partitions of its topics with records that no request has fetched, and how many these are."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """The number of records before the offsets at which its new group began, by partition."""


def background(
    fake: Broker, entries: Iterable[Entry], lookups: Lookups
) -> dict[int, BrokerBackground]:
    """Return what a broker knows about requests for records, by the numbers of the calls."""
    own_entries = [entry for entry in entries if entry.fake == fake.name]
    backgrounds: dict[int, BrokerBackground] = {}
    unfetched, skipped = _unfetched(fake, own_entries), _skipped(fake, own_entries)
    for call in calls_in(own_entries):
        if call.route not in ("consume", "fetch") or not executed(call):
            continue
        topics = topics_of(call)
        partitions = {place: count for place, count in unfetched.items()
                      if place.rpartition("-")[0] in topics}  # fmt: skip
        before = skipped.pop(group_of(call), {}) if call.route == "consume" else {}
        backgrounds[call.number] = BrokerBackground(partitions, before)
    return backgrounds


def _unfetched(fake: Broker, entries: Iterable[Entry]) -> dict[str, int]:
    """Return the partitions with records that no request has fetched, with the number of these."""
    fetched: set[str] = set()
    for event in events_in(entries):
        for places in (event.data.get("assignment") or {}).values():
            fetched.update(f"{topic}-{partition}" for topic, partition in places)
    for call in calls_in(entries):
        if call.route == "fetch":
            body = parsed(call.request_body)
            items = positions_in(body) if isinstance(body, dict) else []
            fetched.update(f"{item.get('topic')}-{item.get('partition')}" for item in items)
    return {
        place: end - topic.start_offsets[partition]
        for topic in fake.topics()
        for partition, end in enumerate(topic.end_offsets)
        if end > topic.start_offsets[partition]
        and (place := f"{topic.name}-{partition}") not in fetched
    }


def _skipped(fake: Broker, entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """Return the records before the offsets at which new groups began, as the policy ``latest`` says,
    by group and partition.
    """
    created = {
        event.data.get("group") for event in events_in(entries)
        if event.kind == "rebalance" and event.data.get("generation") == 1
    }  # fmt: skip
    received = {(group_of(call), place.of_partition)
                for call in calls_in(entries) for place in received_by(call)}  # fmt: skip
    skipped: dict[str, dict[str, int]] = {}
    for view in fake.groups():
        if view.name not in created:
            continue
        group = description_of(view)
        for member in group.members:
            for tp, position in member.position.items():
                place = f"{tp.topic}-{tp.partition}"
                is_known = (view.name, place) in received or tp in group.committed
                if is_known or position is None or member.config.auto_offset_reset != "latest":
                    continue
                before = position - fake.topic(tp.topic).start_offsets[tp.partition]
                if before > 0:
                    skipped.setdefault(view.name, {})[place] = before
    return skipped
