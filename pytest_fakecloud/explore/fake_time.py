"""Fake time of explored code: the cloud's clock, which Python's sleeps and clocks follow."""

from __future__ import annotations

import asyncio
import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from ..process_time.wall import is_infrastructure_module
from .footprint import Touch, touch_of_key
from .simulation.sockets import OwnLoop

if TYPE_CHECKING:
    from ..core.timekeeper import Timekeeper
    from ..handle import Handle
    from .world import World

MOST_TIMERS = 1_000
"""Maximum number of timers, or of pending stream entries of one group, that are inspected."""
_CLAIMS = frozenset((b"XAUTOCLAIM", b"XCLAIM", b"XPENDING"))
"""Commands whose fourth argument is a minimum idle time; for XPENDING, only after ``IDLE``."""
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
_Replacement: TypeAlias = tuple[str, Callable[..., Any], Callable[..., Any]]
"""The name of a function, the function, and the function that replaces it."""


class FakeTime:
    """Moves a cloud's clock, and finds the times at which the state of its fakes changes."""

    def __init__(self, clock: Timekeeper, handles: Sequence[Handle]) -> None:
        self._clock = clock
        self._handles = handles
        self._idle_times: set[tuple[str, int, bytes, bytes, int]] = set()

    def forget(self) -> None:
        self._idle_times.clear()

    def note_idle_time(self, fake: str, database: int, argv: list[bytes]) -> None:
        """Record the idle time after which a command claims or lists pending stream entries."""
        name = argv[0].upper()
        if name not in _CLAIMS or len(argv) <= 4 or not argv[4].isdigit():
            return
        if name != b"XPENDING" or argv[3].upper() == b"IDLE":
            self._idle_times.add((fake, database, argv[1], argv[2], int(argv[4])))

    def move_to(self, instant_us: int) -> bool:
        """Move the clock, fire the engines' own timers on the way, and return whether any fired."""
        target = max(instant_us, self._clock.now_us())
        return bool(self._clock.fire(lambda: target, ("state",)))

    def known_instants(self, most: int) -> list[int]:
        """Return the next times of timers, deliveries, the ends of TTLs and of idle times."""
        now = self._clock.now_us()
        _, timers = self._clock.timers.planned(most + 8)
        found = {timer.due_us for timer in timers}
        found.update(at_ms * 1000 for _, _, at_ms in self._ends_of_keys())
        found.update(at_ms * 1000 for at_ms in self._ends_of_idle_times())
        return sorted(at for at in found if at > now)[:most]

    def _ends_of_keys(self) -> Iterator[tuple[str, tuple[int, bytes], int]]:
        """Yield the keys that expire or have fields that expire, with the time in milliseconds."""
        for handle in self._handles:
            for keyspace in getattr(handle._engine, "databases", ()):
                if keyspace.expires or keyspace.volatile:
                    for key, at_ms in [*keyspace.expires.items(), *keyspace.volatile.items()]:
                        yield handle.name, (keyspace.index, key), at_ms

    def _ends_of_idle_times(self) -> Iterator[int]:
        """Yield the times at which pending stream entries become claimable, in milliseconds."""
        for fake, database, key, group, idle_ms in self._idle_times:
            engine: Any = next(h._engine for h in self._handles if h.name == fake)
            stream = engine.databases[database].values.get(key)
            found = getattr(stream, "groups", {}).get(group)
            if found is not None:
                for _, pending in itertools.islice(found.pending.items(), MOST_TIMERS):
                    yield pending.delivered_ms + idle_ms

    def ends_until(self, until_us: int) -> Iterable[Touch]:
        """Yield the accesses to keys that expire, or have fields that expire, by a given time."""
        for fake, (database, key), at_ms in self._ends_of_keys():
            if at_ms * 1000 <= until_us:
                yield touch_of_key(fake, database, key, True)

    def fires_until(self, until_us: int) -> bool:
        _, timers = self._clock.timers.planned(MOST_TIMERS)
        return any(timer.lane == "state" and timer.due_us <= until_us for timer in timers)


def clocks_follow(world: World) -> AbstractContextManager[None]:
    """Make ``time.monotonic()``, ``time.perf_counter()`` and their ``_ns`` variants follow the fake
    time of explored code within the block.

    They continue from the real time at the start of the block. The replacements also apply to
    modules that imported the functions by name, but not to infrastructure or in other threads.
    """
    replacements = [
        (name, getattr(time, name), _following(world, getattr(time, name), per_second))
        for name, per_second in _PER_SECOND.items()
    ]
    return _replaced(
        replacements, leaves_out=lambda name: name != "time" and is_infrastructure_module(name)
    )


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


def sleeps_follow(world: World) -> AbstractContextManager[None]:
    """Make ``time.sleep()`` and ``asyncio.sleep()`` pass fake time within the block.

    The replacement also applies to modules that imported the functions by name. When the block
    ends, the originals are restored everywhere.
    """
    real, real_async = time.sleep, asyncio.sleep

    def sleep(seconds: float, /) -> None:
        if isinstance(seconds, int | float) and seconds >= 0 and world.sleep(seconds):
            return
        real(seconds)

    async def sleep_async(delay: float, result: Any = None) -> Any:
        if isinstance(asyncio.get_running_loop(), OwnLoop) or not world.pass_time(delay):
            return await real_async(delay, result)
        return await real_async(0, result)

    return _replaced([("sleep", real, sleep), ("sleep", real_async, sleep_async)])


@contextmanager
def _replaced(
    replacements: Sequence[_Replacement], *, leaves_out: Callable[[str], bool] = lambda name: False
) -> Iterator[None]:
    """Replace functions within the block, also in modules that imported them by name.

    ``leaves_out`` is called with the name of a module and returns whether the module keeps the
    originals. When the block ends, the originals are restored everywhere, also in modules that were
    imported or removed from ``sys.modules`` within the block.
    """
    modules = dict(sys.modules)
    _exchange((module for name, module in modules.items() if not leaves_out(name)), replacements)
    try:
        yield
    finally:
        back = [(name, ours, original) for name, original, ours in replacements]
        _exchange([*modules.values(), *sys.modules.values()], back)


def _exchange(modules: Iterable[object], replacements: Sequence[_Replacement]) -> None:
    for module in modules:
        names = getattr(module, "__dict__", {})
        for name, original, ours in replacements:
            if names.get(name) is original:
                names[name] = ours
