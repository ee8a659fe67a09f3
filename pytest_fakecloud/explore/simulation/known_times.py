"""The times that a trial knows: of timers, of the ends of TTLs and idle times, and in requests."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from ...core.touches import Touch
from ...kv.touches import touch_of_key
from ..fakes.fakes import Fakes

MOST_TIMERS = 1_000
"""Maximum number of timers, or of pending stream entries of one group, that are inspected."""
_MOST_AHEAD_US = 86_400 * 1_000_000
"""Microseconds from now until which a number in a request counts as a time."""


class KnownTimes:
    """The times of timers, of ends of TTLs and idle times, and those that requests contained."""

    def __init__(self, fakes: Fakes) -> None:
        self._fakes = fakes
        self._idle_times: set[tuple[Any, bytes, bytes, int]] = set()
        self._data: set[int] = set()
        """The times that requests contained, in microseconds; each was in the future then."""

    def note_data(self, times_us: Iterable[int]) -> None:
        """Record the times in the next day that a request contains: due times, leases, windows."""
        for at_us in times_us:
            if 0 < at_us - self._fakes.now_us() <= _MOST_AHEAD_US:
                self._data.add(at_us)

    def next_in_data(self, now: int) -> int | None:
        """Return the next time that a request contained, or None."""
        return min((at for at in self._data if at > now), default=None)

    def note_idle_time(self, keyspace: Any, claims: tuple[bytes, bytes, int]) -> None:
        """Record the idle time after which a command claims or lists pending stream entries."""
        self._idle_times.add((keyspace, *claims))

    def upcoming(self, now: int, most: int) -> list[int]:
        """Return the next times of timers, deliveries, the ends of TTLs and of idle times."""
        ends_ms: set[int] = set()
        if self._idle_times:
            ends_ms.update(self._ends_of_idle_times())
        for keyspace in self._fakes.keyspaces.values():
            ends_ms.update(keyspace.expires.values(), keyspace.volatile.values())
        ends = sorted(ends_ms)
        next_end = bisect_right(ends, now // 1000)
        times = self._fakes.clock.due_times()
        # Every point of a trial comes here, and there may be thousands of keys.
        for at_ms in ends[next_end : next_end + most]:
            times.add(at_ms * 1000)
        ordered = sorted(times)
        first = bisect_right(ordered, now)
        return ordered[first : first + most]

    def _ends_of_idle_times(self) -> Iterator[int]:
        """Yield the times at which pending stream entries become claimable, in milliseconds."""
        for keyspace, key, group, idle_ms in self._idle_times:
            consumer_group = getattr(keyspace.values.get(key), "groups", {}).get(group)
            if consumer_group is not None:
                for _, pending in itertools.islice(consumer_group.pending.items(), MOST_TIMERS):
                    yield pending.delivered_ms + idle_ms

    def ends_until(self, until_us: int) -> Iterator[Touch]:
        """Yield the accesses to keys that expire, or have fields that expire, by a given time."""
        for (fake, _), keyspace in self._fakes.keyspaces.items():
            for key, at_ms in [*keyspace.expires.items(), *keyspace.volatile.items()]:
                if at_ms * 1000 <= until_us:
                    yield touch_of_key(fake, keyspace.index, key, True)
