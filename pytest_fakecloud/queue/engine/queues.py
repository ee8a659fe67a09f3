"""Ordered queues, which deliver a message only after the messages before it have finished.

Vendor's documentation: parallelism is 1 by default. A failing message blocks its queue through all its
retries and until its callbacks have finished. A paused queue accepts messages and delivers none.
Decided here: a delayed message keeps its position, so its queue waits for it. A message does not
wait for a callback that is in an ordered queue itself, because two queues could then wait for each
other forever. In a queue with a parallelism above 1, a message that waits for flow control holds
back later messages with the same key, but not others. Deleting a queue cancels its waiting
messages, while those in flight finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..errors import existing, quota
from ..model import Message, OrderedQueue
from ..wire.values import check_name

if TYPE_CHECKING:
    from .data import QueueData
    from .planning import Planning


class Queues:
    """The ordered queues by name."""

    def __init__(self, data: QueueData, planning: Planning) -> None:
        self._data = data
        self._planning = planning
        self.by_name: dict[str, OrderedQueue] = {}

    # -- what clients change -----------------------------------------------------------------------

    def get(self, name: str) -> OrderedQueue:
        return existing(self.by_name.get(name), "queue", name)

    def check(self, names: Iterable[str]) -> None:
        """Raise ``QueueError`` (400 or 412) unless queues with these names may be created."""
        unique_names = set(names)
        for name in unique_names:
            check_name(name, "queue name")
        new = unique_names - self.by_name.keys()
        most = self._data.limits.queues
        if most is not None and new and len(self.by_name) + len(new) > most:
            raise quota("maxQueues", most)

    def create_if_missing(self, name: str, now_us: int) -> OrderedQueue:
        """Return a queue. That of a message is created when it is accepted: rejected ones leave none."""
        if name not in self.by_name:
            self.by_name[name] = OrderedQueue(name, now_us, now_us)
        return self.by_name[name]

    def upsert(
        self, name: str, *, parallelism: int | None = None, paused: bool | None = None
    ) -> None:
        """Create or change a queue. None leaves a setting unchanged.

        Raises ``QueueError``: 400 for an invalid name, 412 if a plan limit is exceeded.
        """
        data = self._data
        self.check([name])
        most = data.limits.queue_parallelism
        if most is not None and (parallelism or 0) > most:
            raise quota("maxParallelism", most)
        now = data.clock.now_us()
        queue = self.create_if_missing(name, now)
        queue.updated_us = now
        if parallelism is not None:
            queue.parallelism = parallelism
        if paused is not None:
            queue.paused = paused
        if not queue.paused:
            parked, queue.parked = queue.parked, []
            for message_id in parked:
                if message_id in data.pending:
                    self._planning.plan(data.messages[message_id], now, f"queue {name} resumed")
            self.start_waiting(queue)

    def set_paused(self, name: str, paused: bool) -> None:
        """Pause or resume a queue; raise a 404 error if it does not exist."""
        self.get(name)
        self.upsert(name, paused=paused)

    def lag(self, queue: OrderedQueue) -> int:
        """Return the number of unfinished messages in a queue. Parked messages are also active."""
        pending = self._data.pending
        return sum(message_id in pending for message_id in [*queue.active, *queue.waiting])

    # -- messages ----------------------------------------------------------------------------------

    def of(self, message: Message) -> OrderedQueue | None:
        """Return the queue of a message, or None."""
        return self.by_name.get(message.queue_name or "")

    def start_waiting(self, queue: OrderedQueue) -> None:
        """Make the next messages of a queue due while it has free slots."""
        data = self._data
        now = data.clock.now_us()
        while not queue.paused and queue.waiting and len(queue.active) < queue.parallelism:
            message = data.pending.get(queue.waiting.popleft())
            if message is None:
                continue
            queue.active[message.id] = None
            due = max(now, message.not_before_us)
            self._planning.plan(
                message, due, "delay" if due > now else f"turn in queue {queue.name}"
            )

    def release(self, message: Message) -> None:
        """Give back the slot of a message that has ended, and start the next message."""
        queue = self.of(message)
        if queue is None:
            return
        if message.id in queue.parked:
            queue.parked.remove(message.id)
        queue.active.pop(message.id, None)
        self.start_waiting(queue)

    def take_out(self, message: Message) -> None:
        """Take a message out of its queue without starting the next one."""
        queue = self.of(message)
        if queue is not None:
            if message.id in queue.waiting:
                queue.waiting.remove(message.id)
            queue.active.pop(message.id, None)

    def not_started_before(self, message: Message) -> Iterator[Message]:
        """Yield the messages that got a slot before this one and have not been attempted yet."""
        queue = self.of(message)
        for message_id in () if queue is None else queue.active:
            if message_id == message.id:
                return
            earlier = self._data.pending.get(message_id)
            if earlier is not None and not earlier.attempts:
                yield earlier

    def let_next_overtake(self, message: Message) -> bool:
        """Exchange a message in a slot with the next of its queue; return whether there is one."""
        queue = self.of(message)
        if queue is None or not queue.waiting or message.id not in queue.active:
            return False
        del queue.active[message.id]
        # Insert it behind the next message, which gets the slot now.
        queue.waiting.insert(1, message.id)
        self.start_waiting(queue)
        return True
