"""The topics of a broker in memory."""

from __future__ import annotations

from ...core.errors import ContractError
from ...core.settings import optional, whole
from .. import errors
from ..errors import string
from ..model import INT64_MAX, TopicConfig
from ..settings import BrokerLimits
from .log import PartitionLog, Topic
from .rebalancing import Rebalancer
from .state import BrokerState

MOST_PARTITIONS = 100_000
"""Maximum number of partitions in a topic; a larger number could exhaust the memory."""


class MemoryTopics:
    """Creates, changes and deletes topics."""

    def __init__(self, state: BrokerState, rebalancer: Rebalancer) -> None:
        self._state = state
        self._rebalancer = rebalancer
        self._settings = state.settings

    def create(self, name: str, config: TopicConfig) -> None:
        topic = self.new(name, config)
        with self._state:
            if name in self._state.topics:
                raise topic_exists(name)
            self.check_limit(config.partitions)
            self._state.topics[name] = topic
            self._rebalancer.rebalance_subscribers(name, f"{name} was created")

    def new(self, name: str, config: TopicConfig) -> Topic:
        """Return a new topic that is not part of the broker yet."""
        limits = self._settings.limits
        config = checked_config(name, config, limits)
        whole(1, MOST_PARTITIONS).read("partitions", config.partitions, f"topic {name!r}")
        whole(0, INT64_MAX).read("first_offset", config.first_offset)
        return Topic(
            name=name,
            logs=[PartitionLog(name, n, config.first_offset) for n in range(config.partitions)],
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            max_message_bytes=config.max_message_bytes or limits.max_message_bytes,
        )

    def delete(self, name: str) -> None:
        with self._state:
            topic = self._state.topic(name)
            self._state.woken.update(*(log.watchers for log in topic.logs))
            del self._state.topics[name]
            for group in self._state.groups.values():
                group.forget(name)
            self._rebalancer.rebalance_subscribers(name, f"{name} was deleted")

    def add_partitions(self, name: str, count: int) -> int:
        """Add partitions. As in Kafka, keys may map to other partitions afterwards."""
        whole(1, MOST_PARTITIONS).read("count", count, "add_partitions()")
        with self._state:
            topic = self._state.topic(name)
            self.check_limit(count)
            have = len(topic.logs)
            self._state.woken.update(*(log.watchers for log in topic.logs))
            topic.logs += [PartitionLog(name, have + number) for number in range(count)]
            self._rebalancer.rebalance_subscribers(name, f"{name} has more partitions")
            return len(topic.logs)

    def set_retention(
        self, name: str, *, retention_ms: int | None, retention_bytes: int | None
    ) -> None:
        optional(whole(0)).read("retention_bytes", retention_bytes)
        with self._state:
            topic = self._state.topic(name)
            topic.retention_ms = retention_ms
            topic.retention_bytes = retention_bytes
            topic.retain(self._state.now_us // 1000)

    def delete_records(self, name: str, partition: int | None, before: int) -> int:
        with self._state:
            logs = (
                self._state.topic(name).logs
                if partition is None
                else [self._state.partition(name, partition)]
            )
            return sum(log.trim(before) for log in logs)

    def check_limit(self, more: int) -> None:
        limit = self._settings.limits.max_partitions
        have = sum(len(topic.logs) for topic in self._state.topics.values())
        if limit is not None and have + more > limit:
            raise ContractError(
                f"the plan allows {limit} partitions: {have} exist, and {more} more were requested"
            )

    def check(self, name: str) -> int:
        """Return a topic's partition count; raise ``BrokerError`` if it does not exist."""
        with self._state:
            return len(self._state.topic(name).logs)

    def bounds(self, name: str) -> tuple[list[int], list[int]]:
        """Return the start offsets and the end offsets of a topic's logs, by partition."""
        with self._state:
            logs = self._state.topic(name).logs
            return [log.start for log in logs], [log.end for log in logs]

    def counts(self) -> dict[str, int]:
        with self._state:
            return {name: len(topic.logs) for name, topic in self._state.topics.items()}


def checked_config(name: str, config: TopicConfig, limits: BrokerLimits) -> TopicConfig:
    """Return a configuration, whose retention defaults to that of the plan.

    Raises ``ContractError`` unless a topic can have this name and these limits.
    """
    string("a topic's name", name)
    if not errors.can_name_a_topic(name):
        raise ContractError(str(errors.invalid_topic(name)))
    optional(whole(0)).read("retention_bytes", config.retention_bytes)
    optional(whole(1)).read("max_message_bytes", config.max_message_bytes)
    kept_ms, kept_bytes = config.retention_ms, config.retention_bytes
    return config._replace(
        retention_ms=limits.retention_ms if kept_ms is None else kept_ms,
        retention_bytes=limits.retention_bytes if kept_bytes is None else kept_bytes,
    )


def topic_exists(name: str) -> ContractError:
    return ContractError(f"topic {name!r} already exists; add_partitions() adds partitions to it")
