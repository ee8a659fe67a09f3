"""Awaitable versions of blocking calls. asyncio is not loaded in programs that use only trio."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..timeparse import Duration, Instant
from ..timers import Fired
from ..wording import unknown_name

if TYPE_CHECKING:
    from ..timekeeper import Target, Timekeeper

P = ParamSpec("P")
T = TypeVar("T")


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


async def drive(
    clock: Timekeeper,
    target: Target,
    *,
    yielding: bool = False,
    done: Callable[[], bool] = lambda: False,
) -> list[Fired]:
    """Awaitable ``Timekeeper._fire()``, which awaits deliveries in the running event loop."""
    # Yield first, so that a caller that repeats this call in a loop can be cancelled.
    await checkpoint()
    fired = []
    with closing(clock._steps(target, yielding=yielding)) as steps:
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


class AioClock:
    """Awaitable versions of the methods that move the clock, for handlers in the event loop."""

    def __init__(self, clock: Timekeeper) -> None:
        self._clock = clock

    async def advance(self, duration: Duration) -> list[Fired]:
        """Awaitable ``Clock.advance()``."""
        __tracebackhide__ = True
        with self._clock._drive():
            return await drive(self._clock, self._clock._after(duration))

    async def move_to(self, instant: Instant) -> list[Fired]:
        """Awaitable ``Clock.move_to()``."""
        __tracebackhide__ = True
        with self._clock._drive():
            return await drive(self._clock, self._clock._until(instant))

    async def advance_to_next(self) -> list[Fired]:
        """Awaitable ``Clock.advance_to_next()``."""
        __tracebackhide__ = True
        target = self._clock._onward()
        if target is None:
            return []
        with self._clock._drive():
            return await drive(self._clock, target)


class Twin:
    """Awaitable versions of the named methods of an object, each run in a worker thread."""

    def __init__(self, target: object, names: Iterable[str]) -> None:
        self._target = target
        self._names = frozenset(names)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            # copy() and pickle look up special methods before ``_names`` is set.
            raise AttributeError(name)
        if name not in self._names:
            noun = f"method of {type(self._target).__name__}.aio"
            raise AttributeError(unknown_name(noun, name, sorted(self._names)))
        method = getattr(self._target, name)

        @functools.wraps(method)
        async def twin(*args: Any, **kwargs: Any) -> Any:
            return await in_thread(method, *args, **kwargs)

        return twin

    def __dir__(self) -> list[str]:
        return sorted(self._names)
