"""The time of explored code: its clocks show the fake time, and its sleeps let that pass."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import Any, Literal

from ...core.exits import Exits
from ...process.clocks import (
    RealClock,
    clocks_of,
    is_infrastructure_module,
    keeps_originals,
    module_of,
    sleeps_of,
)
from ...process.process_time import ProcessTime
from ...process.replace import Everywhere, Function, swap
from .world import World

_WAITING_FOR_CALLERS = frozenset({"concurrent", "multiprocessing", "queue", "sched", "threading"})
"""Packages of the standard library that measure the timeouts of their callers."""
_MEASURING_REQUESTS = frozenset({
    "httpcore", "httpcore2", "httpx", "httpx2", "redis", "requests", "urllib3",
})  # fmt: skip
"""Packages that read a clock for each request, and do nothing that depends on it."""
_LOCKS = frozenset({"redis.asyncio.lock", "redis.lock"})
"""Modules of these packages whose behaviour depends on the clock."""


def stop_time(world: World, exits: Exits) -> None:
    clock = world.fakes.clock
    if clock.mode == "running":
        exits.callback(clock.resume)
    clock.freeze()
    swap(exits, clock, "wait_cap", 0)
    swap(exits, clock, "wait", partial(world.waits.wait_in_command, clock.wait))


def steer_process(world: World, exits: Exits, follows_clock: bool | None) -> None:
    """Make the process's time follow the clock, unless the caller or the system forbids it."""
    if follows_clock is None:
        follows_clock = importlib.util.find_spec("time_machine") is not None
    if follows_clock and not world.fakes.clock.anchored:
        world.fakes.process_time = ProcessTime(world.fakes.clock)
        world.fakes.process_time.on_read = world.note_clock_read
        exits.callback(world.fakes.process_time.stop)
        world.fakes.process_time.start()


def let_time_follow(world: World, exits: Exits, *, clocks: bool) -> dict[int, Function]:
    """Make sleeps of explored code pass fake time, and optionally ``clocks`` show it; return what
    replaces each function, by the ID of the original.
    """
    policy = _ExploredTime(world)
    everywhere = Everywhere(keeps_originals)
    exits.callback(everywhere.restore)
    pairs = [*sleeps_of(policy), *(clocks_of(policy) if clocks else ())]
    functions = {id(original): ours for original, ours in pairs}
    # Clear it first, because ``restore()`` searches all modules if anything holds a replacement.
    exits.callback(functions.clear)
    everywhere.add(pairs)
    return functions


class _ExploredTime:
    """The policy of explored code and checks. For threads without the fake time, the clocks are real
    (``Role.has_fake_time``), and so are sleeps unless the thread works for a strand.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def sleep(self, seconds: float, really: Callable[[float], None], caller: FrameType) -> None:
        is_span = isinstance(seconds, int | float) and seconds >= 0
        if not is_span or not self._world.waits.sleep(seconds):
            really(seconds)

    async def sleep_in_asyncio(
        self, delay: float, result: Any, really: Callable[..., Awaitable[Any]], caller: FrameType
    ) -> Any:
        library = self._world.async_library()
        is_passed = library is not None and await library.sleep(delay)
        return await really(0 if is_passed else delay, result)

    def read(self, clock: RealClock, caller: FrameType) -> Any:
        world, use = self._world, _use_of_clocks(module_of(caller))
        if use == "real" or not world.current_thread.role().has_fake_time:
            return clock.read()
        if use == "noted":
            world.note_clock_read()
        elapsed_us = world.fakes.elapsed_us()
        return clock.started + (elapsed_us / 1e6 if clock.per_second == 1 else elapsed_us * 1000)


@functools.lru_cache(maxsize=4096)
def _use_of_clocks(module: str) -> Literal["real", "fake", "noted"]:
    """Return which time a module reads; ``noted`` is fake time on which its steps depend."""
    package = module.partition(".")[0]
    if is_infrastructure_module(package) and package not in _WAITING_FOR_CALLERS:
        return "real"
    return "fake" if package in _MEASURING_REQUESTS and module not in _LOCKS else "noted"
