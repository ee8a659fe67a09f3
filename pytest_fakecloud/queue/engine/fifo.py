"""Queues that keep order: a message is delivered when those before it have come to an end.

Vendor's docs: parallelism 1 by default; a failing head blocks its queue through all its retries and
until its callbacks have ended; a paused queue accepts messages and delivers none.

Decided here: a delayed message keeps its place, so its queue waits for it; nobody waits for a
callback that stands in a queue itself, or two queues could wait for each other for ever; deleting a
queue cancels the messages that wait in it, those in flight come to their end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..errors import not_found, quota
from ..wire.headers import check_name


@dataclass(slots=True)
class OrderedQueue:
    """One queue: ``active`` hold its slots, ``parked`` are due but paused, ``waiting`` are behind."""

    name: str
    created_us: int
    updated_us: int
    parallelism: int = 1
    paused: bool = False
    active: set[str] = field(default_factory=set)
    parked: list[str] = field(default_factory=list)
    waiting: deque[str] = field(default_factory=deque)

    def copy(self) -> OrderedQueue:
        """Return an independent copy."""
        return replace(
            self,
            active=set(self.active),
            parked=list(self.parked),
            waiting=deque(self.waiting),
        )


class Queues:
    """All queues by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, OrderedQueue] = {}

    def get(self, name: str) -> OrderedQueue:
        """Return a queue; 404 when there is none of that name."""
        found = self.by_name.get(name)
        if found is None:
            raise not_found("queue", name)
        return found

    def check(self, names: Iterable[str], most: int | None) -> None:
        """Refuse names of which a queue could not be made: 400 bad name, 412 beyond the plan's."""
        wanted = set(names)
        for name in wanted:
            check_name(name, "queue name")
        new = wanted - self.by_name.keys()
        if most is not None and new and len(self.by_name) + len(new) > most:
            raise quota("maxQueues", most)

    def upsert(
        self,
        name: str,
        now_us: int,
        *,
        parallelism: int | None = None,
        paused: bool | None = None,
        most: int | None = None,
        most_parallelism: int | None = None,
    ) -> OrderedQueue:
        """Create or change a queue; None leaves a setting as it is.

        Raises ``QueueError``: 400 for a bad name, 412 beyond the plan's queues or parallelism.
        """
        self.check([name], most)
        if most_parallelism is not None and (parallelism or 0) > most_parallelism:
            raise quota("maxParallelism", most_parallelism)
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = OrderedQueue(name, now_us, now_us)
        else:
            found.updated_us = now_us
        if parallelism is not None:
            found.parallelism = parallelism
        if paused is not None:
            found.paused = paused
        return found

    def copy(self) -> Queues:
        """Return an independent copy."""
        twin = Queues()
        twin.by_name = {name: found.copy() for name, found in self.by_name.items()}
        return twin
