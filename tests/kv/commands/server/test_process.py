"""Commands about the server process, such as SAVE, SHUTDOWN, REPLICAOF and LOLWUT."""

from __future__ import annotations

from tests.kv.conftest import Run


class TestProcess:
    def test_cluster_mode_is_off_for_every_word_of_it(self, run: Run) -> None:
        words = run("COMMAND LIST FILTERBY PATTERN cluster|*")
        assert len(words) > 20
        for name in words:
            (info,) = run("COMMAND", "INFO", name)
            line = name.decode().upper().split("|") + ["x"] * (abs(info[1]) - 2)
            assert run.error(*line) == "ERR This instance has cluster support disabled"
