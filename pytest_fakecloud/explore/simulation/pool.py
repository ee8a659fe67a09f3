"""The threads that run strands, which trials share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures.thread import _threads_queues
from typing import TYPE_CHECKING, Any, cast

from ...core.threads import DaemonThread
from ..fakes.gate import Gate
from ..values.limits import END_OF_STUCK_THREAD, END_OF_THREADS

if TYPE_CHECKING:
    from .strand import Strand
    from .turns import Turns

ABANDONED = "abandoned "
"""The beginning of the names of threads that are left running."""


class _PoolThread(DaemonThread):
    """A thread that runs a strand, and then waits for the next one."""

    def __init__(self, give_back: Callable[[_PoolThread], None]) -> None:
        super().__init__("explore", self._work)
        self.gate = Gate()
        self.next: tuple[Turns, Strand] | None = None
        self._give_back = give_back

    def _work(self) -> None:
        while True:
            self.gate.acquire()
            if self.next is None:
                return
            turns, strand = self.next
            turns.run_in_pool_thread(strand, lambda: self._give_back(self))


def is_of_a_strand(thread: threading.Thread) -> bool:
    """Return whether a thread is of a pool for strands, or was started as one by explored code."""
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
                thread = _PoolThread(self._take_back)
                self._all.append(thread)
        if thread.ident is None:
            thread.start()
        thread.next = turns, strand
        strand.thread.starting = thread
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
            thread.join(END_OF_THREADS if thread in idle else END_OF_STUCK_THREAD)

    def after_fork(self) -> None:
        """Forget the threads, which a forked process lacks."""
        self._idle, self._all, self._lock = [], [], threading.Lock()

    def forget(self, thread: threading.Thread) -> None:
        """Do not wait for the end of a thread, neither here nor when the process ends."""
        thread.name = f"{ABANDONED}{thread.name}"
        with self._lock:
            self._all = [other for other in self._all if other is not thread]
        cast("Any", _threads_queues).pop(thread, None)

    def _take_back(self, thread: _PoolThread) -> None:
        with self._lock:
            thread.next = None
            if self._closed:
                thread.gate.release()
            else:
                self._idle.append(thread)
