"""Pending entries: XPENDING, XCLAIM, XAUTOCLAIM."""

from __future__ import annotations

from tests.kv.commands.stream.conftest import fill
from tests.kv.conftest import NOW_MS, Run


class TestIdleTimes:
    def test_they_are_measured_on_the_clock(self, run: Run) -> None:
        fill(run, "1-1", "2-1")
        run("XGROUP CREATE s g 0")
        run("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
        run.engine.clock.advance("3s")
        run("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
        assert run("XPENDING s g - + 10") == [[b"1-1", b"c", 3000, 1], [b"2-1", b"c", 0, 1]]
        assert run("XPENDING s g IDLE 1000 - + 10") == [[b"1-1", b"c", 3000, 1]]
        claimed = run("XAUTOCLAIM s g d 1000 0 JUSTID")
        assert claimed == [b"0-0", [b"1-1"], []]
        run.engine.clock.advance("1s")
        assert run("XINFO CONSUMERS s g") == [
            [b"name", b"c", b"pending", 1, b"idle", 1000, b"inactive", 1000],
            [b"name", b"d", b"pending", 1, b"idle", 1000, b"inactive", 1000],
        ]

    def test_a_claim_may_set_them(self, run: Run) -> None:
        fill(run, "1-1")
        run("XGROUP CREATE s g 0")
        run("XREADGROUP GROUP g c STREAMS s >")
        run("XCLAIM s g d 0 1-1 IDLE 500")
        assert run("XPENDING s g - + 1") == [[b"1-1", b"d", 500, 2]]
        run("XCLAIM", "s", "g", "d", 0, "1-1", "TIME", NOW_MS - 70, "RETRYCOUNT", 9)
        assert run("XPENDING s g - + 1") == [[b"1-1", b"d", 70, 9]]
        run("XCLAIM", "s", "g", "d", 0, "1-1", "TIME", NOW_MS + 70)
        assert run("XPENDING s g - + 1") == [[b"1-1", b"d", 0, 10]]


def test_undelivered_entries_are_claimed_only_by_force(run: Run) -> None:
    run("XADD s 1-1 a b")
    run("XGROUP CREATE s g 0")
    assert run("XCLAIM s g c 0 1-1") == []
    assert run("XCLAIM s g c 0 1-1 FORCE JUSTID") == [b"1-1"]
    assert run("XPENDING s g")[0] == 1
