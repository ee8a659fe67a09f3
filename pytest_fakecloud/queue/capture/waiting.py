"""Deliver messages, or wait for their deliveries, until a callback has arrived.

A driven queue delivers only while a test runs it, so the wait runs it and moves the clock. A queue
that delivers in the background has its own threads, so the wait only sleeps until they are done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from ...core.concurrency.aio import drive, in_thread
from ...core.concurrency.turns import Occupied
from ...core.errors import ContractError
from ...core.settings import number
from ...core.timeparse import monotonic
from ...handle import Context
from ..delivery.drivers import at_least_now
from ..model import DAY

if TYPE_CHECKING:
    from ..handle import Queue


LONGEST_DRIVE_US = 30 * DAY
"""Maximum time by which a wait for a callback moves the clock."""
_NAP = 0.02
"""Real seconds between checks while background deliveries are in progress."""


class CallbackWaiter:
    """Waits for callbacks of the queues in one cloud. ``arrival`` is notified of each callback."""

    def __init__(self, context: Context) -> None:
        self.arrival = context.clock.signal()
        self._context = context
        self._time = context.clock

    def until(self, done: Callable[[], bool], timeout: float) -> bool:
        """Deliver the messages of this cloud's queues, or wait for them, until a condition is true.

        Returns False if nothing is left to deliver, or after ``timeout`` real seconds.
        """
        __tracebackhide__ = True
        deadline = deadline_after(timeout)
        with self._driving() as queues:
            for target in self._due_times(queues, done, deadline):
                self._time._fire(target, done=done)
        return self._wait(done, deadline) if self.may_arrive() else done()

    async def auntil(self, done: Callable[[], bool], timeout: float) -> bool:
        """Awaitable version of ``until()``, which awaits deliveries in the running loop."""
        __tracebackhide__ = True
        deadline = deadline_after(timeout)
        with self._driving() as queues:
            for target in self._due_times(queues, done, deadline):
                await drive(self._time, target, done=done)
        if not self.may_arrive():
            return done()
        cancelled = threading.Event()
        try:
            return await in_thread(self._wait, done, deadline, cancelled)
        finally:
            # Stop the thread. Otherwise it would keep waiting after its task was cancelled.
            cancelled.set()
            self.arrival.notify()

    @contextmanager
    def _driving(self) -> Iterator[list[Queue]]:
        """Yield the queues that this call delivers, and close their idle connections afterwards."""
        queues = [queue for queue in self.queues() if queue.delivery == "driven"]
        for queue in queues:
            # The engine limits the length of a chain of callbacks within one drive.
            queue._engine.drive += 1
        try:
            yield queues
        finally:
            for queue in queues:
                queue._sender.release()

    def _due_times(
        self, queues: list[Queue], done: Callable[[], bool], deadline: float
    ) -> Iterator[Callable[[], int]]:
        """Yield the next due times until nothing pending can produce a callback."""
        limit = self._time.now_us() + LONGEST_DRIVE_US
        if queues and not done() and self._time.driving:
            # If a handler waits for a later callback, raise the error of any nested advance.
            yield self._time.now_us
        while queues and not done() and monotonic() < deadline:
            due = _next_due_us(queues)
            if due is None or due > limit:
                return
            yield partial(at_least_now, self._time, due)

    def _wait(
        self, done: Callable[[], bool], deadline: float, cancelled: threading.Event | None = None
    ) -> bool:
        """Wait for background deliveries, and move the clock if none is due yet."""
        limit = self._time.now_us() + LONGEST_DRIVE_US
        background = [queue for queue in self.queues() if queue.delivery != "driven"]
        while True:
            seen = self.arrival.version
            patience = deadline - monotonic()
            if done():
                return True
            if (
                patience <= 0
                or self.arrival.closed
                or (cancelled is not None and cancelled.is_set())
            ):
                return False
            due, now = _next_due_us(background), self._time.now_us()
            if due is not None and now < due <= limit and self._move_clock_to(due, patience):
                continue
            # Poll, because nothing signals the end of an attempt or a newly published message.
            self.arrival.sleep(seen, min(patience, _NAP) if background else patience)

    def _move_clock_to(self, due_us: int, patience: float) -> bool:
        """Move the clock to the next background delivery; return False while the clock is busy.

        Raises ``ContractError`` if only real time moves the clock, and not soon enough.
        """
        try:
            # Fire internal timers only, because deliveries are made by their own threads.
            self._time._fire(partial(at_least_now, self._time, due_us), ("state",), yielding=True)
        except Occupied:
            return False
        except ContractError:
            if due_us - self._time.now_us() > patience * 1_000_000:
                raise
            return False
        return True

    def may_arrive(self) -> bool:
        """Return whether a callback may still arrive from the background or from outside the cloud."""
        queues = list(self.queues())
        return not queues or any(queue.delivery != "driven" for queue in queues)

    def queues(self) -> Iterator[Queue]:
        handles = self._context.handles
        return (cast("Queue", handle) for handle in handles if handle.service == "queue")


def deadline_after(timeout: float) -> float:
    """Return the time of ``monotonic()`` at which a wait ends; raise for an invalid timeout."""
    number(0).read("timeout", timeout)
    # Limit the timeout, because a longer timeout overflows in the threading module.
    return monotonic() + float(min(timeout, threading.TIMEOUT_MAX / 2))


def _next_due_us(queues: list[Queue]) -> int | None:
    dues = [queue._engine.next_due_us() for queue in queues if queue._engine.pending]
    return min((one for one in dues if one is not None), default=None)
