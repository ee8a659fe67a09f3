"""What scripts and functions executed is recorded while a test is observed, and shown in their rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from upstash_redis import Redis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.cloud.base import context_of, show_same
from pytest_fakecloud.core.recorder import SCRIPT_COMMANDS, SharedRecords
from pytest_fakecloud.kv.report.lookups import KVLookups
from pytest_fakecloud.reporting.lookups import lookups_of
from pytest_fakecloud.reporting.render.wording import describe
from pytest_fakecloud.reporting.report import Report, report_of
from tests.harness import Run

TAKE = """
local left = tonumber(redis.call('GET', 'stock:' .. ARGV[1]) or '0')
if left < 1 then return 0 end
redis.call('SET', 'stock:' .. ARGV[1], left - 1)
return redis.call('SADD', KEYS[1], ARGV[2])
"""


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-03-01T12:00:00Z", transport="inprocess") as opened:
        context_of(opened).recorder.shared.records_scripts = True
        yield opened


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


@pytest.fixture
def client(kv: KVServer) -> Redis:
    return kv.client(allow_telemetry=False, rest_retries=0)


def records(cloud: Cloud) -> SharedRecords:
    return context_of(cloud).recorder.shared


def executed(cloud: Cloud) -> list[list[tuple[str, object]]]:
    """Return what the scripts of each call executed, as lines with answers."""
    return [[(" ".join(command.words), command.answer) for command in commands]
            for commands in records(cloud).scripts.values()]  # fmt: skip


def failed(cloud: Cloud, kv: KVServer, key: str) -> Report:
    with pytest.raises(AssertionError) as caught:
        assert kv.value(key) == "nothing of the kind"
    return report_of(cloud, raised=caught.value)


def last_row(report: Report) -> int:
    return report.rows[-1].number


def lines(report: Report) -> list[list[str]]:
    rows = [describe(row, report.lookups) for row in report.rows]
    return [[*words.below, *words.remarks] for words in rows]


def test_commands_of_each_call(cloud: Cloud, client: Redis) -> None:
    client.set("stock:tea", 1)
    for buyer in ("ada", "bob"):
        client.eval(TAKE, keys=["buyers"], args=["tea", buyer])
    client.eval("return 1")
    assert executed(cloud) == [
        [
            ("GET stock:tea", {"result": "1"}), ("SET stock:tea 0", {"result": "OK"}),
            ("SADD buyers ada", {"result": 1}),
        ],
        [("GET stock:tea", {"result": "0"})],
        [],
    ]  # fmt: skip


def test_functions_pipelines_transactions_and_errors(cloud: Cloud, kv: KVServer) -> None:
    function = "#!lua name=shop\nredis.register_function('take', function(keys) " \
        "redis.pcall('INCR', keys[1]); return redis.call('GET', keys[1]) end)"  # fmt: skip
    with redis.Redis.from_url(kv.database_url) as client:
        client.set("a", "text")
        client.function_load(function)
        client.fcall("take", 1, "a")
        with client.pipeline(transaction=True) as pipeline:
            pipeline.eval("return redis.call('GET', KEYS[1])", 1, "a")
            pipeline.eval("return redis.call('STRLEN', KEYS[1])", 1, "a")
            pipeline.execute()
    error = {"error": "ERR value is not an integer or out of range"}
    assert executed(cloud) == [
        [("INCR a", error), ("GET a", {"result": "text"})],
        [("GET a", {"result": "text"}), ("STRLEN a", {"result": 4})],
    ]


def test_nothing_is_recorded_of_the_test_itself_and_unobserved_tests(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    kv.execute("EVAL", "return redis.call('GET', 'a')", 0)
    records(cloud).records_scripts = False
    client.eval("return redis.call('GET', 'a')")
    assert records(cloud).scripts == {}


def test_long_values_and_many_commands_are_cut(cloud: Cloud, client: Redis) -> None:
    client.eval("redis.call('SET', 'a', string.rep('x', 5000)); return redis.call('GET', 'a')")
    client.eval("for i = 1, 1100 do redis.call('PING') end")
    [put, get], pings = records(cloud).scripts.values()
    assert (len(put.words[2]), get.answer) == (257, None)
    assert len(pings) == SCRIPT_COMMANDS


def test_a_key_that_was_not_declared_is_touched(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.set("stock:tea", 1)
    client.eval(TAKE, keys=["buyers"], args=["tea", "ada"])
    report = failed(cloud, kv, "stock:tea")
    assert {last_row(report)} == report.marks.writers < report.marks.touched
    assert not report.marks.refused
    assert lines(report)[-1] == [
        'executed GET stock:tea <-- "1"', "SET stock:tea 0 <-- OK", "SADD buyers ada <-- 1"
    ]  # fmt: skip


def test_a_key_that_was_only_declared_is_not_touched(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    client.set("a", 1)
    client.eval("if ARGV[1] == '1' then redis.call('SET', KEYS[1], 2) end", keys=["a"], args=["2"])
    report = failed(cloud, kv, "a")
    assert report.marks.touched == report.marks.writers == {report.rows[0].number}


@pytest.mark.parametrize(
    ("script", "is_refused"),
    [
        ("redis.call('GET', 'b')", False), ("redis.call('SETNX', 'a', '2')", True),
        ("redis.pcall('INCR', 'a')", True), ("redis.call('DEL', 'a')", False),
    ],
)  # fmt: skip
def test_a_script_is_refused_if_a_write_of_it_was(
    cloud: Cloud, kv: KVServer, client: Redis, script: str, is_refused: bool
) -> None:
    client.set("a", "text")
    client.eval(script)
    report = failed(cloud, kv, "a")
    assert (last_row(report) in report.marks.refused) is is_refused


def test_a_ttl_that_a_script_removed(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.set("stock:tea", 1, ex=60)
    client.eval(TAKE, keys=["buyers"], args=["tea", "ada"])
    report = failed(cloud, kv, "stock:tea")
    [finding] = report.findings
    assert (finding.kind, finding.row_numbers) == ("ttl_removed", (last_row(report),))


def test_credentials_are_masked(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.eval(
        "redis.call('SET', ARGV[1], ARGV[1]); return redis.call('GET', ARGV[1])", args=[kv.token]
    )
    [commands] = lookups_of(cloud, cloud.journal.entries, []).of(KVLookups).script_commands.values()
    assert [(command.words[1:], command.answer) for command in commands] == [
        (["***", "***"], {"result": "OK"}), (["***"], {"result": "***"})
    ]  # fmt: skip


def test_a_row_has_the_fractions_that_are_cut(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.set("a", 1)
    assert client.eval("redis.call('GET', 'a'); return 0.5") == 0
    assert client.eval("return {1, -2.75, -2.75, 1.5, 2.5, 3.5}") == [1, -2, -2, 1, 2, 3]
    report = failed(cloud, kv, "a")
    assert lines(report)[1:] == [
        ['executed GET a <-- "1"', "the script returned 0.5, which is cut to 0"],
        [f"the script returned {number}, which is cut to {int(number)}" for number in (-2.75, 1.5, 2.5)],
    ]  # fmt: skip


def test_commands_are_forgotten_with_their_calls_and_shown_in_copies(
    cloud: Cloud, client: Redis
) -> None:
    client.eval("return redis.call('PING')")
    copy = Cloud(seed=2, now="2026-03-01T12:00:00Z")
    with copy:
        show_same(copy, cloud)
        assert records(copy).scripts == records(cloud).scripts != {}
    cloud.journal.clear()
    assert records(cloud).scripts == {}


def test_a_test_with_a_report_is_observed(run: Run) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("is_observed", [True])
        def test_it(kv_server, fakecloud, is_observed):
            kv_server.client().eval("return redis.call('PING')")
            scripts = fakecloud.journal._recorder.shared.scripts
            assert [len(commands) for commands in scripts.values()] == [1] * is_observed
    """
    run(source).assert_outcomes(passed=1)
    source = source.replace("[True]", "[False]")
    run(source, "--fakecloud-journal=never").assert_outcomes(passed=1)
