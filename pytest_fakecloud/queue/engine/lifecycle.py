"""The life of messages: a message is accepted, may be cancelled, and finishes.

A message is ``CREATED``, ``ACTIVE`` during an attempt, then ``DELIVERED`` (2xx only), or ``ERROR``
followed by ``RETRY`` or by ``FAILED`` with a dead letter. A cancelled message is
``CANCEL_REQUESTED`` immediately and ``CANCELED`` at the time at which it would have been due.
Decided here: a cancelled message leaves its queue or wait list immediately, and is ``CANCELED``
immediately if it has no due time. An attempt in flight still delivers its message if the message is
cancelled.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import not_found
from ..model import Message, MessageState
from ..workflow.model import WorkflowRun
from ..workflow.runs import WorkflowRuns
from .causes import Causes
from .data import QueueData
from .flow_control import FlowKeys
from .history import History
from .planning import Planning
from .queues import Queues


class Lifecycle:
    """Accepts, cancels and ends messages."""

    def __init__(
        self,
        data: QueueData,
        planning: Planning,
        queues: Queues,
        flow_control: FlowKeys,
        causes: Causes,
        workflow: WorkflowRuns,
        history: History,
    ) -> None:
        self._data = data
        self._planning = planning
        self._queues = queues
        self._flow_control = flow_control
        self._causes = causes
        self._workflow = workflow
        self._history = history

    def accept(self, message: Message, now: int, *, source: Message | None = None) -> None:
        """Add a message to the pending ones. ``source`` is the message that a callback reports on."""
        self._causes.record(message, source, now)
        self._history.sweep()
        self._data.sequence = message.number = self._data.sequence + 1
        message.public_id = message.public_id or message.id
        message.waiting_since_us = message.created_us
        self._data.messages[message.id] = message
        self._data.pending[message.id] = message
        self._data.log(message, "CREATED", message.created_us, next_us=message.not_before_us)
        self._flow_control.add(message, now)
        if message.queue_name is not None:
            queue = self._queues.by_name[message.queue_name]
            queue.waiting.append(message.id)
            self._queues.start_waiting(queue)
        else:
            reason = "delay" if message.not_before_us > message.created_us else "at once"
            self._planning.plan(message, max(now, message.not_before_us), reason)

    def take_back(self, message: Message) -> None:
        """Forget a message whose acceptance an exception has interrupted."""
        self._data.pending.pop(message.id, None)
        self._data.messages.pop(message.id, None)
        self._planning.unplan(message.id)
        self._queues.take_out(message)
        self._flow_control.take_out(message)

    def cancel_all(self, messages: list[Message]) -> int:
        """Cancel pending messages and return their number. Acquires the lock."""
        with self._data.lock:
            now = self._data.clock.now_us()
            count = 0
            for message in messages:
                if self._data.pending.pop(message.id, None) is None:
                    continue
                count += 1
                is_active = message.state == "ACTIVE"
                message.state = "CANCEL_REQUESTED"
                self._data.log(message, "CANCEL_REQUESTED", now)
                if is_active:
                    continue
                self._queues.release(message)
                self._flow_control.release(message)
                due = message.due_us
                self._planning.unplan(message.id)
                if due is None or due <= now:
                    self._finish_cancelled(message.id, now)
                else:
                    self.plan_end_of_cancelled(message, due)
                    self.release_waiting(message)
            return count

    def plan_end_of_cancelled(self, message: Message, due_us: int) -> None:
        """Schedule the end of a cancelled message for the time at which it would have been due."""
        self._planning.plan_own(
            message.id, due_us, partial(self._finish_cancelled, message.id), "cancel"
        )

    def _finish_cancelled(self, message_id: str, at_us: int) -> None:
        with self._data.lock:
            message = self._data.messages[message_id]
            if message.state == "CANCEL_REQUESTED":
                self._planning.timers.pop(message_id, None)
                self.end_message(message, "CANCELED", at_us)

    def end_message(self, message: Message, end: MessageState, at_us: int, **details: Any) -> None:
        """End a message in the state ``end``: DELIVERED, FAILED or CANCELED.

        ``details`` are further fields of the entry in its log.
        """
        entry = self._data.log_entry(message, end, at_us, **details)
        message.state = end
        message.finished_us = at_us
        message.due_us = None
        message.log += [entry]
        self._data.pending.pop(message.id, None)
        if message.workflow is not None or message.failure_of is not None:
            self._workflow.finished(message, at_us)
        self.release_waiting(message)
        self._history.note_finished(message)

    def release_waiting(self, message: Message) -> None:
        """Release the messages that wait for this one, after it and its callbacks have finished."""
        if message.id in self._data.pending or message.open_children or message.released:
            return
        if message.queue_name is not None:
            self._queues.release(message)
        message.released = True
        if message.source_id is not None and message.queue_name is None:
            source = self._data.messages.get(message.source_id)
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
        with self._data.lock:
            ids = self._data.task_ids(message_id)
            return self.cancel_all(
                [self._data.pending[task_id] for task_id in ids if task_id in self._data.pending]
            )

    def cancel_run(self, run: WorkflowRun) -> None:
        """Cancel the pending messages of a workflow run, and finish it."""
        now = self._data.clock.now_us()
        pending = self._data.pending
        self.cancel_all(
            [pending[message_id] for message_id in run.message_ids if message_id in pending]
        )
        self._workflow.finish(run, "RUN_CANCELED", now, b"")

    def delete_queue(self, name: str) -> None:
        """Delete a queue, if any, and cancel its waiting messages."""
        queue = self._queues.by_name.get(name)
        if queue is None:
            return
        # Pause the queue, so that cancelling a message does not start the next one.
        queue.paused = True
        pending = self._data.pending
        self.cancel_all(
            [
                pending[message_id]
                # Include parked messages: a message that was in flight when an older queue of
                # this name was deleted is in no other list.
                for message_id in [*queue.active, *queue.waiting, *queue.parked]
                if message_id in pending and pending[message_id].state != "ACTIVE"
            ]
        )
        del self._queues.by_name[name]
