"""The threads that serve connections."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["WorkerPool"]


class WorkerPool:
    """Named daemon threads that run one job each at a time; as many as there are jobs.

    A thread that has had nothing to do for ``linger`` seconds ends, down to ``keep`` of them; one
    that finishes its job while ``spare`` others are idle ends at once, so that thousands of
    connections closed together do not leave thousands of threads that wake together.
    """

    def __init__(self, keep: int = 2, linger: float = 5.0, spare: int = 32) -> None:
        self.keep = keep
        self.spare = spare
        self.linger = linger
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._threads = 0
        self._started = 0

    @property
    def threads(self) -> int:
        """How many threads there are now."""
        return self._threads

    @property
    def idle(self) -> int:
        """How many of them wait for a job."""
        return len(self._idle)

    def submit(self, job: Callable[[], None], abandon: Callable[[], None]) -> None:
        """Have an idle thread run the job, or a new one; ``abandon()`` when none can be started."""
        with self._lock:
            if self._idle:
                # The one that was busy last, so that those nobody needs are idle for long.
                worker = self._idle.pop()
                worker.job = job
                worker.wake.release()
                return
            self._threads += 1
            self._started += 1
            name = f"fakecloud-worker-{self._started}"
        worker = _Worker(job)
        try:
            threading.Thread(target=self._work, args=(worker,), name=name, daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
            abandon()

    def _work(self, worker: _Worker) -> None:
        while True:
            worker.job()
            worker.job = _nothing
            with self._lock:
                if len(self._idle) >= self.spare:
                    self._threads -= 1
                    return
                self._idle.append(worker)
            while not worker.wake.acquire(timeout=self.linger):
                with self._lock:
                    # Not among the idle, it has just been claimed: its job is there.
                    if worker in self._idle and self._threads > self.keep:
                        self._idle.remove(worker)
                        self._threads -= 1
                        return


class _Worker:
    """A thread of the pool: its job, and the lock it sleeps on while it has none."""

    __slots__ = ("job", "wake")

    def __init__(self, job: Callable[[], None]) -> None:
        self.job = job
        self.wake = threading.Lock()
        self.wake.acquire()


def _nothing() -> None:
    """What an idle worker has to do."""
