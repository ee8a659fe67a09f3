"""Detection of strands that are blocked or stuck, in wall-clock time."""

from __future__ import annotations

import platform
import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from ...core.errors import ContractError
from ...core.libraries import is_library
from ...core.threads import place_of
from ...core.timers import monotonic
from ..values.limits import BLOCKED_AFTER, LOST_AFTER, REAL_WAIT, STUCK_AFTER
from .stacks import application_frame, describe_places
from .strand import Strand
from .turns import HOOK_ADVICE

if TYPE_CHECKING:
    from .simulation import Simulation


class Watchdog:
    """Lets other strands run while one is blocked, and ends a trial that is stuck."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._turns = simulation.turns
        self._seen: object = None
        self._since = monotonic()

    def look(self) -> None:
        """Step in if the strand that has the turn has not moved since an earlier look, for too long."""
        strand = self._turns.current
        if strand is not None and _has_lost_thread(strand):
            self._turns.skip_lost(strand)
            return
        starting = None if strand is None else strand.thread.starting
        frame = None if strand is None else sys._current_frames().get(strand.thread.ident)
        may_be_locked = strand is not None and _may_be_locked(strand, frame)
        woken = wakings(_thread_with(strand.thread.ident)) if strand and may_be_locked else None
        seen = self._turns.count, frame and (id(frame), frame.f_lasti, woken)
        if seen != self._seen:
            self._seen, self._since = seen, monotonic()
            return
        seconds = monotonic() - self._since
        if strand is None or starting is not None:
            if seconds > LOST_AFTER:
                self._turns.end(ContractError(_describe_delay(strand, starting)))
        elif woken is not None and not _may_wait_for_real(strand, seconds):
            self._help(strand, seconds)

    def _help(self, blocked: Strand, seconds: float) -> None:
        """Step over a blocked strand, or end the trial if that has not helped for long enough."""
        if seconds >= BLOCKED_AFTER and _sleeps_really(blocked.thread.ident):
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
            self._simulation.scheduler.end_stuck(blocked)
        elif seconds >= BLOCKED_AFTER and blocked.host.loop is None:
            self._turns.step_over(blocked)


def _describe_delay(strand: Strand | None, thread: threading.Thread | None) -> str:
    """Return an error text for a thread that is alive, but does not begin the code of its strand."""
    if strand is None or thread is None:
        return "no strand of explore() runs: please report this as a bug"
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


_SLEEPS = {"x86_64": (35, 230), "aarch64": (101, 115)}
"""The numbers of the system calls nanosleep and clock_nanosleep of Linux, by machine."""


def _sleeps_really(thread: int) -> bool:
    """Return whether a thread sleeps in the kernel; False if that is unknown, as outside of Linux."""
    try:
        call = _task_file(_thread_with(thread), "syscall").read_text().split()[0]
    except OSError:
        return False
    return call.isdigit() and int(call) in _SLEEPS.get(platform.machine(), ())


def _thread_with(ident: int) -> threading.Thread | None:
    return next((thread for thread in threading.enumerate() if thread.ident == ident), None)


def _task_file(thread: threading.Thread | None, name: str) -> Path:
    """Return the path of a file of Linux that describes a thread."""
    return Path(f"/proc/self/task/{None if thread is None else thread.native_id}/{name}")


_STATUS = re.compile(
    rb"^State:\s+(?P<state>\w).*^voluntary_ctxt_switches:\s+(?P<wakings>\d+)",
    re.DOTALL | re.MULTILINE,
)
"""The state of a thread, and how many times it has waited, in its file ``status``."""


def wakings(thread: threading.Thread | None) -> int | None:
    """Return how many times a sleeping thread has woken up (0 if that is unknown); None if it runs.

    A thread that waits for the interpreter's own lock wakes up every few milliseconds, so a busy
    machine is not mistaken for a deadlock.
    """
    try:
        status = _task_file(thread, "status").read_bytes()
    except OSError:
        return 0  # Only Linux provides this number.
    match = _STATUS.search(status)
    if match is None:
        return 0
    return int(match["wakings"]) if match["state"] == b"S" else None
