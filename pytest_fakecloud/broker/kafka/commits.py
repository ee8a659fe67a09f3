"""Committed offsets of consumer groups on a real cluster."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ..model import EventKind, TopicPartition
from .buffer import Partition
from .topics import KafkaTopics


class KafkaCommits:
    """Stores and returns the committed offsets of a fake's groups.

    Groups are given by the names that clients use, partitions by the names on the cluster.
    ``tell`` is called with an event for each commit that is reported.
    """

    def __init__(self, topics: KafkaTopics, cluster: Any) -> None:
        self.tell: Any = None
        self._topics = topics
        self._cluster = cluster
        self._lock = threading.Lock()
        self._groups: set[str] = set()

    def add_group(self, group: str) -> None:
        """Remember a group, so that it is deleted when the fake is closed."""
        with self._lock:
            self._groups.add(group)

    def groups(self) -> list[str]:
        """Return the groups that have been used, sorted."""
        with self._lock:
            return sorted(self._groups)

    def forget_groups(self) -> list[str]:
        """Forget all groups; return their names on the cluster."""
        with self._lock:
            groups, self._groups = [self._topics.real(name) for name in self._groups], set()
        return groups

    def store(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets without being a member, which a group without members accepts."""
        if offsets:
            self.add_group(group)
            self._cluster.commit(self._topics.real(group), offsets)

    def report(
        self,
        group: str,
        instance: str,
        offsets: Mapping[Partition, int],
        kind: EventKind = "commit",
    ) -> None:
        """Call ``tell`` with the event of a commit."""
        if self.tell is None or not offsets:
            return
        stored = [
            (self._topics.shown(topic), number, at) for (topic, number), at in offsets.items()
        ]
        shown = ", ".join(f"{topic}-{number}={at}" for topic, number, at in stored)
        self.tell(
            kind,
            f"group {group!r}: {instance!r} committed {shown}"
            + (" automatically" if kind == "auto commit" else ""),
            group=group,
            instance=instance,
            offsets=stored,
        )

    def of_partition(self, group: str, partition: Partition) -> int | None:
        """Return the offset that a group has committed in a partition, or None."""
        found: dict[Partition, int] = self._cluster.group_offsets(
            self._topics.real(group), [partition]
        )
        return found.get(partition)

    def of_group(self, group: str) -> dict[TopicPartition, int]:
        """Return all offsets that a group has committed in the fake's topics."""
        own = [
            (self._topics.real(name), number)
            for name, count in self._topics.counts().items()
            for number in range(count)
        ]
        found = self._cluster.group_offsets(self._topics.real(group), own) if own else {}
        return {
            TopicPartition(self._topics.shown(topic), number): at
            for (topic, number), at in found.items()
        }
