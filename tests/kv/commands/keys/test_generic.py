"""Commands for keys of any type."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import Run


def test_a_random_key(run: Run) -> None:
    run("MSET one 1 two 2 three 3")
    assert run("RANDOMKEY") in {b"one", b"two", b"three"}


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
