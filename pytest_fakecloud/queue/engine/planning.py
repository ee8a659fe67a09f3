"""The timers of a queue's messages, for their next attempts and for changes without a delivery."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from functools import partial

from ...core.timers import Timer
from ..model import Message
from .data import QueueData

_COMPACT = 64
"""Outdated entries are not removed while there are fewer planned attempts than this."""


class Planning:
    """The timers of a queue's messages, in ``timers`` by the ids of the messages. A message has one at
    most.
    """

    # The functions that make attempts, see ``connect()``.
    _run: Callable[[str, int], object]
    _run_async: Callable[[str, int], Awaitable[object]]
    _start: Callable[[str, int], Callable[[], object] | None]

    def __init__(self, data: QueueData) -> None:
        self._data = data
        self.timers: dict[str, Timer] = {}
        self._planned: list[tuple[int, int, str, Timer]] = []

    def connect(
        self,
        run: Callable[[str, int], object],
        run_async: Callable[[str, int], Awaitable[object]],
        start: Callable[[str, int], Callable[[], object] | None],
    ) -> None:
        """Set the functions that make the due attempt of a message: in this thread, in the running
        event loop, and in two steps, of which the second may run in another thread.
        """
        # Each timer gets these objects. Bound methods for each message would slow down garbage
        # collection.
        self._run, self._run_async, self._start = run, run_async, start

    def plan(self, message: Message, due_us: int, reason: str) -> None:
        """Start the timer for a message's next attempt, in place of the message's current timer."""
        message.due_us = due_us
        message.wait_reason = reason
        message_id = message.id
        if message_id in self.timers:
            self.unplan(message_id)
        data = self._data
        if data.closed:
            return
        timer = self.timers[message_id] = data.clock.call_at(
            due_us,
            partial(self._run, message_id),
            lane=data.attempts_lane,
            label=message.url,
            async_callback=partial(self._run_async, message_id),
            begin=partial(self._start, message_id),
            subject=message_id,
        )
        # The number precedes the timer, so that timers are never compared.
        heapq.heappush(self._planned, (due_us, timer.sequence, message_id, timer))
        if len(self._planned) > 2 * len(self.timers) + _COMPACT:
            self._planned = list(filter(self._is_current, self._planned))
            heapq.heapify(self._planned)

    def _is_current(self, planned: tuple[int, int, str, Timer]) -> bool:
        """Return whether a planned attempt has neither started nor been planned again."""
        _, _, message_id, timer = planned
        return self.timers.get(message_id) is timer

    def plan_own(
        self, message_id: str, due_us: int, callback: Callable[[int], object], label: str
    ) -> None:
        """Start the timer for a change of a message's state that involves no delivery."""
        self.unplan(message_id)
        data = self._data
        if not data.closed:
            self.timers[message_id] = data.clock.call_at(
                due_us, callback, lane=data.changes_lane, label=label
            )

    def unplan(self, message_id: str) -> None:
        timer = self.timers.pop(message_id, None)
        if timer is not None:
            timer.cancel()

    def unplan_all(self) -> None:
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def next_planned_us(self) -> int | None:
        """Return the time of the next planned attempt of this queue, or None."""
        # Do not ask the clock for its next timer, because its timers include those of other queues.
        while self._planned and not self._is_current(self._planned[0]):
            heapq.heappop(self._planned)
        return self._planned[0][0] if self._planned else None

    def close(self) -> None:
        """Cancel all timers, and forget the functions of ``connect()``, which refer to this object."""
        self.unplan_all()
        for name in ("_run", "_run_async", "_start"):
            vars(self).pop(name, None)
        self._planned.clear()
