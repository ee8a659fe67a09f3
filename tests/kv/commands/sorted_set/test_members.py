"""The sorted set group: what real servers answered, and what only this engine has to say."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run
from tests.kv.scenarios import play
from tests.kv.scenarios.sorted_sets import SCENARIOS


@pytest.mark.dialect("redis")
@pytest.mark.parametrize("name", SCENARIOS)
def test_as_real_servers_answer(run: Run, name: str) -> None:
    play(run, SCENARIOS[name])


class TestVendorDialect:
    def test_limit_works_on_ranks(self, run: Run) -> None:
        run("ZADD z 1 a 2 b 3 c 4 d")
        assert run("ZRANGE z 0 -1 LIMIT 1 2") == [b"b", b"c"]
        assert run("ZRANGE z 0 -1 REV LIMIT 1 2") == [b"c", b"b"]
        assert run("ZRANGE z 0 2 LIMIT 1 -1") == [b"b", b"c"]
        assert run("ZRANGE z 0 -1 LIMIT -1 2") == []

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


class TestLongRanges:
    """More members than one block holds, so that positions cross blocks."""

    def test_ranks_and_ranges_agree(self, run: Run) -> None:
        names = [f"m{n:05}" for n in range(5000)]
        for start in range(0, 5000, 500):
            pairs = [word for name in names[start : start + 500] for word in (int(name[1:]), name)]
            run("ZADD", "z", *pairs)
        assert run("ZRANK z m03210") == 3210
        assert run("ZREVRANK z m03210") == 1789
        assert run("ZCOUNT z 100 (4100") == 4000
        assert run("ZRANGE z 4998 -1") == [b"m04998", b"m04999"]
        assert run("ZRANGE z 4000 10 BYSCORE REV LIMIT 1000 2") == [b"m03000", b"m02999"]
        assert run("ZREMRANGEBYRANK z 10 4989") == 4980
        assert run("ZCARD z") == 20
        assert run("ZRANGE z 9 10") == [b"m00009", b"m04990"]

    def test_names_of_equal_scores(self, run: Run) -> None:
        run("ZADD", "z", *[word for n in range(3000) for word in (0, f"m{n:05}")])
        assert run("ZLEXCOUNT z [m00100 (m02100") == 2000
        assert run("ZREVRANGEBYLEX z (m02000 [m00000 LIMIT 1 1") == [b"m01998"]
        assert run("ZREMRANGEBYLEX z [m00010 [m02989") == 2980
        assert run("ZCARD z") == 20


class TestWaiting:
    def test_a_pop_waits_for_a_member(self, run: Run) -> None:
        waiting = run.other(transport="port")
        waiter = run.engine.block(waiting.session, waiting("BZPOPMIN z 0"))
        run("ZADD z 2 b 1 a")
        assert run.engine.unblock(waiter) == [b"z", b"a", 1.0]
        waiter = run.engine.block(waiting.session, waiting("BZMPOP 1.5 1 y MAX"))
        run("ZADD y 1 a")
        assert run.engine.unblock(waiter) == [b"y", [[b"a", 1.0]]]


def test_the_seed_decides_what_zrandmember_gives(run: Run) -> None:
    run("ZADD", "z", *[word for n in range(100) for word in (n, f"m{n}")])
    some = run("ZRANDMEMBER z 30")
    assert len(set(some)) == 30
    again = run("ZRANDMEMBER z -300 WITHSCORES")
    assert len(again) == 600
    assert all(
        b"m%d" % score == member for member, score in zip(again[::2], again[1::2], strict=True)
    )


def test_a_count_nobody_can_want_is_refused_at_once(run: Run) -> None:
    run("ZADD z 1 a")
    assert run.error("ZRANDMEMBER z -1000001") == "ERR value is out of range"
    assert len(run("ZRANDMEMBER z -1000")) == 1000
