"""A command as MONITOR shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client

__all__ = ["monitor_line", "quoted", "without_secrets"]

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
    """``seconds.micros [db address] "WORD" "word"`` for a command that ran."""
    seconds, microseconds = divmod(at_us, 1_000_000)
    words = b" ".join(map(quoted, without_secrets(argv)))
    where = b"lua" if session.in_script else session.address.encode() or b"127.0.0.1:0"
    return b"%d.%06d [%d %b] %b" % (seconds, microseconds, session.db.index, where, words)


def without_secrets(argv: list[bytes]) -> list[bytes]:
    """The line with names and passwords of logins left out."""
    name = argv[0].upper()
    if name == b"AUTH":
        return [argv[0], *[_REDACTED] * (len(argv) - 1)]
    if name == b"HELLO":
        at = next((at for at, word in enumerate(argv) if at > 1 and word.upper() == b"AUTH"), None)
        if at is not None:
            hidden = [_REDACTED] * len(argv[at + 1 : at + 3])
            return [*argv[: at + 1], *hidden, *argv[at + 3 :]]
    return argv


def quoted(argument: bytes) -> bytes:
    """An argument in quotes, with what cannot be printed escaped, as MONITOR shows it."""
    parts = [
        _ESCAPES.get(byte) or (bytes([byte]) if 32 <= byte < 127 else b"\\x%02x" % byte)
        for byte in argument
    ]
    return b'"' + b"".join(parts) + b'"'
