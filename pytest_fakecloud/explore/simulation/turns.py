"""The turn: which strand runs, and how it is given up and taken. This module is the whole protocol.

A strand gives up its turn by *resting*, at a point or in a wait (``Rest``). From then on a ``Carrier``
holds its code, and ``resume()`` lets it go on (``rest``). There are four ways to rest, by where the code
runs:

* In a thread, by ``yield_turn()``. The thread chooses the next strand, gives it the turn, and waits at
  its gate (``StrandThread``). A task that blocks its event loop rests like this, and so does a strand
  whose request a thread of a fake handles: that thread waits in its place.
* In the request of a task, also by ``yield_turn()``. The thread of a fake that handles the request (a
  ``RequestThread``) waits, and the event loop goes on. The turn stays with the loop.
* In a task that awaits its ``Wakeup``, by ``yield_turn_async()``. The turn stays with the loop, too.
* In an event loop whose tasks all rest, by ``yield_turn_of_loop()``: its thread rests like any other. It
  goes on when the loop or one of the tasks has the turn, and resumes the carrier of that task.

A thread that is not explored, such as an *outsider*, which began before the exploration, never has the
turn. ``Calls`` serves its requests at once, and the strand that waits for it keeps its turn
(``Strand.waits_for_real()``) or waits for a condition (``Waiting``).

What is always true:

1. At most one strand holds the turn, ``Turns.holder``. With it, all strands of its thread have the turn
   (``Turns.has_turn()``): an event loop lets another of its tasks run while the holder awaits. None
   holds it while the next one is chosen, while a strand is stepped over, and after the end. The thread
   that has taken the turn, under the lock, chooses the next strand.
2. Explored code runs only in the turn of its strand, or of its event loop. The exception is a *blocked*
   strand, from which the turn was taken (``block()``): its code may go on at any time, finds that it has
   no turn when it rests, and passes none on.
3. A strand rests before its turn is free, so that its own thread can choose it.
4. A carrier that is resumed before it waits does not wait. So no turn is lost in between.
5. After ``end()`` no strand gets the turn. All threads go on, and their code gets ``Crash``.

How a trial ends: ``Turns.end()`` decides it, once. When all threads have ended, ``run()`` raises the
error of that call, if any, in the player's thread. These functions call it:

* ``_pass_on()``, when ``Callbacks.advance()`` returns None, because nothing can happen any more, or
  raises: for a promise that cannot be checked, too many turns or moves of the clock, or an order that
  the strategy knows or does not want.
* ``_record_end()``, when ``Callbacks.end_strand()`` raises an error of the code that ends the test.
* ``fail_trial()``, which the other parts call in the middle of a step, where the code could catch the
  error.
* ``run()`` for Ctrl-C, ``_give_to()`` and ``skip_lost()`` for a thread that does not begin, and the
  ``Watchdog`` for one that does not go on.

A broken promise ends no trial: the ``TrialLog`` notes it, and the strands go on.

A strand that goes on after the end of its trial, or after the crash of its client, gets ``Crash`` at the
next thing that it does: from ``check_alive()``, or from ``Strand`` and ``world.locks`` where it would
wait. In a thread that an earlier trial has left, ``Callers`` raises it. It ends the code in
``run_in_own_thread()`` or ``run_in_pool_thread()``. A thread of a fake that handles a request of the
strand gets it, too: ``Calls.at_call()`` drops the connection, and ``StrandWaits.wait_in_command()``
ends the wait of a blocking command.

"Whose thread is this?" and "One turn, from strand to strand" in docs/contributing/map.md have examples.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ...core.errors import ContractError, Crash
from ...core.timers import monotonic
from ..fakes.gate import Gate
from ..values.limits import END_OF_THREADS, POLL, WATCH
from ..values.plan import SwitchKind
from .current_thread import carried_strand
from .rest import RequestThread, Rest, Waiting
from .strand import Strand

if TYPE_CHECKING:
    from ..fakes.connections import Connections
    from .pool import Threads
    from .watchdog import Watchdog

MOST_CRASHES = 20
"""Number of times that code may catch its crash before its thread is abandoned."""
HOOK_ADVICE = (
    "look at the functions that were passed to threading.settrace() and threading.setprofile(), and at "
    "tools that wrap threading.Thread"
)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The functions of later parts of the simulation that the turns call: in the thread of a strand or,
    at the start and for the ``Watchdog``, in that of the player.
    """

    advance: Callable[[], Strand | None]
    """Let the trial go on until a strand has to run; return the strand, or None at the end."""
    advance_meanwhile: Callable[[], Strand | None]
    """The same while a strand is blocked in the middle of a step."""
    run_code: Callable[[Strand], object]
    """Run the code of a strand in a thread of the pool, and return its result."""
    end_strand: Callable[[Strand], object]
    """Record the end of a strand, and what follows from it. Raises an exception that ends the test."""
    abandon_strand: Callable[[Strand], object]
    """Record that the code of a crashed strand goes on forever."""
    note: Callable[[str], object]
    """Add a sentence about code that was not explored."""


class Turns:
    """Passes the turn between strands, in the threads of a pool and in those that the code starts."""

    _callbacks: Callbacks
    _context: contextvars.Context

    def __init__(self, threads: Threads, connections: Connections, strands: list[Strand]) -> None:
        self._threads = threads
        self._connections = connections
        self._strands = strands
        self._finished = Gate()
        self._lock = threading.Lock()
        self.has_ended = False
        self._failure: BaseException | None = None
        self.holder: Strand | None = None
        """The strand to which the turn was given last, unless it was taken. In an event loop, another
        task may be running.
        """
        self.by_thread: dict[int, Strand] = {}
        """The strand that each thread runs, by its identifier: of an event loop, the tasks' host."""
        self.count = 0
        """Number of turns that strands have had."""
        self._live = 0
        """Number of threads that run a strand."""
        self._rests = itertools.count(1)

    def run(self, callbacks: Callbacks, watchdog: Watchdog) -> None:
        """Run the strands until the trial ends. Raises ``ContractError``, ``Redundant``, the error of a
        promise that could not be checked, and exceptions that end the test, such as Ctrl-C and that of
        ``pytest.skip()``.
        """
        self._callbacks = callbacks
        self._context = contextvars.copy_context()
        self._pass_on()
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
                del self._callbacks, self._context
        if self._failure is not None:
            raise self._failure

    def _await_threads(self) -> None:
        """Wait for the threads, because one that goes on would call the fakes after their reset."""
        deadline = monotonic() + END_OF_THREADS
        for strand in self._live_strands():
            strand.thread.resume()
        while self._live and monotonic() < deadline:
            self._finished.acquire(timeout=POLL)
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

    def has_turn(self, strand: Strand) -> bool:
        """Return whether a strand holds the turn, or another one of its thread."""
        return self.holder is not None and self.holder.host is strand.host

    # -- resting

    def yield_turn(self, strand: Strand, rest: Rest) -> None:
        """Let others run until a strand's next turn. Raises ``Crash`` at the end of the trial."""
        if strand.type == "task" and self.host() is not strand.host:
            self._rest_in_request(strand, rest)
        else:
            self._rest_in_thread(strand, rest)
        self.check_alive(strand)

    async def yield_turn_async(self, strand: Strand, kind: SwitchKind) -> None:
        """Like ``yield_turn()``, for a task whose event loop must not be blocked."""
        loop = strand.host.loop
        assert loop is not None
        with strand.carried_by(loop.new_wakeup()) as wakeup:
            self._begin_rest(strand, kind)
            try:
                await wakeup
            finally:
                if strand.state != "ended":
                    strand.go_on()
        self.check_alive(strand)

    def yield_turn_of_loop(self, host: Strand, waiting: Waiting) -> None:
        """Like ``yield_turn()``, while the event loop of this thread has nothing to do. One of its tasks
        may get the turn: it waits for a future or, in a fake's thread, at its gate.
        """
        self._rest_in_thread(host, waiting)
        task = self.holder
        if task is not None and task is not host:
            self._resume(task)
            task.carrier.resume()
        self.check_alive(host)

    def _rest_in_thread(self, strand: Strand, rest: Rest) -> None:
        if self._take_from(strand, rest):
            self._pass_on()
        if not self.has_ended:
            strand.thread.wait()
        self._resume(strand)

    def _rest_in_request(self, strand: Strand, rest: Rest) -> None:
        with strand.carried_by(RequestThread(self._connections.aside_here())) as thread:
            self._begin_rest(strand, rest)
            self.check_alive(strand)
            thread.wait(lambda: strand.state == "ended" or self.has_ended)
        if strand.state == "ended":
            self._raise_crash(strand)

    def _begin_rest(self, strand: Strand, rest: Rest) -> None:
        """Change the state of a strand that rests. The turn may stay with its event loop."""
        number = next(self._rests)
        if isinstance(rest, Waiting):
            strand.wait(rest, number)
        else:
            strand.park(rest, number)

    def _resume(self, strand: Strand) -> None:
        """Change the state of a strand that has the turn."""
        if self.has_ended:
            self._raise_crash(strand)
        strand.resume()

    # -- taking and giving

    def _take_from(self, strand: Strand, rest: Rest | None = None) -> bool:
        """Take the turn from a strand that rests or has ended; return False if its thread has none."""
        with self._lock:
            # Look first: as soon as the strand rests, another thread may give it the next turn.
            has_turn = self.has_turn(strand)
            if rest is not None:
                self._begin_rest(strand, rest)
            if has_turn:
                self.holder = None
            return has_turn

    def _pass_on(self) -> None:
        """Let the next strand run, when none has the turn; end the trial if there is none."""
        chosen = error = None
        try:
            chosen = None if self.has_ended else self._callbacks.advance()
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
            self.holder = chosen
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

    # -- a strand that does not go on

    def block(self, strand: Strand) -> bool:
        """Take the turn from a strand whose code is blocked; return False if it has gone on."""
        with self._lock:
            if self.holder is not strand:
                return False
            strand.host.block()
            self.holder = None
            return True

    def step_over(self, strand: Strand) -> None:
        """Let another strand run, if one can, while the running strand is blocked; also let the
        trial end if a daemon thread is blocked.
        """
        if not self.block(strand):
            return
        chosen = self._callbacks.advance_meanwhile()
        with self._lock:
            if chosen is None and strand.host.state == "blocked" and not strand.is_daemon:
                strand.host.go_on()
                self.holder = strand
                return
        if chosen is not None:
            self._give_to(chosen)
        else:
            # The strand has gone on, and waits for its turn or has ended, or it is a daemon's.
            self._pass_on()

    def skip_lost(self, strand: Strand) -> None:
        """Skip the thread of a strand that has ended before the code began, if the code started it; end
        the trial with an error for a thread of the pool.
        """
        if strand.type != "thread":
            with self._lock:
                self._live -= 1
            text = f"the thread of {strand.name} ended before its code began: {HOOK_ADVICE}"
            self.end(ContractError(text))
            return
        note = f"not explored: the thread {strand.name}, which ended before its code began"
        self._callbacks.note(note)
        self._record_end(strand)
        if self._take_from(strand):
            self._pass_on()

    # -- the end of a trial, and crashes

    def end(self, error: BaseException | None) -> None:
        """End the trial, unless it has ended; ``run()`` raises the error, if any."""
        with self._lock:
            if self.has_ended:
                return
            self.has_ended = True
            self._failure = error
            self.holder = None
        for strand in self._live_strands():
            strand.release()
        self._finished.release()

    def fail_trial(self, error: BaseException) -> NoReturn:
        """End the trial with an error in the middle of a step, where the code could catch it."""
        self.end(error)
        raise Crash

    def check_alive(self, strand: Strand) -> None:
        """End a strand that has crashed, or whose trial has ended, at the next thing that it does."""
        if self.has_ended or strand.root.crashed:
            self._raise_crash(strand)

    def _raise_crash(self, strand: Strand) -> NoReturn:
        """Raise ``Crash`` in a strand; do not return to code that has caught it too often."""
        strand.crashes += 1
        if strand.crashes > MOST_CRASHES and self.host() is strand.host:
            self._abandon(strand.host)
        raise Crash

    def _abandon(self, strand: Strand) -> None:
        """End a strand although its code goes on, and block this thread, which is its, forever."""
        strand.note_error(Crash())
        self._callbacks.abandon_strand(strand)
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
                strand.thread.wait()
                self._resume(strand)
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

    def run_in_pool_thread(self, strand: Strand, return_thread: Callable[[], None]) -> None:
        """Run a strand in this thread of the pool, and then let the next one run."""
        with self._in_this_thread(strand):
            context = self._context.copy()
            context.run(carried_strand.set, strand)
            try:
                strand.result = context.run(self._callbacks.run_code, strand)
            except BaseException as error:
                strand.note_error(error)
        return_thread()  # This thread may be the next to be woken.
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
            self._callbacks.end_strand(strand)
        except BaseException as error:
            self.end(error)
