"""Parses the shebang lines of scripts (``#!lua flags=no-writes``) and libraries (``#!lua name=x``)."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..algorithms.quoting import split_words
from ..errors import CommandError
from . import errors

SCRIPT_FLAGS = frozenset(
    {b"no-writes", b"allow-oom", b"allow-stale", b"no-cluster", b"allow-cross-slot-keys"}
)
KEY_LOCKING = b"allow-key-locking"
"""A flag of the vendor's service: the script may access only its declared keys."""


class Shebang(NamedTuple):
    """A parsed shebang line, and the source after it (``body``), which starts with the line break.

    ``flags`` is None if the script has no shebang line; such a script follows the rules from before
    flags were introduced.
    """

    flags: frozenset[bytes] | None
    body: bytes


def _split(source: bytes, no_line_end: bytes, open_quote: bytes) -> tuple[list[bytes], bytes]:
    """Return the words of the first line, and the rest of a source; raise one of the two errors."""
    line, line_end, rest = source.partition(b"\n")
    if not line_end:
        raise CommandError(no_line_end)
    words = split_words(line)
    if words is None:
        raise CommandError(open_quote)
    return words, line_end + rest


def script_shebang(source: bytes, vendor: bool) -> Shebang:
    """Parse the shebang line of a script; raise ``CommandError`` if it is invalid."""
    if not source.startswith(b"#!"):
        return Shebang(None, source)
    words, body = _split(source, errors.INVALID_SHEBANG, errors.INVALID_ENGINE)
    if words[0] != b"#!lua":
        raise CommandError(errors.unexpected_engine(words[0]))
    known = SCRIPT_FLAGS | {KEY_LOCKING} if vendor else SCRIPT_FLAGS
    flags: set[bytes] = set()
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise CommandError(errors.unknown_shebang_option(word))
        listed = word.removeprefix(b"flags=")
        for flag in listed.split(b",") if listed else ():
            if flag not in known:
                raise CommandError(errors.unexpected_flag(flag))
            flags.add(flag)
    return Shebang(frozenset(flags), body)


def library_shebang(source: bytes) -> tuple[bytes, bytes]:
    """Return a library's name and body; raise ``CommandError`` for an invalid shebang line."""
    if not source.startswith(b"#!"):
        raise CommandError(errors.NO_METADATA)
    words, body = _split(source, errors.INVALID_METADATA, errors.INVALID_METADATA)
    name = None
    for word in words[1:]:
        if not word.lower().startswith(b"name="):
            raise CommandError(errors.bad_metadata(word))
        if name is not None:
            raise CommandError(errors.NAME_TWICE)
        name = word[len(b"name=") :]
    if name is None:
        raise CommandError(errors.NO_LIBRARY_NAME)
    if not re.fullmatch(rb"[A-Za-z0-9_]+", name):
        raise CommandError(errors.BAD_LIBRARY_NAME)
    engine = words[0].removeprefix(b"#!")
    if engine.lower() != b"lua":
        raise CommandError(errors.engine_not_found(engine))
    return name, body
