"""Functions that sleep and read clocks in fake time, each made from the function that it replaces.

Sleeps of infrastructure (see ``callers``) and impossible times take real time. So does every call
after the sleepers have ended, because other code may still have a replacement.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..core.timeparse import LAST_US
from .callers import is_infrastructure, sleeps_really, times_out_really
from .loops import AsyncioLoop, TrioRun, TrioTimeouts
from .moving import LONGEST, SHORTEST, sleep_in, watch
from .sleepers import Sleepers

MOMENT = 1e-6
"""Seconds by which ``time.sleep(0)`` advances the clock."""
_REPLACES = "_fakecloud_replaces"


def original_of(function: Any) -> Any:
    """Return the function that a replacement replaces; return any other function unchanged."""
    return getattr(function, _REPLACES, function)


def replacement_of(original: Any, make: Callable[[Sleepers, Any], Any], sleepers: Sleepers) -> Any:
    """Return a replacement of a function that ``original_of()`` recognizes."""
    made = functools.wraps(original)(make(sleepers, original))
    setattr(made, _REPLACES, original)
    return made


def _takes_real_time(sleepers: Sleepers, seconds: object) -> bool:
    """Return whether a sleep must take real time.

    This is so for a time that is zero, infinite or invalid, for a sleep that ends after the year
    9999, and for every sleep after the sleepers have ended.
    """
    return (
        sleepers.over
        or not isinstance(seconds, int | float)
        or not 0 < seconds < math.inf
        or sleepers.clock.now_us() + seconds * 1e6 >= LAST_US
    )


def _marked(function: Any) -> Any:
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    return function


# -- time ------------------------------------------------------------------------------------------


def _sleep(sleepers: Sleepers, really: Callable[[float], None]) -> Callable[[float], None]:
    def sleep(seconds: float, /) -> None:
        # Let sleep(0) take a moment too, because a loop around it expects time to pass.
        span = MOMENT if seconds == 0 else seconds
        if _takes_real_time(sleepers, span) or sleeps_really(sys._getframe(1)):
            really(seconds)
        else:
            sleepers.sleep(span, really)

    return sleep


def _clock(
    sleepers: Sleepers, really: Callable[[], Any], per_us: float = 1e-6
) -> Callable[[], Any]:
    """Replace a clock that counts ``per_us`` units in a microsecond."""

    def read() -> Any:
        if sleepers.over or is_infrastructure(sys._getframe(1)):
            return really()
        return really() + sleepers.ahead_us * per_us

    return read


# -- asyncio ---------------------------------------------------------------------------------------


def _asyncio_sleep(sleepers: Sleepers, really: Any) -> Any:
    async def sleep_in_fake_time(delay: float, result: Any = None) -> Any:
        await sleep_in(AsyncioLoop.running(sleepers, really), sleepers, delay)
        return result

    def sleep(delay: float, result: Any = None) -> Any:
        if _takes_real_time(sleepers, delay) or sleeps_really(sys._getframe(1)):
            return really(delay, result)
        return sleep_in_fake_time(delay, result)

    return _marked(sleep)


def asyncio_call_at(sleepers: Sleepers, really: Any) -> Any:
    """Replace ``BaseEventLoop.call_at()``, so that the clock may move to timeouts of the code."""
    asyncio_sleep = original_of(asyncio.sleep)

    def call_at(loop: Any, when: float, *args: Any, **kwargs: Any) -> Any:
        handle = really(loop, when, *args, **kwargs)
        if (
            not sleepers.over
            and SHORTEST < when - loop.time() < LONGEST
            # Since Python 3.12, asyncio limits the time for ending its worker threads, which is real.
            and not loop._executor_shutdown_called
            and asyncio._get_running_loop() is loop
            and not times_out_really(sys._getframe(1))
        ):
            running = AsyncioLoop.running(sleepers, asyncio_sleep)
            running.add_timeout(handle)
            watch(running, sleepers)
        return handle

    return call_at


# -- trio ------------------------------------------------------------------------------------------


async def _sleep_in_trio(sleepers: Sleepers, trio_sleep: Any, seconds: float) -> None:
    await sleep_in(TrioRun.running(sleepers, trio_sleep), sleepers, seconds)


def _trio_sleep(sleepers: Sleepers, really: Any) -> Any:
    def sleep(seconds: float) -> Any:
        if _takes_real_time(sleepers, seconds) or sleeps_really(sys._getframe(1)):
            return really(seconds)
        return _sleep_in_trio(sleepers, really, seconds)

    return _marked(sleep)


def _trio_sleep_until(sleepers: Sleepers, really: Any) -> Any:
    trio_sleep = original_of(sys.modules["trio"].sleep)

    async def sleep_until_fake_time(deadline: float) -> None:
        seconds = deadline - sys.modules["trio"].current_time()
        is_real = _takes_real_time(sleepers, seconds)
        await (really(deadline) if is_real else _sleep_in_trio(sleepers, trio_sleep, seconds))

    def sleep_until(deadline: float) -> Any:
        if sleeps_really(sys._getframe(1)):
            return really(deadline)
        return sleep_until_fake_time(deadline)

    return _marked(sleep_until)


def _trio_run(sleepers: Sleepers, really: Any) -> Any:
    trio_sleep = original_of(sys.modules["trio"].sleep)

    def run(*args: Any, instruments: Sequence[Any] = (), **kwargs: Any) -> Any:
        if not sleepers.over:
            instruments = (*instruments, TrioTimeouts(sleepers, trio_sleep))
        return really(*args, instruments=instruments, **kwargs)

    return run


REPLACEMENTS: Mapping[str, Mapping[str, Callable[[Sleepers, Any], Any]]] = {
    "time": {
        "sleep": _sleep,
        "monotonic": _clock,
        "monotonic_ns": partial(_clock, per_us=1000),
        "perf_counter": _clock,
        "perf_counter_ns": partial(_clock, per_us=1000),
    },
    "asyncio": {"sleep": _asyncio_sleep},
    "trio": {"sleep": _trio_sleep, "sleep_until": _trio_sleep_until, "run": _trio_run},
}
"""For each function to replace, by module and name, a function that makes its replacement."""
