"""Commands about the server process, such as SAVE, SHUTDOWN, REPLICAOF and LOLWUT."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.reply import OK, Status
from tests.kv.conftest import NOW_MS, Run


class TestProcess:
    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("SHUTDOWN", "ERR Errors trying to SHUTDOWN. Check logs."),
            ("SHUTDOWN NOSAVE", "ERR Errors trying to SHUTDOWN. Check logs."),
            ("SHUTDOWN SAVE NOW FORCE", "ERR Errors trying to SHUTDOWN. Check logs."),
            ("SHUTDOWN ABORT", "ERR No shutdown in progress."),
            ("SHUTDOWN FOO", "ERR syntax error"),
            ("REPLICAOF host 6379", "ERR REPLICAOF not allowed in cluster mode."),
            ("SLAVEOF host x", "ERR Invalid master port"),
            ("FAILOVER", "ERR FAILOVER requires connected replicas."),
            ("FAILOVER TO h 1 FORCE TIMEOUT 5", "ERR FAILOVER requires connected replicas."),
            ("FAILOVER ABORT", "ERR No failover in progress."),
            ("FAILOVER TIMEOUT 0", "ERR FAILOVER timeout must be greater than 0"),
            ("SYNC", "NOMASTERLINK Can't SYNC while not connected with my master"),
            ("PSYNC ? -1", "NOMASTERLINK Can't SYNC while not connected with my master"),
            ("REPLCONF foo", "ERR syntax error"),
            ("REPLCONF foo bar", "ERR Unrecognized REPLCONF option: foo"),
            ("CLUSTER INFO", "ERR This instance has cluster support disabled"),
            ("CLUSTER HELP", "ERR This instance has cluster support disabled"),
            ("CLUSTER KEYSLOT", "ERR wrong number of arguments for 'cluster|keyslot' command"),
            ("CLUSTER NO", "ERR unknown subcommand 'NO'. Try CLUSTER HELP."),
            ("ASKING", "ERR This instance has cluster support disabled"),
            ("READONLY", "ERR This instance has cluster support disabled"),
            ("READWRITE", "ERR This instance has cluster support disabled"),
            ("BGSAVE FOO", "ERR syntax error"),
            ("MIGRATE h 1 k 0 x", "ERR value is not an integer or out of range"),
        ],
    )
    def test_refusals_change_nothing(self, run: Run, line: str, text: str) -> None:
        run("SET k v")
        changes = run.engine.databases[0].changes
        assert run.error(line) == text
        assert run.engine.databases[0].changes == changes

    def test_cluster_mode_is_off_for_every_word_of_it(self, run: Run) -> None:
        words = run("COMMAND LIST FILTERBY PATTERN cluster|*")
        assert len(words) > 20
        for name in words:
            (info,) = run("COMMAND", "INFO", name)
            line = name.decode().upper().split("|") + ["x"] * (abs(info[1]) - 2)
            assert run.error(*line) == "ERR This instance has cluster support disabled"

    def test_what_is_harmless_is_accepted(self, run: Run, clock: Timekeeper) -> None:
        assert run("REPLICAOF NO ONE") == OK
        assert run("SLAVEOF NO ONE") == OK
        assert run("REPLCONF listening-port 1") == OK
        assert run("ROLE") == [b"master", 0, []]
        assert run("MODULE LIST") == []
        assert Status(b"LIST") in run("MODULE HELP")
        clock.advance(60)
        assert run("LASTSAVE") == NOW_MS // 1000
        assert run("SAVE") == OK
        assert run("LASTSAVE") == NOW_MS // 1000 + 60
        assert run("BGSAVE").text == b"Background saving started"
        assert run("BGSAVE SCHEDULE").text == b"Background saving started"
        assert run("BGREWRITEAOF").text.startswith(b"Background append only file rewriting")
        assert run("LOLWUT VERSION 5").text.startswith(b"Redis ver. ")

    def test_monitor(self, run: Run) -> None:
        shown: list[object] = []
        port = run.other(transport="port")
        port.session.deliver = shown.append
        assert port("MONITOR") == OK
        run("SET k 'a\nb'")
        run("CONFIG GET port")
        run.engine.abandon(port.session)
        run("GET k")
        assert shown == [[b'%d.000000 [0 127.0.0.1:0] "SET" "k" "a\\nb"' % (NOW_MS // 1000)]]


def test_lolwut_needs_no_number(run: Run) -> None:
    assert run("LOLWUT VERSION") == run("LOLWUT") == run("LOLWUT VERSION 5")
