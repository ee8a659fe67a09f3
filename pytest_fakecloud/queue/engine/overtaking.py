"""The fault that lets other messages overtake a due message."""

from __future__ import annotations

from functools import partial

from ..model import SECOND
from .admission import Admission
from .state import State


class Overtaking:
    """Delays the messages that a fault lets others overtake. Its methods acquire the lock."""

    def __init__(self, state: State, admission: Admission) -> None:
        self._state = state
        self._admission = admission

    def delay(self, message_id: str) -> bool:
        """Return whether a fault lets other messages overtake a due message; if so, delay it."""
        state = self._state
        with state.lock:
            message = state.pending.get(message_id)
        if message is None or message.overtaken_at == message.retried:
            return False
        # Ask without the lock, because a fault may call a function of the test.
        if not state.delivery_hooks.overtaken(message):
            return False
        with state.lock:
            message.overtaken_at = message.retried
            message.due_us = None
            state.timers.pop(message_id, None)
            self._admission.release_flow_slot(message)
            if not self._admission.queues.let_next_overtake(message):
                # Make the message due in a second. The next delivery makes it due earlier.
                state.overtaken.append(message_id)
                latest = state.clock.now_us() + SECOND
                message.due_us = latest
                state.plan_own(
                    message_id, latest, partial(self._second_passed, message_id), "overtaken"
                )
        return True

    def end_all(self) -> None:
        """Make all overtaken messages due again."""
        for message_id in list(self._state.overtaken):
            self._end(message_id)

    def _second_passed(self, message_id: str, at_us: int) -> None:
        self._end(message_id)

    def _end(self, message_id: str) -> None:
        state = self._state
        with state.lock:
            if message_id in state.overtaken:
                state.overtaken.remove(message_id)
                if message_id in state.pending:
                    message = state.messages[message_id]
                    state.plan(message, state.clock.now_us(), message.wait_reason)
