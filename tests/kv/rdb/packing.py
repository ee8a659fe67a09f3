"""RDB data assembled by hand, including forms that only older or newer servers write."""

from __future__ import annotations

import struct

from pytest_fakecloud.kv.rdb.source import Entry, crc64, write_listpack

LIBRARY = b"#!lua name=l\nredis.register_function('f', function() return 7 end)"


def count(number: int) -> bytes:
    return bytes([number]) if number < 64 else b"\x80" + number.to_bytes(4, "big")


def text(data: bytes) -> bytes:
    return count(len(data)) + data


def sealed(body: bytes, version: int = 10) -> bytes:
    body += version.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def file_of(body: bytes, magic: bytes = b"REDIS0010") -> bytes:
    body = magic + body + b"\xff"
    return body + crc64(body).to_bytes(8, "little")


def ziplist(*entries: Entry) -> bytes:
    body, tail, before = b"", 10, 0
    for entry in entries:
        tail = 10 + len(body)
        previous = bytes([before]) if before < 254 else b"\xfe" + before.to_bytes(4, "little")
        packed = previous + _packed(entry)
        before = len(packed)
        body += packed
    size = 11 + len(body)
    return struct.pack("<IIH", size, tail, len(entries)) + body + b"\xff"


def _packed(entry: Entry) -> bytes:
    if isinstance(entry, bytes):
        size = len(entry)
        if size < 64:
            return bytes([size]) + entry
        if size < 16384:
            return bytes((0x40 | size >> 8, size & 255)) + entry
        return b"\x80" + size.to_bytes(4, "big") + entry
    if 0 <= entry <= 12:
        return bytes([0xF1 + entry])
    for first, width in ((0xFE, 1), (0xC0, 2), (0xF0, 3), (0xD0, 4), (0xE0, 8)):
        if -(1 << 8 * width - 1) <= entry < 1 << 8 * width - 1:
            return bytes([first]) + entry.to_bytes(width, "little", signed=True)
    raise ValueError(entry)


_WORDS = (b"a", b"x" * 63, b"y" * 64, b"z" * 300, b"w" * 20000, b"", -1, 0, 12, 13, 127, 128)
_INTEGERS = (-(2**15), 2**15, 2**23, -(2**31), 2**31, 2**63 - 1, -(2**63))
_ALL = (*_WORDS, *_INTEGERS)
_ZIPMAP = (
    b"\x02" + b"\x01f\x01\x00v" + b"\x02fx\xfe\x2c\x01\x00\x00\x03" + b"v" * 300 + b"pad" + b"\xff"
)
_ID = (1).to_bytes(8, "big") * 2
_ENTRIES = [2, 0, 1, b"f", 0, 2, 0, 0, b"v", 4, 0, 1, -1, 1, b"g", b"w", 6]
_FIRST_STREAM = b"".join((
    count(1), text(_ID), text(write_listpack(_ENTRIES)),
    b"\x02\x02\x00",  # length and last ID
    count(4), text(b"early"), b"\x00\x00", b"\x00\x00", text(b"late"), b"\x02\x00", b"\x00\x00",
    text(b"between"), b"\x01\x02", b"\x00\x00", text(b"g"), b"\x01\x01",
    count(1), _ID, bytes(8), b"\x03",  # pending entries: delivery time and count
    count(1), text(b"ann"), bytes(8), count(1), _ID,
))  # fmt: skip

OTHERS: dict[str, bytes] = {
    "list of strings": b"\x01" + count(2) + text(b"a") + b"\xc0\x07",
    "zset with scores as text": b"\x03" + count(4) + text(b"a") + b"\x031.5" + text(b"b") + b"\xfe"
    + text(b"c") + b"\xff" + text(b"d") + b"\x042e10",
    "hash as zipmap": b"\x09" + text(_ZIPMAP),
    "list as ziplist": b"\x0a" + text(ziplist(*_ALL)),
    "zset as ziplist": b"\x0c" + text(ziplist(b"a", 1, b"b", b"1.5", 3, b"inf")),
    "hash as ziplist": b"\x0d" + text(ziplist(b"a", 1, b"b" * 70, b"1.5", 3, b"")),
    "list as quicklist": b"\x0e" + count(2) + text(ziplist(b"a", 7)) + text(ziplist(*_ALL)),
    "stream": b"\x0f" + _FIRST_STREAM,
    "stream without entries": b"\x0f\x00\x00\x05\x06\x00",
    "list with over-long lengths": b"\x01\x80\x00\x00\x00\x01\x81" + (1).to_bytes(8, "big") + b"a",
}  # fmt: skip
"""Types and values in forms of servers before 7.0, by name."""
