"""What falls due on a clock: timers, their lanes, and the record of one that fired."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from .timeparse import to_datetime

__all__ = ["LANES", "Begin", "Fired", "Lane", "Timer"]

Lane = Literal["state", "driven", "background"]
LANES: tuple[Lane, ...] = ("state", "driven", "background")


Begin = Callable[[int], Callable[[], object] | None]
"""Does at once what must keep its order; returns what may take its time elsewhere, or None."""


class Timer:
    """Something that falls due at an instant of the clock.

    ``due_us`` is the instant in microseconds, ``label`` what reports call it. ``cancel()`` is final
    and may be called any number of times.
    """

    __slots__ = (
        "async_callback",
        "begin",
        "callback",
        "cancelled",
        "due_us",
        "label",
        "lane",
        "sequence",
    )

    def __init__(
        self,
        due_us: int,
        sequence: int,
        callback: Callable[[int], object],
        lane: Lane,
        label: str,
        async_callback: Callable[[int], Awaitable[object]] | None,
        begin: Begin | None,
    ) -> None:
        self.due_us = due_us
        self.sequence = sequence
        self.callback = callback
        self.async_callback = async_callback
        self.begin = begin
        self.lane = lane
        self.label = label
        self.cancelled = False

    def cancel(self) -> None:
        """Make sure the timer never fires."""
        self.cancelled = True

    def __lt__(self, other: Timer) -> bool:
        return (self.due_us, self.sequence) < (other.due_us, other.sequence)

    def __repr__(self) -> str:
        return f"<Timer {self.label or self.callback!r} due {to_datetime(self.due_us).isoformat()}>"


@dataclass(frozen=True, slots=True)
class Fired:
    """One timer that fell due: when, what it was, and what its callback returned."""

    at: datetime
    label: str
    result: Any
