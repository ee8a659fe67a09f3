"""The keys of command lines, compared with real servers for every command with a template."""

from __future__ import annotations

from contextlib import closing

import pytest

from .faces import InProcess
from .generate import Generator
from .servers import RealServer, running
from .templates import TEMPLATES
from .wire import Error

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
            for line in (generator.line(each) for each in templates for _ in range(EACH)):
                asked = [b"COMMAND", b"GETKEYS", *line]
                theirs = server.call(asked)
                if not isinstance(theirs, Error):
                    assert face.call(asked) == theirs, line
                    compared += 1
    assert compared > 500


def test_commands_that_change_nothing() -> None:
    """Such a command neither breaks a WATCH nor counts as a change."""
    with running() as server, closing(InProcess()) as face:
        for one in (server, face):
            for line in (b"SADD a m n", b"SADD b m", b"BITFIELD f SET u8 0 0", b"SET t x"):
                one.call(line.split())
        for line in (
            "SMOVE a b m", "BITFIELD f SET u8 0 0", "BITFIELD f INCRBY u8 0 0", "SETBIT f 0 0",
            "BITFIELD f SET u8 0 7", "BITFIELD f SET u8 80 0", "SETBIT f 200 0",
            "SETBIT new1 0 0", "BITFIELD new2 SET u8 0 0", "APPEND new3 x", "SETRANGE new4 0 x",
            "APPEND t x", "SETRANGE t 0 y", "SETBIT t 0 1", "SETBIT t 0 1", "APPEND t ''",
        ):  # fmt: skip
            changes = []
            for one in (server, face):
                before = _changes(one)
                one.call([word.encode() for word in line.split()])
                changes.append(_changes(one) - before)
            assert changes[0] == changes[1], (line, changes)


def _changes(one: RealServer | InProcess) -> int:
    info: bytes = one.call([b"INFO", b"persistence"])
    return int(info.partition(b"rdb_changes_since_last_save:")[2].split()[0])
