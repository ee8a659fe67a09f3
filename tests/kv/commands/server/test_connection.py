"""Connection commands: AUTH, HELLO, SELECT, RESET, MONITOR and others."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import OK, Status
from tests.kv.conftest import Run


class TestGreetings:
    def test_ping_and_echo(self, run: Run) -> None:
        assert run("PING") == Status(b"PONG")
        assert run("PING hello") == b"hello"
        assert run("ECHO hello") == b"hello"
        assert run.error("PING a b") == "ERR wrong number of arguments for 'ping' command"

    def test_ping_of_a_listener(self, run: Run) -> None:
        run("SUBSCRIBE a")
        assert run("PING") == [b"pong", b""]

    def test_hello(self, run: Run) -> None:
        facts = run("HELLO 3 SETNAME me AUTH default any")
        facts = dict(zip(facts[::2], facts[1::2], strict=True))
        assert facts[b"proto"] == 3
        assert facts[b"mode"] == b"standalone"
        assert run.session.resp == 3
        assert run("CLIENT GETNAME") == b"me"
        assert run.error("HELLO 4") == "NOPROTO unsupported protocol version"
        text = "ERR Protocol version is not an integer or out of range"
        assert run.error("HELLO x") == text
        assert run.error("HELLO 2 FOO") == "ERR Syntax error in HELLO option 'FOO'"

    def test_auth(self, run: Run) -> None:
        assert run("AUTH default anything") == OK
        assert run.error("AUTH secret") == (
            "ERR AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
        text = "WRONGPASS invalid username-password pair or user is disabled."
        assert run.error("AUTH nobody secret") == text
        assert run.error("AUTH default_ro secret") == text
        assert run.error("AUTH a b c") == "ERR syntax error"

    def test_quit_and_reset(self, run: Run) -> None:
        run("MULTI")
        run("SET k 1")
        assert run("RESET") == Status(b"RESET")
        assert run.error("EXEC") == "ERR EXEC without MULTI"
        assert run("QUIT") == OK
        assert run.session.closing


class TestDatabases:
    def test_the_vendor_has_one(self, run: Run) -> None:
        assert run("SELECT 0") == OK
        assert run.error("SELECT 1") == "ERR DB index is out of range"
        assert run.error("SELECT x") == "ERR value is not an integer or out of range"

    @pytest.mark.dialect("redis")
    def test_stock_has_sixteen(self, run: Run) -> None:
        run("SET k 1")
        run("SELECT 15")
        assert run("GET k") is None
        assert run.error("SELECT 16") == "ERR DB index is out of range"

    @pytest.mark.dialect("redis")
    def test_swapdb(self, run: Run) -> None:
        run("SET k 1 EX 10")
        watcher = run.other()
        watcher("WATCH k")
        assert run("SWAPDB 0 1") == OK
        assert run("EXISTS k") == 0
        run("SELECT 1")
        assert run("TTL k") == 10
        watcher("MULTI")
        assert watcher("EXEC") != []
        assert run("SWAPDB 1 1") == OK
        assert run("TTL k") == 10
        assert run.error("SWAPDB x 1") == "ERR invalid first DB index"
        assert run.error("SWAPDB 0 x") == "ERR invalid second DB index"
        assert run.error("SWAPDB 0 99") == "ERR DB index is out of range"


def test_hello_takes_no_name_with_spaces(run: Run) -> None:
    text = "ERR Client names cannot contain spaces, newlines or special characters."
    assert run.other(transport="port").error("HELLO", 3, "SETNAME", "a b") == text
