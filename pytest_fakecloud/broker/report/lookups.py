"""What reports look up in the data of brokers, and in several entries of their journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...cloud.base import BaseCloud
from ...core.calls import Entry
from ...reporting.calls import calls_in
from ...reporting.contract import ServiceLookups
from ...reporting.mask import Mask
from ..fake import Broker

_LONGEST_NAME = 16
"""Maximum length of the name of a consumer that is shown in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLookups(ServiceLookups):
    """Lookups in the data of brokers."""

    end_offsets: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    """The end offsets of the partitions, by fake and topic."""


def make(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask) -> BrokerLookups:
    """Return the short names of consumers, and the end offsets of topics."""
    brokers = [fake for fake in cloud.fakes() if isinstance(fake, Broker)]
    calls = calls_in(entries, "broker")
    return BrokerLookups(
        names=_abbreviated({str(call.facts.get("instance")) for call in calls}),
        end_offsets={(broker.name, topic.name): topic.end_offsets
                     for broker in brokers for topic in broker.topics()},
    )  # fmt: skip


def _abbreviated(names: Iterable[str]) -> dict[str, str]:
    """Return long names shortened to their two ends, with a length at which they still differ."""
    long_names = {name for name in names if len(name) > _LONGEST_NAME}
    length = 6  # the ends of generated names differ, such as "worker-7f9c5d-x2kqp"
    while len({name[-length:] for name in long_names}) < len(long_names):
        length += 2
    return {name: f"{name[:3]}…{name[-length:]}" for name in long_names if length + 4 < len(name)}
