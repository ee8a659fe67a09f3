"""Detection of strands that block in wall-clock time, and of runs in which no strand runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from .frames import wakings
from .strands import Strand

if TYPE_CHECKING:
    from ..simulation.scheduler import Scheduler
    from .turns import Turns

LOOK = 0.05
"""Wall-clock seconds between two calls of ``Watchdog.look()``."""
_BUSY = 0.3
"""Wall-clock seconds for which a strand may block before another strand runs."""
_STUCK = 1.5
"""Wall-clock seconds for which a strand may block before it counts as stuck, if no other can run."""
_LOST = 10.0
"""Wall-clock seconds without a running strand after which the run fails."""
_REAL = 30.0
"""Wall-clock seconds for which a strand may wait for a thread of the fakes or another process."""


class Watchdog:
    """Lets other strands run while one is blocked, and ends a run that is stuck."""

    def __init__(self, turns: Turns, scheduler: Scheduler) -> None:
        self._turns = turns
        self._scheduler = scheduler
        self._seen: object = None
        self._since = monotonic()

    def look(self) -> None:
        """Check whether the run has progressed since the last call."""
        strand = self._turns.current
        thread = 0 if strand is None else strand.host.thread
        frame = None if strand is None else sys._current_frames().get(thread)
        woken = wakings(thread, frame)
        place = None if frame is None else (id(frame), frame.f_lasti, woken)
        seen = self._turns.progress, place
        if seen != self._seen:
            self._seen, self._since = seen, monotonic()
            return
        seconds = monotonic() - self._since
        if strand is None:
            self._check_lost(seconds)
        elif woken is not None and not (strand.host.real_waits and seconds < _REAL):
            self._help(strand, seconds)

    def _check_lost(self, seconds: float) -> None:
        if seconds > _LOST:
            text = "no strand of explore() runs: please report this as a bug"
            self._turns.end(ContractError(text))

    def _help(self, blocked: Strand, seconds: float) -> None:
        """Step over a blocked strand, or end the run if that has not helped for long enough."""
        if seconds > _STUCK:
            self._scheduler.stuck(blocked)
            blocked.is_stepped_over = True
            self._turns.end(None)
        elif seconds >= _BUSY and blocked.host.loop is None:
            self._turns.step_over(blocked)
