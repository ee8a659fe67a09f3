"""SLOWLOG, LATENCY and MEMORY: times that pass, and sizes that are compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import NOW_MS, Run


@pytest.fixture
def slow(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets how far each reading of the clock advances it."""

    def let_take(microseconds: int) -> None:
        now = NOW_MS * 1000

        def now_us() -> int:
            nonlocal now
            now += microseconds
            return now

        monkeypatch.setattr(run.engine.clock, "now_us", now_us)

    return let_take


class TestMemory:
    def test_usage_grows_with_the_value(self, run: Run) -> None:
        for line in ("SADD s {}", "ZADD z 1 {}", "XADD x * f {}", "RPUSH l {}", "HSET h f {}"):
            key = line.split()[1]
            run(line.format("a"))
            before = run(f"MEMORY USAGE {key}")
            run(line.format("b" * 500))
            assert run(f"MEMORY USAGE {key} SAMPLES 5") > before + 490

    @pytest.mark.dialect("redis")
    def test_of_the_server_are_all_databases(self, run: Run) -> None:
        run("SET", "k", "x" * 6_000_000)
        run("SELECT 1")
        stats = run("MEMORY STATS")
        assert stats[stats.index(b"keys.count") + 1] == 1
        assert run("MEMORY DOCTOR").text.startswith(b"Hi Sam, I can't find any memory issue")


class TestLatency:
    def test_events(self, run: Run, slow: Callable[[int], None]) -> None:
        run("CONFIG SET latency-monitor-threshold 1")
        slow(5_000)
        run("HSET h a 1")
        run("HGETALL h")
        assert [event[0] for event in run("LATENCY LATEST")] == [b"fast-command", b"command"]
        assert run("LATENCY HISTORY command")[0][1] == 5
        assert b"command - high 5 ms, low 5 ms" in run("LATENCY GRAPH command").text
        assert run("LATENCY RESET command") == 1
        assert run("LATENCY RESET") >= 1

    def test_histogram(self, run: Run, slow: Callable[[int], None]) -> None:
        run("GET k")
        slow(5)
        run("GET k")
        figures = [b"calls", 2, b"histogram_usec", [1, 1, 4, 2]]
        assert run("LATENCY HISTOGRAM get") == [b"get", figures]
        assert b"get" in run("LATENCY HISTOGRAM")


class TestSlowLog:
    def test_slow_commands_are_kept(
        self, run: Run, slow: Callable[[int], None], clock: Timekeeper
    ) -> None:
        run("SET k v")
        slow(20_000)
        run("SET", "k", "x" * 200)
        run("MSET", *range(40))
        newest, oldest = run("SLOWLOG GET 2")[-2:]
        assert oldest[2] == 20_000
        assert oldest[3] == [b"SET", b"k", b"x" * 128 + b"... (72 more bytes)"]
        assert newest[3][-1] == b"... (10 more arguments)"
        assert len(run("SLOWLOG GET -1")) >= 3
        assert run("SLOWLOG RESET") == OK
