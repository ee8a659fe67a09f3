"""Threads that serve connections and make deliveries."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..timeparse import monotonic


class WorkerPool:
    """A pool of named daemon threads, one for each running job.

    A thread that has been idle for ``linger`` seconds ends if there are more than ``keep``. A
    thread that finishes its job while ``spare`` others are idle ends immediately, so that closing
    thousands of connections does not leave thousands of threads that wake together.
    """

    def __init__(
        self, keep: int = 2, linger: float = 5.0, spare: int = 32, name: str = "fakecloud-worker"
    ) -> None:
        self._name = name
        self.keep = keep
        self.spare = spare
        self.linger = linger
        self._lock = threading.Lock()
        self.idle: list[_Worker] = []
        self._closed = False
        self.threads: set[_Worker] = set()
        self._started = 0

    def close(self, timeout: float = 1.0) -> bool:
        """End all other threads, busy ones after their job; return whether all ended in time."""
        with self._lock:
            self._closed = True
            idle, self.idle = self.idle, []
            threads = {worker.thread for worker in self.threads}
        for worker in idle:
            worker.wake.release()
        give_up = monotonic() + timeout
        for thread in threads - {threading.current_thread()}:
            # Skip a thread that has not started yet, which cannot be joined. It ends after its job.
            if thread.ident is not None:
                thread.join(max(0.0, give_up - monotonic()))
        return not any(one.is_alive() for one in threads - {threading.current_thread()})

    def submit(self, job: Callable[[], None], abandon: Callable[[], None]) -> None:
        """Run a job, which must not raise, in a thread; call ``abandon()`` if none can be started."""
        with self._lock:
            if self.idle:
                # Take the thread that was busy last, so that surplus threads stay idle and end.
                worker = self.idle.pop()
                worker.job = job
                worker.wake.release()
                return
            self._started += 1
            worker = _Worker(job)
            worker.thread = threading.Thread(
                target=self._work, args=(worker,), name=f"{self._name}-{self._started}", daemon=True
            )
            self.threads.add(worker)
        try:
            worker.thread.start()
        except RuntimeError:
            with self._lock:
                self.threads.discard(worker)
            abandon()

    def _work(self, worker: _Worker) -> None:
        while True:
            worker.job()
            worker.job = lambda: None
            with self._lock:
                if self._closed or len(self.idle) >= self.spare:
                    self.threads.discard(worker)
                    return
                self.idle.append(worker)
            while not worker.wake.acquire(timeout=self.linger):
                with self._lock:
                    # A worker that is no longer in the list has just been assigned a job.
                    if worker in self.idle and len(self.threads) > self.keep:
                        self.idle.remove(worker)
                        self.threads.discard(worker)
                        return


class _Worker:
    """A thread of the pool, with its job and the lock on which it sleeps while it has no job."""

    __slots__ = ("job", "thread", "wake")

    thread: threading.Thread

    def __init__(self, job: Callable[[], None]) -> None:
        self.job = job
        self.wake = threading.Lock()
        self.wake.acquire()
