"""Members and scores of sorted sets."""

from __future__ import annotations

from tests.kv.conftest import Run


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


def test_the_seed_decides_what_zrandmember_gives(run: Run) -> None:
    run("ZADD", "z", *[word for n in range(100) for word in (n, f"m{n}")])
    some = run("ZRANDMEMBER z 30")
    assert len(set(some)) == 30
    again = run("ZRANDMEMBER z -300 WITHSCORES")
    assert len(again) == 600
    assert all(
        b"m%d" % score == member for member, score in zip(again[::2], again[1::2], strict=True)
    )
