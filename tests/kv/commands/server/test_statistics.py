"""INFO, SLOWLOG, LATENCY and MEMORY."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.reply import OK, Status
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


class TestInfo:
    def test_sections(self, run: Run) -> None:
        text = run("INFO").text.decode()
        for heading in ("# Server", "# Clients", "# Memory", "# Stats", "# CPU", "# Keyspace"):
            assert heading in text
        assert "# Commandstats" not in text
        assert "# Commandstats" in run("INFO everything").text.decode()
        assert run("INFO server").text.startswith(b"# Server\r\nredis_version:8.2.0\r\n")
        both = run("INFO keyspace cluster").text
        assert both == b"# Keyspace\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n"

    def test_an_unknown_section_is_a_bare_heading(self, run: Run) -> None:
        assert run("INFO nosuch").text == b"# Nosuch\r\n"

    @pytest.mark.dialect("redis")
    def test_stock_shows_nothing_for_it(self, run: Run) -> None:
        assert run("INFO nosuch").text == b""
        assert b"redis_version:7.0.15" in run("INFO").text

    def test_keys_and_counts(self, run: Run) -> None:
        run("SET a 1 EX 10")
        run("SET b 1")
        run.error("INCRBY a x")
        run.error("GET")
        assert run("INFO keyspace").text == b"# Keyspace\r\ndb0:keys=2,expires=1,avg_ttl=10000\r\n"
        text = run("INFO commandstats").text
        assert b"cmdstat_set:calls=2,usec=0,usec_per_call=0.00,rejected_calls=0" in text
        assert (
            b"cmdstat_incrby:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"
            in text
        )
        assert b"cmdstat_get:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1" in text
        assert run("INFO errorstats").text == b"# Errorstats\r\nerrorstat_ERR:count=2\r\n"
        assert b"latency_percentiles_usec_set:p50=1.000" in run("INFO latencystats").text


class TestMemory:
    def test_usage_grows_with_the_value(self, run: Run) -> None:
        run("SET small x")
        run("SET", "big", "x" * 1000)
        run("HSET h a 1")
        run("RPUSH l 1 2 3")
        sizes = [run(f"MEMORY USAGE {key}") for key in ("small", "big", "h", "l")]
        assert all(size > 40 for size in sizes)
        assert sizes[1] > sizes[0] + 900
        assert run("MEMORY USAGE small SAMPLES 5") == sizes[0]
        for line in ("SADD s {}", "ZADD z 1 {}", "XADD x * f {}", "RPUSH l {}"):
            key = line.split()[1]
            run(line.format("a"))
            before = run(f"MEMORY USAGE {key}")
            run(line.format("b" * 500))
            assert run(f"MEMORY USAGE {key}") > before + 500
        assert run("MEMORY USAGE missing") is None
        assert run.error("MEMORY USAGE small SAMPLES -1") == "ERR syntax error"
        assert run.error("MEMORY USAGE small FOO 1") == "ERR syntax error"

    def test_the_rest(self, run: Run) -> None:
        run("SET k v")
        stats = run("MEMORY STATS")
        assert stats[stats.index(b"keys.count") + 1] == 1
        assert run("MEMORY DOCTOR").text.startswith(b"Hi Sam, this instance is empty")
        run("SET", "k", "x" * 6_000_000)
        assert run("MEMORY DOCTOR").text.startswith(b"Hi Sam, I can't find any memory issue")
        assert run("MEMORY MALLOC-STATS").text.startswith(b"Stats not supported")
        assert run("MEMORY PURGE") == OK
        assert Status(b"USAGE <key> [SAMPLES <count>]") in run("MEMORY HELP")


class TestLatency:
    def test_events(self, run: Run, slow: Callable[[int], None]) -> None:
        assert run("LATENCY LATEST") == []
        assert run("LATENCY DOCTOR").text.startswith(b"I'm sorry, Dave")
        run("CONFIG SET latency-monitor-threshold 1")
        assert run("LATENCY DOCTOR").text.startswith(b"Dave, no latency spike")
        slow(5_000)
        run("HSET h a 1")
        run("HGETALL h")
        assert [event[0] for event in run("LATENCY LATEST")] == [b"fast-command", b"command"]
        assert run("LATENCY HISTORY command")[0][1] == 5
        assert b"command - high 5 ms, low 5 ms" in run("LATENCY GRAPH command").text
        assert run("LATENCY RESET command") == 1
        assert run("LATENCY RESET") >= 1
        assert run("LATENCY HISTORY nothing") == []
        text = "ERR No samples available for event 'nothing'"
        assert run.error("LATENCY GRAPH nothing") == text
        assert Status(b"LATEST") in run("LATENCY HELP")

    def test_histogram(self, run: Run, slow: Callable[[int], None]) -> None:
        run("GET k")
        slow(5)
        run("GET k")
        figures = [b"calls", 2, b"histogram_usec", [1, 1, 4, 2]]
        assert run("LATENCY HISTOGRAM get") == [b"get", figures]
        assert run("LATENCY HISTOGRAM nothing") == []
        assert b"get" in run("LATENCY HISTOGRAM")


class TestSlowLog:
    def test_slow_commands_are_kept(
        self, run: Run, slow: Callable[[int], None], clock: Timekeeper
    ) -> None:
        run("SET k v")
        assert run("SLOWLOG LEN") == 0
        slow(20_000)
        run("SET", "k", "x" * 200)
        run("MSET", *range(40))
        newest, oldest = run("SLOWLOG GET 2")[-2:]
        assert oldest[2] == 20_000
        assert oldest[3] == [b"SET", b"k", b"x" * 128 + b"... (72 more bytes)"]
        assert newest[3][-1] == b"... (10 more arguments)"
        assert len(run("SLOWLOG GET -1")) >= 3
        assert run("SLOWLOG RESET") == OK

    def test_thresholds(self, run: Run) -> None:
        run("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2")
        for _ in range(5):
            run("PING")
        assert run("SLOWLOG LEN") == 2
        run("CONFIG SET slowlog-log-slower-than -1")
        run("SLOWLOG RESET")
        run("PING")
        assert run("SLOWLOG LEN") == 0

    def test_refusals(self, run: Run) -> None:
        text = "ERR count should be greater than or equal to -1"
        assert run.error("SLOWLOG GET -2") == text
        assert run.error("SLOWLOG GET x") == text
        assert run.error("SLOWLOG GET 1 2").startswith("ERR unknown subcommand or wrong number")
        assert Status(b"LEN") in run("SLOWLOG HELP")
