"""Makes the monotonic clocks of explored code follow fake time."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...process_time.callers import is_infrastructure_module
from .names import Replacement, replaced

if TYPE_CHECKING:
    from ..world import World

_PER_SECOND = {
    "monotonic": 1, "perf_counter": 1, "monotonic_ns": 10**9, "perf_counter_ns": 10**9,
}  # fmt: skip
"""The replaced functions of ``time``, with the number of their units in a second."""
_WAITING_FOR_CALLERS = frozenset({"concurrent", "multiprocessing", "queue", "sched", "threading"})
"""Packages of the standard library that measure the timeouts of their callers."""
_MEASURING_REQUESTS = frozenset({"httpcore", "httpx", "redis", "requests", "urllib3"})
"""Packages that read a clock for each request, and do nothing that depends on it."""
_LOCKS = frozenset({"redis.asyncio.lock", "redis.lock"})
"""Modules of these packages whose behaviour depends on the clock."""


@contextlib.contextmanager
def clocks_follow(world: World) -> Iterator[None]:
    """Make ``time.monotonic()``, ``time.perf_counter()`` and their ``_ns`` variants follow the fake
    time of explored code within the block.

    They continue from the real time at the start of the block. The replacements also apply to
    modules that imported the functions by name. Threads that are not explored and infrastructure
    keep using real time.
    """
    replacements = [
        Replacement(name, getattr(time, name), _following(world, getattr(time, name), per_second))
        for name, per_second in _PER_SECOND.items()
    ]
    with replaced(
        replacements, leaves_out=lambda name: name != "time" and is_infrastructure_module(name)
    ):
        yield


def _following(world: World, real: Callable[[], float], per_second: int) -> Callable[[], float]:
    start = real()

    @functools.wraps(real)
    def read() -> float:
        if not world.shows_fake_time():
            return real()
        module = str(sys._getframe(1).f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if is_infrastructure_module(package) and package not in _WAITING_FOR_CALLERS:
            return real()
        if package not in _MEASURING_REQUESTS or module in _LOCKS:
            world.note_clock_read()
        elapsed_us = world.elapsed_us()
        return start + (elapsed_us / 1e6 if per_second == 1 else elapsed_us * 1000)

    return read
