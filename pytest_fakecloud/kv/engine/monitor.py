"""Command lines as MONITOR shows them, with secrets redacted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client

_REDACTED = b"(redacted)"
_ESCAPES = {
    ord("\\"): b"\\\\",
    ord('"'): b'\\"',
    ord("\n"): b"\\n",
    ord("\r"): b"\\r",
    ord("\t"): b"\\t",
    7: b"\\a",
    8: b"\\b",
}


def monitor_line(at_us: int, session: Client, argv: list[bytes]) -> bytes:
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
