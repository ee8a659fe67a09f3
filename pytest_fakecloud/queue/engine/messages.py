"""Messages and their life: a message is accepted, may be cancelled, finishes, and is forgotten.

A message is ``CREATED``, ``ACTIVE`` during an attempt, then ``DELIVERED`` (2xx only), or ``ERROR``
followed by ``RETRY`` or by ``FAILED`` with a dead letter. A cancelled message is
``CANCEL_REQUESTED`` immediately and ``CANCELED`` at the time at which it would have been due.
Decided here: a cancelled message leaves its queue or wait list immediately, and is ``CANCELED``
immediately if it has no due time. An attempt in flight still delivers its message if the message is
cancelled.

A finished message is kept for the time set by ``history_us``. It is forgotten together with its log, its
attempts and its part of a workflow run. A flow-control key is forgotten with the last message that used
it, unless it is pinned or paused. A message is kept until its dead letter has expired and the callbacks
about it have finished. The messages of a workflow run are kept until all of them can be forgotten.

Decided here: nothing is forgotten while the clock is moving, so that the attempts returned by the
call are complete.
"""

from __future__ import annotations

import heapq
import weakref
from functools import partial
from typing import Any

from ...core.clock import Timekeeper
from ...core.ids import Ids
from ..errors import not_found
from ..model import SECOND, LogEntry, Message, MessageState
from ..wire.records import Filters, page
from ..workflow.runs import WorkflowRuns
from .admission import Admission
from .bulk_actions import BulkActions
from .causes import Causes
from .data import QueueData
from .dead_letters import DeadLetters
from .flow_control import FlowKeys
from .parallelism import Parallelism
from .planning import Planning
from .queues import Queues
from .quota import Quota
from .schedules import Schedules
from .url_groups import UrlGroups


class Messages:
    """The first layer of an engine: its data and its parts; creates, finishes and forgets messages.

    ``inspected`` is set when a test inspects messages.
    """

    def __init__(self, clock: Timekeeper, ids: Ids, **options: Any) -> None:
        self.data = data = QueueData(clock, ids, **options)
        self.clock, self.lock = data.clock, data.lock
        self.inspected = False
        self.owner: Any = None
        """The fake whose data this is, for the actions of views; None for an engine alone."""
        self.planning = Planning(data)
        self.queues = Queues(data, self.planning)
        self.parallelism = Parallelism(data)
        self.flow_control = FlowKeys(data, self.planning, self.parallelism)
        self.admission = Admission(
            data, self.planning, self.queues, self.parallelism, self.flow_control
        )
        self.url_groups = UrlGroups(data)
        self.causes = Causes(data)
        self.quota = Quota(data.settings, clock)
        # These parts refer to the engine weakly, without a circle of references (see ``cloud.base``).
        engine = weakref.proxy(self)
        self.schedules = Schedules(engine)
        self.dead_letters = DeadLetters(engine)
        self.bulk_actions = BulkActions(engine)
        self.workflow = WorkflowRuns(engine)
        self._span_us = data.settings.history_us or 0
        self._to_forget: list[tuple[int, str]] = []

    def accept(self, message: Message, now: int, *, source: Message | None = None) -> None:
        """Add a message to the pending ones. ``source`` is the message that a callback reports on."""
        self.causes.record(message, source, now)
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
                self.flow_control.release_slot(message)
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

    def delete_queue(self, name: str) -> None:
        """Delete a queue, if any, and cancel its waiting messages."""
        queue = self.queues.by_name.get(name)
        if queue is None:
            return
        # Pause the queue, so that cancelling a message does not start the next one.
        queue.paused = True
        pending = self.data.pending
        self.cancel_all(
            [
                pending[message_id]
                # Include parked messages: a message that was in flight when an older queue of
                # this name was deleted is in no other list.
                for message_id in [*queue.active, *queue.waiting, *queue.parked]
                if message_id in pending and pending[message_id].state != "ACTIVE"
            ]
        )
        del self.queues.by_name[name]

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
