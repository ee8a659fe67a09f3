"""The life of a message: it is accepted, may be cancelled, finishes, and releases waiting messages.

A message that a handler publishes is caused by the message that the handler received. Causes are
recorded to detect messages that publish each other endlessly.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial

from ..model import Message, MessageState, Outcome
from .admission import Admission
from .history import History
from .state import State

CHAIN_FACTOR = 10
"""The loop limit within one call, as a multiple of the limit at a single point in time."""
causing: ContextVar[Message | None] = ContextVar("causing", default=None)
"""The message whose delivery runs in this context, including its threads and tasks."""


class Causes:
    """Records the causes of an engine's messages. The lock must be held.

    ``under_way`` are the messages whose deliveries are being performed. ``Message.depth`` is the
    number of causes of a message at the same time, ``Message.chain`` the number of its causes
    within one call that delivers. For example, if the handler of message A publishes B, and the
    handler of B publishes C with a delay, then C has a chain of 2 and a depth of 0.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.under_way: dict[str, Message] = {}

    def trace(self, message: Message, source: Message | None, now: int) -> None:
        """Record that ``source`` caused a new message. None means the delivery that publishes now."""
        state = self._state
        message.drive = state.clock._drives
        source, certain = (source, True) if source else self._publishing_delivery()
        if source is None or not source.attempts:
            return
        if source.attempts[-1].at_us == now:
            message.depth = max(message.depth, source.depth + 1)
        # Count only certain causes with background delivery. Otherwise, a client that publishes for
        # hours would look like an endless loop.
        if source.drive == state.clock._drives and (certain or state.lane != "background"):
            message.chain = max(message.chain, source.chain + 1)

    def _publishing_delivery(self) -> tuple[Message | None, bool]:
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

    def note_attempt(self, message: Message, now: int) -> None:
        """Count an attempt that follows another at the same time as a cause."""
        if message.attempts and message.attempts[-1].at_us == now:
            message.depth += 1
        elif message.created_us < now:
            message.depth = 0

    def endless_loop(self, message: Message) -> str | None:
        """Return a description of the endless loop that a message is part of, or None."""
        limit = self._state.settings.loop_limit
        if message.depth > limit:
            count, span = limit, "at the same time"
        elif message.drive == self._state.clock._drives and message.chain > limit * CHAIN_FACTOR:
            count, span = limit * CHAIN_FACTOR, "in one call"
        else:
            return None
        return (
            f"endless loop: {count} deliveries caused each other {span}, the next one would be"
            f" {message.public_id} to {message.url}. Let the handlers stop publishing at some point,"
            " or publish with a delay and advance the clock step by step. The message stays pending"
        )


class Lifecycle:
    """Creates and finishes the messages of an engine. Requires the lock unless stated otherwise.

    ``causes`` records which message caused which.
    """

    def __init__(self, state: State, admission: Admission, history: History) -> None:
        self._state = state
        self._admission = admission
        self._history = history
        self.causes = Causes(state)

    def accept(self, message: Message, now: int, *, source: Message | None = None) -> None:
        """Add a message to the pending ones. ``source`` is the message that a callback reports on."""
        state = self._state
        self.causes.trace(message, source, now)
        self._history.sweep()
        self._history.note_accepted(message)
        message.number = state.next_sequence()
        message.public_id = message.public_id or message.id
        message.waiting_since_us = message.created_us
        state.messages[message.id] = message
        state.pending[message.id] = message
        state.log(message, "CREATED", message.created_us, next_us=message.not_before_us)
        if message.settings.flow is not None:
            key = state.flow.observe(message.settings.flow, now)
            if key.waiting:
                # The settings of the new message may admit waiting messages, too.
                self._admission.start_waiting_for_flow(key)
        if message.queue_name is not None:
            queue = state.queues.by_name[message.queue_name]
            queue.waiting.append(message.id)
            state.queues.start_waiting(queue)
        else:
            reason = "delay" if message.not_before_us > message.created_us else "at once"
            state.plan(message, max(now, message.not_before_us), reason)

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
                    self._finish_cancelled(message.id, now)
                else:
                    self.plan_end_of_cancelled(message, due)
                    self.release_waiting(message)
            return count

    def plan_end_of_cancelled(self, message: Message, due_us: int) -> None:
        """Schedule the end of a cancelled message for the time at which it would have been due."""
        self._state.plan_own(
            message.id, due_us, partial(self._finish_cancelled, message.id), "cancel"
        )

    def _finish_cancelled(self, message_id: str, at_us: int) -> None:
        state = self._state
        with state.lock:
            message = state.messages[message_id]
            if message.state == "CANCEL_REQUESTED":
                state.timers.pop(message_id, None)
                self.finish(message, "CANCELED", at_us)

    def delete_queue(self, name: str) -> None:
        """Delete an ordered queue, if any, and cancel its waiting messages. Acquires the lock."""
        state = self._state
        with state.lock:
            queue = state.queues.by_name.get(name)
            if queue is None:
                return
            # Pause the queue, so that cancelling a message does not start the next one.
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
        end: MessageState,
        at_us: int,
        *,
        error: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        """End a message in the state ``end``: DELIVERED, FAILED or CANCELED."""
        state = self._state
        message.state = end
        message.finished_us = at_us
        message.due_us = None
        state.pending.pop(message.id, None)
        state.log(message, end, at_us, error=error, outcome=outcome)
        state.workflow.finished(message, at_us)
        self.release_waiting(message)
        self._history.note_finished(message)

    def release_waiting(self, message: Message) -> None:
        """Release the messages that wait for this one, after it and its callbacks have finished."""
        state = self._state
        has_ended = message.finished or message.state == "CANCEL_REQUESTED"
        if not has_ended or message.open_children or message.released:
            return
        message.released = True
        state.queues.release(message)
        if message.source_id is not None and message.queue_name is None:
            source = state.messages.get(message.source_id)
            if source is not None:
                source.open_children -= 1
                self.release_waiting(source)
