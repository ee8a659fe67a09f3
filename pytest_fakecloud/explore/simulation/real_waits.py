"""Waiting in wall-clock time, for threads that the turn does not control.

A wait ends with what it waits for, with the trial or, except for the first four and ``await_idle()``,
when a strand can run:

========================== ================================= =================== ====================
who waits                  for what                          at most             what happens then
========================== ================================= =================== ====================
``Watchdog.look``          the running strand moves on       BLOCKED_AFTER       another strand runs
… if none can run          the same                          STUCK_AFTER         the trial is stuck
… in ``waits_for_real()``  the same                          REAL_WAIT           one of these two
… in ``thread.start()``    the thread begins its code        LOST_AFTER          the trial fails
``await_threads()``        a blocked strand goes on          CHECKS_OF_BLOCKED   the trial is stuck
``await_release()``        a thread that is not explored     CHECKS_OF_WAITING   the trial is stuck
                           lets a waiting strand go on
``await_threads()``,       outsiders wait for work           CHECKS_OF_OUTSIDERS no trial awaits them, or
``await_idle()``                                                                 the trial fails
========================== ================================= =================== ====================

Elsewhere, sleepers wait for the code that they wake (``clock``), event loops for other servers
(``loops``), locks of checks for earlier threads (``world.waits``), and ``turns`` and ``pool`` for
threads to end. All limits are in ``values.limits``.
"""

from __future__ import annotations

import platform
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType

from ...core.errors import ContractError
from ...core.frames import is_own, stack_of, thread_frame
from ...core.libraries import is_library
from ...core.threads import place_of
from ...core.timers import monotonic
from ...process.clocks import INFRASTRUCTURE, module_of
from ..fakes.gate import Gate, nap, wait_really
from ..values.limits import (
    BLOCKED_AFTER,
    CHECKS_AT_START,
    CHECKS_OF_BLOCKED,
    CHECKS_OF_OUTSIDERS,
    CHECKS_OF_WAITING,
    LOST_AFTER,
    REAL_WAIT,
    STUCK_AFTER,
)
from .clock import Sleepers
from .current_thread import OF_FAKES
from .part import Common, Part
from .pool import is_of_a_strand
from .stacks import application_frame, describe_places, describe_stuck
from .strand import Strand
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
        if strand is not None and _has_lost_thread(strand):
            self._turns.skip_lost(strand)
            return
        starting = None if strand is None else strand.thread.starting
        frame = None if strand is None else thread_frame(strand.thread.ident)
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
            self._real_waits.end_stuck(blocked)
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


class RealWaits(Part):
    """The waits of a trial in which no strand can run, or in which outsiders have to be idle first."""

    def __init__(self, common: Common, *, sleepers: Sleepers) -> None:
        super().__init__(common)
        self._sleepers = sleepers

    def await_threads(self, has_options: Callable[[], bool]) -> bool:
        """Wait for blocked strands or, without any, for outsiders; return whether a strand or a delivery
        may run then.
        """
        if self._blocked():
            if all(strand.is_daemon or strand.state == "ended" for strand in self._strands):
                return False
            is_over = wait_really(
                lambda: not self._blocked() or self._turns.has_ended or has_options(),
                CHECKS_OF_BLOCKED,
            )
            return is_over and not self._turns.has_ended
        if not self._outsiders:
            return False
        self._outsiders.await_idle(lambda: self._turns.has_ended or has_options())
        return has_options()

    def await_release(self, has_options: Callable[[], bool]) -> bool:
        """Wait for a thread that is not explored and that may end the wait of a strand; return whether
        it has. Report the trial as stuck if strands should have ended, but wait or are blocked.
        """
        blocked = [strand for strand in self._blocked() if not strand.is_daemon]
        waiting = [] if blocked else self._waiting_in_vain()
        if waiting and wait_really(
            lambda: bool(self._sleepers) or self._turns.has_ended or has_options(),
            CHECKS_OF_WAITING,
        ):
            return True
        if blocked or waiting:
            self._report_stuck(blocked or waiting)
        for strand in self._strands:
            if not blocked and strand.is_daemon and strand.state not in ("ended", "new"):
                self._log.note(f"the daemon thread {strand.name} was still running at the end")
        return False

    def await_idle(self) -> None:
        """Wait until outsiders are idle, because their speed would decide what runs next. End the trial
        with an error if one goes on.
        """
        try:
            if self._outsiders:
                self._outsiders.await_idle(lambda: self._turns.has_ended)
        except ContractError as error:
            self._turns.fail_trial(error)  # The explored code could catch the exception.

    def end_stuck(self, strand: Strand) -> None:
        """End the trial because a strand is blocked, and stepping over it was impossible or in vain."""
        self._report_stuck(self._blocked() or [strand])
        self._turns.block(strand)
        self._turns.end(None)

    def _blocked(self) -> list[Strand]:
        return [strand for strand in self._strands if strand.state == "blocked"]

    def _waiting_in_vain(self) -> list[Strand]:
        """Return the strands that wait although nothing can end that, if they should have ended."""
        waiting = [
            strand
            for strand in self._strands
            if strand.state == "waiting"
            and not strand.is_daemon
            and strand.root.type != "worker"
            and not strand.root.crashed
        ]
        # Ignore idle threads of a pool, which wait in library code.
        # Keep no dictionary of frames: it would contain this one, which refers to all data of the trial.
        return [
            strand
            for strand in waiting
            if strand.type != "thread" or application_frame(thread_frame(strand.thread.ident))
        ]

    def _report_stuck(self, strands: Sequence[Strand]) -> None:
        text = describe_stuck(strands)
        self._log.flags.add("stuck")
        self._log.note_error(AssertionError(text))


class Outsiders:
    """The threads that are alive now, without this one and those of the package. ``explore()`` does not
    control threads of the application that began before it.

    A thread is idle while it waits at the place at which it is now, such as a pool's thread for work.
    """

    def __init__(self, portals: tuple[str, ...]) -> None:
        """``portals`` begin the names of threads with the event loop of a running TestClient."""
        self._portals = portals
        self._idle: dict[threading.Thread, tuple[CodeType, ...]] = {}
        self._wakings: dict[threading.Thread, int | None] = {}
        """How many times each thread had woken up when all were idle last."""
        self._users: set[threading.Thread] = set()
        """The threads that have used the fakes."""
        self._restless: set[threading.Thread] = set()
        """Other threads for which a trial has waited in vain, and which have not been idle since."""
        self._helpers: dict[threading.Thread, bool] = {threading.current_thread(): False}
        """Other threads, and whether each may work for these threads: those of the fakes, and those
        that have begun since, such as the pool of a running TestClient for plain functions.
        """
        self.sleeping: set[int] = set()
        """The threads that sleep in fake time, by their identifiers."""
        for thread in threading.enumerate():
            is_excluded = thread is threading.current_thread() or _is_excluded(thread)
            # Python also lists a thread that has failed before it began.
            if thread.is_alive() and not is_excluded:
                self._idle[thread] = ()
        for _ in range(CHECKS_AT_START if self._idle else 0):
            # A thread may still be on the way to the place where it is idle.
            self._idle = {thread: _stack(thread) for thread in self._idle}
            nap()

    def __bool__(self) -> bool:
        return bool(self._idle)

    def error_of_sharing(self) -> ContractError:
        """Return the error for several clients that use the fakes through these threads."""
        if any(thread.name.startswith(self._portals) for thread in self._idle):
            place = "the event loop of a running TestClient"
            advice = (
                "open a TestClient within each explored function (`with TestClient(app) as client:`), "
                "or use one without `with`: its requests run in an event loop of the explored client"
            )
        else:
            place = "a thread or an event loop"
            advice = (
                "start the thread, or the pool or the event loop that it belongs to, within each "
                "explored function"
            )
        return ContractError(
            f"several clients or threads use the fakes, through {place} that began before explore(), "
            "which cannot decide the order of their calls there, so that two runs could differ: "
            f"{advice}"
        )

    def __contains__(self, thread: object) -> bool:
        return thread in self._idle

    def note_use(self, thread: threading.Thread) -> str:
        """Note that one of these threads uses the fakes; return its description."""
        self._users.add(thread)
        self._restless.discard(thread)
        if thread.name.startswith(self._portals):
            return "the order of calls in the event loop of a running TestClient"
        return f"the thread {thread.name}"

    def await_idle(self, is_over: Callable[[], bool]) -> None:
        """Wait, in wall-clock time, until the threads are idle or ``is_over()`` returns True.

        Raises ``ContractError`` for a thread that has used the fakes and works for too long. For another
        one, no trial waits again before it has been idle, wherever it waits.
        """
        last = self._wakings
        # Most threads have not woken up since the last trial. Where that is unknown, the
        # count is 0.
        threads = self._all_threads()
        if all(last.get(thread) and self._is_idle(thread, last[thread]) for thread in threads):
            return
        for _ in range(CHECKS_OF_OUTSIDERS):
            self._idle.update(
                {thread: _stack(thread) for thread in self._restless & self._idle.keys()}
            )
            # A thread may start another one at any time.
            before = {thread: wakings(thread) for thread in self._all_threads()}
            nap()
            # A thread that waits for the interpreter's own lock wakes up once in this time.
            Gate().acquire(sys.getswitchinterval())
            busy = [thread for thread, count in before.items() if not self._is_idle(thread, count)]
            if not busy:
                self._wakings = before
            self._restless.intersection_update(busy)
            if self._restless.issuperset(busy) or is_over():
                return
        for thread in busy:
            if thread in self._users:
                raise ContractError(
                    f"the thread {thread.name}, which began before explore(), makes calls for the code "
                    "and goes on working, in real time, so that its calls would be part of a later "
                    "trial: start it, or the pool that it belongs to, within the explored function"
                )
            self._restless.add(thread)

    def _is_idle(self, thread: threading.Thread, count: int | None) -> bool:
        """Return whether a thread has not woken up since a count, and is where it is idle."""
        is_asleep = count is not None and count == wakings(thread)
        if is_asleep and thread.ident in self.sleeping:
            return True
        if is_asleep and thread in self._helpers:
            return application_frame(thread_frame(thread.ident)) is None
        return is_asleep and _stack(thread) == self._idle[thread]

    def _all_threads(self) -> list[threading.Thread]:
        """Return those of these threads that are alive, and those that may work for them."""
        for thread in threading.enumerate():
            if thread not in self._idle and thread not in self._helpers:
                self._helpers[thread] = not _is_excluded(thread)
        helpers = [thread for thread, helps in self._helpers.items() if helps]
        return [thread for thread in [*self._idle, *helpers] if thread.is_alive()]


def _is_excluded(thread: threading.Thread) -> bool:
    """Return whether a thread makes no calls for the code: one of the fakes, of a strand, of a test
    runner or the like. One that executes a function of this package may be the code's, such as the
    thread of an event loop that awaits ``AioCloud.explore()``.
    """
    return (
        thread.name.startswith(OF_FAKES)
        or is_of_a_strand(thread)
        or any(
            module_of(caller).partition(".")[0] in INFRASTRUCTURE and not is_own(caller)
            for caller in stack_of(thread_frame(thread.ident))
        )
    )


def _stack(thread: threading.Thread) -> tuple[CodeType, ...]:
    return tuple(caller.f_code for caller in stack_of(thread_frame(thread.ident)))


# -- what the system says about a thread ---------------------------------------------------------------

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
