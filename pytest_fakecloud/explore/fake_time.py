"""Fake time of explored code: Python's sleeps and clocks follow the cloud's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..outside.clocks import (
    RealClock,
    clocks_of,
    is_infrastructure_module,
    keeps_originals,
    module_of,
    sleeps_of,
)
from ..outside.replace import Everywhere
from .simulation.sockets import OwnLoop

if TYPE_CHECKING:
    from .world import World

_WAITING_FOR_CALLERS = frozenset({"concurrent", "multiprocessing", "queue", "sched", "threading"})
"""Packages of the standard library that measure the timeouts of their callers."""
_MEASURING_REQUESTS = frozenset({"httpcore", "httpx", "redis", "requests", "urllib3"})
"""Packages that read a clock for each request, and do nothing that depends on it."""
_LOCKS = frozenset({"redis.asyncio.lock", "redis.lock"})
"""Modules of these packages whose behaviour depends on the clock."""


@contextmanager
def time_follows(world: World, *, clocks: bool) -> Iterator[None]:
    """Make sleeps of explored code pass fake time in the block, and optionally ``clocks`` show it."""
    policy = _ExploredTime(world)
    everywhere = Everywhere(keeps_originals)
    pairs = [*sleeps_of(policy), *(clocks_of(policy) if clocks else ())]
    world.functions = {id(original): ours for original, ours in pairs}
    try:
        everywhere.add(pairs)
        yield
    finally:
        everywhere.restore()


class _ExploredTime:
    """The policy of explored code. A thread that is not explored has real time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def sleep(self, seconds: float, really: Callable[[float], None], caller: FrameType) -> None:
        is_span = isinstance(seconds, int | float) and seconds >= 0
        if not is_span or not self._world.sleep(seconds):
            really(seconds)

    async def sleep_in_asyncio(
        self, delay: float, result: Any, really: Callable[..., Awaitable[Any]], caller: FrameType
    ) -> Any:
        is_own = isinstance(asyncio.get_running_loop(), OwnLoop)
        is_passed = not is_own and self._world.pass_time(delay)
        return await really(0 if is_passed else delay, result)

    def read(self, clock: RealClock, caller: FrameType) -> Any:
        world = self._world
        if not world.shows_fake_time():
            return clock.read()
        module = module_of(caller)
        package = module.partition(".")[0]
        if is_infrastructure_module(package) and package not in _WAITING_FOR_CALLERS:
            return clock.read()
        if package not in _MEASURING_REQUESTS or module in _LOCKS:
            world.note_clock_read()
        elapsed_us = world.elapsed_us()
        return clock.started + (elapsed_us / 1e6 if clock.per_second == 1 else elapsed_us * 1000)
