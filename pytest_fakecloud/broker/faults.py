"""Injected faults of producers and consumers of a broker.

They supplement the common faults. ``partial_produce()`` and ``reorder()`` are faults of requests,
with the same keywords as the common faults. ``crash()`` and ``redeliver()`` happen immediately.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..cloud.actions import action_as
from ..cloud.fake import core_of
from ..core.errors import ContractError
from ..core.journal import Results, results_of
from ..core.settings import optional, whole
from ..faults.fault import Fault, ServiceFault
from ..faults.plan import injector_of
from ..http.messages import Request
from .engine.groups import mixed
from .errors import string
from .model import RECORD_FIELDS, ProducerRecord, Record

if TYPE_CHECKING:
    from .._typing.broker import BrokerFaultPlan as FaultPlan
    from .._typing.broker import BrokerMatchers
    from ..core.clock import Timekeeper
    from ..core.ids import RandomStream
    from ..faults.injector import Injector
    from .fake import Broker
else:
    from ..faults.plan import FaultPlan


class PartialProduceFault(ServiceFault):
    """Fires on a batch of more than ``keep`` messages."""

    def __init__(self, injector: Injector, keep: int, matchers: Mapping[str, Any]) -> None:
        kind = "partial_produce"
        super().__init__(injector, kind, f"{kind} keep={keep}", {"times": 1, **matchers})
        self._keep = keep

    @property
    def _entry(self) -> dict[str, str]:
        return {**super()._entry, "keep": str(self._keep)}

    @property
    def _shortfall(self) -> str:
        return (
            f"{super()._shortfall}: each needs a client's batch of more than {self._keep} messages"
        )


class ReorderFault(ServiceFault):
    """Fires on a consume request that returns records of several partitions. Its ``with`` block must
    reorder something.
    """

    @property
    def _shortfall(self) -> str:
        return f"{super()._shortfall}: no consumer received records of two partitions at once"

    def __exit__(self, *error: object) -> None:
        self._injector.withdraw(self, sys._getframe(1))
        if error[0] is None and not self.hits:
            raise ContractError(
                "reorder() mixed nothing: no consumer received records of two partitions at once in "
                "its block. Consume from several partitions inside the block, or remove it"
            )


class BrokerFaults(FaultPlan):
    """The fault plan of a broker, with the common faults and those of producers and consumers."""

    def __init__(self, stream: RandomStream, clock: Timekeeper, broker: Broker) -> None:
        super().__init__(stream, clock)
        # The broker refers to its faults, so a strong reference would form a circle.
        self._broker: Broker = weakref.proxy(broker)

    def partial_produce(self, keep: int, **matchers: Unpack[BrokerMatchers]) -> Fault:
        """Store only the first ``keep`` messages of a client's batch, and respond with status 503.

        Applies to valid batches of more than ``keep`` messages: once unless ``times`` is given.
        """
        whole(0).read("keep", keep, "partial_produce()")
        return self._add(PartialProduceFault(self._injector, keep, matchers))

    def reorder(self, **matchers: Unpack[BrokerMatchers]) -> Fault:
        """Mix the records of different partitions in a consume response, in seeded random order.

        The records of each partition keep their order. Use it as a context manager: ``with
        broker.faults.reorder():`` raises ``ContractError`` at the end of the block if no consumer
        received records of two partitions at once, because nothing was mixed. An exception of the
        block itself is not replaced.
        """
        return self._add(ReorderFault(self._injector, "reorder", "reorder", matchers))

    @action_as("faults.crash")
    def crash(self, group: str, instance: str) -> None:
        """Crash an instance, which does not commit and keeps its partitions during its session.

        This happens immediately. Raises ``ContractError`` for an unknown group or instance.
        """
        with self._broker._settled(group=group, instance=instance):
            core_of(self._broker).engine.groups.crash(group, instance)

    @action_as("faults.redeliver")
    def redeliver(
        self, group: str, last: int = 1, *, topic: str | None = None, partition: int | None = None
    ) -> Results[Record]:
        """Deliver a group's last records again, as if their commits had been lost.

        This happens immediately. ``topic`` and ``partition`` limit it to the records of a topic or
        partition. In a partition without an owner, the next owner also receives every record that
        was delivered but never committed. Returns the records that will be delivered again.
        """
        string("topic", topic, optional=True)
        whole(1).read("last", last, "redeliver()")
        optional(whole(0)).read("partition", partition)
        with self._broker._settled(group=group):
            records = core_of(self._broker).engine.groups.redeliver(group, last, topic, partition)
        return results_of(records, RECORD_FIELDS, "record")

    def _owner(self) -> tuple[Broker, tuple[Any, ...]]:
        return self._broker, ()


def messages_to_keep(
    plan: FaultPlan,
    request: Request,
    messages: Sequence[ProducerRecord],
    check: Callable[[Sequence[ProducerRecord]], object],
) -> int | None:
    """Return how many messages of a batch to store; None if ``partial_produce()`` does not apply.

    ``check`` raises ``BrokerError`` for an invalid batch, which uses up no fault.
    """
    injector = injector_of(plan)
    if not any(isinstance(fault, PartialProduceFault) for fault in injector.active):
        return None
    check(messages)
    fault = injector.claim("partial_produce", request, lambda fault: fault._keep < len(messages))
    return fault._keep if isinstance(fault, PartialProduceFault) else None


def reordered(plan: FaultPlan, request: Request, records: Sequence[Record]) -> list[Record]:
    """Return the records of a consume response, mixed if ``reorder()`` applies to the request."""
    parts: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        parts.setdefault(record[:2], []).append(record)
    injector = injector_of(plan)
    if len(parts) < 2 or injector.claim("reorder", request) is None:
        return list(records)
    return mixed(list(parts.values()), injector.stream)
