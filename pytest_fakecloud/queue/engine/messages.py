"""Messages and their life: a message is accepted, may be cancelled, finishes, and is forgotten.

A message is ``CREATED``, ``ACTIVE`` during an attempt, then ``DELIVERED`` (2xx only), or ``ERROR``
followed by ``RETRY`` or by ``FAILED`` with a dead letter. A cancelled message is
``CANCEL_REQUESTED`` immediately and ``CANCELED`` at the time at which it would have been due.
Decided here: a cancelled message leaves its queue or wait list immediately, and is ``CANCELED``
immediately if it has no due time. An attempt in flight still delivers its message if the message is
cancelled.

A message that a handler publishes is caused by the message that the handler received. Causes are
recorded to detect messages that publish each other endlessly. ``Message.depth`` is the number of
causes of a message at the same time, ``Message.chain`` the number of its causes within one call that
delivers. For example, if the handler of message A publishes B, and the handler of B publishes C with
a delay, then C has a chain of 2 and a depth of 0. Handlers that publish two messages each make many
short chains; so deliveries to a URL that is among their causes are counted, too.

A finished message is kept for the time set by ``history_us``. It is forgotten together with its log, its
attempts and its part of a workflow run. A flow-control key is forgotten with the last message that used
it, unless it is pinned or paused. A message is kept until its dead letter has expired and the callbacks
about it have finished. The messages of a workflow run are kept until all of them can be forgotten.

Decided here: nothing is forgotten while the clock is moving, so that the attempts returned by the
call are complete.
"""

from __future__ import annotations

import heapq
from contextvars import ContextVar
from functools import partial
from typing import Any

from ..errors import not_found
from ..model import SECOND, LogEntry, Message, MessageState
from ..wire.records import Filters, page
from .admission import Admission

CALL_FACTOR = 10
"""The limit of deliveries within one call, as a multiple of the loop limit. It applies to chains and
to deliveries that return to one of their causes.
"""
FAN_FACTOR = 5
"""The limit of deliveries that return to one of their causes at one time, as a multiple of the loop
limit. Decided here: trees of some thousand messages are not endless.
"""
_MOST_CAUSES = 64
"""Maximum number of URLs that are recorded as causes of a message; loops have fewer."""
causing: ContextVar[Message | None] = ContextVar("causing", default=None)
"""The message whose delivery runs in this context, including its threads and tasks."""


def _loop(message: Message, why: str) -> str:
    return (
        f"endless loop: {why}, the next one would be {message.public_id} to {message.url}. Let the"
        " handlers stop publishing at some point, publish with a delay and advance the clock step by"
        " step, or raise the setting loop_limit. The message stays pending"
    )


class Messages(Admission):
    """The second layer of an engine: creates, finishes and forgets messages."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._span_us = self.data.settings.history_us or 0
        self._to_forget: list[tuple[int, str]] = []
        self._returned_at: tuple[tuple[int, int], int] = ((0, 0), 0)
        """A drive and a time, and how many deliveries there returned to one of their causes."""
        self._returned_in: tuple[int, int] = (0, 0)
        """A drive, and how many deliveries of it returned to one of their causes."""
        self._pauses = 0
        """How often a message was published while no delivery was being performed."""

    def accept(self, message: Message, now: int, *, source: Message | None = None) -> None:
        """Add a message to the pending ones. ``source`` is the message that a callback reports on."""
        if source is not None or self.data.under_way:
            message.drive = self.drive
            self._trace(message, source, now)
        else:
            self._pauses += 1
            message.drive = self.drive
        if self._to_forget:
            self.sweep()
        self.data.sequence = message.number = self.data.sequence + 1
        message.public_id = message.public_id or message.id
        message.waiting_since_us = message.created_us
        self.data.messages[message.id] = message
        self.data.pending[message.id] = message
        self.data.log(message, "CREATED", message.created_us, next_us=message.not_before_us)
        self.flow_control.add(message, now)
        if message.queue_name is not None:
            queue = self.queues.by_name[message.queue_name]
            queue.waiting.append(message.id)
            self.queues.start_waiting(queue)
        else:
            reason = "delay" if message.not_before_us > message.created_us else "at once"
            self.planning.plan(message, max(now, message.not_before_us), reason)

    def cancel_all(self, messages: list[Message]) -> int:
        """Cancel pending messages and return their number. Acquires the lock."""
        with self.data.lock:
            now = self.data.clock.now_us()
            count = 0
            for message in messages:
                if self.data.pending.pop(message.id, None) is None:
                    continue
                count += 1
                in_flight = message.state == "ACTIVE"
                message.state = "CANCEL_REQUESTED"
                self.data.log(message, "CANCEL_REQUESTED", now)
                if in_flight:
                    continue
                self.release_global_slot(message)
                self.queues.release(message)
                self.flow_control.release(message)
                due = message.due_us
                self.planning.unplan(message.id)
                if due is None or due <= now:
                    self._finish_cancelled(message.id, now)
                else:
                    self.plan_end_of_cancelled(message, due)
                    self.release_waiting(message)
            return count

    def plan_end_of_cancelled(self, message: Message, due_us: int) -> None:
        """Schedule the end of a cancelled message for the time at which it would have been due."""
        self.planning.plan_own(
            message.id, due_us, partial(self._finish_cancelled, message.id), "cancel"
        )

    def _finish_cancelled(self, message_id: str, at_us: int) -> None:
        with self.data.lock:
            message = self.data.messages[message_id]
            if message.state == "CANCEL_REQUESTED":
                self.planning.timers.pop(message_id, None)
                self.end_message(message, "CANCELED", at_us)

    def end_message(self, message: Message, end: MessageState, at_us: int, **details: Any) -> None:
        """End a message in the state ``end``: DELIVERED, FAILED or CANCELED.

        ``details`` are further fields of the entry in its log.
        """
        entry = self.data.log_entry(message, end, at_us, **details)
        message.state = end
        message.finished_us = at_us
        message.due_us = None
        message.log += [entry]
        self.data.pending.pop(message.id, None)
        if message.workflow is not None or message.failure_of is not None:
            self.workflow.finished(message, at_us)
        self.release_waiting(message)
        self._note_finished(message)

    def release_waiting(self, message: Message) -> None:
        """Release the messages that wait for this one, after it and its callbacks have finished."""
        if message.id in self.data.pending or message.open_children or message.released:
            return
        if message.queue_name is not None:
            self.queues.release(message)
        message.released = True
        if message.source_id is not None and message.queue_name is None:
            source = self.data.messages.get(message.source_id)
            if source is not None:
                source.open_children -= 1
                self.release_waiting(source)

    @property
    def drive(self) -> int:
        """The number of the span in which deliveries that cause each other are counted.

        It is the call that delivers. In the background, where no call does, it is the time since a
        message was last published while no delivery was being performed.
        """
        return self.data.clock.drives + (self._pauses if self.data.lane == "background" else 0)

    # -- causes ------------------------------------------------------------------------------------

    def _trace(self, message: Message, source: Message | None, now: int) -> None:
        """Record that ``source`` caused a new message. None means the delivery that publishes now."""
        source, certain = (source, True) if source else self._publishing_delivery()
        if source.attempts[-1].at_us == now:
            message.depth = max(message.depth, source.depth + 1)
        if source.drive != self.drive:
            return
        # While no call moves the clock, count only certain causes, and those of messages without a
        # delay. Otherwise, a client that publishes for hours would look like an endless loop.
        if certain or self.data.lane != "background" or self.data.clock.driving:
            message.chain = max(message.chain, source.chain + 1)
        elif message.not_before_us > now:
            return
        message.causes, message.caused_at = source.causes, source.url
        if source.url not in source.causes and len(source.causes) < _MOST_CAUSES:
            message.causes |= {source.url}

    def _publishing_delivery(self) -> tuple[Message, bool]:
        """Return the message whose delivery is publishing now, and whether that is certain."""
        message = causing.get()
        if message is not None and self.data.under_way.get(message.id) is message:
            return message, True
        # A request over HTTP may be sent by the handler of any delivery in progress, or by none.
        # Return the message that is least likely to be part of a loop.
        return min(
            self.data.under_way.values(), key=lambda message: (message.chain, message.depth)
        ), False

    def endless_loop(self, message: Message, now: int) -> str | None:
        """Return a description of the endless loop that a due message is part of, or None.

        An attempt that follows another at the same time counts as a cause.
        """
        if message.attempts and message.attempts[-1].at_us == now:
            message.depth += 1
        elif message.created_us < now:
            message.depth = 0
        limit = self.data.settings.loop_limit
        if message.depth > limit:
            count, span = limit, "at the same time"
        elif message.drive == self.drive and message.chain > limit * CALL_FACTOR:
            count, span = limit * CALL_FACTOR, "in one call"
        elif message.url in message.causes and message.drive == self.drive:
            return self._fan(message, now)
        else:
            return None
        return _loop(message, f"{count} deliveries caused each other {span}")

    def _fan(self, message: Message, now: int) -> str | None:
        """Count a delivery that returns to one of its causes; return a description of too many."""
        time, at_once = self._returned_at
        drive, in_call = self._returned_in
        at_once = at_once + 1 if time == (message.drive, now) else 1
        in_call = in_call + 1 if drive == message.drive else 1
        self._returned_at = (message.drive, now), at_once
        self._returned_in = message.drive, in_call
        limit = self.data.settings.loop_limit
        if at_once > limit * FAN_FACTOR:
            count, span = at_once - 1, "at the same time"
        elif in_call > limit * CALL_FACTOR:
            count, span = in_call - 1, "in one call"
        else:
            return None
        if self.data.lane != "background":
            # The next call of the test may go on. In the background, all further ones are stopped.
            self._returned_at, self._returned_in = ((0, 0), 0), (0, 0)
        urls = " and ".join(dict.fromkeys((message.caused_at, message.url)))
        return _loop(
            message, f"{count} deliveries {span} because handlers of {urls} publish each other"
        )

    # -- cancelling by id; acquires the lock --------------------------------------------------------

    def cancel(self, message_id: str) -> int:
        """Cancel a message's deliveries and return their number; raise a 404 error at zero."""
        count = self.cancel_pending(message_id)
        if not count:
            raise not_found("message", message_id)
        return count

    def cancel_pending(self, message_id: str) -> int:
        with self.data.lock:
            ids = self.data.task_ids(message_id)
            return self.cancel_all(
                [self.data.pending[task_id] for task_id in ids if task_id in self.data.pending]
            )

    # -- forgetting --------------------------------------------------------------------------------

    def _note_finished(self, message: Message) -> None:
        if self.data.settings.history_us is not None and message.finished_us is not None:
            heapq.heappush(self._to_forget, (message.finished_us + self._span_us, message.id))

    def sweep(self) -> None:
        """Forget the messages that are no longer needed, unless the clock is moving."""
        if not self._to_forget or self.data.clock.driving:
            return
        now = self.data.clock.now_us()
        while self._to_forget and self._to_forget[0][0] <= now:
            message = self.data.messages[heapq.heappop(self._to_forget)[1]]
            recheck_us = self._recheck_us(message, now)
            if recheck_us is None:
                self._forget(message)
            else:
                heapq.heappush(self._to_forget, (recheck_us, message.id))

    def log_page(self, filters: Filters, most: int) -> tuple[list[LogEntry], str | None]:
        """Return a page of matching log entries, newest first, and the next page's cursor.

        The page has up to ``most`` entries unless the filters say otherwise. Messages of workflow runs
        are not in this log, but in that of the runs (*observed* in a user's report).
        """
        self.sweep()
        no_answer = self.data.settings.no_answer_status
        rows = []
        for message in self.data.messages.values():
            if message.in_run:
                continue
            for entry in message.log:
                status = None if entry.outcome is None else entry.outcome.status_or(no_answer)
                own = {"state": entry.state, "responseStatus": status}
                if filters.matches(message, entry.time_us, own):
                    rows.append(entry)
        rows.sort(key=lambda entry: entry.number)
        return page(rows, lambda entry: entry.number, filters, latest_first=True, default=most)

    def _recheck_us(self, message: Message, now: int) -> int | None:
        """Return when to check again whether a message is needed; None if it is not needed now."""
        # Check again after this time at the latest: a dead letter, for example, may be deleted.
        latest = now + max(self._span_us, SECOND)
        together = (message, *self.workflow.companions(message))
        ends = [self._needed_until_us(other) for other in together]
        needed_until = max(latest if end is None else end for end in ends)
        return min(needed_until, latest) if needed_until > now else None

    def _needed_until_us(self, message: Message) -> int | None:
        """Return the time until which a message is needed; None if it is not known yet."""
        if message.finished_us is None or message.open_children:
            return None
        expires = message.finished_us + self._span_us
        if message.dlq_id not in self.dead_letters.by_id:
            return expires
        return max(expires, message.finished_us + self.data.limits.retention_us)

    def _forget(self, message: Message) -> None:
        del self.data.messages[message.id]
        self.dead_letters.delete([message])
        tasks = self.data.groups_of_tasks.get(message.public_id)
        if tasks is not None:
            tasks.remove(message.id)
            if not tasks:
                del self.data.groups_of_tasks[message.public_id]
        self.workflow.forget(message)
        self.flow_control.forget(message)
