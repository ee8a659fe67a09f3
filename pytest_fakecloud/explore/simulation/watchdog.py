"""Looks, in wall-clock time, if the strand goes on that has the turn (the table in ``real_waits``)."""

from __future__ import annotations

import threading
from pathlib import Path
from types import FrameType

from ...core.errors import ContractError
from ...core.frames import thread_frame
from ...core.libraries import is_library
from ...core.threads import place_of
from ...core.timers import monotonic
from ..values.limits import BLOCKED_AFTER, LOST_AFTER, REAL_WAIT, STUCK_AFTER
from .real_waits import RealWaits
from .stacks import application_frame, describe_places
from .strand import Strand
from .thread_states import sleeps_really, thread_with, wakings
from .turns import HOOK_ADVICE, Turns


class Watchdog:
    """Lets other strands run while one is blocked, and ends a trial that is stuck."""

    def __init__(self, turns: Turns, real_waits: RealWaits) -> None:
        self._turns = turns
        self._real_waits = real_waits
        self._seen: object = None
        self._since = monotonic()

    def look(self) -> None:
        """Step in if the strand that has the turn has not moved since an earlier look, for too long."""
        strand = self._turns.holder
        if strand is None:
            if self._seconds_since(self._turns.count) > LOST_AFTER:
                text = "no strand of explore() runs: please report this as a bug"
                self._turns.end(ContractError(text))
            return
        if _has_lost_thread(strand):
            self._turns.skip_lost(strand)
            return
        starting, frame = strand.thread.starting, thread_frame(strand.thread.ident)
        woken = None
        if _may_be_locked(strand, frame):
            woken = wakings(thread_with(strand.thread.ident))
        place = frame and (id(frame), frame.f_lasti, woken)
        seconds = self._seconds_since((self._turns.count, place))
        if starting is not None:
            if seconds > LOST_AFTER:
                self._turns.end(ContractError(_describe_delay(strand, starting)))
        elif woken is not None and not _may_wait_for_real(strand, seconds):
            self._help(strand, seconds)

    def _seconds_since(self, seen: object) -> float:
        """Return for how long each look has seen the same; 0 at the first."""
        now = monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since

    def _help(self, blocked: Strand, seconds: float) -> None:
        """Step over a blocked strand, or end the trial if that has not helped for long enough."""
        if seconds >= BLOCKED_AFTER and sleeps_really(blocked.thread.ident):
            # Do not wait for the thread at the end of the trial.
            self._turns.block(blocked)
            self._turns.end(
                ContractError(
                    f"{describe_places([blocked])} sleeps in real time, with a function that "
                    "explore() could not replace, because the code had stored it before: call "
                    "time.sleep(), or store it within the explored function"
                )
            )
        elif seconds > STUCK_AFTER:
            self._real_waits.end_stuck(blocked)
        elif seconds >= BLOCKED_AFTER and blocked.host.loop is None:
            self._turns.step_over(blocked)


def _describe_delay(strand: Strand, thread: threading.Thread) -> str:
    """Return an error text for a thread that is alive, but does not begin the code of its strand."""
    text = (
        f"the thread of {strand.name} has not begun its code after {LOST_AFTER:g} seconds: "
        f"{HOOK_ADVICE}"
    )
    return f"{text}\n{place_of(thread.ident or 0)}".rstrip()


def _has_lost_thread(strand: Strand) -> bool:
    """Return whether the thread of a strand has ended before the code of the strand began: for example,
    a function that was passed to ``threading.settrace()`` has raised an exception.
    """
    starting = strand.thread.starting
    has_ended = starting is not None and not starting.is_alive()
    # Look again: the thread may have begun the code since, and have ended.
    return has_ended and strand.thread.starting is starting


def _may_be_locked(strand: Strand, frame: FrameType | None) -> bool:
    """Return whether a strand may wait for a lock: in a line of the application, such as
    ``with lock:`` for a lock of the system, in a lock of the standard library (``queue.get()``), or in
    a library's own daemon thread, which may wait for it in any function.
    """
    if frame is None:
        return False
    name = frame.f_code.co_filename
    if not is_library(name) or Path(name).name in ("threading.py", "queue.py"):
        return True
    return strand.is_daemon and application_frame(frame) is None


def _may_wait_for_real(strand: Strand, seconds: float) -> bool:
    """Return whether a strand may still wait for something outside of the trial, such as for the answer
    of another process, or in ``thread.start()`` for a thread that begins.
    """
    return strand.thread.real_waits > 0 and seconds < REAL_WAIT
