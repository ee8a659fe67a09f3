"""The RDB format of Redis and Valkey: payloads of DUMP and FUNCTION DUMP, and ``.rdb`` files.

This package converts between byte strings and the classes of ``kv/values``; it opens no files. A
payload consists of a value or of function libraries, the format version and a checksum. ``types``
handles the values, ``source`` the lengths, strings and packed structures in them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..config import Config
from .source import RdbError, Source, crc64
from .types import OLDEST, VALKEY_9, ForeignType, Writer, module_items, read_value

_FUNCTION = 0xF5
"""The type code that precedes the source of a function library."""
_FOOTER = 10
SHELL = 1 + _FOOTER
"""Size in bytes of a DUMP payload without its value: the type, the format version and the checksum."""


def dump(value: Any, config: Config, version: int) -> bytes:
    writer = Writer(config, version)
    writer.value((), value)
    return _sealed(writer)


def dump_libraries(sources: list[bytes], config: Config, version: int) -> bytes:
    writer = Writer(config, version)
    for source in sources:
        writer.entry(_FUNCTION, source)
    return _sealed(writer)


def _sealed(writer: Writer) -> bytes:
    body = writer.taken() + writer.version.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def is_sealed(payload: bytes, version: int) -> bool:
    """Return whether a payload's checksum is valid and its format version at most ``version``."""
    return (
        len(payload) >= _FOOTER
        and int.from_bytes(payload[-_FOOTER:-8], "little") <= version
        and crc64(memoryview(payload)[:-8]) == int.from_bytes(payload[-8:], "little")
    )


def load(payload: bytes, version: int) -> Any:
    """Return the value in a DUMP payload that is sealed, ignoring bytes after it."""
    source = Source(payload[:-_FOOTER])
    try:
        return read_value(source, source.byte(), version)
    except ForeignType as error:
        raise RdbError(f"{error} is not supported") from None


def load_libraries(payload: bytes) -> list[bytes]:
    """Return the sources in a sealed FUNCTION DUMP payload; raise ``TypeError`` for other data."""
    source = Source(payload[:-_FOOTER])
    sources = []
    while source.left():
        if source.byte() != _FUNCTION:
            raise TypeError("the payload contains something other than libraries")
        sources.append(source.string())
    return sources


MAGIC = (b"REDIS", b"VALKEY")
"""The magic bytes at the start of a file by Redis or Valkey."""
_NEWEST = 12
_NEWEST_VALKEY = 81
_CHECKED_SINCE = 5

_SLOT_INFO, _OLD_FUNCTION, _MODULE_AUX, _IDLE, _FREQUENCY = 244, 246, 247, 248, 249
_AUX, _RESIZE, _EXPIRES_MS, _EXPIRES, _SELECT, _END = 250, 251, 252, 253, 254, 255
_SKIPPED: dict[int, tuple[Callable[[Source], object], ...]] = {
    _AUX: (Source.string, Source.string),
    _RESIZE: (Source.length, Source.length),
    _SLOT_INFO: (Source.length, Source.length, Source.length),
    # The first item is the time at which the module loads the entry: before or after the keys.
    _MODULE_AUX: (Source.length, module_items),
}
"""The parts of entries with metadata or data of modules, which are read and ignored."""


class KeyRecord(NamedTuple):
    """A key in an RDB file, with its value and metadata."""

    database: int
    key: bytes
    value: Any
    expires_ms: int | None = None
    idle_s: int | None = None
    frequency: int | None = None


@dataclass(frozen=True)
class Contents:
    """The contents of an RDB file; ``skipped`` counts keys of unsupported types by the reason."""

    records: list[KeyRecord] = field(default_factory=list)
    libraries: list[bytes] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def read_file(data: bytes) -> Contents:
    """Parse an RDB file of Redis up to 8.x or Valkey up to 9.2; raise ``RdbError`` for others."""
    version, source = _opened(data)
    contents = Contents()
    seen = defaultdict[int, set[bytes]](set)
    database = 0
    expires_ms: int | None = None
    idle_s: int | None = None
    frequency: int | None = None
    while True:
        code = source.byte()
        if code < _SLOT_INFO:
            key = source.string()
            try:
                value = source.string() if code == 0 else read_value(source, code, version)
            except ForeignType as kind:
                contents.skipped[f"of {kind}"] += 1
            except RdbError as error:
                raise RdbError(f"the value of the key {_shown(key)} is damaged: {error}") from None
            else:
                if key in seen[database]:
                    raise RdbError(f"database {database} has the key {_shown(key)} twice")
                seen[database].add(key)
                contents.records.append(
                    KeyRecord(database, key, value, expires_ms, idle_s, frequency)
                )
            expires_ms = idle_s = frequency = None
        elif code == _EXPIRES_MS:
            expires_ms = source.int64()
        elif code == _EXPIRES:
            expires_ms = int.from_bytes(source.take(4), "little", signed=True) * 1000
        elif code == _IDLE:
            idle_s = source.length()
        elif code == _FREQUENCY:
            frequency = source.byte()
        elif code == _SELECT:
            database = source.length()
        elif code == _END:
            break
        elif code == _SLOT_INFO and version < _NEWEST:
            raise RdbError(f"type {code} does not exist in format version {version}")
        elif code == _FUNCTION:
            contents.libraries.append(source.string())
        elif code == _OLD_FUNCTION:
            contents.libraries.append(_old_library(source))
        else:
            for skip in _SKIPPED[code]:
                skip(source)
    if version >= _CHECKED_SINCE:
        sealed = memoryview(data)[: source.at]
        announced = int.from_bytes(source.take(8), "little")
        # The checksum is zero if the server that wrote the file was configured not to compute it.
        if announced and announced != crc64(sealed):
            raise RdbError("the checksum is wrong: the file is damaged")
    return contents


def _opened(data: bytes) -> tuple[int, Source]:
    valkey = data.startswith(MAGIC[1])
    digits = data[6:9] if valkey else data[5:9]
    if not data.startswith(MAGIC) or not digits.isdigit() or len(data) < 9:
        expected = "REDIS or VALKEY and a version number"
        raise RdbError(f"it begins with {data[:9]!r}; expected {expected}")
    version = int(digits)
    least, most = (VALKEY_9, _NEWEST_VALKEY) if valkey else (1, _NEWEST)
    if not least <= version <= most:
        raise RdbError(f"format version {version} is not supported; expected {least} to {most}")
    return version, Source(data, 9)


def _old_library(source: Source) -> bytes:
    """Read a library of the 7.0 release candidates; return its source with a shebang line added."""
    name, engine = source.string(), source.string()
    if source.byte():
        source.string()
    return b"#!%b name=%b\n%b" % (engine.lower(), name, source.string())


def _shown(key: bytes) -> str:
    return repr(key[:60].decode("utf-8", "backslashreplace"))


def write_file(
    records: Iterable[KeyRecord],
    libraries: Iterable[bytes],
    config: Config,
    server: str,
    now_s: int,
) -> bytes:
    """Return an RDB file that every server since Redis 7.0 can load, of records by database."""
    # Write strings uncompressed, because compression would take most of the time.
    writer = Writer(config, OLDEST, compress=False)
    head = {b"redis-ver": server.encode(), b"redis-bits": b"64", b"ctime": b"%d" % now_s}
    for name, text in head.items():
        writer.entry(_AUX, name, text)
    for library in libraries:
        writer.entry(_FUNCTION, library)
    database = None
    for record in records:
        if record.database != database:
            database = record.database
            writer.entry(_SELECT)
            writer.length(database)
        if record.expires_ms is not None:
            writer.entry(_EXPIRES_MS)
            writer.raw(record.expires_ms.to_bytes(8, "little"))
        writer.value((record.key,), record.value)
    writer.entry(_END)
    body = b"REDIS%04d" % writer.version + writer.taken()
    return body + crc64(body).to_bytes(8, "little")
