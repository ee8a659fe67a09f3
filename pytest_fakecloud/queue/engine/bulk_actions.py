"""Bulk actions: cancellations of all messages or workflow runs that match filters.

Source: the vendor's pages on bulk actions and its OpenAPI file. An action is in progress until it has
cancelled all messages or runs that matched when it was accepted. A request with ``async=true`` is
answered immediately. Any other request waits for the end, for a minute at most (429), and the action
continues. The same filters again, while an action is in progress, return that action; so does the same
``count``, which limits how many messages or runs match.

Decided here: ids start with ``bulk_``, and only the response to a request with ``async=true`` has the
id. An action takes the time of the setting ``bulk_action_time``, by default none, and cancels its
objects evenly over this time. A request that waits for it does not move the clock, but completes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from ...core.timers import Timer
from ..errors import QueueError, quota
from ..model import DAY, MINUTE

if TYPE_CHECKING:
    from ..workflow.runs import WorkflowRuns
    from .data import QueueData
    from .lifecycle import Lifecycle

Source = Literal["qstash", "workflow"]
_KEPT_US = 7 * DAY
"""How long an action can be read."""
_LONGEST_WAIT_US = MINUTE
"""How long a request that is not asynchronous waits for its action."""
MOST_IN_PROGRESS = 1000
"""Maximum number of actions in progress."""


@dataclass(frozen=True)
class BulkAction:
    """A bulk action. ``filters`` are the values of its filters by name, ``count`` its limit.

    ``remaining`` are the ids of the messages, or of the workflow runs, that it has not cancelled yet.
    ``completed_us`` is None while it is in progress.
    """

    id: str
    number: int
    source: Source
    filters: Mapping[str, Sequence[str]]
    total: int
    created_us: int
    remaining: tuple[str, ...] = ()
    completed_us: int | None = None
    count: int | None = None

    @property
    def state(self) -> str:
        return "IN_PROGRESS" if self.completed_us is None else "FINISHED"

    @property
    def processed(self) -> int:
        return self.total - len(self.remaining)


class BulkActions:
    """The bulk actions of a queue, oldest first."""

    def __init__(self, data: QueueData, lifecycle: Lifecycle, workflow: WorkflowRuns) -> None:
        self._data = data
        self._lifecycle = lifecycle
        self._workflow = workflow
        self.by_id: dict[str, BulkAction] = {}
        self.timers: dict[str, Timer] = {}

    def cancel(
        self,
        source: Source,
        filters: Mapping[str, Sequence[str]],
        ids: Sequence[str],
        *,
        asynchronous: bool,
        count: int | None,
    ) -> BulkAction:
        """Cancel messages or workflow runs, or return the action in progress with the same filters and
        the same ``count``.

        Raises ``QueueError``: 412 if too many actions are in progress, 429 if the request waits and
        the action takes too long.
        """
        action = self._in_progress(source, filters, count)
        if action is None:
            if sum(other.completed_us is None for other in self.by_id.values()) >= MOST_IN_PROGRESS:
                raise quota("maxBulkActions", MOST_IN_PROGRESS)
            action = self._proceed(self._new(source, filters, tuple(ids), count))
        if asynchronous or action.completed_us is not None:
            return action
        end_us = action.created_us + self._duration_us
        if end_us - self._data.clock.now_us() > _LONGEST_WAIT_US:
            raise QueueError(429, f"bulk action {action.id} is still in progress")
        return self._proceed(action, end_us)

    def recent(self, source: Source) -> list[BulkAction]:
        """Return the actions that can still be read, oldest first."""
        oldest = self._data.clock.now_us() - _KEPT_US
        return [
            action
            for action in self.by_id.values()
            if action.source == source and action.created_us > oldest
        ]

    def unplan(self) -> None:
        """Cancel the timers of all actions in progress."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def replan(self) -> None:
        """Continue the actions in progress after the timers were stopped."""
        for action in list(self.by_id.values()):
            if action.completed_us is None:
                self._proceed(action)

    @property
    def _duration_us(self) -> int:
        return self._data.settings.bulk_action_time_us

    def _new(
        self,
        source: Source,
        filters: Mapping[str, Sequence[str]],
        ids: tuple[str, ...],
        count: int | None,
    ) -> BulkAction:
        data = self._data
        action_id, number = data.new_id("bulk_"), data.next_sequence()
        now = data.clock.now_us()
        return BulkAction(
            action_id, number, source, filters, len(ids), now, remaining=ids, count=count
        )

    def _add(self, action: BulkAction) -> BulkAction:
        self.by_id[action.id] = action
        return action

    def _in_progress(
        self, source: Source, filters: Mapping[str, Sequence[str]], count: int | None
    ) -> BulkAction | None:
        """Return the action in progress with the same filters, in any order, and count, or None."""
        expected = _unordered(filters)
        for action in self.by_id.values():
            if (
                action.completed_us is None
                and action.source == source
                and action.count == count
                and _unordered(action.filters) == expected
            ):
                return action
        return None

    def _proceed(self, action: BulkAction, until_us: int | None = None) -> BulkAction:
        """Cancel what an action has to cancel until now or a later time, and plan the rest."""
        now = self._data.clock.now_us()
        until_us = now if until_us is None else max(now, until_us)
        processed = action.processed
        while processed < action.total and self._due_us(action, processed) <= until_us:
            self._cancel_one(action, action.remaining[processed - action.processed])
            processed += 1
        remaining = action.remaining[processed - action.processed :]
        action = replace(action, remaining=remaining, completed_us=None if remaining else now)
        timer = self.timers.pop(action.id, None)
        if timer is not None:
            timer.cancel()
        if remaining and not self._data.closed:
            self.timers[action.id] = self._data.clock.call_at(
                self._due_us(action, processed),
                partial(self._timer_fired, action.id),
                lane=self._data.changes_lane,
                label=f"bulk action {action.id}",
            )
        return self._add(action)

    def _due_us(self, action: BulkAction, processed: int) -> int:
        """Return when an action that has cancelled a number of objects cancels the next one."""
        return action.created_us + self._duration_us * (processed + 1) // action.total

    def _timer_fired(self, action_id: str, at_us: int) -> None:
        with self._data.lock:
            self.timers.pop(action_id, None)
            self._proceed(self.by_id[action_id])

    def _cancel_one(self, action: BulkAction, id: str) -> None:
        if action.source == "qstash":
            message = self._data.pending.get(id)
            self._lifecycle.cancel_all([] if message is None else [message])
            return
        run = self._workflow.runs.get(id)
        # Do not cancel a later run with the same id.
        if run is not None and run.live and run.number < action.number:
            self._lifecycle.cancel_run(run)


def _unordered(filters: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    return {name: set(values) for name, values in filters.items()}
