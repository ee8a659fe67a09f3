"""The fields and members that command lines name."""

from __future__ import annotations

from pytest_fakecloud.kv.table.registry import spec_of
from tests.harness import check_each

ROWS = [
    ("HSET h a 1 b 2", "a b"),
    ("HGET h a", "a"),
    ("HMGET h a b", "a b"),
    ("HDEL h a b", "a b"),
    ("HINCRBY h a 3", "a"),
    ("HGETALL h", ""),
    ("HEXPIRE h 3 NX FIELDS 2 a b", "a b"),
    ("HSETEX h EX 3 FIELDS 2 a 1 b 2", "a b"),
    ("SADD s x y", "x y"),
    ("SMOVE s t x", "x"),
    ("SINTER s t", ""),
    ("ZADD z 1 x", "x"),
    ("ZADD z NX CH 1 x 2 y", "x y"),
    ("ZINCRBY z 2 x", "x"),
    ("ZSCORE z x", "x"),
    ("GEOADD g 13 38 x 15 37 y", "x y"),
    ("ZADD z 1 nx", "nx"),
    ("ZRANK z x WITHSCORE", "x"),
    ("GEODIST g x y km", "x y"),
    ("GEOPOS g x y", "x y"),
    ("XADD x * field value", ""),
    ("LSET l 1 x", ""),
    ("LPUSH l x", ""),
]


def test_commands_name_fields_and_members() -> None:
    check_each(names, ROWS)


def names(line: str, parts: str) -> None:
    words = line.split()
    spec = spec_of(words)
    assert spec is not None
    assert [*spec.fields_of(words)] == parts.split()
