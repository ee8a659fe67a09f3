"""Fake time of explored code: the cloud's clock, which Python's sleeps and clocks follow."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
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
_WAITING_FOR_CALLERS = frozenset({"concurrent", "multiprocessing", "queue", "sched", "threading"})
"""Packages of the standard library that measure the timeouts of their callers."""
_MEASURING_REQUESTS = frozenset({"httpcore", "httpx", "redis", "requests", "urllib3"})
"""Packages that read a clock for each request, and do nothing that depends on it."""
_LOCKS = frozenset({"redis.asyncio.lock", "redis.lock"})
"""Modules of these packages whose behaviour depends on the clock."""


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


@contextmanager
def time_follows(world: World, *, clocks: bool) -> Iterator[None]:
    """Make sleeps of explored code pass fake time within the block, and optionally ``clocks`` show it.

    The clocks continue from the real time at the start of the block. Infrastructure and other
    threads keep reading the real ones.
    """
    policy = _ExploredTime(world)
    everywhere = Everywhere(keeps_originals)
    try:
        everywhere.add([*sleeps_of(policy), *(clocks_of(policy) if clocks else ())])
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
