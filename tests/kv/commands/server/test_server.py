"""Databases as a whole."""

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
