"""Threads that serve connections, and the thread that makes deliveries in the background."""

from __future__ import annotations

import atexit
import inspect
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import Any

from .clock import BACKGROUND, Timekeeper
from .errors import print_error, report_failure
from .frames import thread_frame
from .timers import monotonic

_start = inspect.unwrap(Thread.start)


def start_thread(thread: Thread) -> None:
    """Start a thread of this package, without the wrappers of tools such as sentry-sdk, which are for
    the application's threads. A wrapper that does not name what it wraps stays.
    """
    _start(thread)


class DaemonThread(Thread):
    """A daemon thread of this package. Its name begins with ``fakecloud-``, by which suites that look
    for leftover threads recognize it. It starts even if a test has replaced ``threading.Thread``.
    """

    def __init__(self, name: str, target: Callable[..., object], args: Sequence[Any] = ()) -> None:
        super().__init__(target=target, args=args, name=f"fakecloud-{name}", daemon=True)

    def start(self) -> None:
        start_thread(self)


class _Leading(threading.local):
    """What the current thread does for others besides its present work."""

    pass_on: Callable[[], object] | None = None
    """Lets another thread do it from now on; None if there is nothing."""


leading = _Leading()


def step_aside() -> None:
    """Let other requests overtake that of the calling thread, which is about to wait for something or to
    call the test's code: another thread serves them from now on, if this one did.
    """
    if leading.pass_on is not None:
        leading.pass_on()


def place_of(ident: int) -> str:
    """Return the innermost lines that a thread executes, or why they are unknown; never raises."""
    lines: list[str] = []
    with report_failure("the place of a thread could not be found", lines.append):
        frame = thread_frame(ident)
        if frame is not None:
            lines += traceback.format_stack(frame)[-3:]
    return "".join(lines)


class WorkerPool:
    """A pool of named daemon threads, one for each running job.

    A thread that has been idle for ``linger`` seconds ends if there are more than ``keep``. A
    thread that finishes its job while ``spare`` others are idle ends immediately, so that closing
    thousands of connections does not leave thousands of threads that wake together.
    """

    def __init__(
        self, keep: int = 2, linger: float = 5.0, spare: int = 32, name: str = "worker"
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
        return not any(thread.is_alive() for thread in threads - {threading.current_thread()})

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
            worker.thread = DaemonThread(f"{self._name}-{self._started}", self._work, (worker,))
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

    thread: Thread

    def __init__(self, job: Callable[[], None]) -> None:
        self.job = job
        self.wake = threading.Lock()
        self.wake.acquire()


AT_ONCE = 64
"""Maximum number of deliveries in progress. Others wait until one of them ends."""
_AT_EXIT = 1.0  # seconds that an exiting interpreter waits for deliveries in progress
_LONGEST_NAP = 0.05  # seconds between two checks of the clock, which tools can move without notice


class Dispatcher:
    """Fires due timers in the lane ``"background"``. The first timer starts its thread.

    Timers begin in order in one thread. The work that a timer's ``begin`` returns runs in other
    threads, at most ``at_once`` at a time. Exceptions that timers raise are passed to ``report``
    or, if it is None, printed; either way the next timer still fires.
    """

    def __init__(
        self,
        clock: Timekeeper,
        report: Callable[[BaseException], None] | None = None,
        *,
        at_once: int = AT_ONCE,
    ) -> None:
        self._clock = clock
        self._report = report or print_error
        self._at_once = at_once
        self._lock = threading.Lock()
        self._thread: Thread | None = None
        self._under_way = 0  # number of deliveries in progress
        self._busy: set[int] = set()  # IDs of the threads that make them
        self.stopped = False
        self._wake = threading.Event()
        # Keep no idle threads: each pool serves one dispatcher and ends with it.
        self._workers = WorkerPool(keep=0, spare=at_once, name="delivery")
        # Hold only weak references, so that an unused cloud is garbage-collected.
        self._at_exit = partial(_stop, weakref.ref(self))
        self._unlisten = clock.listeners.add(self._start_if_needed)

    def _start_if_needed(self) -> None:
        if self._thread is None and self._clock.next_due_us(BACKGROUND) is None:
            return
        with self._lock:
            if self._thread is None and not self.stopped:
                thread = DaemonThread("dispatcher", _run, (weakref.ref(self), self._wake))
                thread.start()
                self._thread = thread
                # Stop the thread at exit: killing it inside a C extension can crash the process.
                atexit.register(self._at_exit)
        self._wake.set()

    def fire_due(self) -> float | None:
        """Fire due timers; return the seconds to wait, or None to wait until woken."""
        try:
            self._clock.dispatch(self._hand_over, self._is_paused)
        except Exception as error:
            # Continue with the next timers: the failed one is no longer planned.
            self._report(error)
        due = self._clock.next_due_us(BACKGROUND)
        if due is None or self._is_paused():
            return None
        return min(max((due - self._clock.now_us()) / 1e6, 0.0), _LONGEST_NAP)

    @property
    def place(self) -> str:
        """The code that the threads are executing, for the error after a wait that timed out."""
        thread = self._thread
        idents = self._busy.copy()
        if thread is not None and thread.is_alive() and thread.ident is not None:
            idents.add(thread.ident)
        return "\n".join(filter(None, map(place_of, sorted(idents))))

    def _is_paused(self) -> bool:
        return self.stopped or self._under_way >= self._at_once

    def _hand_over(self, work: Callable[[], object]) -> None:
        with self._lock:
            self._under_way += 1

        def job() -> None:
            me = threading.get_ident()
            self._busy.add(me)
            try:
                work()
            except BaseException as error:
                # Report the exception here: nothing else handles it, and the thread must survive.
                self._report(error)
            finally:
                self._busy.discard(me)
                with self._lock:
                    full = self._under_way >= self._at_once
                    self._under_way -= 1
                if full:
                    self._wake.set()

        # If no thread can be started, run the job here.
        self._workers.submit(job, job)

    def stop(self, timeout: float = 6.0) -> bool:
        """Stop delivering; return whether deliveries, except the caller's, have ended in time."""
        with self._lock:
            self.stopped = True
        self._unlisten()
        thread = self._thread
        if thread is None:
            return True
        atexit.unregister(self._at_exit)
        self._wake.set()
        give_up = monotonic() + timeout
        ended = True
        if thread is not threading.current_thread():
            thread.join(timeout)
            ended = not thread.is_alive()
        return self._workers.close(max(0.0, give_up - monotonic())) and ended


def _run(me: weakref.ref[Dispatcher], wake: threading.Event) -> None:
    while (dispatcher := me()) is not None:
        wake.clear()  # before the check, so that no later stop goes unnoticed
        if dispatcher.stopped:
            break
        seconds = dispatcher.fire_due()
        del dispatcher
        wake.wait(seconds)


def _stop(me: weakref.ref[Dispatcher]) -> None:
    dispatcher = me()
    if dispatcher is not None:
        dispatcher.stop(_AT_EXIT)
