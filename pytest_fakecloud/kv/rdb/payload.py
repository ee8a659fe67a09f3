"""Payloads of DUMP and FUNCTION DUMP: a value or libraries, the format version, and a checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .crc64 import crc64
from .reader import ForeignType, read_value
from .source import RdbError, Source
from .writer import Writer

if TYPE_CHECKING:
    from ..table.config import Config

FUNCTION = 0xF5
"""The type code that precedes the source of a library."""
_FOOTER = 10
SHELL = 1 + _FOOTER
"""Bytes of a DUMP payload besides the value: its type, format version and checksum."""


def dump(value: Any, config: Config, version: int) -> bytes:
    """Return the DUMP payload of a stored value in the given format version."""
    writer = Writer(config, version, compress=config.text("rdbcompression") == "yes")
    writer.value(None, value)
    return _sealed(writer)


def dump_libraries(sources: list[bytes], config: Config, version: int) -> bytes:
    """Return the payload of function libraries."""
    writer = Writer(config, version, compress=config.text("rdbcompression") == "yes")
    for source in sources:
        writer.raw(bytes([FUNCTION]))
        writer.string(source)
    return _sealed(writer)


def _sealed(writer: Writer) -> bytes:
    body = writer.taken() + writer.version.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def is_sealed(payload: bytes, version: int) -> bool:
    """Return whether a payload has a format version up to the given one, and a valid checksum."""
    return (
        len(payload) >= _FOOTER
        and int.from_bytes(payload[-_FOOTER:-8], "little") <= version
        and crc64(memoryview(payload)[:-8]) == int.from_bytes(payload[-8:], "little")
    )


def load(payload: bytes, version: int) -> Any:
    """Return the value in a payload whose checksum has been checked; raise ``RdbError`` for an
    invalid value.

    Like real servers, ignore bytes after the value.
    """
    source = Source(payload[:-_FOOTER])
    try:
        return read_value(source, source.byte(), version)
    except ForeignType as error:
        raise RdbError(f"{error} is unknown") from None


def load_libraries(payload: bytes) -> list[bytes]:
    """Return the library sources in a payload whose checksum has been checked; raise ``RdbError``,
    or ``TypeError`` if it contains a value.
    """
    source = Source(payload[:-_FOOTER])
    found = []
    while source.left():
        if source.byte() != FUNCTION:
            raise TypeError("not a library")
        found.append(source.string())
    return found
