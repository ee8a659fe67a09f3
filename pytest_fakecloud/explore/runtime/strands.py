"""Strands of explored code (clients, workers, deliveries, tasks, threads), which run one at a time."""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from .frames import wakings

if TYPE_CHECKING:
    import asyncio

    from ..simulation.lifecycle import Lifecycle
    from ..simulation.scheduler import Scheduler
    from .deliveries import Due

Role = Literal["client", "worker", "delivery", "task", "thread"]
Place = Literal["switch", "late", "wake"]
"""The point at which a strand gave up its turn: before a call, before its answer, or before it
wakes up.
"""
_LOOK = 0.05
"""Wall-clock seconds between two checks of a running strand."""
_BUSY = 0.3
"""Wall-clock seconds for which a strand may block before another strand runs."""
_STUCK = 1.5
"""Wall-clock seconds for which a strand may block before it counts as stuck, if no other can run."""
_LOST = 10.0
"""Wall-clock seconds without a running strand after which the run fails."""
_REAL = 30.0
"""Wall-clock seconds for which a strand may wait for a thread of the fakes or another process."""
_JOIN = 5.0


class Gate:
    """A binary semaphore that works even while the locks of ``threading`` are replaced.

    The replacement locks use it themselves to let other strands run while they wait.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def release(self) -> None:
        """Release one waiting thread."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def acquire(self, timeout: float = -1) -> bool:
        """Wait for ``release()``; return False if it is not called within ``timeout`` wall-clock
        seconds.
        """
        return self._lock.acquire(True, timeout)


def pause(seconds: float) -> None:
    """Wait for some wall-clock seconds."""
    Gate().acquire(seconds)


class Crash(BaseException):
    """Raised in a strand to end it as if its machine had lost power; ``except Exception`` does not
    catch it.
    """


@dataclass(eq=False)
class Strand:
    """A sequence of steps in a run: a client, worker, delivery, task or thread.

    ``points`` counts its calls. ``state`` is ``"new"``, ``"running"``, ``"parked"`` at a ``place``,
    ``"waiting"`` until ``wake_us`` or until ``ready()`` is true, or ``"ended"`` with a ``result``
    or an ``error``. ``root`` is the client, worker or delivery to which it belongs. ``host`` is the
    strand whose thread runs it; for a task, the strand of its event loop. ``paused_us`` is the fake
    time for which events have paused it, at most ``patience_us``. ``port`` is the local port of the
    connection whose last call a fake's thread delayed until the strand's turn. ``is_settled`` is
    true for a strand whose event loop can read the answers to all of its requests, ``is_blocking``
    for a task whose last request blocks its event loop.
    """

    name: str
    role: Role
    body: Callable[[], object]
    due: Due | None = None
    parent: Strand | None = None
    state: Literal["new", "running", "parked", "waiting", "ended"] = "new"
    place: Place = "switch"
    points: int = 0
    wake_us: int | None = None
    ready: Callable[[], bool] | None = None
    why: str = ""
    held_until_us: int = 0
    last: bool = False
    began_us: int = 0
    paused_us: int = 0
    patience_us: int | None = None
    parked_at: int = 0
    crashed: bool = False
    starts: int = 1
    is_restart: bool = False
    is_daemon: bool = False
    first_call: int = 0
    last_call: int = 0
    result: object = None
    error: BaseException | None = None
    members: set[tuple[Any, str, str]] = field(default_factory=set)
    thread: int = 0
    port: int = 0
    carried: bool = False
    real: int = 0
    locks: int = 0
    draws: int = 0
    go: Gate = field(default_factory=lambda: Gate())
    host: Strand = field(init=False)
    root: Strand = field(init=False)
    loop: asyncio.AbstractEventLoop | None = None
    chosen: Strand | None = None
    turn: asyncio.Future[None] | None = None
    granted: bool = False
    turn_is_async: bool = False
    inline: bool = False
    is_idle: bool = False
    is_settled: bool = False
    is_blocking: bool = False
    main: Strand | None = None
    title: str = ""

    def __post_init__(self) -> None:
        self.root = self if self.parent is None else self.parent.root
        self.title = self.name
        if self.role == "task":
            assert self.parent is not None
            self.host = self.parent
        else:
            self.host = self

    @contextlib.contextmanager
    def waits_for_real(self) -> Iterator[None]:
        """Allow the block to wait for a thread of the fakes or for another process."""
        self.host.real += 1
        try:
            yield
        finally:
            self.host.real -= 1

    @property
    def is_over(self) -> bool:
        """Return whether a crash has ended its root."""
        return self.root.crashed


class _Worker:
    """A thread that runs strands, one after the other."""

    def __init__(self) -> None:
        self.go = Gate()
        self.turns: Turns | None = None
        self.strand: Strand | None = None
        self.thread: threading.Thread | None = None


class Threads:
    """A pool of threads that runs share."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []
        self._closed = False
        self._lock = threading.Lock()

    def start(self, turns: Turns, strand: Strand) -> None:
        """Run a strand in an idle thread, or in a new one."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            worker = _Worker()
            worker.thread = threading.Thread(
                target=self._serve, args=(worker,), name="explore", daemon=True
            )
            self._all.append(worker)
            worker.turns, worker.strand = turns, strand
            _real_start(worker.thread)
        else:
            worker.turns, worker.strand = turns, strand
        worker.go.release()

    def close(self) -> None:
        """End the idle threads; a thread that is stuck in explored code is left running."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.turns = worker.strand = None
            worker.go.release()
        for worker in self._all:
            assert worker.thread is not None
            worker.thread.join(_JOIN if worker in idle else _LOOK)

    def _serve(self, worker: _Worker) -> None:
        while True:
            worker.go.acquire()
            turns, strand = worker.turns, worker.strand
            if turns is None or strand is None:
                return
            turns._work(strand, lambda: self._rest(worker))

    def _rest(self, worker: _Worker) -> None:
        with self._lock:
            worker.turns = worker.strand = None
            if self._closed:
                worker.go.release()
            else:
                self._idle.append(worker)


_real_start = threading.Thread.start


class Turns:
    """Passes the turn between strands, so that only one runs at a time."""

    _scheduler: Scheduler
    _lifecycle: Lifecycle
    _context: contextvars.Context

    def __init__(self, threads: Threads, live: Callable[[], list[Strand]]) -> None:
        self._threads = threads
        self._live_strands = live
        self._finished = Gate()
        self._lock = threading.Lock()
        self.over = False
        self.failure: BaseException | None = None
        self.current: Strand | None = None
        self.by_thread: dict[int, Strand] = {}
        self.progress = 0
        self._live = 0
        self._switching = False

    # -- the caller's thread -----------------------------------------------------------------------

    def run(self, scheduler: Scheduler, lifecycle: Lifecycle) -> None:
        """Run all strands to their end. Raises errors of ``explore()`` itself, but not errors of
        the code.
        """
        self._scheduler, self._lifecycle = scheduler, lifecycle
        self._context = contextvars.copy_context()
        self._to_next()
        seen, frame, since = -1, None, monotonic()
        try:
            while not self._finished.acquire(timeout=_LOOK):
                current = self.current
                at = None if current is None else sys._current_frames().get(current.host.thread)
                thread = 0 if current is None else current.host.thread
                woken = wakings(thread, at)
                where = None if at is None else (id(at), at.f_lasti, woken)
                if seen != self.progress or where != frame:
                    seen, frame, since = self.progress, where, monotonic()
                    continue
                stood = monotonic() - since
                if current is None:
                    if stood > _LOST:
                        self.end(
                            ContractError(
                                "no strand of explore() runs: please report this as a bug"
                            )
                        )
                    continue
                if stood < _BUSY or woken is None or (current.host.real and stood < _REAL):
                    continue
                if stood > _STUCK or (current.host.loop is None and self._step_over(current)):
                    if stood > _STUCK:
                        self._scheduler.stuck(current)
                        current.carried = True
                        self.end(None)
                    seen = -1
        except BaseException as error:
            # Let Ctrl-C and the exception of pytest-timeout end the test.
            self.end(error)
            raise
        if self._live:
            self._await_threads()
        if self.failure is not None:
            raise self.failure

    def _await_threads(self) -> None:
        """Wait, for a limited time, until the threads of the strands have ended."""
        deadline = monotonic() + _JOIN
        for strand in self._live_strands():
            strand.go.release()
        while self._live and monotonic() < deadline:
            self._finished.acquire(timeout=0.002)
            if self._live and all(one.carried for one in self.by_thread.values()):
                break

    def _step_over(self, current: Strand) -> bool:
        """Let another strand run while this one waits for a lock that the other may hold."""
        with self._lock:
            if self.current is not current or self.over:
                return False
            kept = current.state, current.ready, current.wake_us, current.why
            current.carried = True
            current.state, current.ready, current.wake_us = "waiting", None, None
            current.why = "blocked"
            self.current = None
            self._switching = True
        chosen = self._scheduler.choose_meanwhile()
        with self._lock:
            self.current, self._switching = chosen, False
            if chosen is None and current.carried:
                current.carried = False
                current.state, current.ready, current.wake_us, current.why = kept
                self.current = current
                return False
        self.progress += 1
        if chosen is None:
            self._to_next()  # The strand has gone on, and waits for its turn or has ended.
        else:
            self._hand(chosen)
        return True

    # -- a strand's thread -------------------------------------------------------------------------

    def here(self) -> Strand | None:
        """Return the strand of the current thread, or None if the thread is not explored."""
        return self.by_thread.get(threading.get_ident())

    def give_way(self, strand: Strand) -> None:
        """Let the next strand run; return when it is this strand's turn again."""
        if strand.carried:
            self._come_back(strand)
            return
        chosen = self._choose()
        if chosen is not strand:
            self._hand(chosen)
            if self.over:
                raise Crash
            strand.go.acquire()
        self._go_on(strand)

    def _come_back(self, strand: Strand) -> None:
        """Wait for this strand's turn, after other strands ran while it was blocked."""
        if self._is_next_chosen(strand):
            strand.go.acquire()
        else:
            chosen = self._choose()
            if chosen is not strand:
                self._hand(chosen)
                strand.go.acquire()
        self._go_on(strand)

    def _is_next_chosen(self, strand: Strand) -> bool:
        """Return whether another thread passes the turn on after this strand was blocked."""
        with self._lock:
            strand.carried = False
            return self.current is not None or self._switching

    def _go_on(self, strand: Strand) -> None:
        if self.over:
            raise Crash
        strand.state = "running"
        strand.ready = strand.wake_us = None
        self.current = strand

    def idle(self, host: Strand) -> None:
        """Let the next strand run, which may be a task of this strand's idle event loop."""
        if host.carried:
            self._come_back(host)
        host.state, host.is_idle = "waiting", True
        chosen = self._choose()
        if chosen is not None and chosen.host is host and not chosen.inline:
            host.chosen = chosen
        else:
            self._hand(chosen)
            host.go.acquire()
        host.is_idle = False
        if self.over:
            raise Crash
        chosen, host.chosen = host.chosen, None
        host.state = "running"
        host.ready = host.wake_us = None
        self.current = chosen or host
        if chosen is not None and chosen is not host:
            chosen.state = "running"
            chosen.ready = chosen.wake_us = None
            if chosen.turn is None:
                chosen.go.release()
            elif not chosen.turn.done():
                chosen.turn.set_result(None)

    def adopt(self, strand: Strand) -> None:
        """Use the current thread as the strand's own thread."""
        strand.thread = threading.get_ident()
        self.by_thread[strand.thread] = strand
        with self._lock:
            self._live += 1

    def begin_adopted(self, strand: Strand) -> None:
        """Begin a strand that has a thread of its own."""
        self._go_on(strand)
        self._lifecycle.begins(strand)

    def leave(self, strand: Strand) -> None:
        """End a strand that has a thread of its own, and let the next one run."""
        self.by_thread.pop(strand.thread, None)
        self._end_of(strand)
        if not (self.over or (strand.carried and self._is_next_chosen(strand))):
            self._to_next()
        self._left()

    # -- inside ------------------------------------------------------------------------------------

    def _choose(self) -> Strand | None:
        self.progress += 1
        with self._lock:
            self.current, self._switching = None, True
        chosen = error = None
        try:
            chosen = None if self.over else self._scheduler.choose()
        except BaseException as raised:
            error = raised
        with self._lock:
            self.current, self._switching = chosen, False
        if chosen is None:
            self.end(error)
        return chosen

    def _to_next(self) -> None:
        chosen = self._choose()
        if chosen is not None:
            self._hand(chosen)

    def _hand(self, chosen: Strand | None) -> None:
        if chosen is None or self.over:
            return
        self.current = chosen
        if chosen.state == "new" and not chosen.thread:
            with self._lock:
                self._live += 1
            chosen.state = "running"
            here = self.here()
            if here is None:
                self._threads.start(self, chosen)
                return
            with here.waits_for_real():
                self._threads.start(self, chosen)
            return
        if chosen.inline or (chosen.host is chosen and chosen.loop is None):
            chosen.go.release()
            return
        chosen.host.chosen = chosen
        chosen.host.go.release()

    def _work(self, strand: Strand, rest: Callable[[], None]) -> None:
        """Run a strand in this thread, and then the strands that begin after it."""
        resting = False
        try:
            while True:
                self._perform(strand)
                if self.over or (strand.carried and self._is_next_chosen(strand)):
                    return
                chosen = self._choose()
                if chosen is None:
                    return
                if chosen.state == "new" and not chosen.thread:
                    with self._lock:
                        self._live += 1
                    chosen.state = "running"
                    self._left()
                    strand = chosen
                    continue
                resting = True
                rest()
                self._hand(chosen)
                return
        finally:
            if not resting:
                rest()
            self._left()

    def _left(self) -> None:
        with self._lock:
            self._live -= 1
            none = not self._live
        if none and self.over:
            self._finished.release()

    def _perform(self, strand: Strand) -> None:
        strand.thread = threading.get_ident()
        self.by_thread[strand.thread] = strand
        self.current = strand
        try:
            self._context.copy().run(self.perform, strand)
        finally:
            self.by_thread.pop(strand.thread, None)
            self._end_of(strand)

    def perform(self, strand: Strand) -> None:
        """Run a strand's code and store its result."""
        self._lifecycle.begins(strand)
        try:
            strand.result = self._lifecycle.perform(strand)
        except Crash:
            strand.crashed = True
        except ContractError as error:
            if not self.over:
                self.end(error)
        except BaseException as error:
            strand.error = error

    def _end_of(self, strand: Strand) -> None:
        strand.state = "ended"
        # Release any thread of a fake that still waits for the turn of the strand's last call.
        strand.go.release()
        if self.over:
            return
        try:
            self._lifecycle.ended(strand)
        except BaseException as error:
            self.end(error)

    def end(self, error: BaseException | None) -> None:
        """End the run and every waiting strand."""
        with self._lock:
            if self.over:
                return
            self.over = True
            self.failure = error
            self.current = None
        for strand in self._live_strands():
            strand.go.release()
        self._finished.release()

    def fail(self, error: BaseException) -> None:
        """End the run and the calling strand with an error."""
        self.end(error)
        raise Crash
