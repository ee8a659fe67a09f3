"""Admission of messages in ordered queues, which have a limited number of slots each."""

from __future__ import annotations

from ..model import Message
from .fifo import OrderedQueue
from .state import State


class QueueAdmission:
    """Determines which messages of ordered queues may become due.

    The methods that change a queue by name acquire the lock. The others require it.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def queue_of(self, message: Message) -> OrderedQueue | None:
        return self._state.queues.by_name.get(message.queue_name or "")

    def start_waiting(self, queue: OrderedQueue) -> None:
        """Make the next messages of a queue due while it has free slots."""
        state = self._state
        now = state.clock.now_us()
        while not queue.paused and queue.waiting and len(queue.active) < queue.parallelism:
            message = state.pending.get(queue.waiting.popleft())
            if message is None:
                continue
            queue.active.add(message.id)
            due = max(now, message.not_before_us)
            state.plan(message, due, "delay" if due > now else f"turn in queue {queue.name}")

    def release(self, message: Message) -> None:
        """Release the slot of a message that was cancelled or has finished."""
        queue = self.queue_of(message)
        if queue is None:
            return
        if message.id in queue.parked:
            queue.parked.remove(message.id)
        queue.active.discard(message.id)
        self.start_waiting(queue)

    def let_next_overtake(self, message: Message) -> bool:
        """Exchange a message in a slot with the next message of its queue; return whether there is
        one.
        """
        queue = self.queue_of(message)
        if queue is None or not queue.waiting or message.id not in queue.active:
            return False
        queue.active.discard(message.id)
        queue.waiting.insert(1, message.id)
        self.start_waiting(queue)
        return True

    def upsert(self, name: str, *, parallelism: int | None, paused: bool | None) -> None:
        """Create or change a queue.

        Raises ``QueueError``: 400 for an invalid name, 412 if a plan limit is exceeded.
        """
        state = self._state
        with state.lock:
            limits = state.limits
            queue = state.queues.upsert(
                name,
                state.clock.now_us(),
                parallelism=parallelism,
                paused=paused,
                most=limits.queues,
                most_parallelism=limits.queue_parallelism,
            )
            if not queue.paused:
                self.resume(name)

    def resume(self, name: str) -> None:
        """Resume a queue; raise a 404 error if it does not exist."""
        state = self._state
        with state.lock:
            queue = state.queues.get(name)
            queue.paused = False
            now = state.clock.now_us()
            queue.updated_us = now
            parked, queue.parked = queue.parked, []
            for message_id in parked:
                if message_id in state.pending:
                    state.plan(state.messages[message_id], now, f"queue {name} resumed")
            self.start_waiting(queue)

    def pause(self, name: str) -> None:
        """Pause a queue; raise a 404 error if it does not exist."""
        state = self._state
        with state.lock:
            queue = state.queues.get(name)
            queue.paused = True
            queue.updated_us = state.clock.now_us()

    def lag(self, queue: OrderedQueue) -> int:
        """Return the number of unfinished messages in a queue."""
        return sum(one in self._state.pending for one in [*queue.active, *queue.waiting])
