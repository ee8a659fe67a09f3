"""Reads and writes the payloads of DUMP and FUNCTION DUMP.

A payload consists of a value or of function libraries, the format version and a checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .crc64 import crc64
from .reader import ForeignType, read_value
from .source import RdbError, Source
from .writer import Writer

if TYPE_CHECKING:
    from ..table.config import Config

FUNCTION = 0xF5
"""The type code that precedes the source of a function library."""
_FOOTER = 10
SHELL = 1 + _FOOTER
"""Size in bytes of a DUMP payload without its value: the type, the format version and the checksum."""


def dump(value: Any, config: Config, version: int) -> bytes:
    """Return the DUMP payload of a value in the given format version."""
    writer = Writer(config, version, compress=config.text("rdbcompression") == "yes")
    writer.value(None, value)
    return _sealed(writer)


def dump_libraries(sources: list[bytes], config: Config, version: int) -> bytes:
    """Return the FUNCTION DUMP payload of the libraries with these sources."""
    writer = Writer(config, version, compress=config.text("rdbcompression") == "yes")
    for source in sources:
        writer.raw(bytes([FUNCTION]))
        writer.string(source)
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
    found = []
    while source.left():
        if source.byte() != FUNCTION:
            raise TypeError("the payload contains something other than libraries")
        found.append(source.string())
    return found
