"""Shebang lines of scripts and libraries, and the function libraries of one engine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..algorithms.quoting import split_words
from ..config import Config
from ..errors import BAD_DUMP, CommandError
from ..table.versions import rdb_version
from . import errors

SCRIPT_FLAGS = (b"no-writes", b"allow-oom", b"allow-stale", b"no-cluster", b"allow-cross-slot-keys")
"""The flags of scripts and functions, in the order of FUNCTION LIST."""
KEY_LOCKING = b"allow-key-locking"
"""A flag of the vendor's service: the script may access only its declared keys."""


def digest(source: bytes) -> bytes:
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()


def allowed_flags(vendor: bool) -> tuple[bytes, ...]:
    return (*SCRIPT_FLAGS, KEY_LOCKING) if vendor else SCRIPT_FLAGS


def _split(source: bytes, no_line_end: bytes, open_quote: bytes) -> tuple[list[bytes], bytes]:
    """Return the words of the first line, and the rest of a source; raise one of the two errors."""
    line, line_end, body = source.partition(b"\n")
    if not line_end:
        raise CommandError(no_line_end)
    words = split_words(line)
    if words is None:
        raise CommandError(open_quote)
    return words, line_end + body


def script_shebang(source: bytes, vendor: bool) -> tuple[frozenset[bytes] | None, bytes]:
    """Return a script's flags, None without a shebang line, and the rest from that line's end on.

    Raises ``CommandError`` if the line is invalid.
    """
    if not source.startswith(b"#!"):
        return None, source
    words, body = _split(source, errors.INVALID_SHEBANG, errors.INVALID_ENGINE)
    if words[0] != b"#!lua":
        raise CommandError(errors.unexpected_engine(words[0]))
    allowed = allowed_flags(vendor)
    flags: set[bytes] = set()
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise CommandError(errors.unknown_shebang_option(word))
        listed = word.removeprefix(b"flags=")
        for flag in listed.split(b",") if listed else ():
            if flag not in allowed:
                raise CommandError(errors.unexpected_flag(flag))
            flags.add(flag)
    return frozenset(flags), body


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


class LibraryFunction(NamedTuple):
    """A function of a library. ``callback`` is the Lua function."""

    name: bytes
    callback: Any
    description: bytes | None
    flags: tuple[bytes, ...]


class Library(NamedTuple):
    """A function library."""

    name: bytes
    source: bytes
    functions: dict[bytes, LibraryFunction]


class Libraries(dict[bytes, Library]):
    """The loaded function libraries by name, in the order in which they were loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: dict[bytes, LibraryFunction] = {}
        """All functions, keyed by their names in lower case, because calls are case-insensitive."""

    def load(self, library: Library) -> bytes:
        """Add or replace a library and return its name; if this raises, nothing changes."""
        self.replace_all(
            [other for other in self.values() if other.name != library.name] + [library]
        )
        return library.name

    def replace_all(self, libraries: list[Library]) -> None:
        """Replace the libraries, or raise ``CommandError`` if two functions have the same name."""
        functions: dict[bytes, LibraryFunction] = {}
        for library in libraries:
            for name, function in library.functions.items():
                if functions.setdefault(name.lower(), function) is not function:
                    raise CommandError(errors.function_exists(name))
        self.clear()
        self.update({library.name: library for library in libraries})
        self.functions = functions

    def delete(self, name: bytes) -> bool:
        if name not in self:
            return False
        self.replace_all([library for library in self.values() if library.name != name])
        return True

    def dump(self, config: Config, version: str) -> bytes:
        """Return all libraries as a FUNCTION DUMP payload, in the format of a server version."""
        from ..rdb.payloads import dump_libraries

        return dump_libraries(list(self.sources()), config, rdb_version(version))

    def add_all(self, libraries: Iterable[Library], policy: bytes) -> None:
        """Add libraries, or none if one is invalid. ``policy`` is that of FUNCTION RESTORE."""
        added: dict[bytes, Library] = {}
        for library in libraries:
            if library.name in added:
                raise CommandError(errors.library_exists(library.name))
            added[library.name] = library
        present = [] if policy == b"FLUSH" else list(self.values())
        for library in present:
            if library.name in added and policy == b"APPEND":
                raise CommandError(errors.library_collides(library.name))
        remaining = [library for library in present if library.name not in added]
        self.replace_all([*remaining, *added.values()])

    def sources(self) -> tuple[bytes, ...]:
        return tuple(library.source for library in self.values())


def sources_in(payload: bytes, version: str) -> list[bytes]:
    from ..rdb.payloads import is_sealed, load_libraries

    if not is_sealed(payload, rdb_version(version)):
        raise CommandError(BAD_DUMP)
    try:
        return load_libraries(payload)
    except TypeError:
        raise CommandError(errors.NOT_A_FUNCTION) from None
    except ValueError:
        raise CommandError(errors.BAD_LIBRARIES) from None
