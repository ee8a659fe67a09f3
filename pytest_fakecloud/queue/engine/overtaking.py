"""Overtaking, the effect of a fault that lets other messages be delivered before a due one."""

from __future__ import annotations

from functools import partial

from ..model import SECOND, Message
from .admission import Admission
from .state import State


class Overtaking:
    """Delays due messages that a fault lets others overtake. The public methods acquire the lock.

    ``delayed`` are the ids of the delayed messages, which become due again after the next delivery
    or after one second. In an ordered queue, a message instead changes places with the next one.
    """

    def __init__(self, state: State, admission: Admission) -> None:
        self._state = state
        self._admission = admission
        self.delayed: list[str] = []

    def delay_if_overtaken(self, message_id: str) -> bool:
        """Return whether a fault lets other messages overtake a due message; if so, delay it."""
        state = self._state
        with state.lock:
            message = state.pending.get(message_id)
            if message is None or message.overtaken_at == message.retried:
                return False
            # Remove the timer, which has fired. The message may return to its queue without a time.
            state.timers.pop(message_id, None)
        try:
            # Ask without the lock, because a fault may call a function of the test.
            overtaken = state.delivery_hooks.overtaken(message)
        except BaseException:
            with state.lock:
                # Keep the message due, but do not ask again, because the error could be repeated.
                message.overtaken_at = message.retried
                self._make_due(message_id, state.clock.now_us())
            raise
        if overtaken:
            with state.lock:
                message.overtaken_at = message.retried
                self._delay(message)
        return overtaken

    def _delay(self, message: Message) -> None:
        state = self._state
        message.due_us = None
        self._admission.release_flow_slot(message)
        self._admission.release_global_slot(message)
        if state.queues.let_next_overtake(message):
            return
        self.delayed.append(message.id)
        message.due_us = state.clock.now_us() + SECOND
        end_delay = partial(self._end_delay, message.id)
        state.plan_own(message.id, message.due_us, end_delay, "overtaken")

    def end(self) -> None:
        """Make all delayed messages due again."""
        for message_id in list(self.delayed):
            self._end_delay(message_id, self._state.clock.now_us())

    def _end_delay(self, message_id: str, now: int) -> None:
        with self._state.lock:
            if message_id in self.delayed:
                self.delayed.remove(message_id)
                self._make_due(message_id, now)

    def _make_due(self, message_id: str, now: int) -> None:
        message = self._state.pending.get(message_id)
        if message is not None:
            self._state.plan(message, now, message.wait_reason)
