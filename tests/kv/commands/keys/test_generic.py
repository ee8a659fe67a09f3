"""Commands for keys of any type."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import Run


def test_a_random_key(run: Run) -> None:
    run("MSET one 1 two 2 three 3")
    assert run("RANDOMKEY") in {b"one", b"two", b"three"}


class TestScan:
    def test_every_key_present_throughout_is_met(self, run: Run) -> None:
        for number in range(500):
            run(f"SET key{number} 1")
        cursor, seen = b"0", []
        while True:
            cursor, page = run(b"SCAN", cursor, b"COUNT", b"7")
            seen += page
            run(f"DEL gone{len(seen)} key{499 - len(seen) // 4}")
            run(f"SET gone{len(seen) + 7} 1")
            if cursor == b"0":
                break
        assert len(seen) == len(set(seen))
        assert {b"key%d" % number for number in range(370)} <= set(seen)


class TestPayloads:
    @pytest.mark.parametrize(
        ("make", "read"),
        [
            ("SET k v", "GET k"), ("SET k 12", "GET k"), ("HSET k a 1 b 2", "HGETALL k"),
            ("RPUSH k 1 2 3", "LRANGE k 0 -1"), ("SADD k 1 2 x", "SMEMBERS k"),
            ("ZADD k 1.5 a -inf b", "ZRANGE k 0 -1 WITHSCORES"), ("XADD k 5-1 a 1", "XRANGE k - +"),
        ],
    )  # fmt: skip
    def test_round_trip(self, run: Run, make: str, read: str) -> None:
        run(make)
        payload, before = run("DUMP k"), run(read)
        run("DEL k")
        assert run(b"RESTORE", b"k", b"0", payload) == OK
        assert run(read) == before
