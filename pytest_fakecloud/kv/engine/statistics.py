"""What a server reports: statistics, the slow log, and the lines of MONITOR."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from ..config import Config
from ..errors import CommandError, CountedError
from ..table.registry import CommandSpec
from .sessions import Session, Waiter

_SLOW_LOG_WORDS = 32
"""Maximum number of words of a line in the slow log."""
_SLOW_LOG_BYTES = 128
"""Maximum number of bytes of each word of a line in the slow log."""


class CommandCount:
    """The statistics of a command; ``calls_by_bits[n]`` counts calls whose microseconds have n bits."""

    def __init__(self) -> None:
        self.usec = self.rejected = self.failed = self.unmeasured = 0
        self.calls_by_bits = [0] * 65

    @property
    def calls(self) -> int:
        return self.unmeasured + sum(self.calls_by_bits)

    @property
    def buckets(self) -> dict[int, int]:
        """Number of calls by microseconds, rounded down to a power of two, but at least 1."""
        calls_by_usec = Counter[int]()
        for bits, calls in enumerate(self.calls_by_bits):
            if calls:
                calls_by_usec[1 << max(bits - 1, 0)] += calls
        return calls_by_usec


class SlowCommand(NamedTuple):
    """An entry of the slow log."""

    id: int
    at_us: int
    usec: int
    line: list[bytes]
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
        self.errors: Counter[str] = Counter()
        self.freed_lazily = 0
        """Number of keys removed by flushes with ASYNC."""
        self.received_connections = self.rejected_connections = 0

    def reset(self) -> None:
        """Reset the counts of commands and errors, but neither the slow log nor the latency events."""
        self.commands.clear()
        self.errors.clear()
        self.freed_lazily = 0
        self.received_connections = self.rejected_connections = 0

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
        self.errors[error.text.split(b" ", 1)[0].decode("utf-8", "replace")] += 1

    def record_wait(self, spec: CommandSpec, waiter: Waiter, usec: int) -> None:
        """Record the duration of a command that blocked, when its wait has ended."""
        self.commands[spec].unmeasured -= 1
        self.record(waiter.session, spec, waiter.line, waiter.begun_us, usec)

    def record(
        self, session: Session, spec: CommandSpec, line: list[bytes], at_us: int, usec: int
    ) -> None:
        """Record the duration of a command, also in the slow log and the latency events if it reaches
        their thresholds.
        """
        count = self.commands[spec]
        count.usec += usec
        count.calls_by_bits[usec.bit_length()] += 1
        if usec < self._config.slow_threshold_us:
            return
        threshold = self._config.number("slowlog-log-slower-than")
        if 0 <= threshold <= usec and "skip_slowlog" not in spec.flags:
            self._add_slow(session, line, at_us, usec)
        threshold_ms = self._config.number("latency-monitor-threshold")
        if threshold_ms and usec >= threshold_ms * 1000:
            event = "fast-command" if "fast" in spec.flags else "command"
            samples = self.latency.setdefault(event, [])
            samples.append((at_us // 1_000_000, usec // 1000))
            del samples[:-160]  # A real server keeps the same number.

    def _add_slow(self, session: Session, line: list[bytes], at_us: int, usec: int) -> None:
        shown = []
        for word in without_secrets(line[:_SLOW_LOG_WORDS]):
            if (more := len(word) - _SLOW_LOG_BYTES) > 0:
                word = word[:_SLOW_LOG_BYTES] + b"... (%d more bytes)" % more
            shown.append(word)
        if len(line) > _SLOW_LOG_WORDS:
            # The last word that fits is replaced by the number of words left out.
            shown[-1] = b"... (%d more arguments)" % (len(line) - _SLOW_LOG_WORDS + 1)
        entry = SlowCommand(self._next_slow, at_us, usec, shown, session.address, session.name)
        self._next_slow += 1
        self.slow.appendleft(entry)
        while len(self.slow) > self._config.number("slowlog-max-len"):
            self.slow.pop()


_REDACTED = b"(redacted)"
_ESCAPES = {byte: b"\\%c" % sign for byte, sign in zip(b'\\"\n\r\t\a\b', b'\\"nrtab', strict=True)}


def monitor_line(at_us: int, session: Session, line: list[bytes]) -> bytes:
    """Format a command as ``seconds.micros [db address] "WORD" "word"``."""
    seconds, microseconds = divmod(at_us, 1_000_000)
    words = b" ".join(map(quoted, without_secrets(line)))
    where = b"lua" if session.in_script else session.address.encode() or b"127.0.0.1:0"
    return b"%d.%06d [%d %b] %b" % (seconds, microseconds, session.db.index, where, words)


def without_secrets(line: list[bytes]) -> list[bytes]:
    """Return a command line with the secrets of logins, users, parameters and MIGRATE redacted."""
    name = line[0].upper()
    if name not in WITH_SECRETS:
        return line
    secret = WITH_SECRETS[name]([word.upper() for word in line])
    return [_REDACTED if at in secret else word for at, word in enumerate(line)]


def _of_options(words: list[bytes], first: int, counts: dict[bytes, int]) -> range:
    for word, count in counts.items():
        if word in words[first:]:
            at = words.index(word, first)
            return range(at + 1, at + 1 + count)
    return range(0)


def _of_config(words: list[bytes]) -> list[int]:
    names = range(2, len(words), 2) if words[1:2] == [b"SET"] else ()
    return [at + 1 for at in names if words[at] in _SECRET_PARAMETERS]


_SECRET_PARAMETERS = frozenset({b"MASTERAUTH", b"MASTERUSER", b"REQUIREPASS"})
WITH_SECRETS: dict[bytes, Callable[[list[bytes]], Collection[int]]] = {
    b"AUTH": lambda words: range(1, len(words)),
    b"HELLO": lambda words: _of_options(words, 2, {b"AUTH": 2}),
    b"ACL": lambda words: range(2, len(words) if words[1:2] == [b"SETUSER"] else 2),
    b"CONFIG": _of_config,
    b"MIGRATE": lambda words: _of_options(words, 6, {b"AUTH": 1, b"AUTH2": 2}),
}
"""For each command, a function that returns the positions of secrets in its upper-case words."""


def quoted(argument: bytes) -> bytes:
    """Quote an argument as MONITOR does, with unprintable bytes escaped."""
    parts = [
        _ESCAPES.get(byte) or (bytes([byte]) if 32 <= byte < 127 else b"\\x%02x" % byte)
        for byte in argument
    ]
    return b'"' + b"".join(parts) + b'"'
