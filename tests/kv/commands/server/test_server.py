"""Commands for whole databases: DBSIZE, FLUSHALL, SWAPDB, and lazy freeing."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import NOW_MS, Run


class TestDatabases:
    @pytest.mark.parametrize("name", ["FLUSHDB", "FLUSHALL"])
    def test_flushing(self, run: Run, name: str) -> None:
        for mode in ("", "SYNC", "ASYNC"):
            run("SET k 1 EX 10")
            assert run("DBSIZE") == 1
            assert run(f"{name} {mode}") == OK
            assert run("DBSIZE") == 0
        assert run.error(f"{name} FOO") == "ERR syntax error"

    def test_time_is_the_clocks(self, run: Run, clock: Timekeeper) -> None:
        clock.advance("1500ms")
        assert run("TIME") == [b"%d" % (NOW_MS // 1000 + 1), b"500000"]


class TestFlushesInTheBackground:
    def lazily(self, run: Run) -> str:
        lines = bytes(run("INFO memory").text).decode().splitlines()
        return next(line for line in lines if line.startswith("lazyfreed_objects:"))

    def test_only_their_keys_are_counted_until_resetstat(self, run: Run) -> None:
        for line, count in (("FLUSHDB ASYNC", 2), ("FLUSHALL async", 4), ("FLUSHALL SYNC", 4)):
            run("MSET a 1 b 2")
            assert run(line) == OK
            assert run("DBSIZE") == 0
            assert self.lazily(run) == f"lazyfreed_objects:{count}"
        run("FLUSHALL ASYNC")
        assert self.lazily(run) == "lazyfreed_objects:4"
        run("CONFIG RESETSTAT")
        assert self.lazily(run) == "lazyfreed_objects:0"

    def test_a_parameter_says_what_a_flush_without_a_word_is(self, run: Run) -> None:
        run("SET a 1")
        run("FLUSHALL")
        assert self.lazily(run) == "lazyfreed_objects:0"
        run("CONFIG SET lazyfree-lazy-user-flush yes")
        run("SET a 1")
        run("FLUSHDB")
        assert self.lazily(run) == "lazyfreed_objects:1"

    @pytest.mark.dialect("redis")
    def test_every_database_counts(self, run: Run) -> None:
        run("SET a 1")
        run("SELECT 1")
        run("SET b 1")
        run("FLUSHALL ASYNC")
        assert self.lazily(run) == "lazyfreed_objects:2"
