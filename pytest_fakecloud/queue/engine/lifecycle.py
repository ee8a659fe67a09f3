"""The life of a message: it is accepted, may be cancelled, finishes, and releases waiting messages."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial

from ..model import Message, Outcome
from .admission import Admission
from .history import History
from .state import State

causing: ContextVar[Message | None] = ContextVar("causing", default=None)
"""The message whose delivery runs in this context, also in threads and tasks that its handler
starts.
"""


class Lifecycle:
    """Creates and finishes the messages of an engine. The lock must be held unless stated
    otherwise.

    ``under_way`` are the messages whose deliveries are being performed.
    """

    def __init__(self, state: State, admission: Admission, history: History) -> None:
        self._state = state
        self._admission = admission
        self._history = history
        self.under_way: dict[str, Message] = {}

    def accept(self, message: Message, now: int) -> None:
        """Store a new message and schedule its first attempt."""
        state = self._state
        self.trace_back(message, *self._cause(), now)
        if self._history.ends:
            self._history.sweep()
            self._history.began(message)
        message.number = state.next_sequence()
        message.public_id = message.public_id or message.id
        message.waiting_since_us = message.created_us
        state.messages[message.id] = message
        state.pending[message.id] = message
        state.log(message, "CREATED", message.created_us, next_us=message.not_before_us)
        if message.settings.flow is not None:
            key = state.flow.observe(message.settings.flow, now)
            if key.waiting:
                # Start waiting messages, because the settings of the new message may admit them,
                # too.
                self._admission.start_waiting_for_flow(key)
        if message.queue_name is not None:
            queue = state.queues.by_name[message.queue_name]
            queue.waiting.append(message.id)
            self._admission.queues.start_waiting(queue)
        else:
            reason = "delay" if message.not_before_us > message.created_us else "at once"
            state.plan(message, max(now, message.not_before_us), reason)
        state.changed.notify()

    # -- causes of messages ----------------------------------------------------------------------
    def trace_back(self, message: Message, source: Message | None, certain: bool, now: int) -> None:
        """Record which message caused this one, to detect endless loops."""
        state = self._state
        message.drive = state.drive
        if source is None or not source.attempts:
            return
        if source.attempts[-1].at_us == now:
            message.depth = max(message.depth, source.depth + 1)
        # Count only certain causes with background delivery. Otherwise, a client that publishes for
        # hours would look like an endless loop.
        if source.drive == state.drive and (certain or state.lane != "background"):
            message.chain = max(message.chain, source.chain + 1)

    def _cause(self) -> tuple[Message | None, bool]:
        """Return the message whose delivery is publishing now, and whether that is certain.

        It is certain if the handler runs in this process. A request over HTTP may be sent by the
        handler of any delivery in progress, or by none of them. In that case, the message that is
        least likely to be part of a loop is returned.
        """
        message = causing.get()
        if message is not None and self.under_way.get(message.id) is message:
            return message, True
        found = self.under_way.values()
        return min(found, key=lambda one: (one.chain, one.depth), default=None), False

    # -- cancelling and finishing ----------------------------------------------------------------
    def cancel_all(self, messages: list[Message]) -> int:
        """Cancel pending messages and return their number. Acquires the lock."""
        state = self._state
        with state.lock:
            now = state.clock.now_us()
            count = 0
            for message in messages:
                if state.pending.pop(message.id, None) is None:
                    continue
                count += 1
                in_flight = message.state == "ACTIVE"
                message.state = "CANCEL_REQUESTED"
                state.log(message, "CANCEL_REQUESTED", now)
                if in_flight:
                    continue
                self._admission.release(message)
                due = message.due_us
                state.unplan(message.id)
                if due is None or due <= now:
                    self._canceled(message.id, now)
                else:
                    self.plan_cancel(message, due)
                    self.settle(message)
            state.changed.notify()
            return count

    def plan_cancel(self, message: Message, due_us: int) -> None:
        """Schedule the end of a cancelled message for the time at which it would have been due."""
        self._state.plan_own(message.id, due_us, partial(self._canceled, message.id), "cancel")

    def _canceled(self, message_id: str, at_us: int) -> None:
        state = self._state
        with state.lock:
            message = state.messages[message_id]
            if message.state == "CANCEL_REQUESTED":
                state.timers.pop(message_id, None)
                self.finish(message, "CANCELED", at_us)

    def delete_queue(self, name: str) -> None:
        """Delete an ordered queue, if it exists, and cancel its waiting messages. Acquires the
        lock.
        """
        state = self._state
        with state.lock:
            queue = state.queues.by_name.get(name)
            if queue is None:
                return
            queue.paused = True
            self.cancel_all(
                [
                    state.messages[one]
                    # Include parked messages: a message that was in flight when an older queue of
                    # this name was deleted is in no other list.
                    for one in [*queue.active, *queue.waiting, *queue.parked]
                    if one in state.pending and state.messages[one].state != "ACTIVE"
                ]
            )
            del state.queues.by_name[name]

    def finish(
        self,
        message: Message,
        end: str,
        at_us: int,
        *,
        error: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        state = self._state
        message.state = end
        message.finished_us = at_us
        message.due_us = None
        state.pending.pop(message.id, None)
        state.log(message, end, at_us, error=error, outcome=outcome)
        state.workflow.finished(message, at_us)
        self.settle(message)
        if self._history.ends:
            self._history.ended(message)

    def settle(self, message: Message) -> None:
        """Release the messages that wait for this one, after it and its callbacks have finished."""
        state = self._state
        if message.open_children or not (message.finished or message.state == "CANCEL_REQUESTED"):
            return
        if message.settled:
            return
        message.settled = True
        if message.queue_name is not None:
            queue = state.queues.by_name.get(message.queue_name)
            if queue is not None and message.id in queue.active:
                queue.active.discard(message.id)
                self._admission.queues.start_waiting(queue)
        if message.source_id is not None and message.queue_name is None:
            source = state.messages.get(message.source_id)
            if source is not None:
                source.open_children -= 1
                self.settle(source)
