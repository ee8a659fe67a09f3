"""Access frequencies of keys: the logarithmic counters that OBJECT FREQ returns.

As on a real server, keys have counters only under an LFU eviction policy. A new key's counter
starts at 5. An access increments the counter with a probability that falls as the counter grows.
For every ``lfu-decay-time`` minutes without an access, the counter decreases by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.ids import RandomStream
    from ..table.config import Config

_FIRST = 5
_MOST = 255
_MINUTE_MS = 60_000

Counters = dict[bytes, tuple[int, int]]
"""The counter of each key, and the minute since the Unix epoch in which the key was last accessed."""


class Frequencies:
    """The access counters of one database's keys."""

    __slots__ = ("_config", "_counters", "_random")

    def __init__(self, config: Config, random: RandomStream) -> None:
        self._config = config
        self._random = random
        self._counters: Counters = {}

    def note(self, key: bytes, now_ms: int) -> None:
        counter = self.of(key, now_ms)
        if counter < _MOST:
            base = max(0, counter - _FIRST) * self._config.number("lfu-log-factor")
            counter += self._random.random() < 1 / (base + 1)
        self.put(key, counter, now_ms)

    def of(self, key: bytes, now_ms: int) -> int:
        """Return a key's counter after applying the decay up to the current time."""
        counter, minute = self._counters.get(key, (_FIRST, now_ms // _MINUTE_MS))
        decay = self._config.number("lfu-decay-time")
        idle = (now_ms // _MINUTE_MS - minute) // decay if decay else 0
        return max(0, counter - idle)

    def put(self, key: bytes, counter: int, now_ms: int) -> None:
        self._counters[key] = (counter, now_ms // _MINUTE_MS)

    def forget(self, key: bytes) -> None:
        self._counters.pop(key, None)

    def clear(self) -> None:
        self._counters.clear()

    def snapshot(self) -> Counters:
        return dict(self._counters)

    def restore(self, saved: Counters) -> None:
        self._counters = dict(saved)
