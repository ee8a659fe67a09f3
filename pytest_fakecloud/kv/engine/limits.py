"""Limits on data: ``maxmemory`` with eviction, the limit of every fake, and the vendor's limits.

Memory use is the sum of MEMORY USAGE over all keys, plus 1 KB for the server (decided here: a fake's
overhead differs from a server's). In a database of up to 500 keys, an eviction compares all keys. In a
larger one, it compares 500 random keys or, if only keys with a TTL may be evicted, the 500 whose TTLs
were set first. A real server compares samples of ``maxmemory-samples`` keys. The vendor's own policy,
``optimistic-volatile``, evicts random keys with a TTL, and then other random keys.

LFU uses the access counters of ``keyspace.Frequencies``. From Redis 8.6 on, LRM evicts the keys that
were not modified for the longest time. Decided here: a key is modified by whatever ends a WATCH of it,
so also by EXPIRE, and when the policy is set, the last access of a key counts as its modification.

The data that clients store never takes more than ``MOST_MEMORY`` and one request, whatever
``maxmemory`` is (decided here). A command that would exceed that fails with the error of a server that
has reached ``maxmemory``.

The vendor limits the sizes of keys, of records and of the whole database. Sizes count only the
contents (decided here): the bytes of keys, values, fields, members and items, plus eight bytes for
each score or stream ID. The server's overhead is not counted. A command is rejected before it runs
if the data in its arguments, added to the stored data, would exceed a limit. A command that derives
its result from other keys (``SUNIONSTORE``) counts as adding nothing, and RESTORE as adding the
bytes of its serialized value. A word that equals an option of its command counts as that option.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from ...core.ids import RandomStream
from .. import errors
from ..config import OPTIMISTIC, Config
from ..errors import CommandError
from ..model import Interface
from ..settings import KVConfig
from ..syntax import try_int
from ..table.keys import KeySpec
from ..table.registry import CommandSpec
from ..values.measures import ENTRY, content_size, usage
from .keyspace import Keyspace

_COMPARED = 500
"""Maximum number of keys of a database that are compared before a key is evicted."""
STARTUP = 1024
"""Memory used by a server without data, in bytes."""
LONGEST_WAIT_SECONDS = 2.0
"""Maximum number of seconds that a command of one client may delay others (decided here)."""


class Sizes:
    """The sizes of all keys. After the first request, only keys in ``resized`` are measured."""

    def __init__(self, databases: Sequence[Keyspace]) -> None:
        self._databases = databases
        self._sizes: list[dict[bytes, tuple[int, int]]] = [{} for _ in databases]
        self._sums = [(0, 0)] * len(databases)
        """The memory and the contents of the keys measured so far, by database."""

    def used_memory(self) -> int:
        """Return the memory used by the server and its keys, values and expiry times, in bytes."""
        return STARTUP + sum(
            self.measure(db)[0] + ENTRY * len(db.expires) for db in self._databases
        )

    def measure(self, db: Keyspace) -> tuple[int, int]:
        """Return the memory and the bytes of content of the keys and values of a database."""
        sizes, (memory, content) = self._sizes[db.index], self._sums[db.index]
        if db.resized is None:
            db.resized = {*db.values, *sizes}
        while db.resized:
            key = db.resized.pop()
            previous = sizes.pop(key, (0, 0))
            memory, content = memory - previous[0], content - previous[1]
            value = db.values.get(key)
            if value is not None:
                sizes[key] = size = usage(key, value), len(key) + content_size(value)
                memory, content = memory + size[0], content + size[1]
        self._sums[db.index] = memory, content
        return memory, content


MOST_MEMORY = 2**30
"""Maximum number of bytes of a fake's data. The longest string takes half of it."""
_OVERHEAD = 4
"""Bytes of memory to expect for each byte of a command's arguments, until all keys are measured."""
_DERIVED = 3
"""Maximum ratio of the memory of derived data and its sources: members of a set become scored."""


class Memory:
    """Keeps a server within ``limit`` by eviction, and all data within ``MOST_MEMORY``.

    ``limit`` is in bytes, or 0 for no limit. ``left`` is the number of bytes that clients may add
    before all keys are measured, because the data might exceed ``MOST_MEMORY`` then.
    """

    def __init__(self, databases: Sequence[Keyspace], config: Config, random: RandomStream) -> None:
        self._databases = databases
        self._config = config
        self._random = random
        self.limit = 0
        self.evicted = 0
        self.left = 0

    def make_room(self, sizes: Sizes) -> bool:
        """Evict keys as far as the policy allows; return whether the data fits into the limit."""
        for db in self._databases:
            db.purge()
        excess = sizes.used_memory() - self.limit
        if excess <= 0:
            return True
        if self._config.text("maxmemory-policy") == "noeviction":
            return False
        while candidates := self._candidates():
            for db, key in candidates:
                excess -= usage(key, db.values[key]) + (ENTRY if key in db.expires else 0)
                db.delete(key, "evicted")
                self.evicted += 1
                if excess <= 0:
                    return True
        return False

    def _candidates(self) -> list[tuple[Keyspace, bytes]]:
        """Return keys to evict, in this order, before others are compared."""
        policy = self._config.text("maxmemory-policy")
        share, _, order = policy.partition("-")
        if policy == OPTIMISTIC:
            has_ttls = any(db.expires for db in self._databases)
            share, order = "volatile" if has_ttls else "allkeys", "random"
        candidates: list[tuple[Keyspace, bytes]] = []
        for db in self._databases:
            keys: Iterable[bytes]
            if share == "volatile":
                keys = islice(db.expires, _COMPARED)
            else:
                keys = db.draw_keys(self._random, _COMPARED)
            candidates += ((db, key) for key in keys)
        if order == "random":
            self._random.shuffle(candidates)
        else:
            candidates.sort(key=lambda candidate: _rank(candidate[0], candidate[1], order))
        # Of a sample, only the first tenth is likely to be among the first of all keys.
        return candidates if len(candidates) < _COMPARED else candidates[: _COMPARED // 10]

    def check(self, db: Keyspace, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise OOM if what a client's command stores might exceed the limit: its arguments, and data
        derived from other keys.
        """
        size = _OVERHEAD * sum(map(len, line))
        if spec.has_sources:
            values = db.values
            sources = {line[at] for at, key in spec.key_positions(line) if not key.writes}
            size += _DERIVED * sum(usage(key, values[key]) for key in sources if key in values)
        self._take(size)

    def reserve(self, interface: Interface, size: int) -> None:
        """Raise OOM if a client's command would exceed the limit with ``size`` more bytes."""
        if interface != "local":
            self._take(size)

    def _take(self, size: int) -> None:
        self.left -= size
        if self.left < 0 and not self.has_room(size):
            raise CommandError(errors.OOM)

    def has_room(self, size: int = 0) -> bool:
        """Measure all keys; return whether ``size`` more bytes are within the limit."""
        used = sum(usage(key, value) for db in self._databases for key, value in db.values.items())
        self.left = MOST_MEMORY - used - size
        return self.left >= 0


def _rank(db: Keyspace, key: bytes, order: str) -> int:
    if order == "ttl":
        return db.expires[key]
    if order == "lfu" and db.frequencies is not None:
        return db.frequencies.of(key, db.now_ms)
    if order == "lrm" and db.modified is not None:
        return db.modified.get(key, 0)
    return db.accessed.get(key, 0)


class Capacity:
    """Checks commands against the size limits of a database."""

    def __init__(self, limits: KVConfig, sizes: Sizes | None) -> None:
        self._limits = limits
        self._sizes = sizes
        """The sizes of all keys; None without a limit on their sum."""
        self._keys_only = limits.max_record_size is None and limits.max_data_size is None
        self._longest_key = sys.maxsize if limits.max_key_size is None else limits.max_key_size

    def check(self, db: Keyspace, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise ``CommandError`` if a write command would exceed a limit."""
        if self._keys_only and max(map(len, line)) <= self._longest_key:
            return  # Every key is within the limit, and there are no other limits.
        keys = [(at, key) for at, key in spec.key_positions(line) if key.writes]
        for at, _ in keys:
            if len(line[at]) > self._longest_key:
                raise CommandError(errors.max_key_size(self._longest_key, len(line[at])))
        if self._keys_only or "denyoom" not in spec.flags:
            return
        db.purge()
        stored, limit = db.values, self._limits.max_record_size
        added = 0
        for at, key in keys:
            name, size = line[at], _added_bytes(spec, line, at, key)
            added += size
            if limit is None:
                continue
            replaces = "OW" in key.flags or spec.value_at > 0
            before = 0 if replaces or name not in stored else content_size(stored[name])
            # A command with an offset overwrites bytes, or extends the string up to its last byte.
            actual = max(before, size) if spec.name in _SIZE_AT else before + size
            if actual > limit:
                raise CommandError(errors.max_record_size(limit, actual))
        limit = self._limits.max_data_size
        if limit is not None and self._sizes is not None:
            # Data that the command replaces counts, too (see the module's docstring).
            new_names = {line[at] for at, _ in keys if line[at] not in stored}
            _, content = self._sizes.measure(db)
            usage_after = content + sum(map(len, new_names)) + added
            if usage_after > limit:
                raise CommandError(errors.max_data_size(limit, usage_after))


_SIZE_AT: dict[str, Callable[[list[bytes]], int]] = {
    "SETRANGE": lambda line: max(0, try_int(line[2]) or 0) + len(line[3]),
    "SETBIT": lambda line: max(0, try_int(line[2]) or 0) // 8 + 1,
}
"""Commands with an offset, and the function that returns the size of the string that they need."""


def _added_bytes(spec: CommandSpec, line: list[bytes], at: int, key: KeySpec) -> int:
    """Return the size in bytes of the data that a line stores under the key at position ``at``."""
    if len(spec.keys) > 1:
        return 0  # The command derives its result from other keys.
    if value_at := spec.value_at:
        return len(line[value_at])
    if spec.name in _SIZE_AT:
        return _SIZE_AT[spec.name](line)
    if key.step > 1:
        # In MSET and its relatives, each key is followed by its own data.
        return sum(map(len, line[at + 1 : at + key.step]))
    names = {place for place, _ in spec.key_positions(line)}
    return sum(
        len(word)
        for place, word in enumerate(line)
        if place >= spec.argument_words.start
        and place not in names
        and word.upper() not in spec.option_words
    )
