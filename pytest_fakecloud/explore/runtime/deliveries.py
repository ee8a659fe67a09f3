"""Deliveries of a queue that are due."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.timers import Timer
    from ...queue.handle import Queue
    from ...queue.model import Message


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
