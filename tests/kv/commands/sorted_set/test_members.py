"""Random members of sorted sets."""

from __future__ import annotations

from tests.kv.conftest import Run


def test_the_seed_decides_what_zrandmember_gives(run: Run) -> None:
    run("ZADD", "z", *[word for n in range(100) for word in (n, f"m{n}")])
    some = run("ZRANDMEMBER z 30")
    assert len(set(some)) == 30
    again = run("ZRANDMEMBER z -300 WITHSCORES")
    assert len(again) == 600
    assert all(
        b"m%d" % score == member for member, score in zip(again[::2], again[1::2], strict=True)
    )
