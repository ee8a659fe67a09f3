"""Transactions, apart from the scenarios: the engine's record of watched keys."""

from __future__ import annotations

from tests.kv.conftest import Run


def test_watched_keys_are_recorded_once_and_forgotten(run: Run) -> None:
    watchers = run.engine.databases[0].watchers
    for lines in (("UNWATCH",), ("MULTI", "DISCARD"), ("MULTI", "EXEC")):
        run("WATCH k k")
        run("WATCH k")
        assert watchers == {b"k": [run.session]}
        for line in lines:
            run(line)
        assert watchers == {}
