"""The clock of a cloud as tests use it, and awaitable versions of blocking calls.

asyncio is not loaded in programs that use only trio.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from .timekeeper import Mode, Target, Timekeeper
from .timers import Duration, Fired, Instant, to_datetime

P = ParamSpec("P")
T = TypeVar("T")


class Clock:
    """The time that all fakes of a cloud share.

    A *running* clock is the process's ``time.time()`` plus an offset, so it follows tools that
    change the process's time. A *frozen* clock moves only when the test moves it. Moving it
    triggers every event that is due on the way, in order and each at its own due time, including
    events that are planned on the way.

    The clock ends with the year 9999, as datetimes do (decided here): a running clock stops there,
    a move beyond it raises an error, and later events never happen.
    """

    __slots__ = ("_timekeeper",)

    def __init__(self, timekeeper: Timekeeper) -> None:
        self._timekeeper = timekeeper

    @property
    def mode(self) -> Mode:
        """``"running"`` or ``"frozen"``."""
        return self._timekeeper.mode

    def now(self) -> datetime:
        """Return the current time as an aware UTC datetime."""
        return self._timekeeper.now()

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the Unix epoch."""
        return self._timekeeper.now_ms()

    def now_us(self) -> int:
        """Return the current time in microseconds since the Unix epoch."""
        return self._timekeeper.now_us()

    def next_due(self) -> datetime | None:
        """Return the time at which the next event is due, or None if nothing is planned."""
        due = self._timekeeper.next_due_us()
        return None if due is None else to_datetime(due)

    def freeze(self) -> None:
        """Stop the clock at its current time."""
        self._timekeeper.freeze()

    def resume(self) -> None:
        """Let the clock run from its current time; ``ContractError`` with ``process_time=True``."""
        self._timekeeper.resume()

    def advance(self, duration: Duration) -> list[Fired]:
        """Move the clock forward by a duration; return what happened on the way.

        If another move is in progress (this call comes from a handler or a second thread), both
        calls raise ``ContractError``.
        """
        __tracebackhide__ = True
        return self._timekeeper.advance(duration)

    def move_to(self, instant: Instant) -> list[Fired]:
        """Move the clock forward to a time, which must not be past; return what happened."""
        __tracebackhide__ = True
        return self._timekeeper.move_to(instant)

    def advance_to_next(self) -> list[Fired]:
        """Move the clock to the next event and return what happened; ``[]`` if none is planned."""
        __tracebackhide__ = True
        return self._timekeeper.advance_to_next()

    @property
    def aio(self) -> AioClock:
        """Awaitable versions of the methods that move the clock, for asyncio and trio."""
        return AioClock(self._timekeeper)

    def __repr__(self) -> str:
        return f"<Clock {self.mode} {self.now().isoformat()}>"


class AioClock:
    """Awaitable versions of the methods that move the clock, for handlers in the event loop."""

    def __init__(self, clock: Timekeeper) -> None:
        self._clock = clock

    async def advance(self, duration: Duration) -> list[Fired]:
        """Awaitable ``Clock.advance()``."""
        __tracebackhide__ = True
        with self._clock.drive():
            return await drive(self._clock, self._clock.target_after(duration))

    async def move_to(self, instant: Instant) -> list[Fired]:
        """Awaitable ``Clock.move_to()``."""
        __tracebackhide__ = True
        with self._clock.drive():
            return await drive(self._clock, self._clock.target_at(instant))

    async def advance_to_next(self) -> list[Fired]:
        """Awaitable ``Clock.advance_to_next()``."""
        __tracebackhide__ = True
        target = self._clock.next_target()
        if target is None:
            return []
        with self._clock.drive():
            return await drive(self._clock, target)


async def drive(
    clock: Timekeeper,
    target: Target,
    *,
    yielding: bool = False,
    done: Callable[[], bool] = lambda: False,
) -> list[Fired]:
    """Awaitable ``Timekeeper.fire()``, which awaits deliveries in the running event loop."""
    # Yield first, so that a caller that repeats this call in a loop can be cancelled.
    await checkpoint()
    fired = []
    with closing(clock.steps(target, yielding=yielding)) as steps:
        for timer in steps:
            at_us = clock.now_us()
            if timer.async_callback is not None:
                result = await timer.async_callback(timer.due_us)
            else:
                result = timer.callback(timer.due_us)
            fired.append(Fired(at_us, timer.label, result))
            if done():
                break
    return fired


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call in a worker thread of the running event loop (asyncio or trio)."""
    call = functools.partial(function, *args, **kwargs)
    if (trio := _running_trio()) is not None:
        result: T = await trio.to_thread.run_sync(call)
        return result
    import asyncio

    return await asyncio.to_thread(call)


async def checkpoint() -> None:
    """Yield to the other tasks of the running event loop; a cancellation is raised here."""
    if (trio := _running_trio()) is not None:
        await trio.lowlevel.checkpoint()
    else:
        import asyncio

        await asyncio.sleep(0)


def _running_trio() -> Any:
    """Return the module ``trio`` if its event loop runs this task, else None."""
    trio = sys.modules.get("trio")
    if trio is not None:
        with suppress(RuntimeError):
            trio.lowlevel.current_task()
            return trio
    return None
