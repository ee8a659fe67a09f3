"""The data of one queue with its clock and its lock, and the timers for what happens next."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from ...core.timers import Lane, Timer
from ..model import Message, Outcome, Report
from ..settings import QueueConfig

_COMPACT = 64
"""Outdated entries are not removed while there are fewer planned attempts than this."""


def copies(items: dict[str, Any]) -> dict[str, Any]:
    return {key: item.copy() for key, item in items.items()}


class State:
    """The first layer of an engine: its data and planned attempts. Changes require the ``lock``.

    ``pending`` are the unfinished messages. ``groups_of_tasks`` maps the public id of a v1 message
    to the ids of its deliveries. ``active`` are the ids of messages that count towards the global
    parallelism limit, and ``waiting_for_slot`` the ids of messages that wait for it. ``in_flight``
    maps an id to the outcome of the attempt and the time at which it will be applied. ``inspected``
    is set when a test inspects messages.
    """

    _run: Callable[[str, int], object]
    _run_async: Callable[[str, int], Awaitable[object]]
    _start: Callable[[str, int], Callable[[], object] | None]

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        *,
        settings: QueueConfig,
        name: str = "queue",
        lane: Lane = "driven",
        report: Report = lambda kind, text, **fields: None,
    ) -> None:
        self.clock = clock
        self.limits = settings.plan
        self.settings = settings
        self.lane: Lane = lane
        self.report = report
        self.lock = threading.RLock()
        self._message_ids = ids.stream(name, "message ids")
        self._other_ids = ids.stream(name, "other ids")
        self.messages: dict[str, Message] = {}
        self.pending: dict[str, Message] = {}
        self.groups_of_tasks: dict[str, list[str]] = {}
        self.in_flight: dict[str, tuple[int, Outcome]] = {}
        self.active: set[str] = set()
        self.waiting_for_slot: deque[str] = deque()
        self.timers: dict[str, Timer] = {}
        self._planned: list[tuple[int, int, str, Timer]] = []
        self._sequence = 0
        self.inspected = False
        self.owner: Any = None
        """The fake whose data this is, for the actions of views; None for an engine alone."""
        self.closed = False

    @property
    def own_lane(self) -> Lane:
        """The group of the clock's timers to use for state changes that involve no delivery."""
        # With background delivery, no call of the test fires timers.
        return "background" if self.lane == "background" else "state"

    def new_id(self, prefix: str) -> str:
        return prefix + self._other_ids.base58(28)

    def new_message_id(self) -> str:
        return "msg_" + self._message_ids.hex(32)

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def plan(self, message: Message, due_us: int, reason: str) -> None:
        """Start the timer for a message's next attempt, in place of the message's current timer."""
        message.due_us = due_us
        message.wait_reason = reason
        message_id = message.id
        if message_id in self.timers:
            self.unplan(message_id)
        if self.closed:
            return
        timer = self.timers[message_id] = self.clock.call_at(
            due_us,
            partial(self._run, message_id),
            lane=self.lane,
            label=message.url,
            async_callback=partial(self._run_async, message_id),
            begin=partial(self._start, message_id),
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
        if not self.closed:
            self.timers[message_id] = self.clock.call_at(
                due_us, callback, lane=self.own_lane, label=label
            )

    def unplan(self, message_id: str) -> None:
        timer = self.timers.pop(message_id, None)
        if timer is not None:
            timer.cancel()

    def next_planned_us(self) -> int | None:
        """Return the time of the next planned attempt of this queue, or None."""
        # Do not ask the clock for its next timer, because its timers include those of other queues.
        while self._planned and not self._is_current(self._planned[0]):
            heapq.heappop(self._planned)
        return self._planned[0][0] if self._planned else None
