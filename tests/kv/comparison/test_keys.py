"""Keys of command lines and pages of scans, compared with real servers.

Random command lines cannot compare single pages, whose contents are random. The tests of scans go
from the first page to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pytest_fakecloud.kv.settings import VERSION
from tests.kv.comparison.faces import InProcess
from tests.kv.comparison.servers import RealServer, running
from tests.kv.comparison.templates import TEMPLATES, Generator
from tests.kv.comparison.wire import Error

pytestmark = pytest.mark.slow
EACH = 6
"""The number of lines per template."""


@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_keys_are_those_of_a_real_server(name: str) -> None:
    """Permissions, prefixes in a shared server and cluster slots depend on these positions."""
    generator = Generator(3, broken=0)
    compared = 0
    with running(name) as server, closing(InProcess(version=server.version)) as face:
        for templates in TEMPLATES.values():
            for line in (generator.line(template) for template in templates for _ in range(EACH)):
                asked = [b"COMMAND", b"GETKEYS", *line]
                theirs = server.call(asked)
                if not isinstance(theirs, Error):
                    assert face.call(asked) == theirs, line
                    compared += 1
    assert compared > 500


def test_commands_that_change_nothing() -> None:
    """Such a command neither breaks a WATCH nor counts as a change."""
    with running() as server, closing(InProcess()) as face:
        for side in (server, face):
            for line in (b"SADD a m n", b"SADD b m", b"BITFIELD f SET u8 0 0", b"SET t x"):
                side.call(line.split())
        for line in (
            "SMOVE a b m", "BITFIELD f SET u8 0 0", "BITFIELD f INCRBY u8 0 0", "SETBIT f 0 0",
            "BITFIELD f SET u8 0 7", "BITFIELD f SET u8 80 0", "SETBIT f 200 0",
            "SETBIT new1 0 0", "BITFIELD new2 SET u8 0 0", "APPEND new3 x", "SETRANGE new4 0 x",
            "APPEND t x", "SETRANGE t 0 y", "SETBIT t 0 1", "SETBIT t 0 1", "APPEND t ''",
        ):  # fmt: skip
            changes = []
            for side in (server, face):
                before = _changes(side)
                side.call([word.encode() for word in line.split()])
                changes.append(_changes(side) - before)
            assert changes[0] == changes[1], (line, changes)


def _changes(client: RealServer | InProcess) -> int:
    info: bytes = client.call([b"INFO", b"persistence"])
    return int(info.partition(b"rdb_changes_since_last_save:")[2].split()[0])


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
