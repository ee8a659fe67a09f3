"""Whether a command changes data, given the data before it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.explore import accesses
from pytest_fakecloud.explore.accesses import Access
from pytest_fakecloud.explore.footprint import command_line
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.kv.table import kinds
from pytest_fakecloud.kv.table.registry import EVERYTHING
from tests.kv.conftest import NOW, argv
from tests.kv.growth import Filled
from tests.kv.lines import LINES
from tests.notations import complete

DATA = (
    "SET s 1", "HSET h f 1", "SADD m a", "ZADD z 1 a", "ARSET a 0 x", "RPUSH l x", "GEOADD g 1 1 a",
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("HDEL h f g", True), ("HDEL h g", False), ("HGETDEL h FIELDS 1 g", False),
        ("HGETDEL h FIELDS 2 g f", True), ("SREM m b", False), ("ZREM z b", False),
        ("ARDEL a 0", True), ("ARDEL a 7", False),
        ("HSET h f 1", False), ("HSET h f 1 g 1", True), ("HMSET h f 2", True),
        ("HSETEX h EX 9 FIELDS 1 f 1", False), ("HSETEX h EX 9 FIELDS 1 f 2", True),
        ("SADD m a", False), ("SADD m a b", True), ("HSETNX h f 2", False), ("HSETNX h g 2", True),
        ("SETNX s 2", False), ("SETNX new 2", True), ("MSETNX new 1 s 2", False),
        ("MSETNX new 1 other 2", True),
        ("SET s 1 EX 9", False), ("SET s 2", True), ("SET new 1 XX", False), ("SET s 2 XX", True),
        ("SET s 2 NX", False), ("SET new 2 NX", True), ("SETEX s 9 1", False), ("GETSET s 1", False),
        ("MSET s 1 new 1", True), ("MSET s 1", False), ("MSETEX 1 new 1 XX", False),
        ("MSETEX 2 new 1 s 2 NX", False), ("MSETEX 1 new 1 NX", True),
        ("DEL new", False), ("DEL new s", True), ("LPOP new", False), ("LPOP l", True),
        ("DELIFEQ new 1", False), ("LMOVE l new LEFT LEFT", True),
        ("ZADD z 1 a", False), ("ZADD z 2 a", True), ("ZADD z 1 b", True), ("ZADD z NX 2 a", False),
        ("ZADD z GT 0 a", False), ("ZINCRBY z 0 a", False), ("ZINCRBY z 1 a", True),
        ("GEOADD g 2 2 a", True), ("GEOADD g NX 2 2 a", False),
        ("ZREMRANGEBYSCORE z 5 9", False), ("ZREMRANGEBYSCORE z 1 9", True),
        ("ZREMRANGEBYRANK z 1 5", False), ("ZREMRANGEBYRANK z 0 0", True),
        ("ZREMRANGEBYLEX z (a +", False), ("ZREMRANGEBYLEX z [a +", True),
        ("ZREMRANGEBYSCORE new 1 2", False),
        ("INCRBY s 0", False), ("INCRBY s 1", True), ("HINCRBY h f 0", False), ("APPEND s 0", True),
    ],
)  # fmt: skip
def test_a_command_that_finds_what_it_wants_changes_nothing(line: str, changes: bool) -> None:
    engine = KVEngine(Timekeeper(NOW), Ids(1), KVConfig())
    for command in DATA:
        engine.execute(engine.session(), argv((command,)))
    assert access_of(engine, line).changes is changes


def access_of(engine: KVEngine, line: str) -> Access:
    """Return the access of a line that an engine has not run yet."""
    words = tuple(argv((line,)))
    parsed = command_line("kv", 0, 16, EVERYTHING.resolve([*words]), words)
    before = tuple(map(engine.databases[0].find, parsed.key_names))
    return Access("client", 1, parsed.words, parsed.keys, before, bound=parsed.bound)


COUNTED = {
    name
    for names in (
        "EXPIRE EXPIREAT GETEX PERSIST PEXPIRE PEXPIREAT",
        "HEXPIRE HEXPIREAT HGETEX HPERSIST HPEXPIRE HPEXPIREAT",
        "GEOADD PFADD SETBIT SETRANGE",
        "ARDELRANGE ARMSET ARSEEK ARSET LREM LSET",
        "JSON.CLEAR JSON.MERGE JSON.MSET JSON.SET",
        "XACK XACKDEL XDEL XDELEX XSETID XTRIM",
    )
    for name in names.split()
} | {f"XGROUP {name}" for name in ("CREATECONSUMER", "DELCONSUMER", "DESTROY", "SETID")}
"""Commands that count as changes also if they change nothing, because `Access.changes` compares no TTLs,
parts of strings, elements, documents or streams.
"""


@pytest.mark.completeness
def test_commands_that_change_nothing_count_as_no_changes() -> None:
    """Each line on filled keys (`tests/kv/lines.py`) runs twice; many change nothing the second time."""
    filled = Filled(30, dialect="vendor")
    state = filled.engine.snapshot()
    overlooked: dict[str, str] = {}
    counted: dict[str, str] = {}
    for line in LINES:
        *before, last = line.split(" ; ")
        spec = EVERYTHING.resolve(argv((last,)))
        # Indexes cannot be dumped.
        if not spec.repetition or spec.group in ("search", "vector"):
            continue
        with suppress(CommandError):
            for text in before:
                filled.run(text)
            for _ in range(2):
                access, data = access_of(filled.engine, last), filled.dumps(last)
                filled.run(last)
                has_changed = filled.dumps(last) != data
                if has_changed and not access.changes:
                    overlooked[spec.name] = line
                if access.changes and not has_changed and spec.name in kinds.REPEATABLE:
                    counted[spec.name] = line
        filled.engine.restore(state)
    assert not overlooked
    complete(
        Path(accesses.__file__),
        (
            f"to Access.changes: False for {name} if it changes nothing (see {line})"
            for name, line in counted.items()
            if name not in COUNTED
        ),
        "COUNTED of tests/explore/test_accesses.py",
    )
