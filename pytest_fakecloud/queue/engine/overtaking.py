"""Messages that others overtake, because a fault lets them.

Decided here: an overtaken message becomes due again after the next delivery or after one second. In an
ordered queue, it instead changes places with the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..model import SECOND, FaultDecisions, Message
from .data import QueueData
from .flow_control import FlowKeys
from .planning import Planning
from .queues import Queues


class Overtaking:
    """Delays the messages that others overtake. ``delayed`` are the ids of those that wait for the next
    delivery.
    """

    def __init__(
        self, data: QueueData, planning: Planning, queues: Queues, flow_control: FlowKeys
    ) -> None:
        self._data = data
        self._planning = planning
        self._queues = queues
        self._flow_control = flow_control
        self.delayed: list[str] = []

    def delay_if_overtaken(self, decisions: FaultDecisions, message_id: str) -> bool:
        """Return whether a fault lets other messages overtake a due message; if so, delay it."""
        with self._data.lock:
            message = self._data.pending.get(message_id)
            if message is None or message.overtaken_at == message.retried:
                return False
            # Remove the timer, which has fired. The message may return to its queue without a time.
            self._planning.timers.pop(message_id, None)
        try:
            # Ask without the lock, because a fault may call a function of the test.
            is_overtaken = decisions.overtaken(message)
        except BaseException:
            with self._data.lock:
                # Keep the message due, but do not ask again, because the error could be repeated.
                message.overtaken_at = message.retried
                self._make_due(message_id, self._data.clock.now_us())
            raise
        if is_overtaken:
            with self._data.lock:
                message.overtaken_at = message.retried
                self._delay(message)
        return is_overtaken

    def _delay(self, message: Message) -> None:
        message.due_us = None
        self._flow_control.release(message)
        if self._queues.let_next_overtake(message):
            return
        self.delayed.append(message.id)
        message.due_us = self._data.clock.now_us() + SECOND
        end_delay = partial(self._end_delay, message.id)
        self._planning.plan_own(message.id, message.due_us, end_delay, "overtaken")

    def _end_delay(self, message_id: str, now: int) -> None:
        with self._data.lock:
            if message_id in self.delayed:
                self.delayed.remove(message_id)
                self._make_due(message_id, now)

    def _make_due(self, message_id: str, now: int) -> None:
        message = self._data.pending.get(message_id)
        if message is not None:
            self._planning.plan(message, now, message.wait_reason)

    def end_all(self) -> None:
        """Make all delayed messages due, because another one has been delivered. Acquires the lock."""
        for message_id in list(self.delayed):
            self._end_delay(message_id, self._data.clock.now_us())

    def due_times(self) -> Iterator[int | None]:
        """Yield when each delayed message becomes due at the latest."""
        for message_id in self.delayed:
            if message_id in self._data.pending:
                yield self._data.pending[message_id].due_us
