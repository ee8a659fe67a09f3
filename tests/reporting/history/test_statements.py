"""Statements of a history, and of the list below it, that are only made if they are true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.process.stacks import Stacks
from pytest_fakecloud.reporting.model import Report
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.reporting.text import text


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(
        seed=1, now="2026-03-01T12:00:00Z", transport="inprocess", delivery="driven"
    ) as opened:
        opened.journal._recorder.shared.find_stack = Stacks()
        yield opened


def report(cloud: Cloud, fail: Callable[[], None]) -> Report:
    with pytest.raises(AssertionError) as failed:
        fail()
    return report_of(cloud, raised=failed.value)


def parts(cloud: Cloud, fail: Callable[[], None]) -> tuple[str, str]:
    """Return the history and the rest of a report, each without line breaks."""
    history, _, rest = text(report(cloud, fail)).partition("\nclock ")
    return " ".join(history.split()), " ".join(rest.split())


# -- commits ---------------------------------------------------------------------------------------

NAMED = [{"topic": "sales", "partition": number, "offset": 3} for number in (0, 1)]


@pytest.mark.parametrize("offsets", [None, NAMED], ids=["delivered", "named"])
@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        ({}, "commit of books/one: sales-0=3, sales-1=3 <-- OK"),
        ({"lose": True}, "commit of books/one: sales-0=3, sales-1=3 <-- lost"),
        ({"status": 503}, "<-- 503"),
    ],
)
def test_a_commit_of_several_partitions_is_one_row_with_its_answer(
    cloud: Cloud, offsets: Any, fault: dict[str, Any], answer: str
) -> None:
    broker = cloud.broker()
    broker.create_topic("sales", partitions=2)
    for number in range(6):
        broker.produce("sales", str(number), partition=number % 2)
    headers = {**broker.headers, "Kafka-Auto-Offset-Reset": "earliest",
               "Kafka-Enable-Auto-Commit": "false"}  # fmt: skip

    def post(path: str, body: Any = None) -> None:
        content = "" if body is None else json.dumps(body)
        httpx.post(f"{broker.url}/{path}", content=content, headers=headers)

    def fail() -> None:
        post("consume/books/one", {"topic": "sales", "timeout": 0})
        cloud.clock.advance("5s")
        if fault.get("lose"):
            broker.faults.lose_response(route="commit")
        elif fault:
            broker.faults.respond(fault["status"], route="commit")
        try:
            post("commit/books/one", offsets)
        except httpx.HTTPError:
            assert fault
        assert not broker.group("books")

    result = report(cloud, fail)
    assert result.history is not None
    rows = [row for row in result.history.rows if "commit" in row.access.what]
    numbers = {
        row.number: row for row in result.rows if row.operation == "commit" and not row.follows
    }
    assert {row.number for row in rows} == set(numbers)
    assert {row.at_us for row in rows} == {row.at_us for row in numbers.values()}
    shown = " ".join(text(result).partition("\nclock ")[0].split())
    assert shown.count(" commit ") == 1
    assert answer in shown


def test_offsets_that_the_test_sets_are_one_row(cloud: Cloud) -> None:
    broker = cloud.broker()
    broker.create_topic("sales")
    broker.produce("sales", "1")

    def fail() -> None:
        broker.commit("books", "sales", 0, 1)
        assert not broker.group("books")

    history, _ = parts(cloud, fail)
    assert history.count("sales-0=1") == 1


def test_a_commit_before_a_rebalance_is_listed_before_it(cloud: Cloud) -> None:
    broker = cloud.broker()
    broker.create_topic("sales", partitions=2)
    for number in range(2):
        broker.produce("sales", str(number), partition=number)
    headers = {**broker.headers, "Kafka-Auto-Offset-Reset": "earliest"}

    def fail() -> None:
        for name in ("one", "two"):
            body = {"topic": "sales", "timeout": 0}
            httpx.post(f"{broker.url}/consume/books/{name}", json=body, headers=headers)
        assert not broker.group("books")

    history, _ = parts(cloud, fail)
    assert "auto commit of books/one: sales-0=1, sales-1=1 12:00:00.000 rebalance (two" in history


def test_a_deleted_consumer_has_one_row_with_its_answer(cloud: Cloud) -> None:
    broker = cloud.broker()
    broker.create_topic("sales")
    for name in ("one", "two"):
        body = {"topic": "sales", "timeout": 0}
        httpx.post(f"{broker.url}/consume/books/{name}", json=body, headers=broker.headers)

    def fail() -> None:
        for name in ("one", "three"):
            url = f"{broker.url}/delete-consumer/books/{name}"
            httpx.delete(url, headers=broker.headers)
        assert not broker.group("books")

    history, _ = parts(cloud, fail)
    assert "delete consumer books/one <-- OK" in history
    assert "books/one left" not in history
    assert re.search(r"delete consumer books/three <-- 4\d\d ", history)


# -- deletions of nothing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "deleted", "is_deleted"),
    [
        ([], ["t1"], False),
        ([], ["t1", "t2"], False),
        (["t2"], ["t1", "t2"], False),  # The answer does not say which of them existed.
        (["t1"], ["t1"], True),
        (["t1"], ["t1", "t1"], True),
    ],
)
@pytest.mark.parametrize("namespace", ["", "old"])
def test_only_an_existing_vector_was_deleted_elsewhere(
    cloud: Cloud, namespace: str, stored: list[str], deleted: list[str], is_deleted: bool
) -> None:
    index = cloud.vector_index(dimension=2)
    client = index.client()
    for name in stored:
        client.upsert([(name, [1.0, 0.0])], namespace=namespace)
    client.upsert([("t1", [1.0, 0.0])], namespace="shop")

    def fail() -> None:
        client.delete(deleted, namespace=namespace)
        assert [hit.id for hit in client.query([1.0, 0.0], top_k=1, namespace="shop")] == []

    history, _ = parts(cloud, fail)
    assert f"in {namespace or 'the default namespace'} was deleted" in history or not is_deleted
    assert "was deleted" not in history or is_deleted


@pytest.mark.parametrize("selection", [{"prefix": "t"}, {"filter": "price > 3"}])
def test_a_deletion_of_a_range_that_deleted_nothing(
    cloud: Cloud, selection: dict[str, str]
) -> None:
    client = cloud.vector_index(dimension=2).client()
    client.upsert([("a1", [1.0, 0.0])])

    def fail() -> None:
        client.delete(**selection)
        assert client.fetch(["a1"]) == []

    history, _ = parts(cloud, fail)
    assert 'delete <-- {"deleted":0} (wrote nothing)' in history
    assert "upsert a1 <-- Success <== read" in history


@pytest.mark.parametrize(
    ("line", "wrote"),
    [
        ("DEL other", False), ("HDEL stock pear", False), ("SREM names pear", False),
        ("LREM jobs 0 c", False), ("ZREMRANGEBYSCORE ranks 5 9", False), ("LPOP empty 2", False),
        ("HGETDEL stock FIELDS 1 pear", False), ("LMOVE empty jobs LEFT LEFT", False),
        ("HDEL stock tea", True), ("ZREMRANGEBYSCORE ranks 0 9", True), ("LPOP jobs 1", True),
        ("XGROUP DELCONSUMER log group worker", True),
    ],
)  # fmt: skip
def test_a_command_that_removed_nothing_wrote_nothing(cloud: Cloud, line: str, wrote: bool) -> None:
    kv = cloud.kv_server()
    for command in (
        "HSET stock tea 1 jug 1", "SADD names tea", "RPUSH jobs a b", "ZADD ranks 1 tea",
        "XGROUP CREATE log group 0 MKSTREAM", "XGROUP CREATECONSUMER log group worker",
    ):  # fmt: skip
        kv.execute(*command.split())
    client = kv.client(allow_telemetry=False)

    def fail() -> None:
        client.execute(line.split())
        assert kv.value(line.split()[1 if line[0] != "X" else 2]) == "nothing"

    result = report(cloud, fail)
    assert result.history is not None
    [row] = [row for row in result.history.rows if row.access.what.startswith(line)]
    assert (row.access.succeeded is not False, row.is_read) == (wrote, wrote)
    assert row.access.result.endswith("(wrote nothing)") is not wrote


def test_a_cancellation_has_its_answer(cloud: Cloud) -> None:
    queue = cloud.queue()
    message = queue.publish("https://app.example.com/do", delay="1h")

    def fail() -> None:
        for _ in range(2):
            url = f"{queue.url}/v2/messages/{message.id}"
            httpx.delete(url, headers=queue.headers)
        assert queue.message(message.id) is None

    history, _ = parts(cloud, fail)
    assert '<-- {"cancelled":1}' in history
    assert re.search(r"<-- 404 message \S+ not found", history)


# -- writes and calls that are left out -------------------------------------------------------------


def test_writes_that_are_left_out_are_counted_once_and_not_called_earlier(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    client = kv.client(allow_telemetry=False)
    for number in range(20):
        client.mset({"many": str(number), "both": str(number)})
    client.set("few", "1")
    for number in range(5):
        client.set("many", str(number))

    def fail() -> None:
        assert (kv.value("few"), kv.value("many"), kv.value("both")) == ()

    result = report(cloud, fail)
    assert result.history is not None
    shown = {row.number for row in result.history.rows}
    assert result.history.left_out == 26 - len(shown)
    history, _ = parts(cloud, fail)
    assert f"... {26 - len(shown)} further writes of this data left out" in history
    assert "earlier" not in history


def test_calls_of_the_data_of_a_history_are_not_among_those_that_it_does_not_touch(
    cloud: Cloud,
) -> None:
    client = cloud.kv_server().client(allow_telemetry=False)
    index = "SEARCH.CREATE shop ON JSON PREFIX 1 tea: SCHEMA kind KEYWORD"
    client.execute(index.split())
    for number in range(60):
        client.set(f"other:{number}", "1")
    for number in range(5):
        client.execute(["JSON.SET", f"tea:{number}", "$", '{"kind":"green"}'])

    def names() -> list[str]:
        client.execute(["SEARCH.WAITINDEXING", "shop"])
        hits: Any = client.execute(["SEARCH.QUERY", "shop", '{"kind":"green"}', "NOCONTENT"])
        for hit in hits:
            client.sadd("told", hit.key)
        return [hit.key for hit in hits]

    def fail() -> None:
        for _ in range(3):
            names()
        assert names() == []

    history, rest = parts(cloud, fail)
    assert "SEARCH.WAITINDEXING shop <-- 1 (x4) <== read" in history
    assert "JSON.SET tea:4" in history
    untouched = re.findall(r"calls that the history does not touch: (.*?) 12:00", rest)
    assert untouched == ["kv_server SET (x60)", *["kv_server SADD (x5)"] * 3]


def test_writes_that_a_history_leaves_out_are_not_untouched(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    client = kv.client(allow_telemetry=False)
    for number in range(15):
        client.set("total", str(number))
    for number in range(60):
        client.set(f"other:{number}", "1")

    def fail() -> None:
        assert kv.value("total") == "15"

    history, rest = parts(cloud, fail)
    assert "7 further writes of this data left out" in history
    [untouched] = re.findall(r"calls that the history does not touch: (.*)", rest)
    assert untouched == "kv_server SET (x60)"


# -- attempts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_attempts_of_a_message_have_one_numbering(cloud: Cloud, lost: int) -> None:
    queue, kv = cloud.queue(), cloud.kv_server()
    client = kv.client(allow_telemetry=False)
    seen: list[Any] = []

    def work(request: Any) -> int:
        seen.append(request)
        return 200 if len(seen) <= lost else 409

    def note(request: Any) -> None:
        client.rpush("desk", request.path)

    queue.destinations.call("https://work.example.com", work)
    queue.destinations.call("https://desk.example.com", note)
    if lost:
        queue.faults.crash_after_response(times=lost)

    def fail() -> None:
        queue.publish(
            "https://work.example.com/do", retries=1,
            callback="https://desk.example.com/each",
            failure_callback="https://desk.example.com/failed",
        )  # fmt: skip
        queue.clock.advance("1s")
        assert kv.value("desk") is None

    last = 2 + lost
    history, rest = parts(cloud, fail)
    assert f"the callback about attempt {last - 1} of {last} of msg_" in history
    assert f"(tried {last - 1} of {last}; its failure callback follows the last)" in rest
    queue.run_until_idle()

    def fail_later() -> None:
        assert kv.value("desk") is None

    history, rest = parts(cloud, fail_later)
    reported = re.findall(r"callback about attempt (\d+) of (\d+)", history)
    assert reported == [(str(last - 1), str(last)), *[(str(last), str(last))] * 2]
    assert [*map(int, re.findall(r"attempt (?:\d+ to )?(\d+) of msg_", rest))][-1] == last
    assert f"failed after {last} attempts" in rest


# -- characters that cannot be seen ----------------------------------------------------------------


@pytest.mark.parametrize(
    "character",
    ["\x1b", "\x85", "\u061c", "\u200b", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e",
     "\u2066", "\u2069", "\u3164", "\ufdd0", "\ufeff", "\ufffe", "\U0001fffe", "\U000e0041"],
    ids=ascii,
)  # fmt: skip
def test_characters_that_hide_or_reorder_text_are_escaped(cloud: Cloud, character: str) -> None:
    name = f"a{character}b"
    kv, queue, broker = cloud.kv_server(), cloud.queue(), cloud.broker()
    client = kv.client(allow_telemetry=False)
    client.hset(name, name, name)
    client.set(name.upper(), name)
    queue.publish("https://app.example.com/do", body=name)
    queue.run_until_idle()
    broker.create_topic("sales")
    broker.produce("sales", name, key=name)
    index = cloud.vector_index(dimension=1)
    with suppress(httpx.InvalidURL):  # of a control character
        index.client().upsert([(name, [1.0], {name: name}, name)], namespace=name)

    def fail() -> None:
        assert kv.value(name) == {}, name

    shown = text(report(cloud, fail))
    assert character not in shown
    assert shown.count(ascii(character)[1:-1]) > 10

    def fail_of_other_fakes() -> None:
        assert (broker.topic("sales"), index.namespaces(), queue.messages()) == ()

    assert character not in text(report(cloud, fail_of_other_fakes))
