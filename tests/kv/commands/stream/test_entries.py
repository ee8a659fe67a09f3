"""Adding, trimming, deleting and reading the entries of streams."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import NIL_ARRAY, OK, Map
from tests.kv.commands.stream.conftest import fill
from tests.kv.conftest import Run


class TestTrimming:
    @pytest.mark.parametrize(
        ("length", "line", "removed"),
        [
            (1000, "MAXLEN ~ 30", 970), (129, "MAXLEN ~ 30", 0), (130, "MAXLEN ~ 30", 100),
            (120, "MAXLEN ~ 30", 0), (120, "MAXLEN = 30", 90), (120, "MAXLEN 30", 90),
            (99, "MAXLEN ~ 0", 0), (100, "MAXLEN ~ 0", 100), (30, "MAXLEN ~ 50", 0),
            (250, "MINID ~ 101", 100), (250, "MINID ~ 100-2", 100), (250, "MINID ~ 100", 0),
            (250, "MINID = 100", 99), (250, "MINID ~ 9999", 250), (250, "MAXLEN ~ 100 LIMIT 7", 7),
            (250, "MAXLEN ~ 200 LIMIT 7", 0), (250, "MAXLEN ~ 100 LIMIT 0", 150),
        ],
    )  # fmt: skip
    def test_the_vendor_trims_roughly_once_a_hundred_are_too_many(
        self, run: Run, length: int, line: str, removed: int
    ) -> None:
        fill(run, *(f"{n}-1" for n in range(1, length + 1)))
        assert run(f"XTRIM s {line}") == removed
        assert run("XLEN s") == length - removed
        if removed < length:
            assert run("XRANGE s - + COUNT 1")[0][0] == f"{removed + 1}-1".encode()

    def test_so_it_does_when_adding(self, run: Run) -> None:
        for n in range(1, 111):
            run("XADD", "s", "MAXLEN", "~", "30", f"{n}-1", "a", 1)
        assert run("XLEN s") == 110
        for n in range(111, 131):
            run("XADD", "s", "MAXLEN", "~", "30", f"{n}-1", "a", 1)
        assert run("XLEN s") == 30

    @pytest.mark.dialect("redis")
    def test_stock_removes_whole_nodes_of_a_hundred(self, run: Run) -> None:
        fill(run, *(f"{n}-1" for n in range(1, 1001)))
        assert run("XTRIM s MAXLEN ~ 30") == 900
        run("XADD s MAXLEN ~ 50 1001-1 a 1")
        assert run("XLEN s") == 101
        assert run("XTRIM s MINID ~ 950") == 0


class TestVendorReading:
    def test_a_consumer_holds_a_thousand_pending_entries_at_most(self, run: Run) -> None:
        fill(run, *(f"{n}-1" for n in range(1, 1003)))
        run("XGROUP CREATE s g 0")
        run("XREADGROUP GROUP g c COUNT 999 STREAMS s >")
        text = run.error("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
        assert text == (
            "ERR XReadGroup is cancelled. Pending Entries List limit per consumer is about to be "
            "reached. Limit: 1000, Current PEL size: 999, Requested Read: 2, Key: s, Group: g, "
            "Consumer: c."
        )
        assert run("XPENDING s g")[0] == 999
        assert len(run("XREADGROUP GROUP g c COUNT 1 STREAMS s >")[0][1]) == 1

    def test_streams_are_a_map_in_resp3(self, run: Run) -> None:
        fill(run, "1-1")
        reply = run.other(resp=3)("XREAD STREAMS s 0")
        assert isinstance(reply, Map)
        assert reply == [b"s", [[b"1-1", [b"a", b"1-1"]]]]


class TestDeletingWithRegardToGroups:
    def prepare(self, run: Run) -> None:
        fill(run, "1-1", "2-1", "3-1")
        run("XGROUP CREATE s g 0")
        run("XGROUP CREATE s h 0")
        run("XREADGROUP GROUP g c STREAMS s >")
        run("XREADGROUP GROUP h c COUNT 1 STREAMS s >")

    def test_references_are_kept_by_default(self, run: Run) -> None:
        self.prepare(run)
        assert run("XDELEX s IDS 2 1-1 9-9") == [1, -1]
        assert run("XDELEX s KEEPREF IDS 1 2-1") == [1]
        assert run("XPENDING s g")[0] == 3
        assert run("XLEN s") == 1

    def test_references_go_too(self, run: Run) -> None:
        self.prepare(run)
        assert run("XDELEX s DELREF IDS 1 1-1") == [1]
        assert run("XPENDING s g")[0] == 2
        assert run("XPENDING s h")[0] == 0

    def test_references_to_deleted_entries_are_removed_too(self, run: Run) -> None:
        self.prepare(run)
        run("XDEL s 1-1")
        assert run("XPENDING s g")[0] == 3
        assert run("XDELEX s DELREF IDS 1 1-1") == [-1]
        assert run("XPENDING s g")[0] == 2

    def test_only_entries_that_every_group_acknowledged_are_removed(self, run: Run) -> None:
        self.prepare(run)
        assert run("XDELEX s ACKED IDS 2 1-1 2-1") == [2, 2]
        run("XACK s g 1-1 2-1")
        assert run("XDELEX s ACKED IDS 2 1-1 2-1") == [2, 2]
        run("XACK s h 1-1")
        assert run("XDELEX s ACKED IDS 2 1-1 2-1") == [1, 2]

    def test_deleted_entries_can_be_acknowledged(self, run: Run) -> None:
        self.prepare(run)
        run("XDEL s 1-1")
        run("WATCH s")
        assert run("XACKDEL s g IDS 1 1-1") == [-1]
        assert run("XPENDING s g")[0] == 2
        run("MULTI")
        assert run("EXEC") is NIL_ARRAY

    def test_trimming_keeps_references_by_default(self, run: Run) -> None:
        self.prepare(run)
        assert run("XTRIM s MAXLEN 2 KEEPREF") == 1
        assert run("XPENDING s g")[0] == 3
        assert run("XTRIM s DELREF MINID 3") == 1
        assert run("XPENDING s g - + 9 c") == [[b"1-1", b"c", 0, 1], [b"3-1", b"c", 0, 1]]
        run("XADD s KEEPREF MAXLEN = 1 4-1 a 1")
        assert run("XPENDING s g")[0] == 2
        run("XADD s NOMKSTREAM MAXLEN 0 DELREF 5-1 a 1")
        assert run("XPENDING s g")[0] == 2
        assert run("XLEN s") == 0

    def test_trimming_only_what_every_group_acknowledged(self, run: Run) -> None:
        self.prepare(run)
        run("XACK s g 1-1 2-1")
        assert run("XTRIM s MAXLEN 0 ACKED") == 0
        run("XREADGROUP GROUP h c STREAMS s >")
        run("XACK s h 2-1 3-1")
        assert run("XTRIM s MAXLEN 0 ACKED") == 1
        assert [entry[0] for entry in run("XRANGE s - +")] == [b"1-1", b"3-1"]
        run("XACK s g 3-1")
        run("XADD s MAXLEN 2 acked 4-1 a 1")
        assert [entry[0] for entry in run("XRANGE s - +")] == [b"1-1", b"4-1"]
        assert run("XREADGROUP GROUP g c STREAMS s >") == [[b"s", [[b"4-1", [b"a", b"1"]]]]]
        assert run("XINFO GROUPS s")[0][-1] == 0


class TestWaiting:
    def test_a_removed_group_ends_the_wait(self, run: Run) -> None:
        run("XGROUP CREATE s g $ MKSTREAM")
        waiting = run.other(transport="port")
        waiter = run.engine.block(
            waiting.session, waiting("XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
        )
        run("XGROUP DESTROY s g")
        reply = run.engine.unblock(waiter)
        assert isinstance(reply, CommandError)
        assert str(reply).startswith("NOGROUP")

    @pytest.mark.parametrize(
        "line",
        [
            "XREAD BLOCK 0 STREAMS s $",
            "XREAD COUNT 1 block 1 STREAMS s 0",
            "XREAD BLOCK",
            "XREADGROUP GROUP g a BLOCK 0 STREAMS s >",
            "XREADGROUP BLOCK 1 GROUP g a NOACK STREAMS s >",
            "XREADGROUP GROUP STREAMS BLOCK NOACK BLOCK 5 STREAMS s >",
        ],
    )
    def test_blocking_is_rejected_over_rest(self, run: Run, line: str) -> None:
        fill(run, "1-1")
        run("XGROUP CREATE s g 0")
        rest = run.other(transport="rest")
        command = line.split()[0]
        wanted = f"ERR Command is not available: '{command}' with BLOCK"
        if line == "XREAD BLOCK":
            line += " x y"
        assert rest.error(line).startswith(wanted)
        assert rest("MULTI") == OK
        assert rest.error(line).startswith(wanted)
        assert rest.error("EXEC").startswith("EXECABORT")


def test_an_id_is_no_longer_than_a_buffer(run: Run) -> None:
    run("XADD s 1-1 a b")
    text = "ERR Invalid stream ID specified as stream command argument"
    assert run("XRANGE", "s", "0" * 124 + "1-1", "+") == [[b"1-1", [b"a", b"b"]]]
    assert run.error("XRANGE", "s", "0" * 125 + "1-1", "+") == text
