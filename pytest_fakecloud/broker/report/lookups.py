"""What reports look up in the data of brokers, and in several entries of their journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...cloud.base import BaseCloud
from ...core.calls import Entry
from ...reporting.calls import calls_in
from ...reporting.lookups import ServiceLookups, abbreviated_names
from ...reporting.mask import Mask
from ..fake import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLookups(ServiceLookups):
    """Lookups in the data of brokers."""

    end_offsets: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    """The end offsets of the partitions, by fake and topic."""


def lookups(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask) -> BrokerLookups:
    """Return the short names of consumers, and the end offsets of topics."""
    brokers = [fake for fake in cloud.fakes() if isinstance(fake, Broker)]
    calls = calls_in(entries, "broker")
    return BrokerLookups(
        names=abbreviated_names({str(call.facts.get("instance")) for call in calls}),
        end_offsets={(broker.name, topic.name): topic.end_offsets
                     for broker in brokers for topic in broker.topics()},
    )  # fmt: skip
