"""The topics of a fake on a real cluster.

A *real name* is the name that a topic or group has on the cluster. With ``isolation="prefix"``,
real names start with the fake's own prefix, so that any number of test suites can share a cluster.
Topics are looked up in the list of all topics before use, because requesting a topic by name may
create it. The list is considered current for a second.
"""

from __future__ import annotations

import functools
import itertools
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from ...core.errors import ContractError
from ...core.settings import whole
from ...core.timers import monotonic
from .. import errors
from ..engine import checked_config, topic_exists
from ..engine.log import PartitionLog, Topic
from ..errors import AsMisuse, BrokerError
from ..model import TopicConfig, TopicPartition
from ..settings import BrokerConfig
from .cluster import Address, Cluster, look_until, real_only, unsupported

_FRESH = 1.0
"""Seconds for which the list of topics is considered current."""

Method = TypeVar("Method", bound=Callable[..., Any])


def public_names(method: Method) -> Method:
    """Remove the prefix from the errors of a method, with ``public()`` of its object."""

    @functools.wraps(method)
    def operation(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except BrokerError as error:
            shown = self.public(error.message)
            if shown == error.message:
                raise
            raise BrokerError(error.kind, shown) from None

    return cast("Method", operation)


class KafkaTopics:
    """The topics of a fake, with the methods of ``MemoryTopics``, which wait until the cluster
    lists the changed topic.

    All names are those that its clients use, except names called real. ``known`` contains the
    topics as last listed by the cluster, with empty logs, which is enough to choose positions for
    messages; it is replaced and never modified. ``shared`` is whether topics stay when the fake is
    closed, because others share them.
    """

    def __init__(self, cluster: Cluster, address: Address, settings: BrokerConfig) -> None:
        self.known: dict[str, Topic] = {}
        self.shared = settings.isolation == "none" or address.prefix is not None
        self.cluster = cluster
        self.address = address
        self.settings = settings
        own = f"fakecloud-{secrets.token_hex(5)}."
        self._first_prefix = "" if settings.isolation == "none" else address.prefix or own
        self._generation = 0
        self._known_at = float("-inf")
        self._lock = threading.Lock()
        self._requests = itertools.count(1)
        self._answered = 0
        """The number of the latest request whose list of topics is in ``known``."""

    @property
    def prefix(self) -> str:
        if self.shared or not self._generation:
            return self._first_prefix
        return f"{self._first_prefix}{self._generation}."

    def real(self, name: str) -> str:
        return self.prefix + name

    def shown(self, name: str) -> str:
        """Return the name that clients use for a topic or group, given its real name."""
        return name.removeprefix(self.prefix)

    def shown_partition(self, tp: tuple[str, int]) -> TopicPartition:
        return TopicPartition(self.shown(tp[0]), tp[1])

    def public(self, text: str) -> str:
        """Remove the prefix from all names in a message of the cluster."""
        return text.replace(self.prefix, "") if self.prefix else text

    def rename(self) -> None:
        """Use a new prefix from now on, so that all topics and groups get new real names."""
        with self._lock:
            self._generation += 1
            self._known_at = float("-inf")

    @public_names
    def counts(self) -> dict[str, int]:
        return {name: len(topic.logs) for name, topic in self.look(fresh=True).items()}

    def look(self, *, fresh: bool = False) -> dict[str, Topic]:
        """Return the known topics, requested again if they are old or with ``fresh``."""
        if fresh or monotonic() - self._known_at > _FRESH:
            prefix, number = self.prefix, next(self._requests)
            found = self.cluster.topics()
            counts = {n.removeprefix(prefix): c for n, c in found.items() if n.startswith(prefix)}
            with self._lock:
                # Ignore a response if a later one was faster, or if the prefix has changed.
                if number > self._answered and prefix == self.prefix:
                    self._answered = number
                    self.known = {name: self._topic(name, count) for name, count in counts.items()}
                    self._known_at = monotonic()
        return self.known

    def _topic(self, name: str, partitions: int) -> Topic:
        known = self.known.get(name)
        if known is not None and len(known.logs) == partitions:
            return known
        largest = self.settings.limits.max_message_bytes
        logs = [PartitionLog(name, number) for number in range(partitions)]
        turn = known.turn if known is not None else 0
        return Topic(name=name, logs=logs, max_message_bytes=largest, turn=turn)

    @public_names
    def check(self, name: str) -> int:
        topic = self.look().get(name) or self.look(fresh=True).get(name)
        if topic is None:
            raise errors.missing_topic(name, sorted(self.known))
        return len(topic.logs)

    def check_partition(self, name: str, partition: int) -> None:
        """Raise ``BrokerError`` if the topic or its partition does not exist."""
        if 0 <= partition < self.check(name):
            return
        count = self.counts().get(name)
        if count is None:
            raise errors.missing_topic(name, sorted(self.known))
        if not 0 <= partition < count:
            raise errors.unknown_partition(name, partition, count)

    def ends(self, wanted: Sequence[tuple[Any, ...]]) -> list[tuple[int, int]]:
        """Return the start and end offset of the partition in each tuple ``(topic, partition, …)``."""
        real = [(self.real(tp[0]), tp[1]) for tp in wanted]
        starts = self.cluster.offsets(dict.fromkeys(real, "earliest"))
        ends = self.cluster.offsets(dict.fromkeys(real, "latest"))
        return [(starts[tp], ends[tp]) for tp in real]

    @public_names
    def bounds(self, name: str) -> tuple[list[int], list[int]]:
        """Return the start offsets and the end offsets of a topic's logs, by partition."""
        ends = self.ends([(name, number) for number in range(self.check(name))])
        return [start for start, _ in ends], [end for _, end in ends]

    def create(self, name: str, config: TopicConfig) -> None:
        if config.first_offset:
            raise real_only("first_offset=")
        config = checked_config(name, config, self.settings.limits)
        real = self.real(name)
        if not errors.TOPIC_NAME.fullmatch(real):
            raise ContractError(str(errors.invalid_topic(real)))
        whole(1).read("partitions", config.partitions, f"topic {name!r}")
        if name in self.counts():
            raise topic_exists(name)
        settings = {
            "retention.ms": config.retention_ms,
            "retention.bytes": config.retention_bytes,
            "max.message.bytes": config.max_message_bytes,
        }
        given = {key: str(value) for key, value in settings.items() if value is not None}
        with AsMisuse():
            self.cluster.create_topic(real, config.partitions, given)
        self._wait(lambda: name in self.counts(), f"topic {name!r} did not appear")

    def delete(self, name: str) -> None:
        self.check(name)
        self.cluster.delete([self.real(name)], [])
        self._wait(lambda: name not in self.counts(), f"topic {name!r} did not disappear")

    def add_partitions(self, name: str, count: int) -> int:
        whole(1).read("count", count, "add_partitions()")
        total = self.check(name) + count
        with AsMisuse():
            self.cluster.add_partitions(self.real(name), total)
        self._wait(
            lambda: self.counts().get(name) == total,
            f"topic {name!r} did not get its new partitions",
        )
        return total

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        count = self.check(name)
        if partition is not None:
            self.check_partition(name, partition)
        numbers = range(count) if partition is None else [partition]
        starts, ends = self.bounds(name)
        wanted = {
            (self.real(name), number): min(before, ends[number])
            for number in numbers
            if min(before, ends[number]) > starts[number]
        }
        with AsMisuse():
            self.cluster.delete_records(wanted)
        return sum(offset - starts[number] for (_, number), offset in wanted.items())

    set_retention = unsupported("set_retention() of an existing topic")

    def _wait(self, condition: Callable[[], bool], failure: str) -> None:
        until = monotonic() + self.address.timeout
        if look_until(until, lambda: condition() or None) is None:
            raise ContractError(f"{failure} within {self.address.timeout} s")
