"""Deliver messages, or wait for their deliveries, until a callback has arrived.

If none arrives, the error of the wait has lines about callbacks at the other URL and about messages.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.concurrency.aio import drive, in_thread
from ...core.concurrency.turns import Occupied
from ...core.errors import ContractError
from ...core.matching import Query
from ...core.settings import number
from ...core.timeparse import monotonic, to_datetime
from ...core.wording import counted
from ...handle import Context
from ..delivery.drivers import at_least_now
from ..model import DAY
from ..timeline import dead_letter_lines, unfinished_lines

if TYPE_CHECKING:
    from .callbacks import Captured
    from .handle import CallbackCapture


LONGEST_DRIVE_US = 30 * DAY
"""Maximum time by which a wait for a callback moves the clock."""
_NAP = 0.02
"""Real seconds between checks while background deliveries are in progress."""
_TOLD = 5
"""Maximum number of messages of each queue that the error of a failed wait lists."""


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
    def _driving(self) -> Iterator[list[Any]]:
        """Yield the queues that this call delivers, and close their idle connections afterwards."""
        queues = [queue for queue in self.queues() if queue.delivery == "driven"]
        for queue in queues:
            queue._engine.drive += 1
        try:
            yield queues
        finally:
            for queue in queues:
                queue._sender.release()

    def _due_times(
        self, queues: list[Any], done: Callable[[], bool], deadline: float
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


def deadline_after(timeout: object) -> float:
    number(0).read("timeout", timeout)
    # Limit the timeout, because a longer timeout overflows in the threading module.
    return monotonic() + float(min(timeout, threading.TIMEOUT_MAX / 2))  # type: ignore[call-overload]


def _next_due_us(queues: list[Any]) -> int | None:
    """Return the next time at which a pending message of these queues changes, or None."""
    dues = [queue._engine.next_due_us() for queue in queues if queue._engine.pending]
    return min((one for one in dues if one is not None), default=None)


def unfinished(capture: CallbackCapture) -> list[str]:
    """Return lines about the unfinished and dead-lettered messages of the cloud's queues."""
    lines: list[str] = []
    for queue in capture._waiter.queues():
        lines += [*unfinished_lines(queue._engine), *dead_letter_lines(queue._engine)]
    more = len(lines) - _TOLD
    return lines[:_TOLD] + ([f"and {more} more"] if more > 0 else [])


def account(capture: CallbackCapture, captured: Captured, asked: Query, missing: bool) -> list[str]:
    """Return lines about callbacks that arrived at either URL, and about the state of the
    messages.

    ``missing`` is True if too few callbacks arrived. The lines then also list messages and
    schedules that may still produce callbacks.
    """
    lines: list[str] = []
    if captured and not asked.given.keys() - {"callback"}:
        lines.append("  body of the last callback:")
        text = json.dumps(captured[-1].raw, indent=2, ensure_ascii=False)
        lines += [f"    {line}" for line in text.splitlines()]
    other = capture.failures if captured is capture.callbacks else capture.callbacks
    if other:
        lines.append(f"  {counted(len(other), other._kind)} arrived at {other.url} instead:")
        lines += [f"    {item!r}" for item in other[-3:]]
    lines += _message_lines(capture, captured)
    return lines + (_pending_lines(capture) if missing else [])


def _message_lines(capture: CallbackCapture, captured: Captured) -> list[str]:
    lines: list[str] = []
    for queue in capture._waiter.queues():
        messages = list(queue.messages())
        # Prefer messages that concern this URL, then the newest, but list them as published.
        ranked = sorted(enumerate(messages), key=lambda one: (captured._concerns(one[1]), one[0]))
        for _, message in sorted(ranked[-_TOLD:], key=lambda one: one[0]):
            lines += [f"  {line}" for line in str(message.timeline).splitlines()]
        if len(messages) > _TOLD:
            lines.append(f"  and {counted(len(messages) - _TOLD, 'more message')} of {queue.name}")
    return lines or ["  no message was published to a queue of this cloud"]


def _pending_lines(capture: CallbackCapture) -> list[str]:
    if capture.closed:
        return [f"  {capture.name} is closed and cannot receive callbacks any more"]
    due = capture.clock.next_due()
    if not capture._waiter.may_arrive() and due is None:
        return ["  nothing is left to deliver, so no further callback can arrive"]
    now_us = capture._time.now_us()
    return [text for queue in capture._waiter.queues() for text in _later_lines(queue, now_us)]


def _later_lines(queue: Any, now_us: int) -> Iterator[str]:
    due = queue._engine.next_due_us() if queue._engine.pending else None
    if due is not None and due > now_us + LONGEST_DRIVE_US:
        yield (
            f"  the next message is due at {to_datetime(due).isoformat()}, more than 30 days ahead:"
            " move the clock with clock.advance()"
        )
    elif due is not None:
        yield (
            f"  {counted(len(queue._engine.pending), 'message')} still to be delivered, the next at "
            f"{to_datetime(due).isoformat()}: run the queue, or pass a longer timeout="
        )
    for schedule in queue.schedules():
        if not schedule.paused and (runs := schedule.next_runs(1)):
            yield (
                f"  the schedule {schedule.id} to {schedule.destination} is due at "
                f"{runs[0].isoformat()}; waiting does not run schedules: move the clock with"
                " clock.advance()"
            )
