"""Rows say what a fake holds and compares, where that is not what was sent or answered."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from upstash_workflow.flask import Serve

from pytest_fakecloud import Cloud
from pytest_fakecloud.process.stacks import Stacks
from pytest_fakecloud.reporting.render.text import text
from pytest_fakecloud.reporting.render.wording import describe
from pytest_fakecloud.reporting.report import Report, report_of


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(
        seed=1, now="2026-03-01T12:00:00Z", transport="inprocess", delivery="driven"
    ) as opened:
        opened.journal._recorder.shared.note_caller = Stacks().note
        yield opened


def failed(cloud: Cloud, fail: Callable[[], None]) -> Report:
    with pytest.raises(AssertionError) as caught:
        fail()
    return report_of(cloud, raised=caught.value)


def answers(cloud: Cloud) -> list[str]:
    """Return the answers of all calls as rows show them."""
    report = report_of(cloud)
    return [describe(row, report.lookups).answer for row in report.rows if row.kind == "call"]


def calls(cloud: Cloud) -> list[str]:
    report = report_of(cloud)
    return [describe(row, report.lookups).what for row in report.rows if row.kind == "call"]


# -- key-value server --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("ZADD board 9007199254740993 ada", "1 (stored as 9007199254740992)"),
        ("ZADD board 1 bob 9007199254740995 ada", "2 (stored as 9007199254740996)"),
        ("ZADD board 9007199254740992 ada", "1"),
        ("ZADD board 0.1 ada", "1"),
        ("ZADD board +inf ada", "1"),
    ],
)
def test_a_score_as_it_is_stored(cloud: Cloud, line: str, answer: str) -> None:
    client: Any = cloud.kv_server().client(allow_telemetry=False)
    client.execute(line.split())
    assert answers(cloud) == [answer]


@pytest.mark.parametrize(
    ("limit", "answer"),
    [
        ([], "10 of 11 hits, no LIMIT: default 10: tea:"),
        (["LIMIT", "4"], "4 of 11 hits: tea:"),
        (["LIMIT", "20"], "11 hits: tea:"),
    ],
)
def test_the_hits_of_a_search_that_it_did_not_return(
    cloud: Cloud, limit: list[str], answer: str
) -> None:
    client: Any = cloud.kv_server().client(allow_telemetry=False)
    index = "SEARCH.CREATE shop ON JSON PREFIX 1 tea: SCHEMA kind TEXT"
    client.execute(index.split())
    for number in range(11):
        client.execute(["JSON.SET", f"tea:{number}", "$", '{"kind":"green"}'])
    client.execute(["SEARCH.WAITINDEXING", "shop"])
    client.execute(["SEARCH.QUERY", "shop", '{"kind":"green"}', *limit])
    assert answers(cloud)[-1].startswith(answer)


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        ("$", "OK (2 entries before its start)"),
        ("1-1", "OK (1 entry before its start)"),
        ("0", "OK"),
    ],
)
def test_the_entries_before_the_start_of_a_group(cloud: Cloud, start: str, answer: str) -> None:
    client: Any = cloud.kv_server().client(allow_telemetry=False)
    for entry in ("1-1", "2-1"):
        client.execute(["XADD", "log", entry, "n", "1"])
    client.execute(["XGROUP", "CREATE", "log", "group", start])
    assert answers(cloud)[-1] == answer


# -- vector index ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("similarity", "score"),
    [("COSINE", "(1 + cosine) / 2"), ("DOT_PRODUCT", "(1 + dot product) / 2"),
     ("EUCLIDEAN", "1 / (1 + squared distance)")],
)  # fmt: skip
def test_the_formula_of_a_score_and_lengths_that_differ(
    cloud: Cloud, similarity: Any, score: str
) -> None:
    client = cloud.vector_index(dimension=2, similarity=similarity).client()
    client.upsert([("a", [3.0, 4.0])])
    client.query([1.0, 0.0])
    client.query([3.0, 4.0])
    different, equal = answers(cloud)[1:]
    assert different.startswith(f"1 hit, score {score}, query of length 1: a ")
    assert different.endswith("(length 5)")
    assert equal.startswith(f"1 hit, score {score}: a ")
    assert "length" not in equal


def test_the_vectors_that_a_query_did_not_return(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=1)
    client = index.client()
    client.upsert([(f"v{number}", [1.0]) for number in range(11)])
    client.query([1.0], top_k=4)
    httpx.post(f"{index.url}/query", json={"vector": [1.0]}, headers=index.headers)
    limited, default = answers(cloud)[1:]
    assert limited.startswith("4 of 11 vectors, score (1 + cosine) / 2")
    assert default.startswith("10 of 11 vectors, no topK: default 10, score (1 + cosine) / 2")
    client.delete("v1")
    # How many there were then is not known.
    assert answers(cloud)[1].startswith("4 hits, score (1 + cosine) / 2: ")


def test_a_page_that_others_follow(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=1).client()
    client.upsert([("a", [1.0]), ("b", [1.0]), ("c", [1.0])])
    first = client.range(limit=2)
    client.range(cursor=first.next_cursor, limit=2)
    texts = answers(cloud)[1:]
    assert texts == [f"2 found, more after cursor {first.next_cursor}: a, b", "1 found: c"]


@pytest.mark.parametrize(
    ("options", "cut_off"),
    [
        ({"top_k": 1}, "; cut off by top 1: b 0.983, c 0.917 and 1 more"),
        ({"top_k": 1, "filter": "size < 3"}, "; cut off by top 1: b 0.983"),
        ({"top_k": 2, "filter": "size < 3"}, ""), ({"top_k": 4}, ""), ({"top_k": 5}, ""),
    ],
)  # fmt: skip
def test_hits_that_fit_but_lay_behind_the_last_one(
    cloud: Cloud, options: dict[str, Any], cut_off: str
) -> None:
    client = cloud.vector_index(dimension=2).client()
    for size, (name, y) in enumerate((("a", 0.0), ("b", 0.27), ("c", 0.66), ("d", 2.0)), 1):
        client.upsert([(name, [1.0, y], {"size": size})])
    client.query([1.0, 0.0], **options)
    assert answers(cloud)[-1].partition(";")[1:] == (cut_off[:1], cut_off[1:])
    client.upsert([("e", [1.0, 0.0])])
    assert "cut off" not in answers(cloud)[-2]  # What lay behind it then is not known.


def test_the_default_namespace_is_named_if_there_are_others(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=1).client()
    client.delete("a")
    assert calls(cloud) == ["delete a"]
    client.upsert([("a", [1.0])], namespace="shop")
    assert calls(cloud) == ["delete a in the default namespace", 'upsert a in namespace "shop"']


# -- broker --------------------------------------------------------------------------------------------


def test_partitions_that_no_request_fetched(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"sales": 3, "other": 1})
    for partition in (0, 0, 1):
        broker.produce("sales", "1", partition=partition)
    broker.produce("other", "1")
    client = broker.client()
    client.post("/fetch", json={"topic": "sales", "partition": 0, "offset": 0})
    [answer] = answers(cloud)
    assert answer.endswith("; no request fetched sales-1 (1 record)")
    client.post("/fetch", json={"topic": "sales", "partition": 1, "offset": 0})
    assert not any("no request" in answer for answer in answers(cloud))


@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        ("latest", "no records (2 records of sales-0 before its start: policy latest)"),
        ("earliest", "sales-0@0 1, sales-0@1 1"),
    ],
)
def test_records_before_the_start_of_a_group(cloud: Cloud, policy: str, answer: str) -> None:
    broker = cloud.broker(topics={"sales": 1})
    for _ in range(2):
        broker.produce("sales", "1")
    headers = {"Kafka-Auto-Offset-Reset": policy}
    broker.client().get("/consume/books/one/sales?timeout=0", headers=headers)
    assert answers(cloud) == [answer.replace(" 1", ' "1"') if policy == "earliest" else answer]


# -- queue ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("result", "shown"), [(7, "7"), (None, "null")])
def test_a_step_is_named_once_with_its_result(cloud: Cloud, result: object, shown: str) -> None:
    flask = pytest.importorskip("flask")
    queue = cloud.queue()
    app = flask.Flask("shop")
    url = "https://shop.example.com/flow"

    @Serve(app).route("/flow", url=url, qstash_client=queue.client(), receiver=None)
    def flow(context: Any) -> None:
        context.run("price", lambda: result)

    queue.destinations.wsgi("https://shop.example.com", app)
    queue.publish(url, json={})
    queue.run_until_idle()
    report = report_of(cloud)
    rows = [" ".join([words.what, words.answer]) for row in report.rows
            for words in [describe(row, report.lookups)]]  # fmt: skip
    named = [row for row in rows if '"price"' in row and "after step" not in row]
    assert len(named) == 1
    assert f'step 1 "price" (Run) result {shown}' in named[0]


def test_ids_that_an_application_stored_are_short(cloud: Cloud) -> None:
    queue, kv = cloud.queue(), cloud.kv_server()
    message = queue.client().message.publish(url="https://app.example.com", body="1", delay="1h")
    kv.client(allow_telemetry=False).set("job", message.message_id)
    queue.client().message.cancel(message.message_id)
    assert calls(cloud)[1:] == ["SET job msg_3bb5", "DELETE /v2/messages/msg_3bb5"]


# -- the application -----------------------------------------------------------------------------------


class Shop:
    def __init__(self, redis: Any) -> None:
        self.redis = redis

    def take(self, name: str) -> int:
        try:
            return int(self.redis.get(f"stock:{name}"))
        except TypeError:
            return 0

    def ask(self, *words: str) -> Any:
        return self.redis.execute(list(words))

    def fill(self, name: str) -> None:
        self.ask("SET", f"shelf:{name}", '{"count": 5, "colour": "green", "origin": "Assam"}')
        self.ask("SET", f"stock:{name.upper()}", "5")


def test_the_line_that_catches_the_error_of_a_refused_call(cloud: Cloud) -> None:
    shop = Shop(cloud.kv_server().client(allow_telemetry=False))

    def fail() -> None:
        shop.fill("tea")
        assert shop.take("tea") == 5

    shown = " ".join(text(failed(cloud, fail), width=100).split())
    assert "GET stock:tea <-- null test_what_rows_say.py" in shown
    assert "in a try: test_what_rows_say.py" in shown
    assert "except TypeError: return 0" in shown


def test_the_line_that_called_a_function_which_several_lines_call(cloud: Cloud) -> None:
    shop = Shop(cloud.kv_server().client(allow_telemetry=False))

    def fail() -> None:
        shop.fill("tea")
        assert shop.redis.get("stock:tea") == "5"

    shown = "".join(text(failed(cloud, fail), width=100).split())
    shelf = (
        """self.ask("SET", f"shelf:{name}", '{"count": 5, "colour": "green", "origin": "Assam"}')"""
    )
    for source in (
        "return self.redis.execute(list(words))", shelf, 'self.ask("SET", f"stock:{name.upper()}", "5")',
    ):  # fmt: skip
        assert shown.count("".join(source.split())) == 1


APPLICATION = """
def tell(redis, animal, advice):
    redis.sadd(animal, advice)

def check(redis, weights):
    for animal, grams in weights.items():
        if grams > 9000:
            tell(redis, animal, "diet")
        elif grams > 5000:
            tell(redis, animal, "walks")

def number_of_advice(databases):
    found = 0
    for redis in databases:
        found += redis.scard("Rex")
    return found * 2
"""


def test_each_call_has_the_code_beside_it(cloud: Cloud, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(APPLICATION, encoding="utf-8")
    app = runpy.run_path(str(file))
    one, two = (cloud.kv_server().client(allow_telemetry=False) for _ in range(2))

    def fail() -> None:
        app["check"](one, {"Rex": 34000, "Tom": 7000})
        told = [one.smembers(animal) for animal in ("Rex", "Tom")]
        assert told == app["number_of_advice"]([one, two])

    shown = text(failed(cloud, fail), width=300)
    # What decided a call stands before it, and what follows a loop behind the last call in it.
    lines = re.findall(r"SCARD|app.py:\d+", shown)
    assert [line.removeprefix("app.py:") for line in lines] == [
        "3", "6", "7", "8", "9", "10", "SCARD", "13", "14", "15", "SCARD", "16"
    ]  # fmt: skip
    # The lines of the test, also of its comprehension, are in the output of pytest.
    assert shown.count("test_what_rows_say.py") == 1


@pytest.mark.parametrize(
    ("line", "sought"),
    [
        ("KEYS cart:12:*", "cart:12:*"),
        ("SCAN 0 MATCH cart:12:* COUNT 9", "cart:12:*"),
        ("SCAN 0", "*"),
    ],
)
def test_a_read_of_keys_by_their_pattern_is_a_read_of_these_keys(
    cloud: Cloud, line: str, sought: str
) -> None:
    client: Any = cloud.kv_server().client(allow_telemetry=False)

    def fail() -> None:
        client.mset({"cart:1:tea": "2", "cart:12:tea": "1"})
        client.set("stock:tea", "7")
        client.delete("cart:1:tea", "cart:12:tea")
        client.delete("nothing")
        assert "tea" in str(client.execute(line.split())).replace("stock:tea", "")

    report = failed(cloud, fail)
    assert f"used {sought};" in text(report, width=250)

    def operations(numbers: Iterable[int]) -> list[str]:
        return [row.operation for row in report.rows if row.number in numbers]

    is_all = sought == "*"
    assert operations(report.marks.touched) == [
        "MSET", *["SET"] * is_all, *["DEL"] * (1 + is_all), line.split()[0]
    ]  # fmt: skip
    assert operations(report.marks.writers) == [*["SET"] * is_all, "DEL"]
