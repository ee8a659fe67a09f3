"""The history of a queue: its log, and how long finished messages are kept.

A finished message is kept for the time set by ``history_us``. It is forgotten together with its log, its
attempts and its part of a workflow run. A flow-control key is forgotten with the last message that used
it, unless it is pinned or paused. A message is kept until its dead letter has expired and the callbacks
about it have finished. The messages of a workflow run are kept until all of them can be forgotten.

Decided here: nothing is forgotten while the clock is moving, so that the attempts returned by the
call are complete.
"""

from __future__ import annotations

import heapq

from ..model import SECOND, LogEntry, Message
from ..wire.records import Filters, page
from ..workflow.runs import WorkflowRuns
from .data import QueueData
from .dead_letters import DeadLetters
from .flow_control import FlowKeys


class History:
    """Forgets the finished messages of a queue, and lists the log of those that it keeps."""

    def __init__(
        self,
        data: QueueData,
        flow_control: FlowKeys,
        dead_letters: DeadLetters,
        workflow: WorkflowRuns,
    ) -> None:
        self._data = data
        self._flow_control = flow_control
        self._dead_letters = dead_letters
        self._workflow = workflow
        self._span_us = data.settings.history_us or 0
        self._to_forget: list[tuple[int, str]] = []

    def note_finished(self, message: Message) -> None:
        """Note when a message, if it has finished, may be forgotten."""
        if self._data.settings.history_us is not None and message.finished_us is not None:
            heapq.heappush(self._to_forget, (message.finished_us + self._span_us, message.id))

    def note_all(self) -> None:
        """Note the finished messages of a restored copy."""
        self._to_forget.clear()
        for message in self._data.messages.values():
            self.note_finished(message)

    def sweep(self) -> None:
        """Forget the messages that are no longer needed, unless the clock is moving."""
        if not self._to_forget or self._data.clock.is_moving:
            return
        now = self._data.clock.now_us()
        while self._to_forget and self._to_forget[0][0] <= now:
            message = self._data.messages[heapq.heappop(self._to_forget)[1]]
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
        no_answer = self._data.settings.no_answer_status
        rows = []
        for message in self._data.messages.values():
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
        together = (message, *self._workflow.companions(message))
        ends = [self._needed_until_us(other) for other in together]
        needed_until = max(latest if end is None else end for end in ends)
        return min(needed_until, latest) if needed_until > now else None

    def _needed_until_us(self, message: Message) -> int | None:
        """Return the time until which a message is needed; None if it is not known yet."""
        if message.finished_us is None or message.open_children:
            return None
        expires = message.finished_us + self._span_us
        if message.dlq_id not in self._dead_letters.by_id:
            return expires
        return max(expires, message.finished_us + self._data.limits.retention_us)

    def _forget(self, message: Message) -> None:
        del self._data.messages[message.id]
        self._dead_letters.delete([message])
        tasks = self._data.groups_of_tasks.get(message.public_id)
        if tasks is not None:
            tasks.remove(message.id)
            if not tasks:
                del self._data.groups_of_tasks[message.public_id]
        self._workflow.forget(message)
        self._flow_control.forget(message)
