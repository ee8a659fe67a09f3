"""The fake time of an explored cloud, and the times at which something happens in its fakes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .footprint import Touch, touch_of_key

if TYPE_CHECKING:
    from ..core.timekeeper import Timekeeper
    from ..handle import Handle

MOST_TIMERS = 1_000
"""Maximum number of timers, or of pending stream entries of one group, that are inspected."""
_CLAIMS = frozenset((b"XAUTOCLAIM", b"XCLAIM", b"XPENDING"))
"""Commands that take the minimum idle time of pending stream entries."""


class FakeTime:
    """Moves a cloud's clock, and finds the times at which the state of its fakes changes."""

    def __init__(self, clock: Timekeeper, handles: Sequence[Handle]) -> None:
        self._clock = clock
        self._handles = handles
        self._idle_times: set[tuple[str, int, bytes, bytes, int]] = set()

    def forget(self) -> None:
        """Forget the idle times that commands of earlier runs waited for."""
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
        return bool(self._clock._fire(lambda: target, ("state",)))

    def known_instants(self, most: int) -> list[int]:
        """Return the next times of timers, deliveries, the ends of TTLs and of idle times."""
        now = self._clock.now_us()
        _, timers = self._clock._timers.planned(most + 8)
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
        """Return whether an engine has a timer that is due by a given time."""
        _, timers = self._clock._timers.planned(MOST_TIMERS)
        return any(timer.lane == "state" and timer.due_us <= until_us for timer in timers)
