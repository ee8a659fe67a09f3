"""Awaitable twins of calls that wait or drive, for asyncio and trio alike.

asyncio is imported in functions: who has a running loop has it, and others need not wait for it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any, ParamSpec, Protocol, TypeVar

from .timekeeper import Fired, Timekeeper
from .timeparse import Duration, Instant
from .timers import Timer

P = ParamSpec("P")
T = TypeVar("T")


class Steps(Protocol):
    """What moves time as far as ``drive()`` goes: one timer at a time."""

    def now_us(self) -> int:
        """The present instant in microseconds since the epoch."""

    def steps(self, target: Callable[[], int]) -> Generator[Timer, None, None]:
        """The timers that fall due on the way to an instant, each at its own."""


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call in a worker thread of whichever loop is running."""
    call = functools.partial(function, *args, **kwargs)
    trio = sys.modules.get("trio")
    if trio is not None and _in_trio(trio):
        result: T = await trio.to_thread.run_sync(call)
        return result
    import asyncio

    return await asyncio.to_thread(call)


async def checkpoint() -> None:
    """Let the other tasks of whichever loop is running have their turn; cancellation comes here."""
    trio = sys.modules.get("trio")
    if trio is not None and _in_trio(trio):
        await trio.lowlevel.checkpoint()
    else:
        import asyncio

        await asyncio.sleep(0)


def _in_trio(trio: Any) -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


async def drive(
    clock: Steps,
    target: Callable[[], int],
    *,
    done: Callable[[], bool] = lambda: False,
) -> list[Fired]:
    """Fire what falls due on the way to an instant; deliveries are awaited in the running loop.

    Stops after what makes ``done`` hold.
    """
    # A loop of these calls lets other tasks, and its own cancellation, in.
    await checkpoint()
    fired = []
    steps = clock.steps(target)
    try:
        for timer in steps:
            at_us = clock.now_us()
            if timer.async_callback is not None:
                result = await timer.async_callback(timer.due_us)
            else:
                result = timer.callback(timer.due_us)
            fired.append(Fired(at_us, timer.label, result))
            if done():
                break
    finally:
        steps.close()
    return fired


class AioClock:
    """The clock's driving calls, awaitable: handlers that need the running loop get it."""

    def __init__(self, time: Timekeeper) -> None:
        self._time = time

    async def advance(self, duration: Duration) -> list[Fired]:
        """``Clock.advance``, awaitable."""
        return await drive(self._time, self._time.after(duration))

    async def move_to(self, instant: Instant) -> list[Fired]:
        """``Clock.move_to``, awaitable."""
        return await drive(self._time, self._time.until(instant))

    async def advance_to_next(self) -> list[Fired]:
        """``Clock.advance_to_next``, awaitable."""
        target = self._time.onward()
        return [] if target is None else await drive(self._time, target)

    async def run_due(self) -> list[Fired]:
        """``Clock.run_due``, awaitable."""
        return await drive(self._time, self._time.now_us)


class Twin:
    """Awaitable twins of an object's methods, each run in a worker thread.

    ``names`` are the methods that have a twin. For calls that wait but need no event loop of the
    caller's.
    """

    def __init__(self, target: object, names: Iterable[str]) -> None:
        self._target = target
        self._names = frozenset(names)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._names:
            raise AttributeError(
                f"{type(self._target).__name__} has no awaitable {name!r}; "
                f"it has: {', '.join(sorted(self._names))}"
            )
        method = getattr(self._target, name)

        @functools.wraps(method)
        async def twin(*args: Any, **kwargs: Any) -> Any:
            result = await in_thread(method, *args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return twin

    def __dir__(self) -> list[str]:
        return sorted(self._names)
