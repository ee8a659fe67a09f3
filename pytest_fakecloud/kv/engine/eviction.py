"""The ``maxmemory`` limit: eviction of keys, or rejection of commands that need memory.

Memory use is the sum of MEMORY USAGE over all keys, plus 1 KB for the server (decided here: a fake's
overhead differs from a server's). In a database of up to 500 keys, an eviction compares all keys. In a
larger one, it compares 500 random keys or, if only keys with a TTL may be evicted, the 500 whose TTLs
were set first. A real server compares samples of ``maxmemory-samples`` keys. The vendor's own policy,
``optimistic-volatile``, evicts random keys with a TTL, and then other random keys.

LFU uses the logarithmic counters that OBJECT FREQ returns. As on a real server, keys have counters
only under an LFU policy. A new key's counter starts at 5. An access increments the counter with a
probability that falls as the counter grows. For every ``lfu-decay-time`` minutes without an access,
the counter decreases by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from ...core.ids import RandomStream
from ..table.config import OPTIMISTIC, Config
from ..values.sizes import ENTRY, usage
from .keyspace import Keyspace
from .sizes import Sizes

_COMPARED = 500
"""Maximum number of keys of a database that are compared before a key is evicted."""


class Eviction:
    """Keeps a server within its memory limit; ``limit`` is in bytes, or 0 for no limit."""

    def __init__(
        self, databases: Sequence[Keyspace], sizes: Sizes, config: Config, random: RandomStream
    ) -> None:
        self._databases = databases
        self._sizes = sizes
        self._config = config
        self._random = random
        self.limit = 0
        self.evicted = 0
        """Number of keys evicted so far."""

    def follow_config(self) -> None:
        self.limit = self._config.number("maxmemory")

    def make_room(self, now_ms: int) -> bool:
        """Evict keys as far as the policy allows; return whether the data fits into the limit."""
        for db in self._databases:
            db.now_ms = now_ms
            db.purge()
        left = self._sizes.used_memory() - self.limit
        if left <= 0:
            return True
        if self._config.text("maxmemory-policy") == "noeviction":
            return False
        while candidates := self._candidates():
            for db, key in candidates:
                left -= usage(key, db.values[key]) + (ENTRY if key in db.expires else 0)
                db.delete(key, "evicted")
                self.evicted += 1
                if left <= 0:
                    return True
        return False

    def _candidates(self) -> list[tuple[Keyspace, bytes]]:
        """Return keys to evict, in this order, before others are compared."""
        policy = self._config.text("maxmemory-policy")
        share, _, order = policy.partition("-")
        if policy == OPTIMISTIC:
            has_ttls = any(db.expires for db in self._databases)
            share, order = "volatile" if has_ttls else "allkeys", "random"
        found: list[tuple[Keyspace, bytes]] = []
        for db in self._databases:
            keys: Iterable[bytes]
            if share == "volatile":
                keys = islice(db.expires, _COMPARED)
            else:
                keys = db.draw_keys(self._random, _COMPARED)
            found += ((db, key) for key in keys)
        if order == "random":
            self._random.shuffle(found)
        else:
            found.sort(key=lambda each: self._rank(each[0], each[1], order))
        # Of a sample, only the first tenth is likely to be among the first of all keys.
        return found if len(found) < _COMPARED else found[: _COMPARED // 10]

    def _rank(self, db: Keyspace, key: bytes, order: str) -> int:
        if order == "ttl":
            return db.expires[key]
        if order == "lfu" and db.frequencies is not None:
            return db.frequencies.of(key, db.now_ms)
        return db.accessed.get(key, 0)


# -- access counters -------------------------------------------------------------------------------

_FIRST_COUNTER = 5
_MAX_COUNTER = 255
_MINUTE_MS = 60_000

Counters = dict[bytes, tuple[int, int]]
"""The counter of each key, and the minute since the Unix epoch in which the key was last accessed."""


class Frequencies(Counters):
    """The access counters of one database's keys."""

    def __init__(self, config: Config, random: RandomStream) -> None:
        super().__init__()
        self._config = config
        self._random = random

    def note(self, key: bytes, now_ms: int) -> None:
        counter = self.of(key, now_ms)
        if counter < _MAX_COUNTER:
            base = max(0, counter - _FIRST_COUNTER) * self._config.number("lfu-log-factor")
            counter += self._random.random() < 1 / (base + 1)
        self.put(key, counter, now_ms)

    def of(self, key: bytes, now_ms: int) -> int:
        """Return a key's counter after applying the decay up to the current time."""
        counter, minute = self.get(key, (_FIRST_COUNTER, now_ms // _MINUTE_MS))
        decay = self._config.number("lfu-decay-time")
        idle = (now_ms // _MINUTE_MS - minute) // decay if decay else 0
        return max(0, counter - idle)

    def put(self, key: bytes, counter: int, now_ms: int) -> None:
        self[key] = (counter, now_ms // _MINUTE_MS)
