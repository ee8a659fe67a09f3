"""The threads in which strands run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .strands import Gate, Strand

if TYPE_CHECKING:
    from .turns import Turns

_ENDING = 5.0
"""Wall-clock seconds to wait for the end of an idle thread."""
_STUCK = 0.05
"""Wall-clock seconds to wait for the end of a thread that still runs explored code."""
_real_start = threading.Thread.start


class _PoolThread:
    """A thread that runs strands, one after the other."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.turns: Turns | None = None
        self.strand: Strand | None = None
        self.thread: threading.Thread | None = None


class Threads:
    """A pool of threads that runs share."""

    def __init__(self) -> None:
        self._idle: list[_PoolThread] = []
        self._all: list[_PoolThread] = []
        self._closed = False
        self._lock = threading.Lock()

    def start(self, turns: Turns, strand: Strand) -> None:
        """Run a strand in an idle thread, or in a new one."""
        with self._lock:
            pool_thread = self._idle.pop() if self._idle else None
        if pool_thread is None:
            pool_thread = _PoolThread()
            pool_thread.thread = threading.Thread(
                target=self._serve, args=(pool_thread,), name="explore", daemon=True
            )
            self._all.append(pool_thread)
            pool_thread.turns, pool_thread.strand = turns, strand
            _real_start(pool_thread.thread)
        else:
            pool_thread.turns, pool_thread.strand = turns, strand
        pool_thread.gate.release()

    def close(self) -> None:
        """End the idle threads; a thread that is stuck in explored code is left running."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for pool_thread in idle:
            pool_thread.turns = pool_thread.strand = None
            pool_thread.gate.release()
        for pool_thread in self._all:
            assert pool_thread.thread is not None
            pool_thread.thread.join(_ENDING if pool_thread in idle else _STUCK)

    def _serve(self, pool_thread: _PoolThread) -> None:
        while True:
            pool_thread.gate.acquire()
            turns, strand = pool_thread.turns, pool_thread.strand
            if turns is None or strand is None:
                return
            turns.run_strands(strand, lambda: self._rest(pool_thread))

    def _rest(self, pool_thread: _PoolThread) -> None:
        with self._lock:
            pool_thread.turns = pool_thread.strand = None
            if self._closed:
                pool_thread.gate.release()
            else:
                self._idle.append(pool_thread)
