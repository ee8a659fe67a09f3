"""Ordered queues, as clients configure them.

They deliver a message only after the messages before it have finished. Vendor's
documentation: parallelism is 1 by default. A failing message blocks its queue through all its
retries and until its callbacks have finished. A paused queue accepts messages and delivers none.
Decided here: a delayed message keeps its position, so its queue waits for it. A message does not
wait for a callback that is in an ordered queue itself, because two queues could then wait for each
other forever. In a queue with a parallelism above 1, a message that waits for flow control holds
back later messages with the same key, but not others. Deleting a queue cancels its waiting
messages, while those in flight finish.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import existing, quota
from ..model import OrderedQueue
from ..wire.values import check_name
from .flow_control import FlowControl


class Queues(FlowControl):
    """The fourth layer of an engine: what clients change of ordered queues."""

    def queue(self, name: str) -> OrderedQueue:
        return existing(self.queues.get(name), "queue", name)

    def check_queues(self, names: Iterable[str]) -> None:
        """Raise ``QueueError`` (400 or 412) unless queues with these names may be created."""
        unique_names = set(names)
        for name in unique_names:
            check_name(name, "queue name")
        new = unique_names - self.queues.keys()
        most = self.limits.queues
        if most is not None and new and len(self.queues) + len(new) > most:
            raise quota("maxQueues", most)

    def upsert_queue(
        self, name: str, *, parallelism: int | None = None, paused: bool | None = None
    ) -> None:
        """Create or change a queue. None leaves a setting unchanged.

        Raises ``QueueError``: 400 for an invalid name, 412 if a plan limit is exceeded.
        """
        with self.lock:
            self.check_queues([name])
            most = self.limits.queue_parallelism
            if most is not None and (parallelism or 0) > most:
                raise quota("maxParallelism", most)
            now = self.clock.now_us()
            queue = self.queues.setdefault(name, OrderedQueue(name, now, now))
            queue.updated_us = now
            if parallelism is not None:
                queue.parallelism = parallelism
            if paused is not None:
                queue.paused = paused
            if not queue.paused:
                parked, queue.parked = queue.parked, []
                for message_id in parked:
                    if message_id in self.pending:
                        self.plan(self.messages[message_id], now, f"queue {name} resumed")
                self.start_waiting_in(queue)

    def set_queue_paused(self, name: str, paused: bool) -> None:
        """Pause or resume a queue; raise a 404 error if it does not exist."""
        with self.lock:
            self.queue(name)
            self.upsert_queue(name, paused=paused)

    def queue_lag(self, queue: OrderedQueue) -> int:
        """Return the number of unfinished messages in a queue. Parked messages are also active."""
        return sum(message_id in self.pending for message_id in [*queue.active, *queue.waiting])

    def delete_queue(self, name: str) -> None:
        """Delete an ordered queue, if any, and cancel its waiting messages. Acquires the lock."""
        with self.lock:
            queue = self.queues.get(name)
            if queue is None:
                return
            # Pause the queue, so that cancelling a message does not start the next one.
            queue.paused = True
            self.cancel_all(
                [
                    self.messages[message_id]
                    # Include parked messages: a message that was in flight when an older queue of
                    # this name was deleted is in no other list.
                    for message_id in [*queue.active, *queue.waiting, *queue.parked]
                    if message_id in self.pending and self.messages[message_id].state != "ACTIVE"
                ]
            )
            del self.queues[name]

    def create_queue_if_missing(self, name: str, now: int) -> None:
        """Create the queue of a message that was accepted: a rejected one does not leave a queue."""
        if name not in self.queues:
            self.queues[name] = OrderedQueue(name, now, now)
