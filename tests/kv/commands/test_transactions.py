"""MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.errors import WRONGTYPE, CommandError
from pytest_fakecloud.kv.reply import NIL_ARRAY, OK, QUEUED
from tests.kv.conftest import Run

ABORTED = "EXECABORT Transaction discarded because of previous errors."


class TestExec:
    def test_queued_commands_run_together(self, run: Run) -> None:
        assert run("MULTI") == OK
        assert run("SET k 1") == QUEUED
        assert run("INCR k") == QUEUED
        assert run.other()("GET k") is None
        assert run("EXEC") == [OK, 2]

    def test_a_failing_command_does_not_stop_the_others(self, run: Run) -> None:
        run("MULTI")
        run("SET k 1")
        run("LPUSH k x")
        run("INCR k")
        assert run("EXEC") == [OK, CommandError(WRONGTYPE), 2]

    def test_time_is_constant(self, run: Run) -> None:
        run("MULTI")
        run("TIME")
        run("TIME")
        first, second = run("EXEC")
        assert first == second

    def test_nothing_queued(self, run: Run) -> None:
        run("MULTI")
        assert run("EXEC") == []

    @pytest.mark.parametrize("line", ["NOSUCH", "GET", "XGROUP FOO"])
    def test_a_command_that_cannot_be_queued_discards_all(self, run: Run, line: str) -> None:
        run("MULTI")
        run("SET k 1")
        run.error(line)
        assert run.error("EXEC") == ABORTED
        assert run("GET k") is None

    def test_a_malformed_exec_discards_too(self, run: Run) -> None:
        text = "EXECABORT Transaction discarded because of: "
        text += "wrong number of arguments for 'exec' command"
        run("MULTI")
        assert run.error("EXEC now") == text
        assert run.error("EXEC") == "ERR EXEC without MULTI"

    def test_order_of_words(self, run: Run) -> None:
        assert run.error("EXEC") == "ERR EXEC without MULTI"
        assert run.error("DISCARD") == "ERR DISCARD without MULTI"
        run("MULTI")
        assert run.error("MULTI") == "ERR MULTI calls can not be nested"
        assert run.error("WATCH k") == "ERR WATCH inside MULTI is not allowed"

    def test_discard(self, run: Run) -> None:
        run("MULTI")
        run("SET k 1")
        assert run("DISCARD") == OK
        assert run("GET k") is None


class TestWatch:
    @pytest.mark.parametrize(
        "line",
        ["SET k 2", "DEL k", "EXPIRE k 100", "APPEND k x", "FLUSHALL", "RENAME k j", "INCR k"],
    )
    def test_a_change_by_others_breaks_the_transaction(self, run: Run, line: str) -> None:
        run("SET k 1")
        assert run("WATCH k") == OK
        run.other()(line)
        run("MULTI")
        run("SET done 1")
        assert run("EXEC") is NIL_ARRAY
        assert run("GET done") is None

    @pytest.mark.parametrize("line", ["GET k", "SET other 2", "DEL missing", "EXPIRE missing 9"])
    def test_anything_else_does_not(self, run: Run, line: str) -> None:
        run("SET k 1")
        run("WATCH k")
        run.other()(line)
        run("MULTI")
        assert run("EXEC") == []

    def test_a_key_that_expired_counts_as_changed(self, run: Run, clock: Timekeeper) -> None:
        run("SET k 1 EX 10")
        run("WATCH k")
        clock.advance(10)
        run("MULTI")
        assert run("EXEC") is NIL_ARRAY

    def test_a_key_watched_twice_is_watched_once(self, run: Run) -> None:
        run("WATCH k k")
        run("WATCH k")
        assert run.engine.databases[0].watchers == {b"k": [run.session]}
        run("UNWATCH")
        assert run.engine.databases[0].watchers == {}

    def test_unwatch_and_discard_forget(self, run: Run) -> None:
        for line in ("UNWATCH", "DISCARD"):
            run("WATCH k j")
            run.other()("SET k 1")
            if line == "DISCARD":
                run("MULTI")
            assert run(line) == OK
            run("MULTI")
            assert run("EXEC") == []
        assert run.engine.databases[0].watchers == {}
