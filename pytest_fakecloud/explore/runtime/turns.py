"""Turns of the strands, which run one at a time."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from .frames import wakings
from .strands import Crash, Gate, Strand

if TYPE_CHECKING:
    from ..simulation.lifecycle import Lifecycle
    from ..simulation.scheduler import Scheduler
    from .threads import Threads

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
