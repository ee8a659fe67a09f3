"""Sorted-set commands that pop members, or return random ones."""

from __future__ import annotations

from tests.kv.conftest import Run


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


def test_a_huge_count_is_rejected(run: Run) -> None:
    run("ZADD z 1 a")
    assert run.error("ZRANDMEMBER z -1000001") == "ERR value is out of range"
    assert len(run("ZRANDMEMBER z -1000")) == 1000
