"""Turns of the strands, which run one at a time."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

from ...core.errors import ContractError, Crash
from ...core.timers import monotonic
from ..fakes.gate import Gate
from ..values.limits import CHECK, END_OF_THREADS, WATCH
from .current_thread import carried_strand
from .pool import Threads
from .strand import Strand, Waiting
from .watchdog import HOOK_ADVICE, Watchdog

if TYPE_CHECKING:
    from .simulation import Simulation

MOST_CRASHES = 20
"""Number of times that code may catch its crash before its thread is abandoned."""


class Turns:
    """Passes the turn between strands, so that only one runs at a time.

    A thread passes the turn on in three steps: the simulation chooses the next strand, ``current``
    is set to that strand, and its thread is resumed. Then the thread waits for its own turn. A strand
    that was stepped over while it was blocked can come back at any time: ``_lock`` protects changes of
    ``current`` and ``_switching``, by which it decides whether another thread passes the turn on.
    """

    _simulation: Simulation
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

    def run(self, simulation: Simulation) -> None:
        """Run all strands to their end. Raises ``ContractError``, ``Redundant`` and Ctrl-C."""
        self._simulation = simulation
        self._context = contextvars.copy_context()
        self._wake(self._choose())
        watchdog = Watchdog(simulation)
        try:
            while not self._finished.acquire(timeout=WATCH):
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
                del self._simulation, self._context
        if self.failure is not None:
            raise self.failure

    def _await_threads(self) -> None:
        """Wait for the threads, because one that goes on would call the fakes after their reset."""
        deadline = monotonic() + END_OF_THREADS
        for strand in self._live_strands():
            strand.thread.resume()
        while self._live and monotonic() < deadline:
            self._finished.acquire(timeout=CHECK)
            if self._live and all(strand.is_stepped_over for strand in self.by_thread.values()):
                break

    def _live_strands(self) -> list[Strand]:
        return [
            strand
            for strand in self._strands
            if strand.state != "ended" and (strand.thread.ident or strand.state != "new")
        ]

    def step_over(self, strand: Strand) -> None:
        """Let another strand run, if one can, while the running strand is blocked; also let the
        trial end if a daemon thread is blocked.
        """
        with self._lock:
            if self.current is not strand or self.has_ended:
                return
            strand.is_stepped_over = True
            self.current, self._switching = None, True
        chosen = self._simulation.scheduler.choose_meanwhile()
        with self._lock:
            self.current, self._switching = chosen, False
            if chosen is None and strand.is_stepped_over and not strand.is_daemon:
                strand.is_stepped_over = False
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
            text = f"the thread of {strand.name} ended before its code began: {HOOK_ADVICE}"
            self.end(ContractError(text))
            return
        note = f"not explored: the thread {strand.name}, which ended before its code began"
        self._simulation.log.note(note)
        self._record_end(strand)
        if not self.has_ended:
            self._wake(self._choose())

    def here(self) -> Strand | None:
        """Return the strand of the current thread, or None if the thread is not explored."""
        return self.by_thread.get(threading.get_ident())

    def yield_turn(self, strand: Strand) -> None:
        """Let the next strand run; return when it is this strand's turn again."""
        self._pass_on(strand)
        self._await_turn(strand)
        self._resume(strand)

    def _pass_on(self, strand: Strand) -> None:
        """Let the next strand run, unless another thread has seen to that while this one was blocked."""
        if strand.is_stepped_over:
            with self._lock:
                strand.is_stepped_over = False
                if self.current is not None or self._switching:
                    return
        self._wake(self._choose())

    def _await_turn(self, strand: Strand) -> None:
        """Wait in the thread that runs a strand until the turn is given to it, or the trial ends."""
        if not self.has_ended:
            strand.host.thread.gate.acquire()

    def _resume(self, strand: Strand) -> None:
        if self.has_ended:
            self.raise_crash(strand)
        strand.resume()

    def check_alive(self, strand: Strand) -> None:
        """End a strand that has crashed, or whose trial has ended, at the next thing that it does."""
        if self.has_ended or strand.root.crashed:
            self.raise_crash(strand)

    def raise_crash(self, strand: Strand) -> NoReturn:
        """Raise ``Crash`` in a strand; do not return to code that has caught it too often."""
        strand.crashes += 1
        if strand.crashes > MOST_CRASHES and self.here() is strand.host:
            self._abandon(strand.host)
        raise Crash

    def _abandon(self, strand: Strand) -> None:
        """End a strand although its code goes on, and block this thread, which is its, forever."""
        strand.note_error(Crash())
        self._simulation.abandons(strand)
        self._threads.forget(threading.current_thread())
        self.by_thread.pop(strand.thread.ident, None)
        self._record_end(strand)
        self._leave(strand)
        Gate().acquire()

    def idle(self, host: Strand, waiting: Waiting) -> None:
        """Let the next strand run while the event loop of this thread is idle.

        If that strand is a task of the loop, it waits for a future or, in a fake's thread, at its gate.
        """
        host.idle(waiting)
        self._pass_on(host)
        self._await_turn(host)
        chosen = host.take_chosen()
        self._resume(host)
        if chosen is not None:
            self._resume(chosen)
            chosen.carrier.resume()

    def run_in_own_thread(self, strand: Strand, body: Callable[[], None]) -> None:
        """Run a strand in this thread, which the code has started, and then let the next one run."""
        with self._lock:
            self._live += 1
        with self._in_this_thread(strand):
            carried_strand.set(strand)
            try:
                strand.thread.gate.acquire()
                self._resume(strand)
                self._simulation.begins(strand)
                body()
            except BaseException as error:
                strand.note_error(error)
        self._leave(strand)

    @contextlib.contextmanager
    def _in_this_thread(self, strand: Strand) -> Iterator[None]:
        """Assign a strand to this thread; record its end at the end of the block."""
        strand.thread.begin()
        self.by_thread[strand.thread.ident] = strand
        try:
            yield
        finally:
            self.by_thread.pop(strand.thread.ident, None)
            self._record_end(strand)

    def _choose(self) -> Strand | None:
        self.progress += 1
        with self._lock:
            self.current, self._switching = None, True
        chosen = error = None
        try:
            chosen = None if self.has_ended else self._simulation.scheduler.choose()
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
        if chosen.state == "new" and not chosen.thread.ident:
            chosen.begin()
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
        chosen.give_turn()

    def run_in_pool_thread(self, strand: Strand, rest: Callable[[], None]) -> None:
        """Run a strand in this thread of the pool, and then let the next one run."""
        with self._in_this_thread(strand):
            context = self._context.copy()
            context.run(carried_strand.set, strand)
            try:
                context.run(self._simulation.begins, strand)
                strand.result = context.run(self._simulation.perform, strand)
            except ContractError as error:
                self.end(error)
            except BaseException as error:
                strand.note_error(error)
        rest()  # This thread may be the next to be woken.
        self._leave(strand)

    def _leave(self, strand: Strand) -> None:
        """Let the next strand run, because a strand has ended in this thread."""
        if not self.has_ended:
            self._pass_on(strand)
        with self._lock:
            self._live -= 1
            none = not self._live
        if none and self.has_ended:
            self._finished.release()

    def _record_end(self, strand: Strand) -> None:
        strand.end()
        # Release any thread of a fake that still waits for the turn of the strand's last call.
        strand.release()
        if self.has_ended:
            return
        try:
            self._simulation.ended(strand)
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

    def fail_trial(self, error: BaseException) -> NoReturn:
        """End the trial and the calling strand with an error."""
        self.end(error)
        raise Crash
