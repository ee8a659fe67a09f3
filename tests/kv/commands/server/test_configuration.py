"""CONFIG: reading, changing and rejecting parameters."""

from __future__ import annotations

import re

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.reply import OK, Status
from tests.kv.conftest import Run

FAILED = "ERR CONFIG SET failed (possibly related to argument '{}') - {}"


class TestGet:
    def test_patterns(self, run: Run) -> None:
        assert run("CONFIG GET hz") == [b"hz", b"10"]
        assert run("CONFIG GET HASH-MAX-LISTPACK-*") == [
            *(b"hash-max-listpack-entries", b"512"),
            *(b"hash-max-listpack-value", b"64"),
        ]
        assert len(run("CONFIG GET hz maxmem* hz")) == 12
        assert run("CONFIG GET nothing") == []
        assert run("CONFIG GET key-load*") == []
        assert run("CONFIG GET Key-Load-Delay") == [b"key-load-delay", b"0"]
        assert len(run("CONFIG GET *")) > 300


class TestSet:
    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ("1MB", b"1048576"),
            ("9223372036854775807b", b"9223372036854775807"),
            # A server counts with 64 bits.
            ("18446744073709551616", b"18446744073709551615"),
            ("99999999999gb", b"15140462030378500096"),
            ("", b"0"),
        ],
    )
    def test_amounts_of_memory(self, run: Run, given: str, kept: bytes) -> None:
        assert run("CONFIG", "SET", "maxmemory", given) == OK
        assert run("CONFIG GET maxmemory") == [b"maxmemory", kept]

    def test_the_rhythm_of_a_server_has_bounds(self, run: Run) -> None:
        for given, kept in (("0", b"1"), ("500", b"500"), ("501", b"500")):
            assert run("CONFIG", "SET", "hz", given) == OK
            assert run("CONFIG GET hz") == [b"hz", kept]

    def test_a_share_of_memory(self, run: Run) -> None:
        for given, kept in (("20%", b"20%"), ("20mb", b"20971520"), ("0", b"0"), ("0%", b"0")):
            assert run("CONFIG", "SET", "maxmemory-clients", given) == OK
            assert run("CONFIG GET maxmemory-clients") == [b"maxmemory-clients", kept]

    @pytest.mark.dialect("redis")
    def test_a_password_is_the_only_one_of_the_default_user(self, run: Run) -> None:
        user = run.engine.users["default"]
        run("ACL SETUSER default >first")
        run("CONFIG SET requirepass second")
        assert (user.accepts(b"first"), user.accepts(b"second")) == (False, True)
        assert run.engine.users.visitor() is not user
        other = run.other(user=run.engine.users.visitor(), transport="port")
        assert other.error("GET k") == "NOAUTH Authentication required."
        assert other("AUTH second") == OK
        run("CONFIG", "SET", "requirepass", "")
        assert user.accepts(b"anything")
        assert run.engine.users.visitor() is user
        assert run.other(transport="port").error("AUTH second").startswith("ERR AUTH <password>")

    @pytest.mark.parametrize(
        ("name", "given", "kept"),
        [
            ("save", "", ""),
            ("save", "060 1 900 0", "60 1 900 0"),
            ("save", "99999999999999999999 1", "9223372036854775807 1"),
            (
                "client-output-buffer-limit",
                "",
                "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
            ),
            (
                "client-output-buffer-limit",
                "PUBSUB 1mb 2k +3",
                "normal 0 0 0 slave 268435456 67108864 60 pubsub 1048576 2000 3",
            ),
            (
                "client-output-buffer-limit",
                "replica 1 2 3 normal 4 5 6",
                "normal 4 5 6 slave 1 2 3 pubsub 33554432 8388608 60",
            ),
            ("latency-tracking-info-percentiles", "", ""),
            (
                "latency-tracking-info-percentiles",
                "50.000 1e1 33.3333333333 100",
                "50 10 33.333333 100",
            ),
            ("oom-score-adj-values", "+1 02 -3", "1 2 -3"),
        ],
    )
    def test_several_words(self, run: Run, name: str, given: str, kept: str) -> None:
        assert run("CONFIG", "SET", name, given) == OK
        assert run("CONFIG", "GET", name) == [name.encode(), kept.encode()]

    @pytest.mark.parametrize(
        ("name", "values", "reason"),
        [
            (
                "save",
                ("x", "1", "60  1", "60 1 5", "0 1", "60 -1", "60 1.5"),
                "Invalid save parameters",
            ),
            (
                "client-output-buffer-limit",
                ("normal", "normal 1  2 3", " normal 1 2 3"),
                "Wrong number of arguments in buffer limit configuration.",
            ),
            (
                "client-output-buffer-limit",
                ("foo 0 0 0", "master 0 0 0", "normal 1 2 3 foo 1 2 3"),
                "Invalid client class specified in buffer limit configuration.",
            ),
            (
                "client-output-buffer-limit",
                ("normal 0 0 -1", "normal x 0 0", "normal 1 2 9223372036854775808"),
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            ),
            (
                "latency-tracking-info-percentiles",
                ("x", "50  60", "nan", " 5"),
                "Invalid latency-tracking-info-percentiles parameters",
            ),
            (
                "latency-tracking-info-percentiles",
                ("101", "-1", "inf"),
                "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
            ),
            ("oom-score-adj-values", ("", "1", "1 2 3 4"), "wrong number of arguments"),
            (
                "oom-score-adj-values",
                ("x y z", "-2001 0 0", "0 0 2001"),
                "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
            ),
        ],
    )
    def test_wrong_words(self, run: Run, name: str, values: tuple[str, ...], reason: str) -> None:
        before = run("CONFIG", "GET", name)
        for value in values:
            assert run.error("CONFIG", "SET", name, value) == FAILED.format(name, reason), value
        assert run("CONFIG", "GET", name) == before


class TestOthers:
    def test_resetstat(self, run: Run) -> None:
        run("GET k")
        assert run("CONFIG RESETSTAT") == OK
        assert b"cmdstat_get" not in run("INFO commandstats").text

    @pytest.mark.dialect("redis")
    def test_resetstat_forgets_keys_too(self, run: Run, clock: Timekeeper) -> None:
        run("CONFIG SET maxmemory-policy allkeys-random")
        run("SET gone v PX 1")
        clock.advance(1)
        run("GET gone")
        run("SET there v")
        run("GET there")
        run("SET evicted v")
        run("CONFIG SET maxmemory 1")

        def figures() -> list[bytes]:
            text = run("INFO stats").text
            return re.findall(rb"(?:expired_keys|evicted_keys|keyspace_\w+):\d+", text)

        assert figures() == [
            b"expired_keys:1",
            b"evicted_keys:2",
            b"keyspace_hits:1",
            b"keyspace_misses:1",
        ]
        run("CONFIG RESETSTAT")
        assert figures() == [
            b"expired_keys:0",
            b"evicted_keys:0",
            b"keyspace_hits:0",
            b"keyspace_misses:0",
        ]

    def test_rewrite_and_help(self, run: Run) -> None:
        assert run.error("CONFIG REWRITE") == "ERR The server is running without a config file"
        assert Status(b"RESETSTAT") in run("CONFIG HELP")
        assert run.error("CONFIG FOO") == "ERR unknown subcommand 'FOO'. Try CONFIG HELP."
