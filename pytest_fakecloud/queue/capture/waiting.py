"""Deliver messages, or wait for their deliveries, until a callback has arrived.

A driven queue delivers only while a test runs it, so the wait runs it and moves the clock, for as
long as a message can still produce a callback. A queue that delivers in the background has its own
threads, so the wait only sleeps until they are done, or until a real-time limit.
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


class Patience:
    """The real time that a wait may spend on background deliveries, in seconds.

    It starts when the wait first sleeps, because deliveries that the wait makes itself may take any
    time. Raises ``ContractError`` for an invalid timeout.
    """

    def __init__(self, timeout: float) -> None:
        number(0).read("timeout", timeout)
        # Limit the timeout, because a longer timeout overflows in the threading module.
        self._seconds = float(min(timeout, threading.TIMEOUT_MAX / 2))
        self._end: float | None = None

    def left(self) -> float:
        if self._end is None:
            self._end = monotonic() + self._seconds
        return self._end - monotonic()


class CallbackWaiter:
    """Waits for callbacks of the queues in one cloud. ``arrival`` is notified of each callback."""

    def __init__(self, context: Context) -> None:
        self.arrival = context.clock.signal()
        self._context = context
        self._time = context.clock

    def until(self, done: Callable[[], bool], patience: Patience) -> bool:
        """Deliver the messages of this cloud's queues, or wait for them, until a condition is true.

        Returns False if nothing is left to deliver. If a queue delivers in the background or outside
        the cloud, also returns False when the patience ends.
        """
        __tracebackhide__ = True
        with self._driving() as queues:
            for target in self._due_times(queues, done):
                self._time._fire(target, done=done)
        return self._wait(done, patience) if self.may_arrive() else done()

    async def auntil(self, done: Callable[[], bool], patience: Patience) -> bool:
        """Awaitable version of ``until()``, which awaits deliveries in the running loop."""
        __tracebackhide__ = True
        with self._driving() as queues:
            for target in self._due_times(queues, done):
                await drive(self._time, target, done=done)
        if not self.may_arrive():
            return done()
        cancelled = threading.Event()
        try:
            return await in_thread(self._wait, done, patience, cancelled)
        finally:
            # Stop the thread. Otherwise it would keep waiting after its task was cancelled.
            cancelled.set()
            self.arrival.notify()

    @contextmanager
    def _driving(self) -> Iterator[list[Queue]]:
        """Yield the queues that this call delivers, and close their idle connections afterwards."""
        queues = [queue for queue in self.queues() if queue.delivery == "driven"]
        with self._time._drive():
            yield queues

    def _due_times(
        self, queues: list[Queue], done: Callable[[], bool]
    ) -> Iterator[Callable[[], int]]:
        """Yield the next due times until nothing pending can produce a callback."""
        limit = self._time.now_us() + LONGEST_DRIVE_US
        if queues and not done() and self._time.driving:
            # If a handler waits for a later callback, raise the error of any nested advance.
            yield self._time.now_us
        while queues and not done():
            due = _next_due_us(queues)
            if due is None or due > limit:
                return
            yield partial(at_least_now, self._time, due)

    def _wait(
        self, done: Callable[[], bool], patience: Patience, cancelled: threading.Event | None = None
    ) -> bool:
        """Wait for background deliveries, and move the clock if none is due yet."""
        limit = self._time.now_us() + LONGEST_DRIVE_US
        background = [queue for queue in self.queues() if queue.delivery != "driven"]
        while True:
            seen = self.arrival.version
            left = patience.left()
            if done():
                return True
            if left <= 0 or self.arrival.closed or (cancelled is not None and cancelled.is_set()):
                return False
            due, now = _next_due_us(background), self._time.now_us()
            if due is not None and now < due <= limit and self._move_clock_to(due, left):
                continue
            # Poll, because nothing signals the end of an attempt or a newly published message.
            self.arrival.sleep(seen, min(left, _NAP) if background else left)

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


def _next_due_us(queues: list[Queue]) -> int | None:
    dues = [queue._engine.next_due_us() for queue in queues if queue._engine.pending]
    return min((one for one in dues if one is not None), default=None)
