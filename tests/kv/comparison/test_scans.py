"""SSCAN, HSCAN and ZSCAN, paged as by the server that the stock dialect announces.

Random command lines cannot compare single pages, whose contents are random. These tests scan from
the first page to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud.kv.settings import VERSION

from .faces import InProcess
from .servers import RealServer, running


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with running(version=VERSION["redis"].rpartition(".")[0] + ".") as server:
        yield server


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def names(count: int) -> list[bytes]:
    return [b"m%d" % n for n in range(count)]


def pairs(count: int) -> list[bytes]:
    return [word for n in range(count) for word in (b"%d" % n, b"m%d" % n)]


LONG = b"x" * 65
COLLECTIONS: dict[str, tuple[bytes, list[bytes]]] = {
    "integers": (b"SADD", numbers(40)),
    "many integers": (b"SADD", numbers(600)),
    "texts": (b"SADD", names(40)),
    "three texts and integers": (b"SADD", [*names(20), *numbers(20)]),
    "many texts": (b"SADD", names(300)),
    "a hash": (b"HSET", pairs(40)),
    "a big hash": (b"HSET", pairs(600)),
    "a hash with a long value": (b"HSET", [*pairs(40), b"f", LONG]),
    "a sorted set": (b"ZADD", pairs(40)),
    "a big sorted set": (b"ZADD", pairs(300)),
    "a sorted set with a long member": (b"ZADD", [*pairs(40), b"7.5", LONG]),
}
WORDS = [[], [b"COUNT", b"7"], [b"COUNT", b"1000"], [b"MATCH", b"*1*"], [b"MATCH", b"none"]]


def walk(face: Any, command: bytes, words: list[bytes]) -> tuple[bool, Any]:
    """Return whether the first page is the last, and all items of the scan."""
    cursor, first = face.call([command, b"k", b"0", *words])
    whole, seen = cursor == b"0", list(first)
    while cursor != b"0":
        cursor, page = face.call([command, b"k", cursor, *words])
        seen += page
    if face.call([b"OBJECT", b"ENCODING", b"k"]) in (b"intset", b"listpack"):
        return whole, seen  # in the order of the reply
    width = 1 if command == b"SSCAN" else 2
    return whole, {tuple(seen[at : at + width]) for at in range(0, len(seen), width)}


@pytest.mark.parametrize("name", COLLECTIONS)
def test_pages(server: RealServer, name: str) -> None:
    add, members = COLLECTIONS[name]
    command = add[:1] + b"SCAN"
    ours = InProcess()
    for face in (server, ours):
        face.call([b"DEL", b"k"])
        face.call([add, b"k", *members])
    encoding = [b"OBJECT", b"ENCODING", b"k"]
    assert ours.call(encoding) == server.call(encoding)
    for words in WORDS:
        assert walk(ours, command, words) == walk(server, command, words), words
