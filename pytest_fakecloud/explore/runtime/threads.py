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
            worker.thread.join(_ENDING if worker in idle else _STUCK)

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
