"""Detection of loops that wait for a frozen time to change."""

from __future__ import annotations

import threading
from types import FrameType

from ..core.errors import ContractError
from ..core.timeparse import monotonic
from .callers import is_infrastructure

POLLS = 20
"""Number of consecutive reads of an unchanged time by one source line, after which a read checks
whether the code waits for the time to change.
"""
STANDING_SECONDS = 20.0
"""Real seconds of consecutive reads at one line after which a read raises an error."""


class _Reader:
    """The consecutive reads of one thread at one source line."""

    __slots__ = ("place", "reads", "since")

    def __init__(self) -> None:
        self.place: tuple[object, int] | None = None
        self.reads = 0
        self.since = 0.0


class FrozenReads:
    """Counts the reads of an unchanged time by the lines of each thread."""

    def __init__(self) -> None:
        self._readers: dict[int, _Reader] = {}

    def check(self, frame: FrameType | None) -> None:
        """Count a read; raise ``ContractError`` if the code seems to wait for the time to change."""
        while frame is not None and is_infrastructure(frame):
            frame = frame.f_back
        if frame is None:
            return
        place = frame.f_code, frame.f_lineno
        reader = self._readers.get(threading.get_ident())
        if reader is None:
            reader = self._readers[threading.get_ident()] = _Reader()
        if reader.place != place:
            reader.place, reader.reads, reader.since = place, 0, monotonic()
        reader.reads += 1
        if reader.reads >= POLLS and (stood := monotonic() - reader.since) >= STANDING_SECONDS:
            reader.since = monotonic()
            raise ContractError(
                f"{frame.f_code.co_filename}:{frame.f_lineno} has read the time {reader.reads} times "
                f"within {stood:.0f} s of real time, but it is frozen: with process_time it moves only "
                "with the clock, so a loop that waits for it never ends. Let sleeps move it "
                "(process_time='autojump'), move the clock from another thread, or omit "
                "process_time"
            )

    def forget(self) -> None:
        """Forget all reads, because the time has changed."""
        self._readers.clear()
