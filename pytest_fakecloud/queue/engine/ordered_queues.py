"""Ordered queues, which deliver a message only after the messages before it have finished.

Vendor's documentation: parallelism is 1 by default. A failing message blocks its queue through all
its retries and until its callbacks have finished. A paused queue accepts messages and delivers
none.

Decided here: a delayed message keeps its position, so its queue waits for it. A message does not
wait for a callback that is in an ordered queue itself, because two queues could then wait for each
other forever. In a queue with a parallelism above 1, a message that waits for flow control holds
back later messages with the same key, but not others. Deleting a queue cancels its waiting
messages, while those in flight finish.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..errors import existing, quota
from ..model import Message
from ..wire.values import check_name

if TYPE_CHECKING:
    from .state import State


@dataclass(eq=False, slots=True)
class OrderedQueue:
    """An ordered queue.

    ``active`` messages have a slot. Those that have not started come first, in the order in which
    they got it. ``parked`` messages are due, but the queue is paused.
    """

    name: str
    created_us: int
    updated_us: int
    parallelism: int = 1
    paused: bool = False
    active: OrderedDict[str, None] = field(default_factory=OrderedDict)
    parked: list[str] = field(default_factory=list)
    waiting: deque[str] = field(default_factory=deque)

    def copy(self) -> OrderedQueue:
        return replace(
            self,
            active=OrderedDict(self.active),
            parked=list(self.parked),
            waiting=deque(self.waiting),
        )


class OrderedQueues:
    """The ordered queues by name, which determine when their messages become due.

    The methods that change a queue by name acquire the lock. The others require it.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.by_name: dict[str, OrderedQueue] = {}

    def get(self, name: str) -> OrderedQueue:
        return existing(self.by_name.get(name), "queue", name)

    def check(self, names: Iterable[str]) -> None:
        """Check that queues with these names may be created.

        Raises ``QueueError``: 400 for an invalid name, 412 if the plan's queue limit would be
        exceeded.
        """
        wanted = set(names)
        for name in wanted:
            check_name(name, "queue name")
        new = wanted - self.by_name.keys()
        most = self._state.limits.queues
        if most is not None and new and len(self.by_name) + len(new) > most:
            raise quota("maxQueues", most)

    def queue_of(self, message: Message) -> OrderedQueue | None:
        return self.by_name.get(message.queue_name or "")

    def start_waiting(self, queue: OrderedQueue) -> None:
        """Make the next messages of a queue due while it has free slots."""
        state = self._state
        now = state.clock.now_us()
        while not queue.paused and queue.waiting and len(queue.active) < queue.parallelism:
            message = state.pending.get(queue.waiting.popleft())
            if message is None:
                continue
            queue.active[message.id] = None
            due = max(now, message.not_before_us)
            state.plan(message, due, "delay" if due > now else f"turn in queue {queue.name}")

    def release(self, message: Message) -> None:
        """Release the slot of a message that was cancelled or has finished."""
        queue = self.queue_of(message)
        if queue is None:
            return
        if message.id in queue.parked:
            queue.parked.remove(message.id)
        queue.active.pop(message.id, None)
        self.start_waiting(queue)

    def not_started_before(self, message: Message) -> Iterator[Message]:
        """Yield the messages that got a slot before this one and have not been attempted yet."""
        queue = self.queue_of(message)
        for message_id in () if queue is None else queue.active:
            if message_id == message.id:
                return
            earlier = self._state.pending.get(message_id)
            if earlier is not None and not earlier.attempts:
                yield earlier

    def note_started(self, message: Message) -> None:
        queue = self.queue_of(message)
        if queue is not None and message.id in queue.active:
            queue.active.move_to_end(message.id)

    def let_next_overtake(self, message: Message) -> bool:
        """Exchange a message in a slot with the next of its queue; return whether there is one."""
        queue = self.queue_of(message)
        if queue is None or not queue.waiting or message.id not in queue.active:
            return False
        del queue.active[message.id]
        # Insert it behind the next message, which gets the slot now.
        queue.waiting.insert(1, message.id)
        self.start_waiting(queue)
        return True

    def upsert(
        self, name: str, *, parallelism: int | None = None, paused: bool | None = None
    ) -> None:
        """Create or change a queue. None leaves a setting unchanged.

        Raises ``QueueError``: 400 for an invalid name, 412 if a plan limit is exceeded.
        """
        state = self._state
        with state.lock:
            self.check([name])
            most = state.limits.queue_parallelism
            if most is not None and (parallelism or 0) > most:
                raise quota("maxParallelism", most)
            now = state.clock.now_us()
            queue = self.by_name.setdefault(name, OrderedQueue(name, now, now))
            queue.updated_us = now
            if parallelism is not None:
                queue.parallelism = parallelism
            if paused is not None:
                queue.paused = paused
            if not queue.paused:
                parked, queue.parked = queue.parked, []
                for message_id in parked:
                    if message_id in state.pending:
                        state.plan(state.messages[message_id], now, f"queue {name} resumed")
                self.start_waiting(queue)

    def set_paused(self, name: str, paused: bool) -> None:
        """Pause or resume a queue; raise a 404 error if it does not exist."""
        with self._state.lock:
            self.get(name)
            self.upsert(name, paused=paused)

    def lag(self, queue: OrderedQueue) -> int:
        """Return the number of unfinished messages in a queue. Parked messages are also active."""
        return sum(one in self._state.pending for one in [*queue.active, *queue.waiting])
