"""Ordered queues, which deliver a message only after the messages before it have finished.

Vendor's documentation: parallelism is 1 by default. A failing message blocks its queue through all
its retries and until its callbacks have finished. A paused queue accepts messages and delivers
none.

Decided here: a delayed message keeps its position, so its queue waits for it. A message does not
wait for a callback that is in an ordered queue itself, because two queues could then wait for each
other forever. Deleting a queue cancels its waiting messages, while those in flight finish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..errors import not_found, quota
from ..wire.values import check_name


@dataclass(slots=True)
class OrderedQueue:
    """An ordered queue.

    ``active`` messages have a slot. ``parked`` messages are due, but the queue is paused.
    """

    name: str
    created_us: int
    updated_us: int
    parallelism: int = 1
    paused: bool = False
    active: set[str] = field(default_factory=set)
    parked: list[str] = field(default_factory=list)
    waiting: deque[str] = field(default_factory=deque)

    def copy(self) -> OrderedQueue:
        return replace(
            self,
            active=set(self.active),
            parked=list(self.parked),
            waiting=deque(self.waiting),
        )


class Queues:
    """The ordered queues by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, OrderedQueue] = {}

    def get(self, name: str) -> OrderedQueue:
        """Return a queue; raise a 404 error if it does not exist."""
        found = self.by_name.get(name)
        if found is None:
            raise not_found("queue", name)
        return found

    def check(self, names: Iterable[str], most: int | None) -> None:
        """Check that queues with these names may be created.

        Raises ``QueueError``: 400 for an invalid name, 412 if the plan's queue limit would be
        exceeded.
        """
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
        """Create or change a queue. None leaves a setting unchanged.

        Raises ``QueueError``: 400 for an invalid name, 412 if a plan limit is exceeded.
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
        twin = Queues()
        twin.by_name = {name: found.copy() for name, found in self.by_name.items()}
        return twin
