"""What a failing statement read, and the rows that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import flask
import httpx
import pytest
import redis
import requests
from upstash_redis import Redis
from upstash_vector.types import MetadataUpdateMode
from upstash_workflow.flask import Serve

from pytest_fakecloud import Cloud, KVServer, always, at_most_one, eventually, nothing_lost, once
from pytest_fakecloud.core.characters import shortened
from pytest_fakecloud.core.exits import Exits
from pytest_fakecloud.core.statements import handler_at, source_at, source_of, statements_beside
from pytest_fakecloud.process.stacks import Stacks
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.reporting.lookups import records_of
from pytest_fakecloud.reporting.render.text import text
from pytest_fakecloud.reporting.render.wording import describe, headline, read_data_text
from pytest_fakecloud.reporting.report import Report, report_of
from pytest_fakecloud.reporting.statement.read_data import ReadData


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(
        seed=1, now="2026-03-01T12:00:00Z", transport="inprocess", delivery="driven"
    ) as opened:
        opened.journal._recorder.shared.note_caller = Stacks().note
        yield opened


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


@pytest.fixture
def client(kv: KVServer) -> Redis:
    client = kv.client(allow_telemetry=False, rest_retries=0)
    for key in ("a", "b", "c"):
        client.set(key, f"value of {key}")
    return client


def report(cloud: Cloud, fail: Callable[[], None]) -> Report:
    with pytest.raises(AssertionError) as failed:
        fail()
    return report_of(cloud, raised=failed.value)


def statement(cloud: Cloud, fail: Callable[[], None]) -> ReadData:
    found = report(cloud, fail).read_data
    assert found is not None
    return found


def names(cloud: Cloud, fail: Callable[[], None]) -> list[str]:
    """Return the names of the data that the failing statement read."""
    return [sought.subject.name for sought in statement(cloud, fail).sought]


def read(result: Report) -> list[str]:
    """Return the rows whose values the failing statement read."""
    return [describe(row, result.lookups).what for row in result.rows
            if row.number in result.marks.writers]  # fmt: skip


# -- looks and calls -------------------------------------------------------------------------------


def test_a_look_in_the_statement(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        kv.value("a")
        assert (
            kv.value("b")
            == ""
        )  # fmt: skip

    assert names(cloud, fail) == ["b"]
    assert statement(cloud, fail).looks == ("kv_server.value('b')",)


def test_the_last_round_of_a_loop(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        for key in ("a", "b", "c"):
            assert kv.value(key) != "value of b"

    assert names(cloud, fail) == ["b"]


def test_all_looks_of_a_comprehension(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert [kv.value(key) for key in ("a", "c")] == []

    assert names(cloud, fail) == ["a", "c"]


def value_of(kv: KVServer, key: str) -> object:
    return kv.value(key)


def test_a_look_in_a_function_of_the_test(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        value_of(kv, "a")
        kv.value("b")
        assert value_of(kv, "c") is None

    assert names(cloud, fail) == ["c"]


def test_a_look_from_which_a_name_was_assigned(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        value = kv.value("a")
        kv.value("b")
        length = len(str(value))
        assert length == 0

    assert names(cloud, fail) == ["a"]


def second_line(function: Any) -> int:
    return int(function.__code__.co_firstlineno) + 1


def test_the_line_of_the_assignment_that_read_a_variable(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def calls() -> None:
        value = client.get("a")
        length = len(str(value))
        assert length == 0

    def looks() -> None:
        value = kv.value("a")
        assert value == "other"

    def stock() -> object:
        return client.get("a")

    def calls_function() -> None:
        value = stock()
        assert value == "other"

    for fail in (calls, looks, calls_function):
        result = report(cloud, fail)
        assert result.read_data is not None
        assert result.read_data.assigned_at == second_line(fail)
        assert f", value from line {second_line(fail)})" in text(result, width=140)


def test_no_line_of_an_assignment(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def itself() -> None:
        expected = "other"
        assert client.get("a") == expected

    def several() -> None:
        first = kv.value("a")
        second = kv.value("b")
        assert first == second

    def both() -> None:
        first = kv.value("a")
        assert first == kv.value("b")

    for fail in (itself, several, both):
        assert statement(cloud, fail).assigned_at == 0


def test_a_call_of_a_client_in_the_statement(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert client.get("b") is None

    assert names(cloud, fail) == ["b"]
    assert statement(cloud, fail).kind == "called"


def value_at(client: Redis, key: str) -> object:
    return client.get(key)


def test_a_call_in_a_function_that_other_statements_call(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        assert value_at(client, "a") == "value of a"
        assert value_at(client, "b") is None

    assert names(cloud, fail) == ["b"]


def test_a_vector_that_the_same_query_had_found_before(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=2).client()
    client.upsert(
        [("tea", [1.0, 0.0], {"room": "kitchen"}), ("cup", [0.0, 1.0], {"room": "kitchen"})]
    )

    def found() -> list[str]:
        return [hit.id for hit in client.query(vector=[1.0, 0.1], filter="room = 'kitchen'")]

    def fail() -> None:
        assert found() == ["tea", "cup"]
        client.update("cup", metadata={"stock": 4})
        assert found() == ["tea", "cup"]

    assert [sought.part for sought in statement(cloud, fail).earlier] == ["cup"]


def test_a_statement_whose_calls_only_wrote(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert client.set("a", "new") is None

    result = report(cloud, fail)
    assert result.read_data is not None
    assert not result.read_data.is_read
    assert read(result) == []


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("GETEX a EX 60", ["SET a new"]), ("GETDEL a", ["SET a new"]),
        ("GETSET a newer", ["SET a new"]), ("SET a newer GET", ["SET a new"]),
        ("HGETEX h EX 60 FIELDS 1 f", ["HSET h f 2"]),
        ("HGETDEL h FIELDS 1 f", ["HSET h f 2"]),
        ("LPOP jobs", ["RPUSH jobs one two"]), ("SPOP names", ["SADD names ada"]),
        ("ZPOPMIN ranks", ["ZADD ranks 1 ada"]), ("LMOVE jobs done LEFT LEFT", ["RPUSH jobs one two"]),
    ],
)  # fmt: skip
def test_a_statement_whose_calls_returned_the_values_that_they_changed(
    cloud: Cloud, kv: KVServer, client: Any, line: str, writes: list[str]
) -> None:
    for command in (
        "SET a new", "HSET h f 1", "HSET h f 2", "RPUSH jobs one two", "RPUSH done none",
        "SADD names ada", "ZADD ranks 1 ada",
    ):  # fmt: skip
        client.execute(command.split())

    def fail() -> None:
        client.incr("before")
        assert client.execute(line.split()) == "other"

    result = report(cloud, fail)
    assert result.read_data is not None
    first = read_data_text(result.read_data, result.lookups)
    assert first.partition(") ")[2].startswith(f"used {line.split()[1]}")
    assert read(result) == writes


@pytest.mark.parametrize(
    "line", ["INCR n", "SET a newer", "SADD names bob", "SMOVE names other ada"]
)
def test_a_statement_whose_calls_returned_no_value_of_before(
    cloud: Cloud, kv: KVServer, client: Any, line: str
) -> None:
    client.sadd("names", "ada")

    def fail() -> None:
        assert client.execute(line.split()) == "other"

    assert not statement(cloud, fail).is_read


@pytest.mark.parametrize(
    ("promise_of", "look", "name", "writes"),
    [
        (lambda number: once("n"), "kv_server.value('n')", "n", ["INCR n", "INCR n"]),
        (lambda number: always(lambda: number() < 1), "kv_server.integer('n')", "n", ["INCR n"]),
        (at_most_one, "kv_server.integer('n')", "n", ["INCR n", "INCR n"]),
        (
            lambda number: eventually(lambda: number() < 1, within=1),
            "kv_server.integer('n')",
            "n",
            ["INCR n", "INCR n"],
        ),
        (lambda number: nothing_lost("orders", list), "broker.records('orders')", "orders", []),
    ],
    ids=["once", "always", "at_most_one", "eventually", "nothing_lost"],
)
def test_what_a_broken_promise_of_an_exploration_read(
    cloud: Cloud, kv: KVServer, promise_of: Any, look: str, name: str, writes: list[str]
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

    result = report(cloud, fail)
    assert result.read_data is not None
    assert result.read_data.looks == (look,)
    assert {sought.subject.name for sought in result.read_data.sought} == {name}
    assert read(result) == writes


def test_a_promise_that_holds_again_has_read_what_broke_it(cloud: Cloud, kv: KVServer) -> None:
    client = kv.client(allow_telemetry=False)
    kv.load({"stock": 1})

    def buy() -> None:
        if client.decr("stock") < 0:
            client.incr("stock")

    def fail() -> None:
        cloud.explore(buy, always(lambda: kv.integer("stock") >= 0), budget=20)

    assert read(report(cloud, fail)) == [
        "kv_server.load({'stock': 1})", "DECR stock", "DECR stock"
    ]  # fmt: skip


# -- lists that functions of the application filled ---------------------------------------------------


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

    found = statement(cloud, fail)
    assert (found.kind, found.by) == ("changed", ("send",))
    assert [sought.subject.name for sought in found.sought] == ["c"]


def test_a_method_named_as_one_of_lists_that_calls_a_fake_changes_no_list(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    class Log:
        def append(self, value: str) -> None:
            client.rpush("log", value)

    log = Log()

    def write() -> None:
        log.append("a")

    def fail() -> None:
        write()
        assert log is None

    assert statement(cloud, fail).kind == "called"  # by the statement that called fail()


class Inbox:
    """Destination handlers, each of which changes an attribute."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.received: list[object] = []
        self.others: list[object] = []
        self.of_kinds = {"all": {"new": self.received}}
        self.as_lambda = lambda request: self.received.append(request.json())
        self.pair = (lambda request: self.received.append(1), lambda request: self.others.append(1))

    def as_method(self, request: DeliveredRequest) -> None:
        self.received.append(request.json())

    def by_kind(self, request: DeliveredRequest) -> None:
        self.of_kinds["all"]["new"].append(request.json())

    async def as_coroutine(self, request: DeliveredRequest) -> None:
        self.received.append(request.json())

    def through_another(self, request: DeliveredRequest) -> None:
        self.keep(request.json())

    def keep(self, number: object) -> None:
        self.received.append(number)

    def with_a_call(self, request: DeliveredRequest) -> None:
        self.client.get("a")
        self.received.append(request.json())

    def of_others(self, request: DeliveredRequest) -> None:
        self.others.append(request.json())

    def __call__(self, request: DeliveredRequest) -> None:
        self.received.append(request.json())


def decorated(handler: Callable[[DeliveredRequest], None]) -> Callable[[DeliveredRequest], None]:
    @wraps(handler)
    def handle(request: DeliveredRequest) -> None:
        handler(request)

    return handle


@pytest.mark.parametrize(
    ("handler_of", "by"),
    [
        (lambda inbox: inbox.as_lambda, "<lambda>"),
        (lambda inbox: inbox.as_method, "as_method"),
        (lambda inbox: inbox.as_coroutine, "as_coroutine"),
        (lambda inbox: inbox.by_kind, "by_kind"),
        (lambda inbox: inbox.through_another, "through_another"),
        (lambda inbox: inbox.with_a_call, "with_a_call"),
        (lambda inbox: inbox, "__call__"),
        (lambda inbox: partial(inbox.as_method), "as_method"),
        (lambda inbox: decorated(inbox.as_method), "as_method"),
        (lambda inbox: inbox.of_others, ""),
        (lambda inbox: inbox.pair[0], ""),
    ],
    ids=["lambda", "method", "coroutine", "by kind", "through another", "with a call", "object",
         "partial", "decorated", "of others", "two lambdas in one line"],
)  # fmt: skip
def test_deliveries_to_a_handler_that_changes_what_is_compared(
    cloud: Cloud, client: Redis, handler_of: Callable[[Inbox], Any], by: str
) -> None:
    queue = cloud.queue()
    inbox = Inbox(client)
    queue.destinations.call("https://hotel.example.com/bookings", handler_of(inbox))
    queue.destinations.call("https://hotel.example.com/meals", lambda request: None)
    messages = queue.client().message
    published = [messages.publish_json(url="https://hotel.example.com/bookings", body=number)
                 for number in range(3)]  # fmt: skip
    messages.publish_json(url="https://hotel.example.com/meals", body="tea")
    queue.run_until_idle()

    def fail() -> None:
        assert inbox.received == [0, 1]

    def fail_with_kinds() -> None:
        assert inbox.of_kinds["all"]["new"] == [0, 1]

    result = report(cloud, fail_with_kinds if by == "by_kind" else fail)
    assert result.read_data is not None
    if not by:
        assert result.read_data.kind == "last_call"
        return
    ids = [message.message_id for message in published]
    assert result.read_data.by == (by,)
    assert [sought.subject.name for sought in result.read_data.sought] == ids
    touched = [row.source.delivery for row in result.rows if row.number in result.marks.touched]
    delivered = [delivery.message_id for delivery in touched if delivery is not None]
    assert delivered == ids


def flask_app(sent: list[object], client: Any) -> Any:
    app = flask.Flask("shop")

    @app.post("/mail")
    def mail() -> str:
        sent.append(flask.request.json)
        return ""

    return app


def workflow_app(sent: list[object], client: Any) -> Any:
    app = flask.Flask("shop")

    @Serve(app).route(
        "/mail", url="https://shop.example.com/mail", qstash_client=client, receiver=None
    )
    def mail(context: Any) -> None:
        context.run("send", lambda: sent.append(context.request_payload))

    return app


def fastapi_app(sent: list[object], client: Any) -> Any:
    app = pytest.importorskip("fastapi").FastAPI()

    @app.post("/mail")
    def mail() -> None:
        sent.append("mail")

    return app


@pytest.mark.parametrize("make", [flask_app, workflow_app, fastapi_app])
def test_deliveries_to_an_application_whose_view_changes_what_is_compared(
    cloud: Cloud, make: Callable[[list[object], Any], Any]
) -> None:
    queue = cloud.queue()
    sent: list[object] = []
    app = make(sent, queue.client())
    mount = queue.destinations.asgi if make is fastapi_app else queue.destinations.wsgi
    mount("https://shop.example.com", app)
    message = queue.publish("https://shop.example.com/mail", json={"to": "ada"})
    queue.run_until_idle()

    def fail() -> None:
        assert len(sent) == 7

    assert statement(cloud, fail).kind == "changed"
    assert message.id in names(cloud, fail)


def counting_app(client: Any) -> Any:
    app, sent = flask.Flask("shop"), list[object]()

    @app.post("/mail")
    def mail() -> str:
        client.message.publish_json(url="https://log.example.com", body=1)
        sent.append(1)
        return ""

    @app.get("/sent")
    def count() -> list[int]:
        return [len(sent)]

    return app


def test_calls_in_deliveries_to_a_view_are_not_those_of_a_request_to_another_view(
    cloud: Cloud,
) -> None:
    queue = cloud.queue()
    queue.destinations.call("https://log.example.com", lambda request: None)

    def fail() -> None:
        app = counting_app(queue.client())
        queue.destinations.wsgi("https://shop.example.com", app)
        queue.publish("https://shop.example.com/mail")
        queue.run_until_idle()
        assert app.test_client().get("/sent").get_json() == [7]

    found = statement(cloud, fail)
    assert (found.kind, found.by) == ("changed", ("mail",))
    assert [sought.subject.name for sought in found.sought] == [queue.messages()[0].id]


# -- statements that read nothing ------------------------------------------------------------------


def test_a_statement_that_reads_nothing(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        assert client is None

    result = report(cloud, fail)
    assert result.read_data is not None
    assert result.read_data.kind == "last_call"
    assert [sought.subject.name for sought in result.read_data.sought] == ["c"]
    assert read(result) == []


def test_the_failure_of_a_test_without_a_failed_statement(cloud: Cloud, client: Redis) -> None:
    violation = pytest.fail.Exception("the test passed, but with 1 strict-mode violation")
    found = report_of(cloud, raised=violation).read_data
    assert found is not None
    assert not found.is_of_statement


def test_a_failed_statement_without_source(cloud: Cloud, client: Redis) -> None:
    with pytest.raises(AssertionError) as failed:
        exec("def fail(): assert False\nfail()", {"__name__": "shop"})
    raised = failed.value.with_traceback(failed.tb.tb_next)  # without the frame of this test
    found = report_of(cloud, raised=raised).read_data
    assert found is not None
    assert (found.kind, found.is_of_statement) == ("last_call", True)


def test_a_look_after_an_action(cloud: Cloud, kv: KVServer) -> None:
    kv.execute("SET", "a", "1")

    def fail() -> None:
        assert kv.value("a") is None

    found = statement(cloud, fail)
    assert (found.kind, found.unwritten) == ("looked", {})
    assert len(read(report(cloud, fail))) == 1


# -- the writes of what was read --------------------------------------------------------------------


def test_the_last_effective_write_was_read(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        with suppress(Exception):
            client.lpush("a", "x")
        client.set("a", "other", nx=True)
        kv.faults.respond(503, times=1)
        with suppress(Exception):
            client.append("a", "!")
        assert kv.value("a") == "other"

    result = report(cloud, fail)
    assert read(result) == ['SET a "value of a"']
    refused = [row.operation for row in result.rows if row.number in result.marks.refused]
    assert refused == ["LPUSH", "SET", "APPEND"]


def test_a_deletion_and_a_flush_were_read(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def fail() -> None:
        client.delete("a")
        assert kv.value("a") == "value of a"

    assert read(report(cloud, fail)) == ["DEL a"]
    client.flushall()
    assert read(report(cloud, fail)) == ["FLUSHALL"]


def test_a_write_after_the_read_was_not_read(cloud: Cloud, kv: KVServer, client: Redis) -> None:
    def take() -> str | None:
        value = client.get("a")
        client.delete("a")
        return value

    def fail() -> None:
        assert take() == "other"

    def fail_after_a_look() -> None:
        value = kv.value("b")
        client.delete("b")
        assert value == "other"

    assert read(report(cloud, fail)) == ['SET a "value of a"']
    assert read(report(cloud, fail_after_a_look)) == ['SET b "value of b"']


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

    assert read(report(cloud, fail)) == ["SET a stale"]


def test_a_look_after_a_write_that_had_waited_for_an_interruption(
    cloud: Cloud, kv: KVServer
) -> None:
    client = redis.Redis.from_url(kv.database_url)
    with kv.between(("GET", "SET"), run=["GET", "b"]):
        client.get("b")
        client.set("n", "1")

    def fail() -> None:
        assert kv.value("n") == "2"

    result = report(cloud, fail)
    assert read(result) == ["SET n 1"]
    assert result.read_data is not None
    assert not result.read_data.unwritten


def test_of_a_namespace_only_the_vectors_that_a_query_returned_were_read(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=2).client()
    for name, vector in (("tea", [1.0, 0.0]), ("cup", [0.0, 1.0])):
        client.upsert([(name, vector)])

    def fail() -> None:
        assert client.query([1.0, 0.0], top_k=1) == []

    result = report(cloud, fail)
    assert read(result) == ["upsert tea"]
    assert len(result.marks.touched) == 3


@pytest.mark.parametrize(
    "selected",
    [
        {"ids": ["clock#1", "none"]}, {"prefix": "clock"}, {"filter": "device = 'clock'"},
        {"filter": "edition = 2"},
    ],
)  # fmt: skip
def test_a_deletion_of_vectors_wrote_only_those_that_it_removed(
    cloud: Cloud, selected: dict[str, Any]
) -> None:
    index = cloud.vector_index(dimension=1)
    index.load([{"id": "clock#2", "vector": [1.0], "metadata": {"device": "clock", "edition": 2}}])
    client = index.client()
    for name, device in (("radio#1", "radio"), ("clock#1", "clock")):
        client.upsert([(name, [1.0], {"device": device, "edition": 1})])
    client.update(
        id="clock#1", metadata={"edition": 2}, metadata_update_mode=MetadataUpdateMode.PATCH
    )
    client.delete(**selected)

    def read_the_other() -> None:
        assert client.fetch(["radio#1"]) == []

    def read_the_deleted() -> None:
        assert client.fetch(["clock#1"]) != [None]

    last_write = read(report(cloud, read_the_other))[-1]
    assert last_write == 'upsert radio#1 (metadata device="radio", edition=1)'
    assert read(report(cloud, read_the_deleted))[-1].startswith("delete ")


def test_a_deletion_of_many_vectors_wrote_the_namespace(cloud: Cloud) -> None:
    """Their ids would fill the memory of a server that deletes all day."""
    index = cloud.vector_index(dimension=1)
    index.load([{"id": f"clock#{number}", "vector": [1.0]} for number in range(1_001)])
    client = index.client()
    client.upsert([("radio", [1.0])])
    client.delete(prefix="clock")

    def fail() -> None:
        assert client.fetch(["radio"]) == []

    assert records_of(cloud).removed == {}
    assert read(report(cloud, fail))[-1].startswith("delete ")


def test_data_that_nothing_wrote_before_it_was_read(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        assert kv.value("d") is not None

    def fail_early() -> None:
        values = kv.value("e"), kv.value("a")
        client.set("e", "1")
        assert values == ()

    assert {s.subject.name: kind for s, kind in statement(cloud, fail).unwritten.items()} == {
        "d": "never"
    }
    assert {s.subject.name: kind for s, kind in statement(cloud, fail_early).unwritten.items()} == {
        "e": "later"
    }


def test_ids_are_as_short_as_in_the_rows(cloud: Cloud) -> None:
    queue = cloud.queue()
    messages = queue.client().message
    published = messages.publish(url="https://hotel.example.com", body="1", delay="1h")

    def fail() -> None:
        assert messages.get(published.message_id).body == "2"

    result = report(cloud, fail)
    assert result.read_data is not None
    for shown in (read_data_text(result.read_data, result.lookups), headline(result)):
        assert result.lookups.short(published.message_id) in shown
        assert published.message_id not in shown


# -- lines of code -----------------------------------------------------------------------------------


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


def test_the_statements_beside_a_call(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "def page(shop, most):\n"
        '    """Show a shop."""\n'
        "    def key(name):\n"
        "        return f'{shop}:{name}'\n"
        "    if most > 10:\n"
        "        return shop\n"
        "    rows = redis.lrange(\n"
        "        key('rows'), 0, most)\n"
        "    for row in rows:\n"
        "        print(row)\n"
        "    return rows\n"
        "print(page)\n",
        encoding="utf-8",
    )

    def beside(line: int) -> list[list[str]]:
        return [[source_of(span) for span in spans] for spans in statements_beside(str(file), line)]

    assert beside(7) == [["if most > 10:"], ["for row in rows:", "print(row)", "return rows"], []]
    assert beside(8) == beside(7)
    assert beside(9) == [["if most > 10:", "rows = redis.lrange(key('rows'), 0, most)"],
                         ["print(row)", "return rows"], []]  # fmt: skip
    assert beside(10)[1:] == [[], ["return rows"]]
    assert beside(4) == [[], [], []]
    assert beside(12) == [[], [], []]


def test_the_statements_of_other_branches_are_not_beside_a_call(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(
        "def rate(redis, look):\n"
        "    if look > 1:\n"
        "        redis.set(look, 1)\n"
        "        redis.incr(look)\n"
        "    elif look:\n"
        "        redis.set(look, 2)\n"
        "    else:\n"
        "        redis.set(look, 3)\n"
        "    match look:\n"
        "        case 1:\n"
        "            look.first()\n"
        "        case 2:\n"
        "            look.second()\n",
        encoding="utf-8",
    )

    def beside(line: int) -> list[list[int]]:
        return [[span.first for span in spans] for spans in statements_beside(str(file), line)]

    assert beside(2) == [[], [3, 4, 5, 6, 8, 9, 11, 13], []]
    assert beside(3) == [[2], [4, 9, 11, 13], []]
    assert beside(6) == [[2, 5], [9, 11, 13], []]
    assert beside(8) == [[2, 5], [9, 11, 13], []]
    assert beside(11) == [[2, 3, 4, 5, 6, 8, 9], [], []]


def test_the_handler_of_the_try_around_a_line(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    source = (
        "def take():\n  try:\n    x = get()\n    if x:\n      go()\n  except KeyError:\n    stop()\n"
        "  try:\n    pass\n  finally:\n    end()\n"
    )
    file.write_text(source, encoding="utf-8")
    found = [handler_at(str(file), line) for line in (3, 5, 7, 9)]
    assert found == [(6, "except KeyError: stop()")] * 2 + [None] * 2


def test_an_application_has_no_line_in_another_process(cloud: Cloud, kv: KVServer) -> None:
    httpx.post(kv.url, json=["SET", "a", "1"], headers=kv.headers)
    cloud.journal._recorder.shared.stacks.clear()
    assert [row.where for row in report_of(cloud).rows] == [None]


@pytest.mark.parametrize("kind", ["upstash_redis", "redis", "requests", "httpx"])
def test_the_handler_around_a_helper_in_a_loop(
    cloud: Cloud, kv: KVServer, client: Redis, kind: str
) -> None:
    def post(send: Any, key: str) -> None:
        send(kv.url, json=["SET", key, "1"], headers=kv.headers, timeout=5).raise_for_status()

    port = redis.Redis.from_url(kv.database_url)
    put = {
        "upstash_redis": lambda key: client.set(key, "1"), "redis": lambda key: port.set(key, "1"),
        "requests": partial(post, requests.post), "httpx": partial(post, httpx.post),
    }[kind]  # fmt: skip

    def put_all() -> None:
        for key in ("a", "b"):
            try:
                put(key)
            except Exception:
                continue

    kv.faults.respond(503, command="SET", times=1)
    stacks, exits = Stacks(), Exits()
    stacks.watch_sockets(exits)
    cloud.journal._recorder.shared.note_caller = stacks.note
    put_all()
    exits.close()
    port.close()

    def fail() -> None:
        assert kv.value("a") == "1"

    result = report(cloud, fail)
    [failed] = [row for row in result.rows if row.number in result.marks.refused and row.where]
    assert failed.where is not None
    handlers = [
        handler_at(place.file, place.line) for place in (failed.where, *failed.where.callers)
    ]
    assert [handler[1] for handler in handlers if handler] == ["except Exception: continue"]


def test_the_last_write_of_what_was_read_stands_before_the_rows(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    def fail() -> None:
        client.set("a", "newer")
        client.set("b", "newer")
        assert client.get("a") == "other"

    head = text(report(cloud, fail), width=140).partition("\n> ")[0]
    assert '; last written by SET a newer <-- OK (was "value of a") (test_search.py:' in head

    def fail_with_several() -> None:
        assert client.mget("a", "b") == ["other", "newer"]

    # Any of them may be wrong.
    head = text(report(cloud, fail_with_several), width=140).partition("\n> ")[0]
    assert "used a, b" in head
    assert "last written" not in head

    def fail_without_a_write() -> None:
        assert client.mget("a", "unknown") == ["other", None]

    assert report(cloud, fail_without_a_write).marks.last_writer == 0


@pytest.mark.parametrize("is_pipeline", [False, True])
@pytest.mark.parametrize("length", range(40, 130, 7))
def test_the_values_before_the_rows_are_shortened_as_in_the_rows(
    cloud: Cloud, kv: KVServer, client: Redis, length: int, is_pipeline: bool
) -> None:
    """Each checksum is that of a value, so that of a shortened value would be of nothing."""
    values = [letter * length for letter in "xyz"]
    if is_pipeline:
        with_pipeline = client.pipeline()
        with_pipeline.rpush("list", *values)
        with_pipeline.rpush("other", *values)
        with_pipeline.exec()
    else:
        client.rpush("list", *values)

    def fail() -> None:
        assert kv.value("list") == ["w"]

    result = report(cloud, fail)
    expected = {word for value in values for word in shortened(value).split()}
    for head in (headline(result), text(result, width=140).partition("\n> ")[0]):
        called = head.partition("last written by ")[2].partition("(test_search")[0]
        words = called.partition("; test_search")[0].split()
        assert {word for word in words if "…" in word or word[0] == "#"} <= expected


@pytest.mark.parametrize("line", ["SETNX a 2", "SET a 2 NX", "LPUSH a 2", "EXEC"])
def test_a_write_that_did_nothing_stands_before_the_rows(
    cloud: Cloud, kv: KVServer, line: str
) -> None:
    client: Any = redis.Redis.from_url(kv.database_url)
    kv.execute("SET", "a", "1")
    if line == "EXEC":
        with client.pipeline() as pipeline:
            pipeline.watch("a", "c")
            kv.execute("SET", "c", "1")
            redis.Redis.from_url(kv.database_url).set("c", "2")
            pipeline.multi()
            pipeline.set("a", "2")
            with suppress(redis.WatchError):
                pipeline.execute()
    else:
        with suppress(redis.ResponseError):
            client.execute_command(*line.split())

    def fail() -> None:
        assert kv.value("a") == "2"

    result = report(cloud, fail)
    (write,) = [row for row in result.rows if row.number == result.marks.refused_write]
    assert write.operation == line.split()[0]
    assert write.number in result.marks.refused
    if line == "EXEC":
        watched = result.findings[0].values["watched"]
        (change,) = [row for row in result.rows if row.number == watched["number"]]
        assert (watched["key"], describe(change, result.lookups).what) == ("c", "SET c 2")


def test_the_last_write_names_the_delivery_in_which_it_happened(
    cloud: Cloud, kv: KVServer, client: Redis
) -> None:
    queue, answers = cloud.queue(), iter([500, 200])

    def handle(request: object) -> int:
        client.set("a", "older")
        return next(answers)

    queue.destinations.call("https://app.example.com", handle)
    queue.publish("https://app.example.com/hook", retries=1)
    client.set("a", "newer")
    queue.run_until_idle()

    def fail() -> None:
        assert kv.value("a") == "newer"

    head = " ".join(text(report(cloud, fail), width=140).partition("\n> ")[0].split())
    assert "; last written by SET a older <-- OK in attempt 2 of msg_" in head


@pytest.mark.parametrize(
    "refused",
    ["SADD n x <-- 0", "SET a newest NX <-- null"],  # beside what touched it, or it
)
def test_the_mark_of_several_calls_in_a_line(
    cloud: Cloud, kv: KVServer, client: Redis, refused: str
) -> None:
    line = refused.partition(" <--")[0].split()
    client.sadd("n", "x")

    def fail() -> None:
        client.execute(line)
        assert client.get("a") == "other"

    shown = text(report(cloud, fail), width=140).splitlines()
    *_, joined = [line for line in shown if refused in line]
    gutter, calls = joined[:2], joined[2:].partition("  ")[0].split("; ")
    assert len(calls) > 1
    assert [call for call in calls if call.startswith("! ")] == [f"! {refused}"]
    assert gutter in ("- ", "  ")
    assert [call.startswith("> ") for call in calls] == [" a <--" in call for call in calls]
