"""Members and scores of sorted sets."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import NIL_ARRAY
from tests.kv.conftest import Run


class TestVendorDialect:
    def test_limit_works_on_ranks(self, run: Run) -> None:
        run("ZADD z 1 a 2 b 3 c 4 d")
        assert run("ZRANGE z 0 -1 LIMIT 1 2") == [b"b", b"c"]
        assert run("ZRANGE z 0 -1 REV LIMIT 1 2") == [b"c", b"b"]
        assert run("ZRANGE z 0 2 LIMIT 1 -1") == [b"b", b"c"]
        assert run("ZRANGE z 0 -1 LIMIT -1 2") == []

    def test_ranks_with_their_scores(self, run: Run) -> None:
        run("ZADD z 1 a 2 b 3 c")
        assert run("ZRANK z b WITHSCORE") == run("ZREVRANK z b withscore") == [1, 2.0]
        assert run("ZRANK z x WITHSCORE") is NIL_ARRAY
        assert run.error("ZREVRANK z b FOO") == "ERR syntax error"

    @pytest.mark.dialect("redis")
    def test_stock_refuses_it(self, run: Run) -> None:
        run("ZADD z 1 a")
        text = run.error("ZRANGE z 0 -1 LIMIT 0 1")
        assert text == (
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
        )
        assert run("ZRANGE z 0 -1 LIMIT 0 -1") == [b"a"]


class TestResp3:
    def test_scores_are_doubles_in_pairs(self, run: Run) -> None:
        client = run.other(resp=3)
        client("ZADD z 1 a 2.5 b")
        assert client("ZRANGE z 0 -1 WITHSCORES") == [[b"a", 1.0], [b"b", 2.5]]
        assert client("ZPOPMIN z") == [b"a", 1.0]
        assert client("ZPOPMIN z 1") == [[b"b", 2.5]]


class TestEncoding:
    def test_more_than_128_members_or_64_bytes_are_a_skiplist(self, run: Run) -> None:
        for n in range(128):
            run("ZADD", "z", n, f"m{n}")
        assert run("OBJECT ENCODING z") == b"listpack"
        run("ZADD z 1 one-more")
        assert run("OBJECT ENCODING z") == b"skiplist"
        run("ZREM z one-more")
        assert run("OBJECT ENCODING z") == b"skiplist"
        run("ZADD", "long", 1, "x" * 65)
        assert run("OBJECT ENCODING long") == b"skiplist"


class TestScan:
    def test_every_member_that_stays_is_met(self, run: Run) -> None:
        for n in range(300):
            run("ZADD", "z", n, f"m{n}")
        met: dict[bytes, bytes] = {}
        cursor = b"0"
        for step in range(1000):
            cursor, page = run("ZSCAN", "z", cursor, "COUNT", 5)
            met.update(zip(page[::2], page[1::2], strict=True))
            if cursor == b"0":
                break
            run("ZADD", "z", -step, f"n{step}", 5000, f"m{step}")
            run("ZREM", "z", f"m{299 - step}")
        assert {b"m%d" % n for n in range(200)} <= set(met)

    def test_the_vendor_pages_small_ones_too(self, run: Run) -> None:
        run("ZADD z 3 c 1 a 2 b")
        cursor, page = run("ZSCAN z 0 COUNT 2")
        following, rest = run("ZSCAN", "z", cursor, "COUNT", 2)
        assert (len(page), len(rest), following) == (4, 2, b"0")
        assert {*page[::2], *rest[::2]} == {b"a", b"b", b"c"}
        assert run("ZSCAN z 0") == [b"0", [b"a", b"1", b"b", b"2", b"c", b"3"]]


def test_words_alone_are_no_scores(run: Run) -> None:
    assert run.error("ZADD z NX CH INCR") == "ERR syntax error"
    assert run("EXISTS z") == 0
