"""Use of a server: limits on the size of data, eviction, statistics and the slow log.

The ``maxmemory`` limit: eviction of keys, or rejection of commands that need memory.

Memory use is the sum of MEMORY USAGE over all keys, plus 1 KB for the server (decided here: a fake's
overhead differs from a server's). In a database of up to 500 keys, an eviction compares all keys. In a
larger one, it compares 500 random keys or, if only keys with a TTL may be evicted, the 500 whose TTLs
were set first. A real server compares samples of ``maxmemory-samples`` keys. The vendor's own policy,
``optimistic-volatile``, evicts random keys with a TTL, and then other random keys.

LFU uses the logarithmic counters that OBJECT FREQ returns. As on a real server, keys have counters
only under an LFU policy. A new key's counter starts at 5. An access increments the counter with a
probability that falls as the counter grows. For every ``lfu-decay-time`` minutes without an access,
the counter decreases by one.

The vendor's size limits for keys, records and the whole database.

Sizes count only the contents (decided here): the bytes of keys, values, fields, members and items,
plus eight bytes for each score or stream ID. The server's overhead is not counted. A command is
rejected before it runs if the data in its arguments, added to the stored data, would exceed a
limit. A command that derives its result from other keys (``SUNIONSTORE``) counts as adding nothing,
and RESTORE as adding the bytes of its serialized value. A word that equals an option of its command
counts as that option.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from ...core.ids import RandomStream
from .. import errors
from ..errors import CommandError, CountedError
from ..settings import KVConfig
from ..table.config import OPTIMISTIC, Config
from ..table.registry import CommandSpec, KeySpec
from ..table.syntax import try_int
from ..values.sizes import ENTRY, content_size, usage
from .keyspace import Keyspace
from .session import Session

_COMPARED = 500
"""Maximum number of keys of a database that are compared before a key is evicted."""
STARTUP = 1024
"""Memory used by a server without data, in bytes."""


class _Sums:
    """The sizes of the keys of one database, and their sums."""

    def __init__(self) -> None:
        self.memory = 0
        self.content = 0
        self._sizes: dict[bytes, tuple[int, int]] = {}

    def update(self, db: Keyspace) -> None:
        if db.resized is None:
            db.resized = {*db.values, *self._sizes}
        while db.resized:
            key = db.resized.pop()
            memory, content = self._sizes.pop(key, (0, 0))
            self.memory -= memory
            self.content -= content
            value = db.values.get(key)
            if value is not None:
                memory, content = usage(key, value), len(key) + content_size(value)
                self._sizes[key] = memory, content
                self.memory += memory
                self.content += content


class Sizes:
    """The memory and the contents of all keys.

    The first request adds up the sizes of all keys. From then on, databases record which keys
    change (``Keyspace.resized``), and a request looks at these keys only. ``start`` makes the
    databases record changes.
    """

    def __init__(self, databases: Sequence[Keyspace], start: Callable[[], None]) -> None:
        self._databases = databases
        self._start = start
        self._sums = [_Sums() for _ in databases]
        self.requested = False

    def _update(self, db: Keyspace) -> _Sums:
        if not self.requested:
            self.requested = True
            self._start()
        sums = self._sums[db.index]
        sums.update(db)
        return sums

    def used_memory(self) -> int:
        """Return the memory used by the server and its keys, values and expiry times, in bytes."""
        return STARTUP + sum(
            self._update(db).memory + ENTRY * len(db.expires) for db in self._databases
        )

    def of_content(self, db: Keyspace) -> int:
        """Return the bytes of the keys and values of a database."""
        return self._update(db).content


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


class Capacity:
    """Checks commands against the size limits of a database."""

    def __init__(self, limits: KVConfig, sizes: Sizes) -> None:
        self._limits = limits
        self._sizes = sizes
        self._keys_only = limits.max_record_size is None and limits.max_data_size is None
        self._longest_key = sys.maxsize if limits.max_key_size is None else limits.max_key_size

    def check(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` if a write command would exceed a limit."""
        if self._keys_only:
            # Fast path: if the longest word is within the limit for keys, so is every key.
            longest = len(argv[spec.only_key]) if spec.only_key else max(map(len, argv))
            if longest <= self._longest_key:
                return
        keys = [(at, key) for at, key in spec.key_positions(argv) if key.writes]
        for at, _ in keys:
            if len(argv[at]) > self._longest_key:
                raise CommandError(errors.max_key_size(self._longest_key, len(argv[at])))
        if self._keys_only or "denyoom" not in spec.flags:
            return
        session.db.purge()
        added = []
        for at, key in keys:
            replaces = "OW" in key.flags or spec.effects.value_at > 0
            added.append(_Addition(argv[at], _added_bytes(spec, argv, at, key), replaces))
        self._check_records(spec, added, session.db.values)
        self._check_total(added, session.db)

    def _check_records(
        self, spec: CommandSpec, added: list[_Addition], stored: dict[bytes, Any]
    ) -> None:
        limit = self._limits.max_record_size
        if limit is None:
            return
        for name, size, replaces in added:
            size_before = 0 if replaces or name not in stored else content_size(stored[name])
            # A command with an offset overwrites bytes, or extends the string up to its last byte.
            size_after = max(size_before, size) if spec.name in _SIZE_AT else size_before + size
            if size_after > limit:
                raise CommandError(errors.MAX_RECORD_SIZE)

    def _check_total(self, added: list[_Addition], db: Keyspace) -> None:
        limit = self._limits.max_data_size
        if limit is None:
            return
        # Data that the command replaces counts, too (see the module's docstring).
        total = self._sizes.of_content(db)
        total += sum(map(len, {each.name for each in added if each.name not in db.values}))
        if total + sum(each.size for each in added) > limit:
            raise CommandError(errors.MAX_DATA_SIZE)


class _Addition(NamedTuple):
    """The bytes that a command stores under a key, and whether they replace the key's value."""

    name: bytes
    size: int
    replaces: bool


_SIZE_AT: dict[str, Callable[[list[bytes]], int]] = {
    "SETRANGE": lambda argv: max(0, try_int(argv[2]) or 0) + len(argv[3]),
    "SETBIT": lambda argv: max(0, try_int(argv[2]) or 0) // 8 + 1,
}
"""Commands with an offset, and the function that returns the size of the string that they need."""


def _added_bytes(spec: CommandSpec, argv: list[bytes], at: int, key: KeySpec) -> int:
    """Return the size in bytes of the data that a line stores under the key at position ``at``."""
    if len(spec.keys) > 1:
        return 0  # The command derives its result from other keys.
    if value_at := spec.effects.value_at:
        return len(argv[value_at])
    if spec.name in _SIZE_AT:
        return _SIZE_AT[spec.name](argv)
    if key.step > 1:
        # In MSET and its relatives, each key is followed by its own data.
        return sum(map(len, argv[at + 1 : at + key.step]))
    names = {place for place, _ in spec.key_positions(argv)}
    return sum(
        len(word)
        for place, word in enumerate(argv)
        if place >= spec.arguments.start
        and place not in names
        and word.upper() not in spec.option_words
    )


_LATENCY_SAMPLES = 160
"""Maximum number of samples that are kept of a latency event, as on a real server."""
_SLOW_LOG_WORDS = 32
"""Maximum number of words of a line in the slow log."""
_SLOW_LOG_BYTES = 128
"""Maximum number of bytes of each word of a line in the slow log."""


@dataclass(eq=False, slots=True)
class CommandCount:
    """The statistics of a command.

    ``calls_by_bits[n]`` is the number of calls whose duration in microseconds has ``n`` bits.
    """

    calls: int = 0
    usec: int = 0
    rejected: int = 0
    failed: int = 0
    calls_by_bits: list[int] = field(default_factory=lambda: [0] * 65)

    @property
    def buckets(self) -> dict[int, int]:
        """Number of calls by microseconds, rounded down to a power of two, but at least 1."""
        found: dict[int, int] = {}
        for bits, calls in enumerate(self.calls_by_bits):
            if calls:
                bucket = 1 << max(bits - 1, 0)
                found[bucket] = found.get(bucket, 0) + calls
        return found


class SlowCommand(NamedTuple):
    """An entry of the slow log."""

    id: int
    at_us: int
    usec: int
    argv: list[bytes]
    address: str
    name: bytes


class Statistics:
    """Statistics since the server's start or the last CONFIG RESETSTAT."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.slow: deque[SlowCommand] = deque()
        self.latency: dict[str, list[tuple[int, int]]] = {}
        """Samples of each latency event: a time in seconds and a duration in milliseconds."""
        self._next_slow = 0
        self.commands: defaultdict[CommandSpec, CommandCount] = defaultdict(CommandCount)
        self.errors: dict[str, int] = {}
        self.freed_lazily = 0
        """Number of keys removed by flushes with ASYNC."""

    def reset(self) -> None:
        """Reset the counts of commands and errors, but neither the slow log nor the latency events."""
        self.commands.clear()
        self.errors.clear()
        self.freed_lazily = 0

    def count_failure(self, spec: CommandSpec, error: CommandError) -> None:
        self.commands[spec].failed += 1
        self._count_error(error)

    def count_rejection(self, spec: CommandSpec | None, error: CommandError) -> None:
        """Count a command that was rejected; ``spec`` is None for an unknown command."""
        if spec is not None:
            self.commands[spec].rejected += 1
        self._count_error(error)

    def _count_error(self, error: CommandError) -> None:
        """Count an error by its first word, unless the error was counted where it was first raised."""
        if isinstance(error, CountedError):
            return
        word = error.text.split(b" ", 1)[0].decode("utf-8", "replace")
        self.errors[word] = self.errors.get(word, 0) + 1

    def record_duration(
        self, session: Session, spec: CommandSpec, argv: list[bytes], at_us: int, usec: int
    ) -> None:
        count = self.commands[spec]
        count.usec += usec
        count.calls_by_bits[usec.bit_length()] += 1
        if usec >= self._config.slow_threshold_us:
            self.note_slow(session, spec, argv, at_us, usec)

    def note_slow(
        self, session: Session, spec: CommandSpec, argv: list[bytes], at_us: int, usec: int
    ) -> None:
        """Add a command to the slow log and the latency events if it reaches their thresholds."""
        threshold = self._config.number("slowlog-log-slower-than")
        if 0 <= threshold <= usec and "skip_slowlog" not in spec.flags:
            self._add_slow(session, argv, at_us, usec)
        threshold_ms = self._config.number("latency-monitor-threshold")
        if threshold_ms and usec >= threshold_ms * 1000:
            event = "fast-command" if "fast" in spec.flags else "command"
            samples = self.latency.setdefault(event, [])
            samples.append((at_us // 1_000_000, usec // 1000))
            del samples[:-_LATENCY_SAMPLES]

    def _add_slow(self, session: Session, argv: list[bytes], at_us: int, usec: int) -> None:
        shown = []
        for word in without_secrets(argv[:_SLOW_LOG_WORDS]):
            if (more := len(word) - _SLOW_LOG_BYTES) > 0:
                word = word[:_SLOW_LOG_BYTES] + b"... (%d more bytes)" % more
            shown.append(word)
        if len(argv) > _SLOW_LOG_WORDS:
            # The last word that fits is replaced by the number of words left out.
            shown[-1] = b"... (%d more arguments)" % (len(argv) - _SLOW_LOG_WORDS + 1)
        entry = SlowCommand(self._next_slow, at_us, usec, shown, session.address, session.name)
        self._next_slow += 1
        self.slow.appendleft(entry)
        while len(self.slow) > self._config.number("slowlog-max-len"):
            self.slow.pop()


# -- MONITOR ---------------------------------------------------------------------------------------

_REDACTED = b"(redacted)"
_ESCAPES = {byte: b"\\%c" % sign for byte, sign in zip(b'\\"\n\r\t\a\b', b'\\"nrtab', strict=True)}


def monitor_line(at_us: int, session: Session, argv: list[bytes]) -> bytes:
    """Format a command as ``seconds.micros [db address] "WORD" "word"``."""
    seconds, microseconds = divmod(at_us, 1_000_000)
    words = b" ".join(map(quoted, without_secrets(argv)))
    where = b"lua" if session.in_script else session.address.encode() or b"127.0.0.1:0"
    return b"%d.%06d [%d %b] %b" % (seconds, microseconds, session.db.index, where, words)


def without_secrets(argv: list[bytes]) -> list[bytes]:
    """Return a command line with the secrets of logins, users, parameters and MIGRATE redacted."""
    find = _SECRETS.get(argv[0].upper())
    if find is None:
        return argv
    secret = find([word.upper() for word in argv])
    return [_REDACTED if at in secret else word for at, word in enumerate(argv)]


def _of_hello(words: list[bytes]) -> range:
    at = words.index(b"AUTH", 2) if b"AUTH" in words[2:] else len(words)
    return range(at + 1, at + 3)


def _of_migrate(words: list[bytes]) -> range:
    for word, count in ((b"AUTH", 1), (b"AUTH2", 2)):
        if word in words[6:]:
            at = words.index(word, 6)
            return range(at + 1, at + 1 + count)
    return range(0)


def _of_config(words: list[bytes]) -> list[int]:
    names = range(2, len(words), 2) if words[1:2] == [b"SET"] else ()
    return [at + 1 for at in names if words[at] in _SECRET_PARAMETERS]


_SECRET_PARAMETERS = frozenset({b"MASTERAUTH", b"MASTERUSER", b"REQUIREPASS"})
_SECRETS: dict[bytes, Callable[[list[bytes]], Collection[int]]] = {
    b"AUTH": lambda words: range(1, len(words)),
    b"HELLO": _of_hello,
    b"ACL": lambda words: range(2, len(words) if words[1:2] == [b"SETUSER"] else 2),
    b"CONFIG": _of_config,
    b"MIGRATE": _of_migrate,
}
"""For each command, a function that returns the positions of secrets in its upper-case words."""


def quoted(argument: bytes) -> bytes:
    """Quote an argument as MONITOR does, with unprintable bytes escaped."""
    parts = [
        _ESCAPES.get(byte) or (bytes([byte]) if 32 <= byte < 127 else b"\\x%02x" % byte)
        for byte in argument
    ]
    return b'"' + b"".join(parts) + b'"'
