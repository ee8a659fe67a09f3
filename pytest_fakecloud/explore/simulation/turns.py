"""Turns of the strands, which run one at a time."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

from ...core.errors import ContractError, Crash
from ...core.timers import monotonic
from ..fakes.gate import Gate
from ..values.limits import CHECK, END_OF_THREADS, WATCH
from .current_thread import carried_strand
from .pool import Threads
from .strand import Rest, Strand, Waiting
from .watchdog import HOOK_ADVICE, Watchdog

if TYPE_CHECKING:
    from .simulation import Simulation

MOST_CRASHES = 20
"""Number of times that code may catch its crash before its thread is abandoned."""


class Turns:
    """Passes the turn between strands, so that only one runs at a time.

    ``current`` is the strand that has the turn. A thread that gives it up (``yield_turn()``) chooses the
    next strand, gives it the turn, and waits for its own. While a strand is chosen, none has the turn.
    The turn is also taken from a strand whose code is blocked (``step_over()``). When that code goes on,
    its thread finds that it does not have the turn, and waits for it. So two threads may want to take
    the turn, and ``_lock`` lets one of them.
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
        self.count = 0
        """Number of turns that strands have had."""
        self._live = 0
        """Number of threads that run a strand."""
        self._rests = itertools.count(1)

    def run(self, simulation: Simulation) -> None:
        """Run the strands until the trial ends. Raises ``ContractError``, ``Redundant``, and exceptions
        that end the test, such as Ctrl-C and that of ``pytest.skip()``.
        """
        self._simulation = simulation
        self._context = contextvars.copy_context()
        self._pass_on()
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
            if self._live and all(strand.state == "blocked" for strand in self.by_thread.values()):
                break

    def _live_strands(self) -> list[Strand]:
        return [
            strand
            for strand in self._strands
            if strand.state != "ended" and (strand.thread.ident or strand.state != "new")
        ]

    def host(self) -> Strand | None:
        """Return the strand of the current thread, or None if the thread is not explored."""
        return self.by_thread.get(threading.get_ident())

    # -- the turn

    def yield_turn(self, strand: Strand, rest: Rest) -> None:
        """Let a strand rest, and the next one run; return when the thread has the turn again. Raises
        ``Crash`` at the end of the trial.
        """
        if self._take_from(strand, rest):
            self._pass_on()
        if not self.has_ended:
            strand.thread.gate.acquire()
        self._resume(strand)

    def yield_turn_of_loop(self, host: Strand, waiting: Waiting) -> None:
        """Like ``yield_turn()``, while the event loop of this thread has nothing to do. One of its tasks
        may get the turn: it waits for a future or, in a fake's thread, at its gate.
        """
        self.yield_turn(host, waiting)
        task = self.current
        if task is not None and task is not host:
            self._resume(task)
            task.carrier.resume()

    def rest(self, strand: Strand, rest: Rest) -> None:
        """Let a strand rest. Who has the turn does not change: it may be that of its event loop."""
        if isinstance(rest, Waiting):
            strand.wait(rest, next(self._rests))
        else:
            strand.park(rest, next(self._rests))

    def _take_from(self, strand: Strand, rest: Rest | None = None) -> bool:
        """Take the turn from a strand that has ended or begins to rest; return False if its thread does
        not have it.
        """
        with self._lock:
            # Look first: as soon as the strand rests, another thread may give it the next turn.
            has_turn = self.current is not None and self.current.host is strand.host
            if rest is not None:
                self.rest(strand, rest)
            if has_turn:
                self.current = None
            return has_turn

    def _pass_on(self) -> None:
        """Let the next strand run, when none has the turn; end the trial if there is none."""
        chosen = error = None
        try:
            chosen = None if self.has_ended else self._simulation.scheduler.choose()
        except BaseException as raised:
            error = raised
        if chosen is None:
            self.end(error)
        else:
            self._give_to(chosen)

    def _give_to(self, chosen: Strand) -> None:
        """Let the thread of a strand go on; start one for a new strand, unless it has a thread."""
        with self._lock:
            if self.has_ended:
                return
            self.current = chosen
            self.count += 1
        if chosen.state != "new" or chosen.thread.ident:
            chosen.thread.resume()
            return
        chosen.begin()
        with self._lock:
            self._live += 1
        host = self.host()
        try:
            with contextlib.nullcontext() if host is None else host.waits_for_real():
                self._threads.start(self, chosen)
        except RuntimeError as error:
            # The system allows no further thread. This may be the thread of another strand.
            with self._lock:
                self._live -= 1
            self.end(error)

    def _resume(self, strand: Strand) -> None:
        if self.has_ended:
            self.raise_crash(strand)
        strand.resume()

    # -- a strand that does not go on

    def block(self, strand: Strand) -> bool:
        """Take the turn from a strand whose code is blocked; return False if it has gone on."""
        with self._lock:
            if self.current is not strand:
                return False
            strand.host.block()
            self.current = None
            return True

    def step_over(self, strand: Strand) -> None:
        """Let another strand run, if one can, while the running strand is blocked; also let the
        trial end if a daemon thread is blocked.
        """
        if not self.block(strand):
            return
        chosen = self._simulation.scheduler.choose_meanwhile()
        with self._lock:
            if chosen is None and strand.host.state == "blocked" and not strand.is_daemon:
                strand.host.go_on()
                self.current = strand
                return
        if chosen is not None:
            self._give_to(chosen)
        else:
            # The strand has gone on, and waits for its turn or has ended.
            self._pass_on()

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
        if self._take_from(strand):
            self._pass_on()

    # -- crashes

    def check_alive(self, strand: Strand) -> None:
        """End a strand that has crashed, or whose trial has ended, at the next thing that it does."""
        if self.has_ended or strand.root.crashed:
            self.raise_crash(strand)

    def raise_crash(self, strand: Strand) -> NoReturn:
        """Raise ``Crash`` in a strand; do not return to code that has caught it too often."""
        strand.crashes += 1
        if strand.crashes > MOST_CRASHES and self.host() is strand.host:
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

    # -- threads

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
        if self._take_from(strand):
            self._pass_on()
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
