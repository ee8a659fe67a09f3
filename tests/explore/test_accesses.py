"""Whether a command changes data, given the data before it."""

from __future__ import annotations

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.explore.accesses import Access
from pytest_fakecloud.explore.footprint import command_line
from pytest_fakecloud.kv.table.registry import COMMANDS

DATA = ("SET s 1", "HSET h f 1", "SADD m a", "ZADD z 1 a", "ARSET a 0 x")


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("HDEL h f g", True), ("HDEL h g", False), ("HGETDEL h FIELDS 1 g", False),
        ("HGETDEL h FIELDS 2 g f", True), ("SREM m b", False), ("ZREM z b", False),
        ("ARDEL a 0", True), ("ARDEL a 7", False),
        ("HSET h f 1", False), ("HSET h f 1 g 1", True), ("HMSET h f 2", True),
        ("HSETEX h EX 9 FIELDS 1 f 1", True),
        ("SADD m a", False), ("SADD m a b", True), ("HSETNX h f 2", False), ("HSETNX h g 2", True),
        ("SETNX s 2", False), ("SETNX new 2", True), ("MSETNX new 1 s 2", False),
        ("MSETNX new 1 other 2", True),
    ],
)  # fmt: skip
def test_a_command_that_finds_what_it_wants_changes_nothing(line: str, changes: bool) -> None:
    argv = tuple(word.encode() for word in line.split())
    with Cloud(0) as cloud:
        kv = cloud.kv_server()
        for command in DATA:
            kv.execute(*command.split())
        parsed = command_line("kv", 0, 16, COMMANDS[line.split()[0]], argv)
        find = kv._engine.databases[0].find
        before = tuple(map(find, parsed.key_names))
        access = Access("client", 1, parsed.words, parsed.keys, before, bound=parsed.bound)
        reply = kv.execute(*line.split())
    assert access.changes is changes, f"{line} --> {reply}"
