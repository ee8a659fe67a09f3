"""Turns of the strands, which run one at a time, and detection of strands that are stuck."""

from __future__ import annotations

import contextlib
import contextvars
import linecache
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.thread import _threads_queues
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol, cast

from ...core.errors import ContractError, Crash, report_failure
from ...core.libraries import is_library
from ...core.threads import DaemonThread, place_of
from ...core.timers import monotonic
from .strands import (
    NOT_WAITING,
    Gate,
    Strand,
    Waiting,
    application_frame,
    carried_strand,
    source_of,
)

MOST_CRASHES = 20
"""Number of times that code may catch its crash before its thread is abandoned."""
_ENDING = 5.0
"""Wall-clock seconds to wait for the threads of strands at the end of a trial or of the pool."""
_STUCK = 0.05
"""Wall-clock seconds to wait for the end of a thread that still runs explored code."""
ABANDONED = "abandoned "
"""The beginning of the names of threads that are left running."""
LOOK = 0.05
"""Wall-clock seconds between two calls of ``Watchdog.look()``."""
_BUSY = 0.3
"""Wall-clock seconds for which a strand may block before another strand runs."""
_STUCK_AFTER = 1.5
"""Wall-clock seconds for which a strand may block before it counts as stuck, if no other can run."""
_LOST = 10.0
"""Wall-clock seconds without a running strand after which the trial fails."""
_HOOK_ADVICE = (
    "look at the functions that were passed to threading.settrace() and threading.setprofile(), and at "
    "tools that wrap threading.Thread"
)
_REAL = 30.0
"""Wall-clock seconds for which a strand may wait for a thread of the fakes or another process."""


class Scheduler(Protocol):
    """Decides what turns are for: which strand runs next, and what its start and its end mean."""

    def choose(self) -> Strand | None: ...

    def choose_meanwhile(self) -> Strand | None: ...

    def begins(self, strand: Strand) -> None: ...

    def perform(self, strand: Strand) -> object: ...

    def ended(self, strand: Strand) -> None: ...

    def abandons(self, strand: Strand) -> None: ...

    def lost(self, strand: Strand) -> None: ...

    def stuck(self, strand: Strand) -> None: ...


class Turns:
    """Passes the turn between strands, so that only one runs at a time.

    A thread passes the turn on in three steps: the scheduler chooses the next strand, ``current``
    is set to that strand, and the gate of that strand's thread is released. The thread then waits
    at its own gate. A strand that was stepped over while it was blocked can come back at any time:
    ``_lock`` protects changes of ``current`` and ``_switching``, by which it decides whether another
    thread passes the turn on.
    """

    _scheduler: Scheduler
    _context: contextvars.Context

    def __init__(self, threads: Threads, strands: list[Strand]) -> None:
        self._threads = threads
        self._strands = strands
        self._finished = Gate()
        self._lock = threading.Lock()
        self.has_ended = False
        self.failure: BaseException | None = None
        self.current: Strand | None = None
        self.by_thread: dict[int, Strand] = {}
        self.progress = 0
        """Number of times that the turn has been passed on."""
        self._live = 0
        """Number of threads that run a strand."""
        self._switching = False
        """Whether the next strand is being chosen."""

    def run(self, scheduler: Scheduler) -> None:
        """Run all strands to their end. Raises errors of ``explore()``, but not of the code."""
        self._scheduler = scheduler
        self._context = contextvars.copy_context()
        self._wake(self._choose())
        watchdog = Watchdog(self)
        try:
            while not self._finished.acquire(timeout=LOOK):
                watchdog.look()
        except BaseException as error:
            # Let Ctrl-C and the exception of pytest-timeout end the test.
            self.end(error)
            raise
        finally:
            if self._live:
                self._await_threads()
            if not self._live:
                # Without circles of references, the data of the trial need no garbage collection.
                del self._scheduler, self._context
        if self.failure is not None:
            raise self.failure

    def _await_threads(self) -> None:
        """Wait for the threads, because one that goes on would call the fakes after their reset."""
        deadline = monotonic() + _ENDING
        for strand in self._live_strands():
            strand.gate.release()
        while self._live and monotonic() < deadline:
            self._finished.acquire(timeout=0.002)
            if self._live and all(strand.is_stepped_over for strand in self.by_thread.values()):
                break

    def _live_strands(self) -> list[Strand]:
        return [
            strand
            for strand in self._strands
            if strand.state != "ended" and (strand.thread or strand.state != "new")
        ]

    def step_over(self, strand: Strand) -> None:
        """Let another strand run, if one can, while the running strand is blocked; also let the
        trial end if a daemon thread is blocked.
        """
        with self._lock:
            if self.current is not strand or self.has_ended:
                return
            before = strand.state, strand.waiting
            strand.is_stepped_over = True
            strand.wait(Waiting("blocked"))
            self.current, self._switching = None, True
        chosen = self._scheduler.choose_meanwhile()
        with self._lock:
            self.current, self._switching = chosen, False
            if chosen is None and strand.is_stepped_over and not strand.is_daemon:
                strand.is_stepped_over = False
                strand.state, strand.waiting = before
                self.current = strand
                return
        self.progress += 1
        # Without a choice, the strand has gone on, and waits for its turn or has ended.
        self._wake(self._choose() if chosen is None else chosen)

    def skip_lost(self, strand: Strand) -> None:
        """Let the next strand run if it is the turn of one whose thread has ended before it began."""
        if strand.role != "thread":
            with self._lock:
                self._live -= 1
            text = f"the thread of {strand.title} ended before its code began: {_HOOK_ADVICE}"
            self.end(ContractError(text))
            return
        self._scheduler.lost(strand)
        self._record_end(strand)
        if not self.has_ended:
            self._wake(self._choose())

    def here(self) -> Strand | None:
        """Return the strand of the current thread, or None if the thread is not explored."""
        return self.by_thread.get(threading.get_ident())

    def yield_turn(self, strand: Strand) -> None:
        """Let the next strand run; return when it is this strand's turn again."""
        chosen = self._choose() if self._passes_turn_on(strand) else None
        if chosen is not strand:
            self._wake(chosen)
            if not self.has_ended:
                strand.gate.acquire()
        self._resume(strand)

    def _passes_turn_on(self, strand: Strand) -> bool:
        """Return whether this strand's thread must choose the next strand; while the strand was
        blocked, another thread may have done so.
        """
        if not strand.is_stepped_over:
            return True
        with self._lock:
            strand.is_stepped_over = False
            return self.current is None and not self._switching

    def _resume(self, strand: Strand) -> None:
        if self.has_ended:
            self.crash(strand)
        strand.state, strand.waiting, strand.held_until_us = "running", NOT_WAITING, 0

    def crash(self, strand: Strand) -> NoReturn:
        """Raise ``Crash`` in a strand; do not return to code that has caught it too often."""
        strand.crashes += 1
        if strand.crashes > MOST_CRASHES and self.here() is strand.host:
            self._abandon(strand.host)
        raise Crash

    def _abandon(self, strand: Strand) -> None:
        """End a strand although its code goes on, and block this thread, which is its, forever."""
        strand.crashed = True
        self._scheduler.abandons(strand)
        self._threads.forget(threading.current_thread())
        self.by_thread.pop(strand.thread, None)
        self._record_end(strand)
        if not self.has_ended and self._passes_turn_on(strand):
            self._wake(self._choose())
        self._thread_is_done()
        Gate().acquire()

    def idle(self, host: Strand, waiting: Waiting) -> None:
        """Let the next strand run while the event loop of this thread is idle.

        If that strand is a task of the loop, it waits for a future or, in a fake's thread, at its gate.
        """
        if host.is_stepped_over:
            self.yield_turn(host)
        host.wait(waiting)
        host.loop.is_idle = True
        self._wake(self._choose())
        host.gate.acquire()
        host.loop.is_idle = False
        chosen, host.loop.chosen = host.loop.chosen, None
        self._resume(host)
        if chosen is not None and chosen is not host:
            self._resume(chosen)
            if chosen.turn.future is None:
                chosen.release()
            elif not chosen.turn.future.done():
                chosen.turn.future.set_result(None)

    def run_in_own_thread(self, strand: Strand, body: Callable[[], None]) -> None:
        """Run a strand in this thread, which the code has started, and then let the next one run."""
        with self._lock:
            self._live += 1
        with self._in_this_thread(strand):
            carried_strand.set(strand)
            try:
                strand.gate.acquire()
                self._resume(strand)
                self._scheduler.begins(strand)
                body()
            except BaseException as error:
                strand.fail(error)
        if not self.has_ended and self._passes_turn_on(strand):
            self._wake(self._choose())
        self._thread_is_done()

    @contextlib.contextmanager
    def _in_this_thread(self, strand: Strand) -> Iterator[None]:
        """Assign a strand to this thread; record its end at the end of the block."""
        strand.thread, strand.starting = threading.get_ident(), None
        self.by_thread[strand.thread] = strand
        try:
            yield
        finally:
            self.by_thread.pop(strand.thread, None)
            self._record_end(strand)

    def _choose(self) -> Strand | None:
        self.progress += 1
        with self._lock:
            self.current, self._switching = None, True
        chosen = error = None
        try:
            chosen = None if self.has_ended else self._scheduler.choose()
        except BaseException as raised:
            error = raised
        with self._lock:
            self.current, self._switching = chosen, False
        if chosen is None:
            self.end(error)
        return chosen

    def _wake(self, chosen: Strand | None) -> None:
        if chosen is None or self.has_ended:
            return
        if _needs_thread(chosen):
            chosen.state = "running"
            with self._lock:
                self._live += 1
            here = self.here()
            try:
                with contextlib.nullcontext() if here is None else here.waits_for_real():
                    self._threads.start(self, chosen)
            except RuntimeError as error:
                # The system allows no further thread. This may be the thread of another strand.
                with self._lock:
                    self._live -= 1
                self.end(error)
            return
        has_loop = chosen.role == "task" or chosen.loop.running is not None
        if has_loop and not chosen.turn.is_inline:
            chosen.host.loop.chosen = chosen
            chosen.host.gate.release()
        else:
            chosen.gate.release()

    def run_strands(self, strand: Strand, rest: Callable[[], None]) -> None:
        """Run a strand in this thread, and then the strands that begin after it."""
        chosen = None
        try:
            try:
                chosen = self._run_successively(strand)
            finally:
                rest()  # This thread may be the next to be woken.
            self._wake(chosen)
        finally:
            self._thread_is_done()

    def _run_successively(self, strand: Strand) -> Strand | None:
        """Run strands until the next one has a thread of its own; return that one, or None."""
        while True:
            with self._in_this_thread(strand):
                self._context.copy().run(self._run_code, strand)
            if self.has_ended or not self._passes_turn_on(strand):
                return None
            chosen = self._choose()
            if chosen is None or not _needs_thread(chosen):
                return chosen
            chosen.state = "running"
            strand = chosen

    def _thread_is_done(self) -> None:
        with self._lock:
            self._live -= 1
            none = not self._live
        if none and self.has_ended:
            self._finished.release()

    def _run_code(self, strand: Strand) -> None:
        carried_strand.set(strand)
        self._scheduler.begins(strand)
        try:
            strand.result = self._scheduler.perform(strand)
        except ContractError as error:
            self.end(error)
        except BaseException as error:
            strand.fail(error)

    def _record_end(self, strand: Strand) -> None:
        strand.state = "ended"
        # Release any thread of a fake that still waits for the turn of the strand's last call.
        strand.release()
        if self.has_ended:
            return
        try:
            self._scheduler.ended(strand)
        except BaseException as error:
            self.end(error)

    def end(self, error: BaseException | None) -> None:
        with self._lock:
            if self.has_ended:
                return
            self.has_ended = True
            self.failure = error
            self.current = None
        for strand in self._live_strands():
            strand.release()
        self._finished.release()

    def fail(self, error: BaseException) -> NoReturn:
        """End the trial and the calling strand with an error."""
        self.end(error)
        raise Crash


def _needs_thread(strand: Strand) -> bool:
    return strand.state == "new" and not strand.thread


class _PoolThread(DaemonThread):
    """A thread that runs strands, one after the other."""

    def __init__(self, rest: Callable[[_PoolThread], None]) -> None:
        super().__init__("explore", self._work)
        self.gate = Gate()
        self.next: tuple[Turns, Strand] | None = None
        self._rest = rest

    def _work(self) -> None:
        while True:
            self.gate.acquire()
            if self.next is None:
                return
            turns, strand = self.next
            turns.run_strands(strand, lambda: self._rest(self))


def is_of_a_strand(thread: threading.Thread) -> bool:
    """Return whether a thread has run a strand, in this trial or an earlier one."""
    return isinstance(thread, _PoolThread) or "_strand" in vars(thread)


class Threads:
    """A pool of threads that trials share."""

    def __init__(self) -> None:
        self._idle: list[_PoolThread] = []
        self._all: list[_PoolThread] = []
        self._closed = False
        self._lock = threading.Lock()

    def start(self, turns: Turns, strand: Strand) -> None:
        with self._lock:
            if self._idle:
                thread = self._idle.pop()
            else:
                thread = _PoolThread(self._rest)
                self._all.append(thread)
        if thread.ident is None:
            thread.start()
        thread.next = turns, strand
        strand.starting = thread
        thread.gate.release()

    def close(self) -> None:
        """End the idle threads; a thread that is stuck in explored code is left running."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.gate.release()
        for thread in self._all:
            if thread.ident is None:
                continue  # A signal's handler has interrupted its start.
            thread.join(_ENDING if thread in idle else _STUCK)

    def after_fork(self) -> None:
        """Forget the threads, which a forked process lacks."""
        self._idle, self._all, self._lock = [], [], threading.Lock()

    def forget(self, thread: threading.Thread) -> None:
        """Do not wait for the end of a thread, neither here nor when the process ends."""
        thread.name = f"{ABANDONED}{thread.name}"
        with self._lock:
            self._all = [other for other in self._all if other is not thread]
        cast("Any", _threads_queues).pop(thread, None)

    def _rest(self, thread: _PoolThread) -> None:
        with self._lock:
            thread.next = None
            if self._closed:
                thread.gate.release()
            else:
                self._idle.append(thread)


class Watchdog:
    """Lets other strands run while one is blocked, and ends a trial that is stuck."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._seen: object = None
        self._since = monotonic()

    def look(self) -> None:
        strand = self._turns.current
        starting = None if strand is None else strand.starting
        if strand is not None and starting is not None and not starting.is_alive():
            # Look again: the thread may have begun its code since, and have ended.
            if strand.starting is starting:
                self._turns.skip_lost(strand)
            return
        thread = 0 if strand is None else strand.host.thread
        frame = None if strand is None else sys._current_frames().get(thread)
        may_be_locked = strand is not None and _may_be_locked(strand, frame)
        woken = wakings(_thread_with(thread)) if may_be_locked else None
        place = None if frame is None else (id(frame), frame.f_lasti, woken)
        seen = self._turns.progress, place
        if seen != self._seen:
            self._seen, self._since = seen, monotonic()
            return
        seconds = monotonic() - self._since
        if strand is None:
            if seconds > _LOST:
                text = "no strand of explore() runs: please report this as a bug"
                self._turns.end(ContractError(text))
        elif starting is not None:
            if seconds > _LOST:
                self._turns.end(ContractError(_describe_delay(strand.title, starting)))
        elif woken is not None and not (strand.host.real_waits and seconds < _REAL):
            self._help(strand, seconds)

    def _help(self, blocked: Strand, seconds: float) -> None:
        """Step over a blocked strand, or end the trial if that has not helped for long enough."""
        if seconds >= _BUSY and _sleeps_really(blocked.host.thread):
            # Do not wait for the thread at the end of the trial.
            blocked.is_stepped_over = True
            self._turns.end(
                ContractError(
                    f"{describe_places([blocked])} sleeps in real time, with a function that "
                    "explore() could not replace, because the code had stored it before: call "
                    "time.sleep(), or store it within the explored function"
                )
            )
        elif seconds > _STUCK_AFTER:
            self._turns._scheduler.stuck(blocked)
            blocked.is_stepped_over = True
            self._turns.end(None)
        elif seconds >= _BUSY and blocked.host.loop.running is None:
            self._turns.step_over(blocked)


def _describe_delay(title: str, thread: threading.Thread) -> str:
    """Return an error text for a thread that is alive, but does not begin the code of its strand."""
    text = f"the thread of {title} has not begun its code after {_LOST:g} seconds: {_HOOK_ADVICE}"
    return f"{text}\n{place_of(thread.ident or 0)}".rstrip()


def _may_be_locked(strand: Strand, frame: FrameType | None) -> bool:
    """Return whether a strand may wait for a lock: in a line of the application, in a lock of the
    standard library, or in a library's own daemon thread, which may wait for it in any function.
    """
    if frame is None:
        return False
    name = frame.f_code.co_filename
    if not is_library(name) or Path(name).name in ("threading.py", "queue.py"):
        return True
    return strand.is_daemon and application_frame(frame) is None


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


def describe_places(strands: Sequence[Strand]) -> str:
    """Return the names of strands, each with its current line of the application if it has one."""
    places: list[str] = []
    for strand in strands:
        lines: list[str] = []
        with report_failure("its line could not be found", lines.append):
            lines += source_of(sys._current_frames().get(strand.host.thread))
        places.append(f"{strand.title} ({lines[0]})" if lines else strand.title)
    return ", ".join(places)


def describe_stuck(waiting: Sequence[Strand]) -> str:
    """Return a description of where each strand waits."""
    frames = sys._current_frames()
    parts: list[str] = []
    with report_failure(f"the places of {describe_places(waiting)} are unknown", parts.append):
        parts += [_describe_wait(strand, frames.get(strand.host.thread)) for strand in waiting]
    return f"{'deadlock' if len(waiting) > 1 else 'stuck'}: {'; '.join(parts)}"


def _describe_wait(strand: Strand, frame: FrameType | None) -> str:
    frame = application_frame(frame)
    if frame is None:
        return f"{strand.title} waits forever"
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return f"{strand.title} waits forever at {source_of(frame)[0]}: {line}"
