"""Deliver messages, or wait for their deliveries, until a callback has arrived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...core.concurrency.aio import drive, in_thread
from ...core.concurrency.turns import Occupied
from ...core.errors import ContractError
from ...core.settings import number
from ...core.timeparse import monotonic
from ...handle import Context
from ..delivery.drivers import at_least_now
from ..model import DAY

LONGEST_DRIVE_US = 30 * DAY
_NAP = 0.02
"""Real seconds between checks while background deliveries are in progress."""


class Waiting:
    """Waits for callbacks of the queues in one cloud. ``came`` is notified of each callback."""

    def __init__(self, context: Context) -> None:
        self.came = context.clock.signal()
        self._context = context
        self._time = context.clock

    def until(self, done: Callable[[], bool], timeout: float) -> bool:
        """Deliver the messages of this cloud's queues, or wait for them, until a condition is true.

        Returns False if nothing is left to deliver, or after ``timeout`` real seconds.
        """
        __tracebackhide__ = True
        give_up = give_up_at(timeout)
        for target in self._targets(done, give_up):
            self._time._fire(target, done=done)
        return self._wait(done, give_up) if self.may_arrive() else done()

    async def auntil(self, done: Callable[[], bool], timeout: float) -> bool:
        """Awaitable version of ``until()``, which awaits deliveries in the running loop."""
        __tracebackhide__ = True
        give_up = give_up_at(timeout)
        for target in self._targets(done, give_up):
            await drive(self._time, target, done=done)
        if not self.may_arrive():
            return done()
        left = threading.Event()
        try:
            return await in_thread(self._wait, done, give_up, left)
        finally:
            # Stop the thread. Otherwise it would keep waiting after its task was cancelled.
            left.set()
            self.came.notify()

    def _targets(self, done: Callable[[], bool], give_up: float) -> Iterator[Callable[[], int]]:
        """Yield the next due times until nothing pending can produce a callback."""
        limit = self._time.now_us() + LONGEST_DRIVE_US
        driven = [queue for queue in self.queues() if queue.delivery == "driven"]
        for queue in driven:
            queue._engine.drive += 1
        try:
            if driven and not done() and self._time.driving:
                # If a handler waits for a later callback, raise the same error as for any nested
                # advance.
                yield self._time.now_us
            while driven and not done() and monotonic() < give_up:
                due = _next_due_us(driven)
                if due is None or due > limit:
                    return
                yield partial(at_least_now, self._time, due)
        finally:
            for queue in driven:
                queue._sender.release()

    def _wait(
        self, done: Callable[[], bool], give_up: float, left: threading.Event | None = None
    ) -> bool:
        """Wait for background deliveries, and move the clock if none is due yet."""
        limit = self._time.now_us() + LONGEST_DRIVE_US
        background = [queue for queue in self.queues() if queue.delivery != "driven"]
        while True:
            seen = self.came.version
            patience = give_up - monotonic()
            if done():
                return True
            if patience <= 0 or self.came.closed or (left is not None and left.is_set()):
                return False
            due = _next_due_us(background)
            if (
                due is None
                or not self._time.now_us() < due <= limit
                or not self._jump(due, patience)
            ):
                # Poll, because nothing signals the end of an attempt or a newly published message.
                self.came.sleep(seen, min(patience, _NAP) if background else patience)

    def _jump(self, due_us: int, patience: float) -> bool:
        """Move the clock to the time of the next background delivery; return False while it is
        busy.

        Raises ``ContractError`` if the clock cannot be moved and real time will not reach that time
        soon enough.
        """
        try:
            # Fire internal timers only, because deliveries are made by their own threads.
            at_least = partial(at_least_now, self._time, due_us)
            self._time._fire(at_least, ("state",), yielding=True)
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

    def queues(self) -> Iterator[Any]:
        return (handle for handle in self._context.handles if handle.service == "queue")


def give_up_at(timeout: object) -> float:
    number(0).read("timeout", timeout)
    # Limit the timeout, because a longer timeout overflows in the threading module.
    return monotonic() + float(min(timeout, threading.TIMEOUT_MAX / 2))  # type: ignore[call-overload]


def _next_due_us(queues: list[Any]) -> int | None:
    """Return the next time at which a pending message of these queues changes, or None."""
    dues = [queue._engine.next_due_us() for queue in queues if queue._engine.pending]
    return min((one for one in dues if one is not None), default=None)
