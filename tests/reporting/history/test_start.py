"""Where a history starts, and which writes it lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import flask
import httpx
import pytest
import redis
from upstash_redis import Redis
from upstash_workflow.flask import Serve

from pytest_fakecloud import Cloud, KVServer, always, at_most_one, eventually, nothing_lost, once
from pytest_fakecloud.core.calls import Call
from pytest_fakecloud.process.stacks import Stacks
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.report.accesses import accesses
from pytest_fakecloud.reporting.asserted import UnequalValues, compared_items, source_at
from pytest_fakecloud.reporting.calls import Lookups, lookups_of
from pytest_fakecloud.reporting.history_wording import (
    expected_texts,
    gap_texts,
    headline,
    lines,
    start_text,
    who,
)
from pytest_fakecloud.reporting.model import ReportRow, ValueHistory
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.reporting.rows import rows as rows_of


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(
        seed=1, now="2026-03-01T12:00:00Z", transport="inprocess", delivery="driven"
    ) as opened:
        opened.journal._recorder.shared.find_stack = Stacks()
        yield opened


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


@pytest.fixture
def client(kv: KVServer) -> Redis:
    client = kv.client()
    for key in ("a", "b", "c"):
        client.set(key, f"value of {key}")
    return client


def history(cloud: Cloud, fail: Callable[[], None], *sides: Any) -> ValueHistory:
    """Return the history of a failure; ``sides`` are the values that the failing statement compared."""
    with pytest.raises(AssertionError) as failed:
        fail()
    compared = UnequalValues(fail.__code__, *sides) if sides else None
    start_history = report_of(cloud, raised=failed.value, compared=compared).history
    assert start_history is not None
    return start_history


def keys(cloud: Cloud, fail: Callable[[], None]) -> list[str]:
    """Return the keys that the failing statement compared."""
    return [sought.subject.name for sought in history(cloud, fail).start.sought]


def test_a_look_in_the_statement(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        kv.value("a")
        assert (
            kv.value("b")
            == ""
        )  # fmt: skip

    assert keys(cloud, fail) == ["b"]


def test_the_last_round_of_a_loop(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        for key in ("a", "b", "c"):
            assert kv.value(key) != "value of b"

    assert keys(cloud, fail) == ["b"]


def test_all_looks_of_a_comprehension(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert [kv.value(key) for key in ("a", "c")] == []

    assert keys(cloud, fail) == ["a", "c"]


def value_of(kv: KVServer, key: str) -> object:
    return kv.value(key)


def test_a_look_in_a_function_of_the_test(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        value_of(kv, "a")
        kv.value("b")
        assert value_of(kv, "c") is None

    assert keys(cloud, fail) == ["c"]


def test_a_look_from_which_a_name_was_assigned(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        value = kv.value("a")
        kv.value("b")
        length = len(str(value))
        assert length == 0

    assert keys(cloud, fail) == ["a"]


def test_a_call_of_a_client_in_the_statement(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert client.get("b") is None

    assert keys(cloud, fail) == ["b"]
    assert history(cloud, fail).start.kind == "called"


def read(client: Redis, key: str) -> object:
    return client.get(key)


def test_a_call_in_a_function_that_other_statements_call(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        assert read(client, "a") == "value of a"
        assert read(client, "b") is None

    assert keys(cloud, fail) == ["b"]


def test_a_vector_that_the_same_query_had_found_before(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    client = index.client()
    client.upsert(
        [("tea", [1.0, 0.0], {"room": "kitchen"}), ("cup", [0.0, 1.0], {"room": "kitchen"})]
    )

    def found() -> list[str]:
        return [hit.id for hit in client.query(vector=[1.0, 0.1], filter="room = 'kitchen'")]

    def fail() -> None:
        assert found() == ["tea", "cup"]
        client.update("cup", metadata={"stock": 4})
        assert found() == ["tea", "cup"]

    result = history(cloud, fail)
    [update] = [row for row in result.rows if row.access.what.startswith("update cup (stock=4)")]
    assert (update.is_read, update.lost) == (False, ("room",))
    assert start_text(result, Lookups()).startswith(
        "The failing statement read tea; an earlier equal request had read cup ("
    )


def test_a_function_that_changes_what_is_compared(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    sent: list[object] = []

    def send() -> None:
        sent.append(client.get("c"))

    def fail() -> None:
        send()
        client.get("a")
        assert sent == []

    result = history(cloud, fail)
    assert (result.start.kind, result.start.by) == ("changed", ("send",))
    assert [sought.subject.name for sought in result.start.sought] == ["c"]


class Inbox:
    """Destination handlers that make no calls, each of which changes an attribute."""

    def __init__(self) -> None:
        self.received: list[object] = []
        self.others: list[object] = []
        self.as_lambda = lambda request: self.received.append(request.json())
        self.pair = (lambda request: self.received.append(1), lambda request: self.others.append(1))

    def as_method(self, request: DeliveredRequest) -> None:
        self.received.append(request.json())

    async def as_coroutine(self, request: DeliveredRequest) -> None:
        self.received.append(request.json())

    def of_others(self, request: DeliveredRequest) -> None:
        self.others.append(request.json())


def decorated(handler: Callable[[DeliveredRequest], None]) -> Callable[[DeliveredRequest], None]:
    @wraps(handler)
    def handle(request: DeliveredRequest) -> None:
        handler(request)

    return handle


@pytest.mark.parametrize(
    ("handler_of", "by"),
    [
        (lambda inbox: inbox.as_lambda, "a lambda"),
        (lambda inbox: inbox.as_method, "as_method()"),
        (lambda inbox: inbox.as_coroutine, "as_coroutine()"),
        (lambda inbox: decorated(inbox.as_method), "as_method()"),
        (lambda inbox: inbox.of_others, ""),
        (lambda inbox: inbox.pair[0], ""),
    ],
    ids=["lambda", "method", "coroutine", "decorated", "of others", "two lambdas in one line"],
)
def test_deliveries_to_a_handler_that_changes_what_is_compared(
    cloud: Cloud, handler_of: Callable[[Inbox], Any], by: str
) -> None:
    queue = cloud.queue()
    inbox = Inbox()
    queue.destinations.call("https://hotel.example.com/bookings", handler_of(inbox))
    queue.destinations.call("https://hotel.example.com/meals", lambda request: None)
    messages = queue.client().message
    published = [messages.publish_json(url="https://hotel.example.com/bookings", body=number)
                 for number in range(3)]  # fmt: skip
    messages.publish_json(url="https://hotel.example.com/meals", body="tea")
    queue.run_until_idle()

    def fail() -> None:
        assert inbox.received == [0, 1]

    result = history(cloud, fail)
    if not by:
        assert result.start.kind == "last_call"
        return
    ids = [message.message_id for message in published]
    assert [sought.subject.name for sought in result.start.sought] == ids
    assert start_text(result, Lookups()).endswith(
        f" in {by} (test_start.py:{result.start.place.line})"
    )
    rows = [row.access.subject.name for row in result.rows if row.access.what.startswith("attempt")]
    assert rows == ids


@pytest.mark.parametrize(
    ("promise_of", "look", "name", "read"),
    [
        (lambda number: once("n"), "kv_server.value('n')", "n", ["INCR n <-- 2"]),
        (
            lambda number: always(lambda: number() < 1),
            "kv_server.integer('n')",
            "n",
            ["INCR n <-- 1"],
        ),
        (at_most_one, "kv_server.integer('n')", "n", ["INCR n <-- 2"]),
        (
            lambda number: eventually(lambda: number() < 1, within=1),
            "kv_server.integer('n')",
            "n",
            ["INCR n <-- 2"],
        ),
        (lambda number: nothing_lost("orders", list), "broker.records('orders')", "orders", []),
    ],
    ids=["once", "always", "at_most_one", "eventually", "nothing_lost"],
)
def test_what_a_broken_promise_of_an_exploration_read(
    cloud: Cloud, kv: KVServer, promise_of: Any, look: str, name: str, read: list[str]
) -> None:
    client = kv.client(allow_telemetry=False)
    producer = cloud.broker(topics={"orders": 1}).client()
    promise = promise_of(lambda: kv.integer("n") or 0)

    def work() -> None:
        producer.post("/produce/orders", json={"value": "tea"})
        client.incr("n")
        client.set("done", "1")

    def fail() -> None:
        cloud.explore({"a": work, "b": work}, promise, budget=20)

    result = history(cloud, fail)
    marked = [f"{row.access.what} <-- {row.access.result}" for row in result.rows if row.is_read]
    assert result.start.looks == (look,)
    assert {row.access.subject.name for row in result.rows} == {name}
    assert marked == read


def test_a_promise_that_holds_again_has_read_what_broke_it(cloud: Cloud, kv: KVServer) -> None:
    client = kv.client(allow_telemetry=False)
    kv.load({"stock": 1})

    def buy() -> None:
        if client.decr("stock") < 0:
            client.incr("stock")

    def fail() -> None:
        cloud.explore(buy, always(lambda: kv.integer("stock") >= 0), budget=20)

    result = history(cloud, fail)
    assert [(row.access.what, row.access.result) for row in result.rows if row.is_read] == [
        ("DECR stock", "-1")
    ]
    assert (result.rows[-1].access.what, result.rows[-1].access.result) == ("INCR stock", "0")


def test_a_field_or_member_that_the_statement_does_not_expect(cloud: Cloud, kv: KVServer) -> None:
    client = kv.client()
    for name in ("tea", "jug"):
        client.hset("prices", name, "1")
        client.sadd("names", name)

    def compare_fields() -> None:
        assert kv.value("prices") == {"tea": "1"}

    def compare_members() -> None:
        assert kv.value("names") == {"tea"}

    def compare_a_field() -> None:
        prices: Any = kv.value("prices")
        assert prices["tea"] == "2"

    for fail, *sides, parts in (
        (compare_fields, {"tea": "1", "jug": "1"}, {"tea": "1"}, ["tea", "jug"]),
        (compare_members, {"tea", "jug"}, {"tea"}, ["tea", "jug"]),
        (compare_a_field, "1", "2", ["tea"]),
    ):
        assert [row.access.part for row in history(cloud, fail, *sides).rows] == parts


def test_a_statement_that_reads_nothing(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert client is None

    result = history(cloud, fail)
    assert result.start.kind == "last_call"
    assert [row.access.what for row in result.rows] == ['SET c "value of c"']
    assert not any(row.is_read for row in result.rows)


def test_the_failure_of_a_test_without_a_failed_statement(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    violation = pytest.fail.Exception("the test passed, but with 1 strict-mode violation")
    result = report_of(cloud, raised=violation).history
    assert result is not None
    assert (
        start_text(result, Lookups()) == "No statement failed; this is the history of the last call"
    )


def test_a_last_call_that_read_what_nothing_has_written(cloud: Cloud, kv: KVServer) -> None:
    kv.client().get("a")

    def fail() -> None:
        assert kv is None

    start = start_text(history(cloud, fail), Lookups())
    assert start.startswith(
        "The failing statement read none of the fakes' data; this is the history"
    )
    assert start.endswith("; nothing has written a")


def test_a_failed_statement_without_source(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    with pytest.raises(AssertionError) as failed:
        exec("def fail(): assert False\nfail()", {"__name__": "shop"})
    raised = failed.value.with_traceback(failed.tb.tb_next)  # without the frame of this test
    result = report_of(cloud, raised=raised).history
    assert result is not None
    assert start_text(result, Lookups()).startswith(
        "The failing statement read none of the fakes' data"
    )


def test_rejected_and_unanswered_writes_and_deletions(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        with pytest.raises(Exception, match="WRONGTYPE"):
            client.lpush("a", "x")
        kv.faults.lose_response(times=1)
        with pytest.raises(Exception):  # noqa: B017
            kv.client(allow_telemetry=False, rest_retries=0).append("a", "!")
        client.delete("a")
        assert kv.value("a") == "value of a"

    rows = history(cloud, fail).rows
    shown = [(row.access.what, row.access.succeeded, row.is_read) for row in rows]
    assert shown == [
        ('SET a "value of a"', True, False),
        ("LPUSH a x", False, False),
        ("APPEND a !", None, False),
        ("DEL a", True, True),
    ]


def test_a_write_whose_condition_was_not_met(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        client.set("a", "other", nx=True)
        assert kv.value("a") == "other"

    result = history(cloud, fail)
    answers = [line.answer for line in lines(result, {}, lookups_of(cloud, []))]
    assert answers == ["OK", "null (wrote nothing)"]
    assert [row.is_read for row in result.rows] == [True, False]


def test_a_write_of_the_same_calls_after_the_read_has_no_row(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def take() -> str | None:
        value = client.get("a")
        client.delete("a")
        return value

    def fail() -> None:
        assert take() == "other"

    rows = history(cloud, fail).rows
    assert [(row.access.what, row.is_read) for row in rows] == [
        ('SET a "value of a"', True),
        ("GET a", False),
    ]


def test_a_write_after_the_look_is_not_what_was_read(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        value = kv.value("a")
        client.delete("a")
        assert value == "other"

    assert [row.is_read for row in history(cloud, fail).rows] == [True, False]


@pytest.mark.parametrize("protocol", ["rest", "resp"])
def test_an_interruption_comes_before_the_command_that_waited_for_it(
    cloud: Cloud, kv: KVServer, client: Redis, protocol: str
) -> None:
    interrupted: Any = client if protocol == "rest" else redis.Redis.from_url(kv.database_url)

    def fail() -> None:
        with kv.between(("GET", "SET"), run=["DEL", "a"]):
            interrupted.get("b")
            interrupted.set("a", "stale")
        assert kv.value("a") is None

    rows = history(cloud, fail).rows
    assert [row.access.what for row in rows if row.step == 0] == [
        'SET a "value of a"',
        "DEL a",
        "SET a stale",
    ]


def test_a_call_read_the_data_after_a_look(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        before = kv.value("a")
        client.set("a", "new")
        assert client.get("a") == before

    assert [(row.access.what, row.is_read) for row in history(cloud, fail).rows] == [
        ('SET a "value of a"', False),
        ("SET a new", True),
    ]


def test_writes_of_several_keys_are_in_the_order_of_the_journal(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        client.set("a", "new a")
        assert (kv.value("b"), kv.value("a")) == ("", "")

    assert [row.access.what for row in history(cloud, fail).rows] == [
        'SET a "value of a"',
        'SET b "value of b"',
        'SET a "new a"',
    ]


def test_a_write_of_the_same_value_is_not_made_from_it(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def promote() -> None:
        client.hget("tiers", "ada")
        client.hset("tiers", "ada", "gold" if int(client.get("points") or 0) > 800 else "basic")

    def fail() -> None:
        kv.load({"points": 1000})
        promote()
        promote()
        assert kv.hash("tiers") == {"ada": "silver"}

    last = [row for row in history(cloud, fail).rows if row.step == 0][-1]
    assert [(origin.access.what, origin.has_value) for origin in last.origins] == [
        ("GET points", False)
    ]


def test_a_write_that_a_fault_kept_from_the_server(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        kv.faults.respond(503, times=1)
        with pytest.raises(Exception):  # noqa: B017
            kv.client(allow_telemetry=False, rest_retries=0).append("a", "!")
        assert kv.value("a") == "value of a!"

    [written, rejected] = history(cloud, fail).rows
    assert (written.is_read, rejected.is_read) == (True, False)
    assert rejected.access.result == "503 Service Unavailable (fault: respond 503), not executed"


TAKE = """
local left = tonumber(redis.call('GET', KEYS[1]))
if left < 1 then return 0 end
redis.call('SET', KEYS[1], left - 1)
return redis.call('HINCRBY', 'taken', ARGV[1], 1)
"""


def test_writes_of_scripts_are_the_commands_that_they_executed(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        kv.load({"left": 1})
        connection = redis.Redis.from_url(kv.database_url)
        with connection.pipeline() as pipeline:
            pipeline.eval(TAKE, 1, "left", "ada")
            pipeline.eval(TAKE, 1, "left", "bob")
            pipeline.execute()
        connection.close()
        assert (kv.value("left"), kv.hash("taken")) == ("0", {})

    rows = [row for row in history(cloud, fail).rows if " in EVAL " in row.access.what]
    assert [(row.access.what.partition(" in ")[0], row.access.result) for row in rows] == [
        ("SET left 0", "OK"),
        ("HINCRBY taken ada 1", "1"),
    ]


def test_a_script_that_cannot_be_replayed_may_have_written_its_keys(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        client.eval("return redis.call('SET', KEYS[1], 'b')", ["a"])
        kv.journal.clear()
        client.eval("return redis.call('APPEND', KEYS[1], 'c')", ["a"])
        assert kv.value("a") == "b"

    [row] = history(cloud, fail).rows
    assert row.access.what.endswith("KEYS a (a script that may write it)")


def test_writes_of_several_connections_name_them(cloud: Cloud, kv: KVServer) -> None:
    first, second = (redis.Redis.from_url(kv.database_url) for _ in range(2))

    def fail() -> None:
        first.set("lock", "first", nx=True)
        second.delete("lock")
        assert kv.value("lock") == "first"

    changes = history(cloud, fail)
    report = report_of(cloud)
    rows = {row.number: row for row in report.rows}
    named = [line.by for line in lines(changes, rows, report.lookups)]
    first.close()
    second.close()
    assert named == ["connection 1", "connection 2"]


def test_a_value_made_from_another_key(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        client.set("copy", str(client.get("b")))
        assert kv.value("copy") is None

    rows = history(cloud, fail).rows
    assert [(row.step, row.access.subject.name) for row in rows] == [(0, "copy"), (1, "b")]
    [origin] = rows[0].origins
    assert (origin.access.subject.name, origin.has_value) == ("b", True)


def test_a_value_that_an_earlier_write_returned(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        client.incrby("total", 1200)
        client.set("shown", client.incrby("total", 300))
        assert kv.value("shown") is None

    rows = history(cloud, fail).rows
    assert [(row.step, row.access.what) for row in rows] == [
        (0, "SET shown 1500"),
        (1, "INCRBY total 1200"),
        (1, "INCRBY total 300"),
    ]


def test_equal_writes_in_succession_are_one_row(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        client.set("price", "9")
        for _ in range(10):
            client.set("price", "12")
        assert kv.value("price") == "9"

    rows = history(cloud, fail).rows
    assert [(row.access.what, row.times) for row in rows] == [
        ("SET price 9", 1),
        ("SET price 12", 10),
    ]


def test_the_message_of_a_delivery_that_wrote_another_value(cloud: Cloud, kv: KVServer) -> None:
    queue = cloud.queue()
    client = kv.client()

    def mark(request: object) -> int:
        client.set("state", "failed")
        return 200

    queue.destinations.call("https://app.example.com/failed", mark)

    def fail() -> None:
        queue.client().message.publish_json(
            url="https://app.example.com/failed", body={"trip": "t-1"}
        )
        queue.run_until_idle()
        assert kv.value("state") == "done"

    written, published = history(cloud, fail).rows
    assert (written.access.what, [origin.has_value for origin in written.origins]) == (
        "SET state failed",
        [False],
    )
    assert (published.step, published.access.subject.kind) == (1, "message")


def test_the_step_of_a_workflow_whose_result_another_step_used(cloud: Cloud) -> None:
    """All steps have a kind, and many have no result, so that these say nothing about the source."""
    queue = cloud.queue()
    app = flask.Flask("shop")
    url = "https://shop.example.com/flow"

    @Serve(app).route("/flow", url=url, qstash_client=queue.client(), receiver=None)
    def flow(context: Any) -> None:
        context.run("greet", lambda: None)
        price = context.run("price", lambda: "7 EUR")
        context.run("log", lambda: None)
        context.run("charge", lambda: {"charged": price})

    queue.destinations.wsgi("https://shop.example.com", app)
    queue.publish(url, json={"user": "ada"})

    def fail() -> None:
        queue.run_until_idle()
        assert queue.messages() == []

    published = [row for row in history(cloud, fail).rows if row.access.what.startswith("step ")
                 and row.access.result.startswith("message")]  # fmt: skip
    names = {row.access.subject.name: row.access.what.split('"')[1] for row in published}
    sources = {
        names[row.access.subject.name]: [
            names[origin.access.subject.name] for origin in row.origins if origin.has_value
        ]
        for row in published
    }
    assert sources == {"greet": [], "price": [], "log": [], "charge": ["price"]}


def test_a_value_computed_from_another_key(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def buy() -> None:
        client.get("a")
        client.lpush("orders", 2 * int(client.get("price") or 0))

    def fail() -> None:
        kv.load({"price": 800})
        buy()
        assert kv.value("orders") is None

    rows = history(cloud, fail).rows
    assert [(row.step, row.access.what) for row in rows] == [
        (0, "LPUSH orders 1600"),
        (1, 'SET a "value of a"'),
        (1, "load price"),
    ]
    assert [(origin.access.subject.name, origin.has_value) for origin in rows[0].origins] == [
        ("price", False),
        ("a", False),
    ]


def test_reads_of_an_earlier_round_are_no_origin(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        for key in ("a", "b"):
            client.lpush("lengths", 100 * len(str(client.get(key))))
        assert kv.value("lengths") is None

    rows = [row for row in history(cloud, fail).rows if row.step == 0]
    names = [[origin.access.subject.name for origin in row.origins] for row in rows]
    assert names == [["a"], ["b"]]


def test_a_short_value_alone_is_no_source(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        kv.load({"limits": {"bob": "4"}})
        client.hgetall("limits") and client.ltrim("timeline:bob", 0, 4)
        assert kv.value("timeline:bob") == []

    assert not any(origin.has_value for row in history(cloud, fail).rows for origin in row.origins)


def test_requests_about_a_message_write_this_message(cloud: Cloud) -> None:
    queue = cloud.queue()
    message = queue.publish("https://app.example.com/lapsed", delay="1h")
    path = f"/v2/messages/{message.id}"
    lookups = lookups_of(cloud, [])
    for method, target in (("POST", f"{path}/retry"), ("GET", path), ("DELETE", path),
                           ("POST", "/v2/schedules/https://app.example.com/messages/7")):  # fmt: skip
        httpx.request(method, queue.url + target, headers=queue.headers)
    written = [
        (access.what.split()[0], access.subject.name)
        for row in rows_of(cloud)
        if isinstance(row.entry, Call)
        for access in accesses(row, lookups)
        if access.writes
    ]
    assert written == [("POST", message.id), ("DELETE", message.id)]


def test_a_delivery_that_wrote_nothing(cloud: Cloud, kv: KVServer) -> None:
    queue = cloud.queue()
    client = kv.client()
    kv.load({"hold:A2": "bob"})

    def offer(request: Any) -> int:
        seat = request.json()["seat"]
        if not client.exists(f"hold:{seat}"):
            client.rpush("offers", seat)
        return 200

    queue.destinations.call("https://app.example.com/lapsed", offer)

    def fail() -> None:
        for seat in ("A2", "A3"):
            queue.publish("https://app.example.com/lapsed", json={"seat": seat})
        queue.run_until_idle()
        assert kv.value("offers") == ["A2", "A3"]

    rows = history(cloud, fail).rows
    idle = next(row for row in rows if row.is_idle)
    assert (idle.access.what, idle.access.result) == ("EXISTS hold:A2", "1")
    assert rows[rows.index(idle) + 1].access.what == "load hold:A2"


BEST = """
local best = redis.call('GET', KEYS[1])
if best and ARGV[1] <= best then return best end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
"""


def test_a_script_that_did_not_write_a_key_that_it_writes_in_other_runs(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        client.eval(BEST, ["best"], ["910"])
        client.eval(BEST, ["best"], ["1050"])
        assert kv.value("best") == "1050"

    written, skipped = history(cloud, fail).rows
    assert written.access.what.startswith("SET best 910 in EVAL ")
    assert skipped.access.what.endswith('which read GET best <-- "910" and did not write best')
    assert (written.is_read, skipped.is_read) == (True, False)


def test_a_vector_that_was_written_to_another_namespace_later(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=2).client()

    def fail() -> None:
        for namespace in ("visitors", "staff"):
            client.upsert([("rules", [1.0, 0.0])], namespace=namespace)
        client.upsert([("form", [0.0, 1.0])], namespace="staff")
        assert client.query([1.0, 0.1], namespace="visitors") == []

    rows = [row for row in history(cloud, fail).rows if row.access.writes]
    assert [(row.access.what, row.is_read) for row in rows] == [
        ("upsert in visitors rules", True),
        ("upsert in staff rules", False),
    ]


def test_a_name_that_was_read_and_a_similar_one_that_was_written(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        client.incr("usage:2026-3")
        assert client.get("usage:2026-03") == "1"

    [gap] = history(cloud, fail).gaps
    assert gap.missed is not None
    names = gap.access.subject.name, gap.missed.subject.name
    assert names == ("usage:2026-03", "usage:2026-3")


def test_written_keys_that_nobody_read_are_no_gaps(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        for number in range(1, 4):
            client.set(f"post:{number}", "text")
        assert client.get("post:3") == "other"

    assert history(cloud, fail).gaps == ()


def test_a_key_that_nobody_wrote(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        client.set("stock:1", "5")
        client.get("stock:1")
        assert client.get("STOCK:2") == "5"

    result = history(cloud, fail)
    assert result.unwritten
    [gap] = result.gaps
    assert (gap.access.subject.name, gap.neighbour.name) == ("STOCK:2", "stock:1")


def in_next_test(cloud: Cloud) -> None:
    """Make the data of all fakes their baselines, and return to these as before the next test."""
    for fake in cloud.fakes():
        fake.set_baseline()
    cloud.reset()


def start(cloud: Cloud, fail: Callable[[], None]) -> str:
    """Return the first line of a history without the place."""
    return re.sub(r" \(test_start\.py:\d+\)", "", start_text(history(cloud, fail), Lookups()))


def test_keys_of_the_baseline(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.hset("accounts", "ada", "1")
    client.set("fleeting", "1", ex=10)
    in_next_test(cloud)

    def look() -> None:
        assert kv.value("a") == "other"

    def look_at_all() -> None:
        assert kv.contents() == {}

    def look_at_an_expired_one() -> None:
        cloud.clock.advance(20)
        assert kv.value("fleeting") == "1"

    def call() -> None:
        assert client.get("a") == "other"

    def call_for_a_field() -> None:
        assert client.hget("accounts", "ada") == "2"

    def call_for_another_field() -> None:
        assert client.hget("accounts", "bob") == "2"

    since_baseline = ", which was in the baseline and which nothing has written since"
    read = "The failing statement read"
    assert start(cloud, look) == f"{read} kv_server.value('a'){since_baseline}"
    assert start(cloud, look_at_all) == f"{read} kv_server.contents(){since_baseline}"
    assert (
        start(cloud, look_at_an_expired_one)
        == f"{read} kv_server.value('fleeting'){since_baseline}"
    )
    assert start(cloud, call) == f"{read} a{since_baseline}"
    assert start(cloud, call_for_a_field) == f"{read} accounts ada{since_baseline}"
    assert start(cloud, call_for_another_field) == f"{read} accounts bob, which nothing has written"


def test_vectors_of_the_baseline(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=2).client()
    for namespace in ("", "visitors"):
        client.upsert([("tea", [1.0, 0.0])], namespace=namespace)
    in_next_test(cloud)

    def fail() -> None:
        assert client.query([1.0, 0.0])[0].id == "cup"

    def fail_in_namespace() -> None:
        assert client.fetch(["tea"], namespace="visitors") == []

    since_baseline = ", which was in the baseline and which nothing has written since"
    assert start(cloud, fail) == f"The failing statement read tea{since_baseline}"
    assert (
        start(cloud, fail_in_namespace)
        == f"The failing statement read visitors tea{since_baseline}"
    )


def test_records_of_the_baseline(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 1, "returns": 1})
    broker.produce("orders", "tea")
    broker.commit("mailer", "orders", 0, 1)
    in_next_test(cloud)

    def fail() -> None:
        assert broker.records("orders") == []

    def fail_for_a_group() -> None:
        assert broker.group("mailer").committed == {}

    def fail_for_an_empty_topic() -> None:
        assert broker.records("returns") != []

    since_baseline = ", which was in the baseline and which nothing has written since"
    assert start(cloud, fail).endswith(f"broker.records('orders'){since_baseline}")
    assert start(cloud, fail_for_a_group).endswith(f"broker.group('mailer'){since_baseline}")
    assert start(cloud, fail_for_an_empty_topic).endswith(
        "broker.records('returns'), which nothing has written"
    )


def test_messages_of_the_baseline_have_no_recorded_call(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.accept("https://shop.example.com")
    queue.publish("https://shop.example.com/orders")
    in_next_test(cloud)

    def fail() -> None:
        assert queue.messages() == []

    assert start(cloud, fail) == (
        "The failing statement read queue.messages(), which no recorded call has written"
    )


def test_data_whose_writes_were_forgotten(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    cloud.journal.clear()

    def fail() -> None:
        assert kv.value("a") == "other"

    assert start(cloud, fail) == (
        "The failing statement read kv_server.value('a'), which no recorded call has written"
    )


def test_data_that_was_written_only_after_the_read(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    in_next_test(cloud)

    def cached(source: str) -> str | None:
        value = client.get("cache")
        if value is None:
            client.set("cache", value := client.get(source) or "")
        return value

    def fail() -> None:
        assert cached("missing") == "other"
        client.delete("cache")

    def fail_with_the_baseline() -> None:
        assert cached("a") == "other"

    read = "The failing statement read"
    assert start(cloud, fail) == (
        f"{read} cache, missing; nothing had written cache before; nothing has written missing; "
        "the last writes of the test:"
    )
    client.delete("cache")
    cloud.reset()
    assert start(cloud, fail_with_the_baseline) == (
        f"{read} cache, a; nothing had written cache before; nothing has written a since the "
        "baseline, which had it; the last writes of the test:"
    )


def test_the_last_writes_are_announced_only_if_there_are_any(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    cloud.reset()

    def fail() -> None:
        assert client.get("a") == "other"

    result = history(cloud, fail)
    assert [row.access.what for row in result.rows] == ["GET a"]
    assert start(cloud, fail) == "The failing statement read a, which nothing has written"


def test_the_last_call_of_a_statement_that_read_nothing_read_the_baseline(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    in_next_test(cloud)
    client.get("a")

    def fail() -> None:
        assert client is None

    assert start(cloud, fail) == (
        "The failing statement read none of the fakes' data; this is the history of the last call; "
        "nothing has written a since the baseline, which had it"
    )


def test_a_key_of_the_baseline_is_not_missing(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.set("STOCK:2", "4")
    in_next_test(cloud)

    def fail() -> None:
        client.set("stock:1", "5")
        client.get("stock:1")
        assert client.get("STOCK:2") == "5"

    assert history(cloud, fail).gaps == ()


def test_the_previous_window_of_a_limiter_is_not_missing(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    script = (
        "local used = redis.call('INCR', KEYS[1]) + (redis.call('GET', KEYS[2]) or 0) return used"
    )

    def fail_of_other_data() -> None:
        client.eval(script, ["hits:2", "hits:1"]), client.set("price", "40")
        assert kv.value("price") == "41"

    def fail_of_the_limiter() -> None:
        assert client.eval(script, ["hits:2", "hits:1"]) == 0

    def fail_of_other_data_with_single_calls() -> None:
        client.set("price", "40")
        client.get("hits:1"), client.incr("hits:2"), client.get("hits:2")
        assert kv.value("price") == "41"

    assert list(gap_texts(history(cloud, fail_of_other_data))) == []
    assert list(gap_texts(history(cloud, fail_of_the_limiter))) == []
    cloud.reset()
    assert list(gap_texts(history(cloud, fail_of_other_data_with_single_calls))) == []


def test_a_name_that_was_read_with_a_similar_one_that_others_wrote(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    client.set("price:1", "40")

    def fail() -> None:
        assert client.mget("price:1", "price:2") == ["40", "50"]

    assert list(gap_texts(history(cloud, fail))) == [
        "MGET price:1 price:2: nothing wrote price:2; price:1 was written and read"
    ]


def test_a_name_that_was_read_before_a_similar_one_was_written(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def move() -> None:
        client.set("seats:2", int(client.get("seats:1") or 0) + 17)

    def fail() -> None:
        move()
        client.get("seats:2")
        assert kv.value("seats:2") == "20"

    assert list(gap_texts(history(cloud, fail))) == [
        "GET seats:1: nothing wrote seats:1; seats:2 was written and read"
    ]


def test_a_topic_that_nothing_reads_while_a_similar_one_is_read(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders-1": 1, "orders-2": 1})

    def get(path: str) -> None:
        headers = {**broker.headers, "Kafka-Auto-Offset-Reset": "earliest"}
        httpx.get(f"{broker.url}/{path}", headers=headers).raise_for_status()

    def fail() -> None:
        for path in ("produce/orders-1/pen", "consume/g/i/orders-1", "produce/orders-2/ink"):
            get(path)
        assert broker.records("orders-1").only().value == "ink"

    [gap] = history(cloud, fail).gaps
    assert (gap.access.subject.name, gap.neighbour.name) == ("orders-2", "orders-1")


def test_a_record_that_was_read_again_and_the_checkpoint_before_it(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    broker = cloud.broker()
    broker.create_topic("payments")
    broker.produce("payments", {"cents": 4200})
    http = broker.client()

    def read_payments() -> None:
        offset = int(client.get("checkpoint") or 0)
        place = {"topic": "payments", "partition": 0, "offset": offset}
        for record in http.post("/fetch", json={"topicPartitionOffsets": [place]}).json():
            client.incrby("balance", json.loads(record["value"])["cents"])

    def fail() -> None:
        read_payments()
        client.set("checkpoint", 0)
        read_payments()
        assert kv.value("balance") == "4200"

    rows = history(cloud, fail).rows
    assert [(row.access.what, row.step) for row in rows if "produce" not in row.access.what] == [
        ("INCRBY balance 4200", 0),
        ("INCRBY balance 4200", 0),
        ("SET checkpoint 0", 1),
    ]


def test_the_source_of_a_line_inside_a_statement(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    source = """\
    return {
        "tier": redis.hget("tiers", name),
        "coupons": redis.lrange(
            key, 0, -1
        ),
    }
    """
    file.write_text(f"def show():\n{source}", encoding="utf-8")
    assert [source_at(str(file), line) for line in (2, 3, 4)] == [
        'return {"tier": redis.hget("tiers", name), "coupons": redis.lrange(key, 0, -1)}',
        '"tier": redis.hget("tiers", name)',
        '"coupons": redis.lrange(key, 0, -1)',
    ]


# -- items of the compared values ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "keys", "elements", "differing"),
    [
        ({"ada": 1, "bob": 2}, {"ada": 3, "bob": 2}, ("bob",), (), ("ada", 1, 3)),
        (["A3"], ["A2", "A3"], (), ("A3",), ("A2",)),
        ({"again": [], "new": ["K3"]}, {"again": ["K1"], "new": ["K3"]}, ("new",), ("K3",),
         ("again", "K1")),
        ({1, 2}, {2, 3}, (), (2,), (1, 3)),
        (["five", "four"], ["six", "five"], (), (), ("four", "six")),
        (["five", "four"], ["six", "four"], (), ("four",), ("five", "six")),
        ([1, 1], [1], (), (1,), (1,)),
        (2200, 2500, (), (), (2200, 2500)),
    ],
)  # fmt: skip
def test_the_items_of_compared_values(
    left: Any, right: Any, keys: Any, elements: Any, differing: Any
) -> None:
    assert compared_items(left, right) == (keys, elements, differing)


def tiers_of(client: Redis, *names: str) -> dict[str, Any]:
    return {name: client.hget("tiers", name) for name in names}


def test_data_of_an_item_that_was_as_expected_has_no_rows(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    client.hset("tiers", values={"ada": "gold"})
    client.hset("tiers", values={"bob": "basic"})

    def fail() -> None:
        assert tiers_of(client, "ada", "bob") == {"ada": "silver", "bob": "basic"}

    sides = {"ada": "gold", "bob": "basic"}, {"ada": "silver", "bob": "basic"}
    result = history(cloud, fail, *sides)
    assert [row.access.what for row in result.rows] == ["HSET tiers ada gold", "HGET tiers ada"]
    assert list(expected_texts(result)) == ["As expected: bob (HSET tiers bob basic)"]


def test_data_whose_value_was_as_expected_has_no_rows(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        assert [client.get("a"), client.get("b")] == ["value of a", "other"]

    result = history(cloud, fail, ["value of a", "value of b"], ["value of a", "other"])
    assert [row.access.subject.name for row in result.rows] == ["b", "b"]
    assert list(expected_texts(result)) == ['As expected: value of a (SET a "value of a")']


@pytest.mark.parametrize(
    "sides",
    [
        pytest.param(({"ada": "gold"}, {"ada": "silver"}), id="nothing is equal"),
        pytest.param(({"x": 1, "bob": 2}, {"x": 3, "bob": 2}), id="nothing that was read differs"),
        pytest.param((), id="values unknown"),
    ],
)
def test_rows_of_all_data_unless_an_item_is_known_to_be_as_expected(
    cloud: Cloud, kv: KVServer, client: Redis, sides: Any
) -> None:
    client.hset("tiers", values={"ada": "gold"})
    client.hset("tiers", values={"bob": "basic"})

    def fail() -> None:
        assert tiers_of(client, "ada", "bob") == {}

    result = history(cloud, fail, *sides)
    assert [row.access.part for row in result.rows if row.access.writes] == ["ada", "bob"]
    assert result.expected == ()


def test_a_short_number_is_no_name_of_data(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.set("post:2", "text of 2")
    client.set("post:5", "text of 5")

    def fail() -> None:
        assert [len(str(client.get(f"post:{number}"))) for number in (2, 5)] == []

    assert history(cloud, fail, [2, 5], [2, 6]).expected == ()


def test_the_values_of_another_assertion_are_not_those_that_failed(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        assert [client.get("a"), client.get("b")] == [] or client is None

    result = history(cloud, fail, ["value of a", "value of b"], ["value of a", "other"])
    assert result.expected == ()


def test_of_deliveries_that_wrote_nothing_those_of_the_differing_items(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    queue = cloud.queue()
    kv.load({"hold:A1": "ada", "hold:A2": "bob"})

    def offer(request: Any) -> int:
        seat = request.json()["seat"]
        if not client.exists(f"hold:{seat}"):
            client.rpush("offers", seat)
        return 200

    queue.destinations.call("https://app.example.com/lapsed", offer)

    def fail() -> None:
        for seat in ("A1", "A2", "A3"):
            queue.publish("https://app.example.com/lapsed", json={"seat": seat})
        queue.run_until_idle()
        assert kv.value("offers") == ["A2", "A3"]

    result = history(cloud, fail, ["A3"], ["A2", "A3"])
    assert [row.access.what for row in result.rows if row.is_idle] == ["EXISTS hold:A2"]


# -- what writes removed ---------------------------------------------------------------------------


def losses(cloud: Cloud, kv: KVServer, key: str) -> dict[str, tuple[str, ...]]:
    """Return what the writes of a key removed, by their descriptions."""

    def fail() -> None:
        assert kv.value(key) == "other"

    return {row.access.what: row.lost for row in history(cloud, fail).rows if row.lost}


def test_the_expiry_that_a_write_removed(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.set("session", "open", ex=1800)
    client.set("session", "used", keepttl=True)
    client.set("session", "closed")
    client.set("session", "gone")
    assert losses(cloud, kv, "session") == {"SET session closed": ("its expiry, due 12:30:00.000",)}


def test_the_elements_that_a_write_removed_without_naming_them(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    client.rpush("posts", "p1", "p2", "p3", "p4", "p5", "p6")
    client.ltrim("posts", 0, 9)
    client.ltrim("posts", 0, 4)
    client.lrem("posts", 1, "p5")
    client.lpop("posts")
    client.ltrim("posts", 3, 9)
    assert losses(cloud, kv, "posts") == {
        "LTRIM posts 0 4": ("p6",),
        "LTRIM posts 3 9": ("p2, p3, p4",),
    }


def test_the_members_that_a_write_removed(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.zadd("board", {"ada": 1, "bob": 2})
    client.zadd("board", {"ada": 3})
    client.zremrangebyrank("board", 0, 0)
    assert losses(cloud, kv, "board") == {"ZREMRANGEBYRANK board 0 0": ("bob",)}


def test_the_fields_of_a_deleted_key(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    client.hset("cart", values={"tea": "1", "cup": "4"})
    client.rename("cart", "basket")
    client.rename("basket", "cart")
    client.delete("cart")
    assert losses(cloud, kv, "cart") == {"DEL cart": ("tea, cup",)}


def test_a_pipeline_with_several_writes_of_a_key_names_no_loss(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    client.set("session", "open", ex=1800)
    pipeline = client.pipeline()
    pipeline.set("session", "used")
    pipeline.expire("session", 60)
    pipeline.persist("session")
    pipeline.exec()
    assert losses(cloud, kv, "session") == {}


def test_a_journal_that_cannot_be_replayed_names_no_loss(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    client.set("session", "open", ex=1800)
    kv.journal.clear()
    client.set("session", "closed")
    assert losses(cloud, kv, "session") == {}


# -- rows ------------------------------------------------------------------------------------------


def test_a_counter_that_was_increased_three_times_is_one_row(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        client.incr("unread")
        client.incr("unread")
        client.set("unread", 0)
        for _ in range(4):
            client.incr("unread")
        assert kv.value("unread") == "0"

    result = history(cloud, fail)
    shown = [(line.what, line.answer, line.times)
             for line in lines(result, {}, lookups_of(cloud, []))]  # fmt: skip
    assert shown == [
        ("INCR unread", "1", ""),
        ("INCR unread", "2", ""),
        ("SET unread 0", "OK", ""),
        ("INCR unread", "4", "x4, first <-- 1"),
    ]


def test_a_refused_write_is_no_source_of_a_value_that_was_written_later(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        client.set("hold", "bob waits", nx=True)
        client.set("hold", "dora waits", nx=True)
        client.set("hold", "bob eats")
        client.set("hold", "carla waits", nx=True)
        client.set("copy", str(client.get("hold")))
        assert kv.value("copy") == "other"

    rows = history(cloud, fail).rows
    assert [row.access.what for row in rows if row.step == 1] == [
        'SET hold "bob eats"',
        'SET hold "carla waits" NX',
    ]


def test_a_value_that_others_changed_before_it_was_written(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    office = kv.client()

    def show() -> None:
        client.set("page", f"{client.get('price')} cents")

    def fail() -> None:
        kv.load({"price": "800"})
        with kv.between(("GET", "SET"), run=lambda: office.set("price", "950")):
            show()
        assert kv.value("page") == "950 cents"

    result = history(cloud, fail)
    [origin] = result.rows[0].origins
    assert origin.changed is not None
    assert lines(result, {}, lookups_of(cloud, []))[0].origin == (
        'after GET price <-- "800" (changed before this write: SET price 950)'
    )


def test_the_line_that_called_a_function_whose_value_has_no_origin(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def save(offset: int) -> None:
        client.set("offset", offset)

    def read() -> None:
        save(4 + 1)

    def fail() -> None:
        read()
        save(3)
        assert kv.value("offset") == "4"

    callers = [row.caller for row in history(cloud, fail).rows]
    assert [caller and caller.function for caller in callers] == ["read", None]


def test_the_line_that_called_a_function_stands_at_the_first_row_of_the_call(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def charge(plan: str) -> None:
        client.set("invoice", f"{client.get('b')} {plan}")
        client.rpush("invoices", 1)

    def run() -> None:
        charge("solo")

    def fail() -> None:
        run()
        assert (kv.value("invoice"), kv.value("invoices")) == ("", [])

    callers = [row.caller for row in history(cloud, fail).rows if row.step == 0]
    # The second write has no origin, and the first was made by the same call of charge().
    assert [caller and caller.function for caller in callers] == ["run", "run"]


def test_a_write_from_which_several_rows_were_made_follows_the_first(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def pay() -> None:
        client.hgetall("board")
        pipeline = client.pipeline()
        pipeline.hincrby("wallets", "ada", 200)
        pipeline.hincrby("wallets", "ada", 30)
        pipeline.exec()

    def fail() -> None:
        client.hset("board", "ada", 910)
        pay()
        assert kv.hash("wallets") == {"ada": "500"}

    assert [(row.step, row.access.what) for row in history(cloud, fail).rows] == [
        (0, "HINCRBY wallets ada 200"),
        (1, "HSET board ada 910"),
        (0, "HINCRBY wallets ada 30"),
    ]


def test_a_write_from_which_several_rows_were_made_follows_the_first_with_its_value(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def copy() -> None:
        value = str(client.get("b"))
        client.set("length", 1000 + len(value))
        client.set("copy", value)

    def fail() -> None:
        copy()
        assert (kv.value("length"), kv.value("copy")) == ("", "")

    assert [(row.step, row.access.subject.name) for row in history(cloud, fail).rows] == [
        (0, "length"),
        (0, "copy"),
        (1, "b"),
    ]


def test_a_value_is_printed_once(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        value = str(client.get("a"))
        client.set("first", value)
        client.set("second", value)
        assert (kv.value("first"), kv.value("second")) == ("", "")

    described = lines(history(cloud, fail), {}, lookups_of(cloud, []))
    assert [(line.origin, line.short_origin) for line in described if line.origin] == [
        ("from GET a <-- value of a", "from GET a <-- value of a"),
        ("from GET a <-- value of a", "from GET a"),
    ]


# -- what nothing did ------------------------------------------------------------------------------


def test_the_last_write_of_a_similar_name_that_nothing_read_has_a_row(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def close() -> None:
        client.set("invoice", int(client.get("usage:2026-03") or 0) + 1000)

    def fail() -> None:
        for _ in range(5):
            client.incr("usage:2026-3")
            client.expire("usage:2026-3", 3600)
        close()
        assert kv.value("invoice") == "1005"

    result = history(cloud, fail)
    assert [(row.access.what, row.access.result, row.is_read) for row in result.rows] == [
        ("INCR usage:2026-3", "5", False),
        ("SET invoice 1000", "OK", True),
    ]
    assert list(gap_texts(result)) == [
        "GET usage:2026-03: nothing wrote usage:2026-03, and nothing read usage:2026-3"
    ]


def test_a_moved_vector_that_nothing_deleted(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=2).client()

    def fail() -> None:
        client.upsert([("rules", [1.0, 0.0]), ("vouchers", [0.0, 1.0])], namespace="visitors")
        client.upsert([("rules", [1.0, 0.0])], namespace="staff")
        client.delete(["vouchers"], namespace="visitors")
        assert client.query([1.0, 0.1], namespace="visitors") == []

    assert list(gap_texts(history(cloud, fail))) == [
        "nothing deleted rules in visitors; vouchers in visitors was deleted"
    ]


def test_a_prepared_destination_that_received_nothing(cloud: Cloud, kv: KVServer) -> None:
    queue = cloud.queue()
    for path in ("bookings", "cancellations"):
        queue.destinations.accept(f"https://hotel.example.com/{path}")
    queue.destinations.accept("https://air.example.com/bookings")

    def fail() -> None:
        queue.client().message.publish_json(url="https://hotel.example.com/bookings", body={})
        queue.run_until_idle()
        assert len(queue.messages(url="https://hotel.example.com/bookings")) == 2

    assert list(gap_texts(history(cloud, fail))) == [
        "nothing was sent to https://hotel.example.com/cancellations"
    ]


def test_a_query_without_hits(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=2).client()

    def fail() -> None:
        client.upsert([("tea", [1.0, 0.0], {"room": "kitchen"})])
        assert client.query([1.0, 0.0], filter="room = 'bedroom'") != []

    last = history(cloud, fail).rows[-1].access
    assert (last.what, last.result) == ("query (room = 'bedroom')", "no hits")


def test_ids_are_as_short_as_in_the_rows(cloud: Cloud) -> None:
    queue = cloud.queue()
    messages = queue.client().message
    published = messages.publish(url="https://hotel.example.com", body="1", delay="1h")

    def fail_publish() -> None:
        assert messages.publish(url="https://hotel.example.com", body="2") is None

    def fail_get() -> None:
        assert messages.get(published.message_id).body == "2"

    for fail, verb in ((fail_publish, "wrote"), (fail_get, "read")):
        result, lookups = history(cloud, fail), lookups_of(cloud, list(cloud.journal.entries))
        [sought] = result.start.sought
        short = lookups.short(sought.subject.name)
        assert len(short) < len(sought.subject.name)
        assert start_text(result, lookups).startswith(f"The failing statement {verb} {short} (")
        assert sought.subject.name not in headline(result, {}, lookups)


def test_a_statement_whose_calls_only_wrote(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert client.set("a", "new") is None

    result = history(cloud, fail)
    assert start_text(result, Lookups()).startswith("The failing statement wrote a (")
    assert not any(row.is_read for row in result.rows)


@pytest.mark.parametrize(("retries", "failures"), [(0, 1), (1, 0)])
def test_a_delivery_that_failed_and_wrote_nothing(
    cloud: Cloud, kv: KVServer, retries: int, failures: int
) -> None:
    queue = cloud.queue()
    client = kv.client()
    names: list[str] = []

    def export(request: Any) -> int:
        names.append(request.json()["name"])
        if names.count("or ders") == 1:
            names.append("or ders")
            return 500
        client.sadd("done", names[-1])
        return 200

    queue.destinations.call("https://worker.example.com/export", export)

    def fail() -> None:
        for name in ("users", "or ders"):
            queue.publish("https://worker.example.com/export", json={"name": name}, retries=retries)
        queue.run_until_idle()
        assert kv.value("done") == {"users", "or ders", "items"}

    rows = history(cloud, fail).rows
    assert [row.access.result for row in rows].count("500") == failures


def test_the_write_that_failed_at_the_end_of_a_delivery(cloud: Cloud, kv: KVServer) -> None:
    queue = cloud.queue()
    client = kv.client(rest_retries=0, allow_telemetry=False)

    def earn(request: Any) -> int:
        client.incrby("points", 380)
        client.rpush("statement", "r3")
        return 200

    queue.destinations.call("https://club.example.com/earn", earn)

    def fail() -> None:
        kv.faults.respond(503, command="RPUSH", times=1)
        queue.publish("https://club.example.com/earn", retries=1)
        queue.run_until_idle()
        assert kv.value("points") == "380"

    result = history(cloud, fail)
    report = report_of(cloud)
    rows = {row.number: row for row in report.rows}
    named = [line.by for line in lines(result, rows, report.lookups)]
    assert ", then RPUSH statement r3 <-- 503 Service Unavailable" in named[0]
    assert "then" not in named[1]


@pytest.mark.parametrize(
    ("status", "ok", "name"),
    [
        (201, True, "POST /orders (201)"),
        (500, False, "POST /orders (500)"),
        (None, False, "POST /orders (raised an exception)"),
        (None, True, "POST /orders"),
    ],
)
def test_a_request_is_named_with_its_outcome(status: int | None, ok: bool, name: str) -> None:
    row = ReportRow(1, 0, "request", "client", "application", "POST /orders", status=status, ok=ok)
    assert who(1, {1: row}, Lookups()) == name
