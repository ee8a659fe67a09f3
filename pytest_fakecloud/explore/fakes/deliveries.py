"""The deliveries of the queues in a trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...cloud.fake import core_of
from ..values.names import StrandName

if TYPE_CHECKING:
    from ...core.timers import Timer
    from ...queue.engine.schedules import MessageSchedule, Schedules
    from ...queue.fake import Queue
    from ...queue.model import Message

DELIVERIES_END_US = 30 * 86_400 * 1_000_000
"""Microseconds after the start until which deliveries are made, as in ``run_until_idle``."""


class DueDelivery:
    """A delivery that can begin now."""

    def __init__(self, queue: Queue, message: Message, timer: Timer, ordinal: int) -> None:
        self.queue = queue
        self.message = message
        self.timer = timer
        name = StrandName.of_delivery(ordinal, len(message.attempts) + 1)
        self.first_name, self.scheduled_name = str(name.first), str(name)


class Deliveries:
    """The messages that the queues deliver in one trial, numbered in the order of their creation."""

    def __init__(self, queues: Sequence[Queue], start_us: int) -> None:
        self._engines = [(queue, core_of(queue).engine) for queue in queues]
        self._end_us = start_us + DELIVERIES_END_US
        self._ordinals: dict[str, int] = {}
        self._ended: list[tuple[Schedules, MessageSchedule]] = []

    def next_us(self, after_us: int = -1) -> int | None:
        if not self._engines:
            return None
        times = [engine.next_due_us() for _, engine in self._engines if engine.data.pending]
        return min(
            (at for at in times if at is not None and after_us < at <= self._end_us), default=None
        )

    def next_firing_us(self) -> int | None:
        """Return the time at which the next schedule of a queue fires, or None."""
        if not self._engines:
            return None
        times = (engine.schedules.earliest_run_us() for _, engine in self._engines)
        return min((at for at in times if at is not None), default=None)

    def end_queue_schedules(self) -> None:
        for _, engine in self._engines:
            schedules = engine.schedules
            for schedule in schedules.by_id.values():
                schedules.unplan(schedule)
                self._ended.append((schedules, schedule))

    def resume_queue_schedules(self) -> None:
        """Let the schedules fire again, because the trial has ended."""
        for schedules, schedule in self._ended:
            if schedules.by_id.get(schedule.id) is schedule:
                schedules.replan(schedule)
        self._ended.clear()

    def due(self, now_us: int) -> list[DueDelivery]:
        """Return the deliveries that can begin at a given time, in the order of their due times."""
        if not self._engines:
            return []
        # Number messages by creation, so that names do not depend on the order of delivery.
        for message in self._messages():
            self._ordinals.setdefault(message.id, len(self._ordinals) + 1)
        deliveries = [
            DueDelivery(queue, engine.data.messages[id_], timer, self._ordinals[id_])
            for queue, engine in self._engines
            for id_, timer in engine.planning.timers.items()
            if timer.lane == "driven" and timer.due_us <= now_us and not timer.cancelled
        ]
        return sorted(deliveries, key=lambda due: (due.timer.due_us, due.timer.sequence))

    def names(self) -> dict[str, str]:
        """Return the names that a story uses for messages, by message ID."""
        return {
            message.public_id: f"message {self._ordinals[message.id]}"
            for message in self._messages()
            if message.id in self._ordinals
        }

    def _messages(self) -> Iterator[Message]:
        for _, engine in self._engines:
            yield from engine.data.messages.values()
