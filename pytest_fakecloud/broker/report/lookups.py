"""What reports look up in the data of brokers, and in several entries of their journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...cloud.base import BaseCloud
from ...core.calls import Call, Entry
from ...reporting.lookups import Lookups, abbreviated_names, tried
from ...reporting.mask import Mask


def lookups(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask) -> Lookups:
    """Return the short names of consumers, and the end offsets of topics."""
    brokers: list[Any] = [fake for fake in cloud.fakes() if fake.service == "broker"]
    calls = [entry for entry in entries if isinstance(entry, Call) and entry.service == "broker"]
    return Lookups(
        names=abbreviated_names({str(call.facts.get("instance")) for call in calls}),
        end_offsets={
            (broker.name, topic.name): topic.end_offsets
            for broker in brokers
            for topic in tried(broker.topics)
        },
    )
