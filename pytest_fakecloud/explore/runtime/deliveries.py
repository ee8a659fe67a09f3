"""Deliveries of the cloud's queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.timers import Timer
    from ...queue.engine.schedules import Schedule, Schedules
    from ...queue.handle import Queue
    from ...queue.model import Message

_HORIZON_US = 30 * 86_400 * 1_000_000
"""Microseconds after the start until which deliveries are made, as in ``run_until_idle``."""


class Due:
    """A delivery that can begin now."""

    def __init__(self, queue: Queue, message: Message, timer: Timer, ordinal: int) -> None:
        self.queue = queue
        self.message = message
        self.timer = timer
        attempt = len(message.attempts) + 1
        self.first_name = f"delivery{ordinal}"
        self.attempt = attempt
        self.name = self.first_name + (f"/{attempt}" if attempt > 1 else "")

    def begin(self) -> Callable[[], object] | None:
        """Begin the delivery; return the function that performs it, or None if it must wait."""
        self.timer.cancel()
        assert self.timer.begin is not None
        return self.timer.begin(self.timer.due_us)


class Deliveries:
    """The messages that the queues deliver in one run, numbered in the order of their creation."""

    def __init__(self, queues: Sequence[Queue], start_us: int) -> None:
        self._queues = queues
        self._end_us = start_us + _HORIZON_US
        self._ordinals: dict[str, int] = {}
        self._ended: list[tuple[Schedules, Schedule]] = []

    def are_left(self) -> bool:
        """Return whether a queue has a message to deliver, now or later."""
        for queue in self._queues:  # noqa: SIM110 - called at every turn
            if queue._engine.timers:
                return True
        return False

    def next_us(self, after_us: int = -1) -> int | None:
        """Return the time of the next delivery, or None."""
        found = [q._engine.next_due_us() for q in self._queues if q._engine.pending]
        return min(
            (at for at in found if at is not None and after_us < at <= self._end_us), default=None
        )

    def next_firing_us(self) -> int | None:
        """Return the time at which the next schedule of a queue fires, or None."""
        found = (queue._engine.schedules.earliest_run_us() for queue in self._queues)
        return min((at for at in found if at is not None), default=None)

    def end_schedules(self) -> None:
        """Let no schedule fire until ``resume_schedules()``."""
        for queue in self._queues:
            schedules = queue._engine.schedules
            for schedule in schedules.by_id.values():
                schedules.unplan(schedule)
                self._ended.append((schedules, schedule))

    def resume_schedules(self) -> None:
        """Let the schedules fire again, because the run has ended."""
        for schedules, schedule in self._ended:
            if schedules.by_id.get(schedule.id) is schedule:
                schedules.replan(schedule)
        self._ended.clear()

    def due(self, now_us: int) -> list[Due]:
        """Return the deliveries that can begin at a given time, in the order of their due times."""
        # Number messages in order of creation, so that names do not depend on the order of
        # delivery.
        for message in self._messages():
            self._ordinals.setdefault(message.id, len(self._ordinals) + 1)
        found = [
            Due(queue, queue._engine.messages[id_], timer, self._ordinals[id_])
            for queue in self._queues
            for id_, timer in queue._engine.timers.items()
            if timer.lane == "driven" and timer.due_us <= now_us and not timer.cancelled
        ]
        return sorted(found, key=lambda due: (due.timer.due_us, due.timer.sequence))

    def names(self) -> dict[str, str]:
        """Return the names that a story uses for messages, by message ID."""
        return {
            message.public_id: f"message {self._ordinals[message.id]}"
            for message in self._messages()
            if message.id in self._ordinals
        }

    def _messages(self) -> Iterator[Message]:
        for queue in self._queues:
            yield from queue._engine.messages.values()
