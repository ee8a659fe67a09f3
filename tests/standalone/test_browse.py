"""The lists of the control API: all data of a fake, page by page."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote

import pytest
import redis
import requests

from pytest_fakecloud import Cloud, Response
from pytest_fakecloud.cloud.services import data_module
from pytest_fakecloud.core.timers import instant_us
from pytest_fakecloud.faults.plan import FaultPlan, fault_kinds
from pytest_fakecloud.http.messages import Answer, Request, json_value
from pytest_fakecloud.queue.inspect.data import LISTS
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.control.shapes import BODIES, body_schema
from tests.harness import in_threads

from .conftest import ask, message

NOW = "2026-01-01T00:00:00Z"
KINDS = fault_kinds(FaultPlan)


class Lists:
    """A cloud and its lists."""

    def __init__(self, cloud: Any) -> None:
        self.cloud = cloud
        self.app = ControlApp(cloud, "token")

    def get(self, path: str, **query: str | int) -> Any:
        """Return the answer to a request for a list, which must succeed."""
        status, answer = self.refused(path, **query)
        assert status == 200, answer
        return answer

    def refused(self, path: str, **query: str | int) -> tuple[int, Any]:
        text = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
        return ask(self.app, "GET", f"/fakes/{path}" + (f"?{text}" if text else ""))

    def every(self, path: str, **query: str | int) -> Iterator[Any]:
        """Yield the pages of a list, from first to last."""
        page = self.get(path, **query)
        yield page
        while page["next"]:
            page = self.get(path, **query, after=page["next"])
            yield page


@pytest.fixture
def lists() -> Iterator[Lists]:
    with Cloud(now=NOW, delivery="driven") as cloud:
        yield Lists(cloud)


def ids(page: Any, name: str = "id") -> list[Any]:
    return [item[name] for item in page["items"]]


# -- paging ----------------------------------------------------------------------------------------


def test_a_search_finds_a_key_far_behind_the_first_page(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load({f"key:{number:04}": "x" for number in range(2005)} | {"Zoë": "y", "k[1]": "z"})
    assert ids(lists.get("kv_server/lists/keys", search="1999"), "key") == ["key:1999"]
    assert ids(lists.get("kv_server/lists/keys", search="ZOË"), "key") == ["Zoë"]
    page = lists.get("kv_server/lists/keys", search="key:200?", limit=2)
    assert (page["total"], page["matching"]) == (2007, 5)
    assert ids(page, "key") == ["key:2000", "key:2001"]


def test_all_keys_are_in_the_pages(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load({f"key:{number:04}": "x" for number in range(2005)})
    pages = list(lists.every("kv_server/lists/keys", limit=500))
    assert [len(page["items"]) for page in pages] == [500] * 4 + [5]
    assert [key for page in pages for key in ids(page, "key")] == sorted(kv.keys())


def test_a_list_shows_the_page_of_an_item_unless_a_filter_leaves_it_out(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load({f"key:{number:02}": "x" for number in range(25)})
    path = "kv_server/lists/keys"
    for query, first in (
        ({"around": "key%3A24"}, 21),
        ({"around": "key%3A02", "sort": "-key"}, 21),
        ({"around": "key%3A12", "search": "key:1"}, 1),
        ({"around": "key%3A24", "search": "key:1"}, 1),
        ({"around": "gone"}, 1),
    ):  # fmt: skip
        assert lists.get(path, limit=10, **query)["first"] == first, query
    # The page that is asked for stays, if it has the item.
    asked = lists.get(path, limit=10)
    asked = lists.get(path, limit=7, after=asked["next"], around="key%3A11")
    assert asked["first"] == 11


def test_a_list_that_is_too_long_is_not_sorted(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists.cloud.kv_server().load(dict.fromkeys("abcd", "x"))
    monkeypatch.setattr("pytest_fakecloud.inspect.data.MOST_SORTED", 3)
    assert "too many to sort" in message(lists.refused("kv_server/lists/keys", sort="type"))


def test_looking_leaves_no_trace(lists: Lists) -> None:
    kv, index = lists.cloud.kv_server(), lists.cloud.vector_index(dimension=2, ready_after_reads=2)
    kv.load({"a": "1", "h": {"f": "1"}})
    index.client().upsert([("a", [1.0, 2.0])])
    idle = kv.execute("OBJECT", "IDLETIME", "a")
    before = len(lists.cloud.journal.entries), kv.execute("INFO", "stats")
    lists.cloud.clock.advance("10s")
    kv.faults.respond(503)
    for _ in range(5):
        for path in ("keys", "keys/a", "keys/h"):
            lists.get(f"kv_server/lists/{path}")
        for path in ("vectors", "vectors/a", "namespaces"):
            lists.get(f"vector_index/lists/{path}")
    kv.faults.clear()
    assert [item["id"] for item in index.pending()] == ["a"]
    stats = kv.execute("INFO", "stats")
    for name in ("keyspace_hits", "keyspace_misses"):
        assert _figure(stats, name) == _figure(before[1], name)
    assert kv.execute("OBJECT", "IDLETIME", "a") == idle + 10
    assert len(lists.cloud.journal.entries) == before[0]


def _figure(text: Any, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))


# -- keys ------------------------------------------------------------------------------------------


def test_keys_and_values_that_are_no_text_are_shown_and_found_by_id(lists: Lists) -> None:
    lists.cloud.kv_server().execute("SET", b"\xff/ %", b"\xfe")
    (row,) = lists.get("kv_server/lists/keys")["items"]
    assert (row["id"], row["is_text"]) == ("%FF%2F%20%25", False)
    item = lists.get(f"kv_server/lists/keys/{row['id']}")
    assert (item["value"], item["is_editable"], item["hex"]) == ("\ufffd", False, "fe")


def test_binary_elements_have_their_digits(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.execute("HSET", "h", "field", b"\xff\x00", b"\xfe", "text")
    assert lists.get("kv_server/lists/keys/h")["elements"]["items"] == [
        {"field": "field", "value": "\ufffd\x00", "hex": {"value": "ff00"}},
        {"field": "\ufffd", "value": "text", "hex": {"field": "fe"}},
    ]
    kv.execute("SADD", "s", b"\xfd", "a")
    assert lists.get("kv_server/lists/keys/s", search="a")["elements"]["items"] == [{"member": "a"}]


# -- vectors ---------------------------------------------------------------------------------------


def test_vectors_are_searched_filtered_and_placed(lists: Lists) -> None:
    index = lists.cloud.vector_index(dimension=2)
    index.load([
        {"id": f"v{number}", "vector": [number, 1], "metadata": {"n": number}, "data": f"text {number}"}
        for number in range(1100)
    ])  # fmt: skip
    index.load({"other": [1, 1]}, namespace="ns/1")
    page = lists.get("vector_index/lists/vectors", filter="n >= 1098", limit=1)
    assert (page["total"], page["matching"], ids(page)) == (1100, 2, ["v1098"])
    assert page["items"][0]["vector"] == [1098.0, 1.0]
    assert len(page["items"][0]["point"]) == 2
    assert ids(lists.get("vector_index/lists/vectors", search="TEXT 777")) == ["v777"]
    assert ids(lists.get("vector_index/lists/vectors", namespace="ns/1")) == ["other"]
    assert lists.get("vector_index/lists/vectors/v7")["metadata"] == {"n": 7}
    assert lists.get("vector_index/lists/namespaces")["items"] == [
        {"name": "", "count": 1100}, {"name": "ns/1", "count": 1},
    ]  # fmt: skip
    assert lists.refused("vector_index/lists/vectors", filter="n >")[0] == 422
    # A filter moves no point, and says which of them match.
    points, filtered = (
        lists.get("vector_index/lists/vectors", points="all", **filters)["points"]
        for filters in ({}, {"filter": "n >= 1098"})
    )
    assert [point["point"] for point in filtered] == [point["point"] for point in points]
    assert [point["id"] for point in filtered if point["matches"]] == ["v1098", "v1099"]
    counts = lists.get("vector_index/lists")
    assert (counts["vectors"], counts["info"]["dimension"]) == (1101, 2)


# -- broker ----------------------------------------------------------------------------------------


# -- queue -----------------------------------------------------------------------------------------


def publish(lists: Lists, queue: Any, url: str, **headers: str) -> str:
    wire_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer = ask(
        lists.app, "POST", f"/fakes/{queue.name}/requests",
        {"target": f"/v2/publish/{url}", "body": {"n": 1}, "headers": wire_headers},
    )  # fmt: skip
    assert (status, answer["status"]) == (200, 200), answer
    return str(json.loads(answer["body"])["messageId"])


def test_lists_show_redacted_parts_as_the_api_does(lists: Lists) -> None:
    queue = lists.cloud.queue()
    queue.destinations.respond(
        "https://app.example/flow", Response(500, b"hush", {"X-Secret": "hush"})
    )
    secret = {"Upstash_Redact_Fields": "body, headers", "Upstash_Forward_X_Secret": "hush"}
    publish(
        lists, queue, "https://app.example/flow", **secret, Upstash_Retries="0",
        Upstash_Workflow_RunId="wfr_1", Upstash_Workflow_Init="true",
    )  # fmt: skip
    ask(
        lists.app, "POST", "/fakes/queue/requests",
        {
            "target": "/v2/schedules/https://app.example/flow",
            "body": "hush",
            "headers": {"Upstash-Cron": "0 0 * * *", "Upstash-Redact-Fields": "body"},
        },
    )  # fmt: skip
    queue.deliver_due()
    (sent,) = queue.messages()
    assert (sent.body, sent.headers.get("X-Secret")) == (b'{"n": 1}', "hush")
    detail = lists.get(f"queue/lists/messages/{sent.id}")
    assert detail["headers"]["X-Secret"][0].startswith("REDACTED:")
    # What is published again has no redacted value, but the name of the header.
    for again in (detail, lists.get("queue/lists/runs/wfr_1")):
        assert "REDACTED" not in json.dumps(again["publish_headers"])
        assert "X-Secret" in again["redacted_headers"]
    shown = [detail, lists.get("queue/lists/runs/wfr_1"), detail["attempts"][0]]
    shown += [lists.get(f"queue/lists/{name}")["items"][0] for name in ("messages", "schedules")]
    for name in ("body", "input", "body", "preview", "body"):
        assert shown.pop(0)[name].startswith("REDACTED:")
    assert lists.get("queue/lists/messages", search='"n"')["items"] == []
    every = [lists.get(f"queue/lists/{name}") for name in LISTS]
    every += [detail, lists.get("queue/lists/runs/wfr_1"), lists.get("queue/view")["workflows"]]
    assert "hush" not in json.dumps(every)


def test_no_list_settles_the_clock_while_it_holds_the_queue(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another thread that settles the clock waits for the queue, and both would wait for ever.
    queue = lists.cloud.queue()
    queue.publish("https://app.example", retries=0)
    free: list[bool] = []

    def lock_and_unlock() -> None:
        free.append(queue._engine.lock.acquire(blocking=False))
        if free[-1]:
            queue._engine.lock.release()

    def settle() -> int:
        in_threads(lock_and_unlock)
        return 0

    monkeypatch.setattr(queue._timekeeper, "settle", settle)
    for name in LISTS:
        lists.get(f"queue/lists/{name}")
    lists.get("queue/view")
    assert free
    assert all(free)


# -- all lists, views and shapes over data of every type -------------------------------------------


EVERY_TYPE = """\
SET text "kettle é"
SET count 7
SETRANGE bytes 3 x
SETEX brief 60 x
PFADD sketch a
HSET hash field kettle
HSET fields a 1 b 2
HEXPIRE fields 60 FIELDS 1 a
RPUSH list kettle b
SADD set kettle b
ZADD zset 1.5 kettle inf above -inf below
GEOADD places 13.4 52.5 Berlin
XADD stream 1-1 name kettle
ARSET array 18446744073709551614 kettle
XGROUP CREATE stream readers 0
XREADGROUP GROUP readers ada STREAMS stream >
JSON.SET doc $ {"name":"kettle","numbers":[1,2.5,null,true]}
SEARCH.CREATE index ON JSON PREFIX 1 doc SCHEMA name TEXT
SEARCH.CREATE hashes ON HASH PREFIX 1 hash SCHEMA field TEXT
SEARCH.ALIASADD alias index
SEARCH.WAITINDEXING index
SCRIPT LOAD "return 1"
CONFIG SET maxmemory-policy allkeys-lru
"""


@pytest.fixture
def full(lists: Lists) -> Iterator[Lists]:
    """Fakes of all services that hold each type of their data."""
    cloud = lists.cloud
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2, ready_after_reads=2)
    broker, queue = cloud.broker(topics={"orders": 2}), cloud.queue()
    for line in EVERY_TYPE.splitlines():
        kv.execute(*shlex.split(line) if '"' in line and "{" not in line else line.split())
    kv.execute("SET", b"\xff", b"\xfe")
    index.load([{"id": "a", "vector": [1, 0], "metadata": {"n": 1, "ü": None}, "data": "kettle"}])
    index.load({"b": [1, 1]}, namespace="films")
    index.client().upsert([("pending", [0.0, 1.0])])
    for value in ("kettle", {"a": None}, '{"n": 1}'):
        broker.produce("orders", value, key="k")
    broker.join("billing", topics=["orders"], instance="ada")
    broker.commit("billing", "orders", 0, 1)
    queue.destinations.respond("https://fails.example", 500)
    queue.destinations.respond("https://works.example", 200)
    headers = {"Upstash_Callback": "https://works.example", "Upstash_Label": "kettle"}
    publish(lists, queue, "https://works.example", **headers)
    publish(lists, queue, "https://fails.example", Upstash_Retries="0", **headers)
    flow = {"Upstash_Flow_Control_Key": "tenant", "Upstash_Flow_Control_Value": "rate=1"}
    publish(lists, queue, "https://works.example", Upstash_Delay="1h", **flow)
    run = {"Upstash_Workflow_RunId": "wfr_1", "Upstash_Workflow_Init": "true"}
    publish(lists, queue, "https://works.example", **run)
    for target, body, more in [
        ("/v2/schedules/https://works.example", "kettle", {"Upstash-Cron": "0 0 * * *"}),
        ("/v2/enqueue/ordered/https://works.example", "kettle", {}),
        ("/v2/topics/all/endpoints", {"endpoints": [{"url": "https://works.example"}]}, {}),
    ]:
        sent = {"target": target, "body": body, "headers": more}
        status, answer = ask(lists.app, "POST", "/fakes/queue/requests", sent)
        assert (status, answer["status"]) in ((200, 200), (200, 201)), answer
    queue.deliver_due()
    with (
        redis.Redis.from_url(kv.database_url) as client,
        client.pubsub() as listener,  # type: ignore[no-untyped-call]
    ):
        listener.subscribe("kettle")
        assert listener.get_message(timeout=10)["type"] == "subscribe"
        yield lists


FAKES = ("kv_server", "vector_index", "broker", "queue")


def id_of(row: dict[str, Any]) -> object:
    return next(row[name] for name in ("id", "name", "key") if name in row)


@pytest.mark.parametrize("fake", FAKES)
def test_every_list_is_paged_sorted_searched_and_shows_its_items(full: Lists, fake: str) -> None:
    module = data_module(fake)
    counts = full.get(f"{fake}/lists")
    for name, listing in module.LISTS.items():
        path, query = f"{fake}/lists/{name}", {"topic": "orders"} if name == "records" else {}
        assert counts.get(name, 1), name
        whole = full.get(path, limit="500", **query)
        assert whole["items"], name
        size = 1 + len(whole["items"]) // 12  # 1 unless there are hundreds, such as all commands
        pages = list(full.every(path, limit=size, **query))
        items = [item for page in pages for item in page["items"]]
        assert list(map(id_of, items)) == list(map(id_of, whole["items"])), name
        for page in pages[1:]:
            full.get(path, limit=size, before=page["previous"], **query)
        for id in filter(None, map(id_of, items[::size])):
            around = full.get(path, limit=1, around=str(id), **query)
            assert list(map(id_of, around["items"])) == [id], name
        for field in whole["items"][0].keys() - {"vector", "dimension", "point"}:
            for order in (field, f"-{field}"):
                assert full.get(path, sort=order, **query)["matching"] == whole["matching"], order
        for row in whole["items"][::size] if listing.item else ():
            id = row["id"] if name == "keys" else quote(str(id_of(row)), safe="")
            assert full.get(f"{path}/{id}", search="kettle", **query), id
        assert full.get(path, search="no such text", **query)["items"] == []
    assert full.get(f"{fake}/view")["fixture"] == fake
    assert full.cloud.violations() == []


def test_a_search_looks_through_values_of_every_type(full: Lists) -> None:
    keys = ids(full.get("kv_server/lists/keys", search="KETTLE"), "key")
    assert sorted(keys) == ["array", "doc", "hash", "list", "set", "stream", "text", "zset"]
    for search, name in {'"name": "kettle"': "doc", "2.5": "doc", "field": "hash"}.items():
        assert name in ids(full.get("kv_server/lists/keys", search=search), "key")
    # A pattern is one for keys: "Delete all keys found" must not depend on values.
    assert ids(full.get("kv_server/lists/keys", search="*kettle*"), "key") == []


def test_a_row_of_a_delivery_names_the_step_of_a_run_after_which_it_continues(lists: Lists) -> None:
    queue = lists.cloud.queue()
    queue.destinations.respond("https://app.example", 200)
    run = {"Upstash_Workflow_RunId": "wfr_1", "Upstash_Workflow_Url": "https://app.example/f"}
    publish(lists, queue, "https://app.example/f", Upstash_Workflow_Init="true", **run)
    step = {"stepId": 1, "stepName": "pay", "stepType": "Run", "out": "1", "concurrent": 1}
    headers = {**run, "Upstash_Workflow_CallType": "step"}
    wire_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"target": "/v2/publish/https://app.example/f", "body": step, "headers": wire_headers}
    assert ask(lists.app, "POST", "/fakes/queue/requests", body)[1]["status"] == 200
    queue.deliver_due()
    rows = ask(lists.app, "GET", "/journal")[1]
    texts = [row["text"]["what"].split(" of ")[0] for row in rows if row["kind"] == "delivery"]
    assert texts == ["first step", 'after step 1 "pay" (Run)']


def test_an_entry_that_cannot_be_shown_keeps_its_place_in_the_journal(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    for words in (["SET", "first", "1"], ["SET", "second", "2"]):
        body = {"method": "POST", "target": "/", "body": json.dumps(words)}
        assert ask(lists.app, "POST", f"/fakes/{kv.name}/requests", body)[1]["status"] == 200
    lists.cloud.journal.calls()[0].facts["words"] = [7]
    rows = ask(lists.app, "GET", "/journal")[1]
    assert [(row["text"]["what"][:27], row["fake"], row["done"]) for row in rows] == [
        ("this entry cannot be shown:", "kv_server", True),
        ("SET second 2", "kv_server", True),
    ]


def test_only_calls_that_name_a_delivery_are_within_it(lists: Lists) -> None:
    """A thread of the application beside the handler calls at any time too."""
    queue, kv = lists.cloud.queue(), lists.cloud.kv_server()
    url = "https://app.example.com/orders"

    def handle(request: Any) -> None:
        named = {
            "message": {"X-Reply-To": request.headers["Upstash-Message-Id"]},
            "trace": {"Traceparent": request.headers["Traceparent"]},
            "nothing": {"X-Other": "1"},
        }
        for name, sent in named.items():
            requests.get(f"{kv.url}/incr/{name}", headers={**kv.headers, **sent}, timeout=9)

    queue.destinations.call(url, handle)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {**queue.headers, "Upstash-Forward-Traceparent": trace}
    requests.post(f"{queue.url}/v2/publish/{url}", headers=headers, timeout=9)
    queue.run_until_idle()
    calls = [row for row in ask(lists.app, "GET", "/journal")[1] if row["service"] == "kv"]
    within = [(row["depth"], bool(row["parent"]), row["actor"]) for row in calls]
    assert within == [(1, True, url), (1, True, url), (0, False, "client")]


def test_consumer_groups_are_found_by_their_members(lists: Lists) -> None:
    broker = lists.cloud.broker(topics={"orders": 2})
    for group, instance in (("billing", "worker-1"), ("mail", "worker-2")):
        path = f"/consume/{group}/{instance}/orders?timeout=0"
        body = {"method": "GET", "target": path}
        answer = ask(lists.app, "POST", f"/fakes/{broker.name}/requests", body)[1]
        assert answer["status"] == 200, answer
    groups = lists.get("broker/lists/groups", search="WORKER-2")["items"]
    assert [group["name"] for group in groups] == ["mail"]


def test_a_search_finds_each_of_its_words_in_messages_runs_and_answers(lists: Lists) -> None:
    queue = lists.cloud.queue()
    queue.destinations.respond("https://app.example", (402, '{"code": "card_declined"}'))
    for target in ("publish/https://app.example/pay", "trigger/https://app.example/order"):
        body = {"method": "POST", "target": f"/v2/{target}", "body": '{"city": "Graz"}'}
        body["headers"] = {"Upstash-Retries": "0"}
        assert ask(lists.app, "POST", "/fakes/queue/requests", body)[1]["status"] == 200
    lists.cloud.clock.advance("1h")
    for name in ("messages", "dead-letters", "runs"):
        found = lists.get(f"queue/lists/{name}", search="CARD_declined graz")
        assert [item["url"] for item in found["items"]], name
        assert lists.get(f"queue/lists/{name}", search="card_declined Lyon")["items"] == []
        # An item shows what was found in what its row does not have.
        assert any("card_declined" in str(value) for value in found["items"][0].values()), name
    [run] = lists.get("queue/lists/runs")["items"]
    assert run["now"] == '{"code": "card_declined"}'
    steps = lists.get(f"queue/lists/runs/{run['id']}")["steps"]
    assert [(step["name"], step["state"], step["errors"][0]["status"]) for step in steps] == [
        ("first step", "failed", 402)
    ]


def test_responses_about_data_of_every_type_are_json(full: Lists) -> None:
    paths = [
        f"/fakes/{fake}{part}" for fake in FAKES for part in ("", "/view", "/lists", "/faults")
    ]
    paths += ["/state", "/due", "/journal", "/violations", "/snapshots", "/snapshots/1/changes"]
    assert ask(full.app, "POST", "/snapshots", {})[0] == 200
    headers = [("Host", "127.0.0.1"), ("Authorization", "Bearer token")]
    for path in paths:
        answer = full.app.respond(Request("GET", f"/__control__{path}", headers))
        assert isinstance(answer, Answer)
        assert isinstance(answer.body, bytes)
        assert answer.status == 200, (path, answer.body)
        json_value(answer.body)  # rejects NaN and Infinity, as a browser does


# -- numbers ---------------------------------------------------------------------------------------

NUMBERS = ["1e999", "-1e999", "1e-999", "-0.0", "1" + "0" * 400, "-1", "9223372036854775808", "1.5"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", *NUMBERS])
def test_odd_numbers_in_every_body_are_rejected_or_accepted(full: Lists, number: str) -> None:
    routes = [route for route in full.app.table.routes if route.name in BODIES]
    choices = {"move_clock": ["advance", "move_to"], "add_fault": KINDS}
    for route in routes:
        path = route.pattern.replace("{name}", "kv_server").replace("{id}", "1")
        body: dict[str, Any] = {"kind": "respond", "args": [503], "fixture": "kv_server"}
        body |= {"object": "kv_server", "name": "execute", "state": {}, "archive": {}}
        required = body_schema(route.name)["properties"]
        for field, kind in itertools.product(required, choices.get(route.name, [""])):
            for value in ("ODD", ["ODD"], {"n": "ODD"}):
                sent = {name: body[name] for name in body if name in required} | {field: value}
                if route.name == "move_clock":
                    sent = {"action": kind, {"advance": "by", "move_to": "to"}[kind]: value}
                elif kind:
                    sent = {**sent, "kind": kind, "args": ["ODD"], field: value}
                data = json.dumps(sent).replace('"ODD"', number).encode()
                headers = [("Host", "127.0.0.1"), ("Authorization", "Bearer token")]
                answer = full.app.respond(Request(route.methods.split()[0], path, headers, data))
                assert isinstance(answer, Answer), path
                assert answer.status < 500, (path, data, answer.body)
                if number not in NUMBERS:
                    assert answer.status == 400, (path, data)
                    assert b"is not a JSON value" in cast("bytes", answer.body)
    assert [violation for violation in full.cloud.violations() if violation.kind == "bug"] == []


# -- changes since a snapshot ----------------------------------------------------------------------

LONG = "x" * 5000
FIELDS = [word for number in range(300) for word in (f"f{number:03}", f"v{number:03}")]
MEMBERS = FIELDS[1::2]
DOCUMENT = json.dumps({"a": LONG, "list": MEMBERS, "deep": {"b": [1, {"c": "old"}]}})
CHANGES: list[tuple[list[list[str]], list[list[str]], str, str]] = [
    ([["SET", "k", LONG + "END" + LONG]], [["SETRANGE", "k", "5000", "FIN"]], "xENDx", "xFINx"),
    ([["SET", "k", LONG]], [["APPEND", "k", "FIN"]], "x", "xFIN"),
    ([["HSET", "k", *FIELDS]], [["HSET", "k", "f299", "NEW"]], '"f299": "v299"', '"f299": "NEW"'),
    ([["RPUSH", "k", *MEMBERS]], [["RPUSH", "k", "NEW"]], '"v299"]', '"NEW"]'),
    ([["SADD", "k", *MEMBERS]], [["SREM", "k", "v150"]], '"v150", ', '"v149", "v151"'),
    ([["ZADD", "k", *(word for name in MEMBERS for word in ("1", name))]],
     [["ZINCRBY", "k", "1", "v299"]], '"v299": 1.0', '"v299": 2.0'),
    ([["XADD", "k", f"{number}-1", "f", "v"] for number in range(1, 300)],
     [["XADD", "k", "300-1", "f", "NEW"]], '"299-1": {"f": "v"}}', '"300-1": {"f": "NEW"}}'),
    ([["ARSET", "k", "0", *MEMBERS]], [["ARSET", "k", "299", "NEW"]],
     '"299": "v299"', '"299": "NEW"'),
    ([["JSON.SET", "k", "$", DOCUMENT]], [["JSON.SET", "k", "$.deep.b[1].c", '"NEW"']],
     '{"b": [1, {"c": "old"}]}', '{"b": [1, {"c": "NEW"}]}'),
]  # fmt: skip


@pytest.mark.parametrize("until", ["", "?until=after"])
@pytest.mark.parametrize(("before", "after", "old", "new"), CHANGES)
def test_a_comparison_has_the_whole_values_that_differ(
    lists: Lists, before: list[list[str]], after: list[list[str]], old: str, new: str, until: str
) -> None:
    kv = lists.cloud.kv_server()
    for line in before:
        kv.execute(*line)
    ask(lists.app, "POST", "/snapshots", {"id": "before"})
    for line in after:
        kv.execute(*line)
    ask(lists.app, "POST", "/snapshots", {"id": "after"})
    comparison = ask(lists.app, "GET", f"/snapshots/before/changes{until}")[1]
    (change,) = comparison["changes"]
    shown = [change[side]["value"] for side in ("before", "after")]
    assert (change["item"], comparison["count"]) == ("k", 1)
    assert "…" not in "".join(shown)
    assert old in shown[0]
    assert new in shown[1]
    assert shown[0] != shown[1]


def test_a_comparison_has_only_the_checksum_of_a_very_long_value(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fakecloud.inspect.data.LONGEST_COMPARED", 5002)
    index = lists.cloud.vector_index(dimension=1)
    metadata = {"text": LONG[:4000], "state": "old"}
    index.load([{"id": "a", "vector": [1], "metadata": metadata, "data": LONG + "END"}])
    ask(lists.app, "POST", "/snapshots", {"id": "before"})
    metadata = {**metadata, "state": "new"}
    index.load([{"id": "a", "vector": [1], "metadata": metadata, "data": LONG + "FIN"}])
    (change,) = ask(lists.app, "GET", "/snapshots/before/changes")[1]["changes"]
    assert json.loads(change["after"]["metadata"]) == metadata
    assert change["before"]["data"].startswith("5,003 characters, checksum ")
    assert change["before"]["data"] != change["after"]["data"]


@pytest.mark.parametrize("text", ["%s", '{"a": [%s]}', f'{{"a": {{"b": %s}}, "c": "{LONG}"}}'])
@pytest.mark.parametrize(("old", "new"), [("true", "1"), ("0", "false"), ("1", "1.0")])
def test_a_comparison_shows_a_json_value_of_another_type(
    lists: Lists, text: str, old: str, new: str
) -> None:
    kv = lists.cloud.kv_server()
    kv.execute("JSON.SET", "k", "$", text % old)
    ask(lists.app, "POST", "/snapshots", {"id": "before"})
    assert ask(lists.app, "GET", "/snapshots/before/changes")[1]["changes"] == []
    kv.execute("JSON.SET", "k", "$", text % new)
    (change,) = ask(lists.app, "GET", "/snapshots/before/changes")[1]["changes"]
    assert old in json.dumps(change["before"]["value"])
    assert new in json.dumps(change["after"]["value"])


def test_a_comparison_names_fakes_with_too_many_items(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fakecloud.standalone.control.clouds.MOST_ITEMS", 2)
    kv, other = lists.cloud.kv_server(), lists.cloud.kv_server(name="other")
    kv.load({"a": "1", "b": "2", "c": "3"})
    ask(lists.app, "POST", "/snapshots", {"id": "before"})
    other.load({"a": "1"})
    kv.load({"d": "4"})
    comparison = ask(lists.app, "GET", "/snapshots/before/changes")[1]
    assert (comparison["count"], comparison["not_compared"]) == (1, ["kv_server"])


# -- pictures of time: numbers that stay small ------------------------------------------------------


def test_thousands_of_due_times_are_counted_in_hundreds(lists: Lists) -> None:
    batch = [
        {"destination": f"https://works.example/{n}", "headers": {"Upstash-Delay": f"{n // 2}s"}}
        for n in range(2, 2402)
    ]
    lists.cloud.queue()
    for start in range(0, len(batch), 600):
        sent = {"target": "/v2/batch", "body": batch[start : start + 600]}
        status, _ = ask(lists.app, "POST", "/fakes/queue/requests", sent)
        assert status == 200
    due = ask(lists.app, "GET", "/due")[1]
    moments = [(moment["at_us"], moment["count"]) for moment in due["moments"]]
    assert (due["count"], sum(count for _, count in moments)) == (2400, 2400)
    assert len(moments) == 400
    assert moments == sorted(moments)
    # A span that begins at a moment contains the events that it stands for.
    since, until = moments[7][0], moments[8][0] - 1
    assert (
        ask(lists.app, "GET", f"/due?since={since}&until={until}")[1]["matching"] == moments[7][1]
    )


def test_keys_with_a_ttl_are_among_what_is_due(lists: Lists) -> None:
    lists.cloud.kv_server().execute("SET", "session:9", "ada", "EX", 900)
    lists.cloud.queue()
    message = {"target": "/v2/publish/https://app.example/x", "headers": {"Upstash-Delay": "2h"}}
    ask(lists.app, "POST", "/fakes/queue/requests", message | {"method": "POST"})
    due = ask(lists.app, "GET", "/due")[1]
    assert [(event["kind"], event["fake"], event["item"]) for event in due["due"]][:1] == [
        ("expiry", "kv_server", "session:9")
    ]
    assert due["due"][1]["kind"] == "delivery"
    (expiry,) = ask(lists.app, "GET", "/due?kind=expiry")[1]["due"]
    following = ask(lists.app, "GET", "/clock")[1]["next"]
    assert following == {"at": expiry["at"], "kind": "expiry", "what": "expires: session:9"}
    # An expired key is not due, even if no command has removed it yet.
    lists.cloud.clock.advance("15m")
    assert [event["kind"] for event in ask(lists.app, "GET", "/due")[1]["due"]] == ["delivery"]
    following = ask(lists.app, "GET", "/clock")[1]["next"]
    assert (following["kind"], following["what"][:8]) == ("delivery", "delivery")


def test_failed_attempts_of_delivered_messages_are_settled(lists: Lists) -> None:
    queue = lists.cloud.queue()
    body = {"url": "https://app.example", "answer": [500, 500, 500, 200]}
    ask(lists.app, "POST", "/fakes/queue/destinations", body)
    for retries in ("0", "0"):
        headers = {"Upstash-Retries": retries}
        message = {"target": "/v2/publish/https://app.example/x", "headers": headers}
        ask(lists.app, "POST", "/fakes/queue/requests", message | {"method": "POST"})
    queue.clock.advance("1s")
    first, _ = queue.dead_letters()
    assert ask(lists.app, "GET", "/problems")[1]["settled"] == []
    assert ask(lists.app, "GET", "/state")[1]["problems"] == 2
    # Its retry fails, and the retry of that is delivered.
    first.retry()
    queue.clock.advance("1s")
    queue.dead_letters()[-1].retry()
    queue.clock.advance("1s")
    settled = ask(lists.app, "GET", "/problems")[1]["settled"]
    rows = {row["number"]: row for row in ask(lists.app, "GET", "/journal")[1]}
    assert [rows[number]["status"] for number in settled] == [500, 500, 200]


def test_a_dead_letter_counts_until_a_message_that_repeats_it_is_delivered(lists: Lists) -> None:
    queue = lists.cloud.queue()
    body = {"url": "https://app.example", "answer": [500, 500, 200]}
    ask(lists.app, "POST", "/fakes/queue/destinations", body)
    headers = {"Upstash-Retries": "0"}
    sent = {"method": "POST", "target": "/v2/publish/https://app.example/x", "headers": headers}
    ask(lists.app, "POST", "/fakes/queue/requests", sent)
    queue.clock.advance("1s")
    [attempt] = [row["number"] for row in ask(lists.app, "GET", "/journal")[1] if row["attempt"]]
    counts = []
    for _ in range(2):
        ask(lists.app, "POST", "/fakes/queue/requests", sent | {"again_of": attempt})
        queue.clock.advance("1s")
        state = ask(lists.app, "GET", "/state")[1]
        counts.append((state["fakes"][0]["dead_letters"], state["problems"]))
    # The first that repeats it fails, and is another dead letter.
    assert (counts[0], len(queue.dead_letters())) == ((2, 2), 2)
    found = ask(lists.app, "GET", "/problems")[1]
    assert [letter["message_id"] for letter in found["dead_letters"]] == [
        queue.dead_letters()[1].message.id
    ]
    assert counts[1] == (1, 1)


def test_one_cause_is_one_problem_with_its_rows_and_dead_letters(lists: Lists) -> None:
    queue = lists.cloud.queue()
    for site in ("app", "app", "other"):
        queue.publish(f"https://{site}.example/hook", retries=0)
    ask(lists.app, "POST", "/fakes/queue/requests", {"method": "GET", "target": "/none"})
    queue.clock.advance("1s")
    state, found = (ask(lists.app, "GET", f"/{name}")[1] for name in ("state", "problems"))
    assert (state["violations"], state["fakes"][0]["dead_letters"], state["problems"]) == (4, 3, 3)
    rows = {row["number"]: row for row in ask(lists.app, "GET", "/journal")[1]}
    caused = {
        (cause["violations"][0]["kind"], len(cause["violations"]), len(cause["dead_letters"])): [
            rows[number]["operation"] for number in cause["rows"]
        ]
        for cause in found["causes"]
    }
    assert caused.pop(("unrouted", 1, 0)) == ["GET /none"]
    assert caused == {
        ("unstubbed", 2, 2): ["attempt", "attempt"], ("unstubbed", 1, 1): ["attempt"],
    }  # fmt: skip
    # A row that was dismissed is a failure no more.
    ask(lists.app, "POST", "/violations/dismiss", {"rows": [found["causes"][0]["rows"][0]]})
    again = ask(lists.app, "GET", "/problems")[1]
    assert again["dismissed"] == found["causes"][0]["rows"][:1]
    assert len(again["causes"]) == 3


def test_removals_by_age_are_among_what_is_due(lists: Lists) -> None:
    queue, broker = lists.cloud.queue(), lists.cloud.broker(topics={"orders": 1})
    broker.commit("billing", "orders", 0, 0)
    request: dict[str, Any] = {"method": "POST", "target": "/v2/publish/https://app.example/x"}
    for _ in range(2):
        request["headers"] = {"Upstash-Retries": "0"}
        ask(lists.app, "POST", "/fakes/queue/requests", request)
    queue.clock.advance("1s")
    kept, deleted = queue.dead_letters()
    deleted.delete()
    offsets, removal = ask(lists.app, "GET", "/due?kind=removal")[1]["due"]
    assert (offsets["list"], offsets["item"]) == ("groups", "billing")
    assert offsets["what"] == "removal of the empty group billing by its age"
    assert (removal["list"], removal["item"], removal["at"][:10]) == (
        "dead-letters", kept.id, "2026-01-08",
    )  # fmt: skip
    what = "removal of a dead letter by its age: POST https://app.example/x"
    assert ask(lists.app, "GET", "/clock")[1]["next"]["what"] == offsets["what"]
    moved = ask(lists.app, "POST", "/clock", {"action": "advance", "by": "7d"})[1]
    assert [event["what"] for event in moved["events"] if event["kind"] == "removal"] == [what]
    assert moved["expired"] == []
    assert any(line.endswith(what) for line in moved["fired"])
    ends = []
    for letter in (kept, deleted):
        message = ask(lists.app, "GET", f"/fakes/queue/lists/messages/{letter.message.id}")[1]
        ends.append((message["state"], message["letter_expired_at"]))
    assert ends == [("failed", removal["at"]), ("failed", None)]


def test_the_lag_over_time_keeps_its_highest_and_its_last_value(lists: Lists) -> None:
    broker = lists.cloud.broker(topics={"orders": 1})
    for number in range(1200):
        if number == 700:
            lag = broker.group("billing").total_lag
            broker.commit("billing", "orders", 0, 690)
        broker.produce("orders", str(number))
        if number == 0:
            broker.commit("billing", "orders", 0, 0)
        lists.cloud.clock.advance("1s")
    points = lists.get("broker/lists/groups/billing")["lag_over_time"]
    lags = [point["lag"] for point in points]
    assert len(lags) <= 501
    assert lag in lags
    assert min(lags) < 20
    assert lags[-1] == 1200 - 690
    assert points == sorted(points, key=lambda point: point["at_us"])


def test_names_with_numbers_are_in_the_order_of_these(lists: Lists) -> None:
    kv, names = lists.cloud.kv_server(), ["1", "2", "10", "job-2", "job-10", "job-11:a", "job-010"]
    kv.load(dict.fromkeys(reversed(names), "x") | {"jobs:10:a": "x", "jobs:9:a": "x"})
    pages = list(lists.every("kv_server/lists/keys", limit=2))
    assert [key for page in pages for key in ids(page, "key")] == [*names, "jobs:9:a", "jobs:10:a"]
    assert ids(lists.get("kv_server/lists/keys", sort="-key"), "key")[:2] == [
        "jobs:10:a",
        "jobs:9:a",
    ]
    folders = lists.get("kv_server/lists/keys", view="tree", under="jobs:")["folders"]
    assert [folder["name"] for folder in folders] == ["jobs:9:", "jobs:10:"]
    index = lists.cloud.vector_index(dimension=2)
    index.client().upsert([(f"film-{number}", [1.0, 2.0]) for number in (10, 9)])
    assert ids(lists.get("vector_index/lists/vectors")) == ["film-9", "film-10"]


def test_an_absent_item_has_a_reason_in_place_of_a_404(lists: Lists) -> None:
    lists.cloud.kv_server()
    assert lists.refused("kv_server/lists/keys/a")[0] == 404
    assert "no key 'a'" in lists.get("kv_server/lists/keys/a", absent="ok")["gone"]


def test_expiries_next_to_each_other_are_one_line(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    for number in range(20):
        kv.execute("SET", f"session:{number:02}", "ada", "EX", 60 * (number + 1))
    lists.cloud.queue()
    publish = {"target": "/v2/publish/https://app.example/x", "headers": {"Upstash-Delay": "630s"}}
    ask(lists.app, "POST", "/fakes/queue/requests", publish | {"method": "POST"})

    def lines(query: str) -> list[tuple[int, str]]:
        due = ask(lists.app, "GET", f"/due?{query}")[1]
        if "within" not in query:
            assert (due["count"], due["kinds"]) == (21, {"delivery": 1, "expiry": 20})
        assert due["matching"] == len(due["due"])
        return [(line["count"], line["what"]) for line in due["due"]]

    delivery = (1, "delivery: POST https://app.example/x")
    later = (10, "10 keys expire: session:…")
    assert lines("fold=yes") == [(10, "10 keys expire: session:…"), delivery, later]
    # One is opened by the time of its last event, which stays the same while the first are due.
    until = datetime.fromisoformat(ask(lists.app, "GET", "/due?fold=yes")[1]["due"][2]["until"])
    assert until.minute == 20
    opened = lines(f"fold=yes&open={instant_us(until)}")
    assert opened[2:5] == [later, (1, "expires: session:10"), (1, "expires: session:11")]
    assert lines("fold=yes&without=expiry,other") == [delivery]
    assert len(lines("within=5m")) == 5
    # All numbers are those of the period.
    soon = ask(lists.app, "GET", "/due?within=5m")[1]
    assert (soon["count"], soon["kinds"], len(soon["moments"])) == (5, {"expiry": 5}, 5)
    # Two are not worth a line of their own.
    assert lines("fold=yes&within=2m") == [(1, "expires: session:00"), (1, "expires: session:01")]
    assert "is not a duration" in message(ask(lists.app, "GET", "/due?within=soon"), 400)


def test_a_move_of_the_clock_says_which_keys_expired(lists: Lists) -> None:
    lists.cloud.kv_server().execute("SET", "a", "1", "EX", 60)
    lists.cloud.queue()
    message = {"target": "/v2/publish/http://127.0.0.1:9/", "headers": {"Upstash-Delay": "30s"}}
    ask(lists.app, "POST", "/fakes/queue/requests", message | {"method": "POST"})
    moved = ask(lists.app, "POST", "/clock", {"action": "advance", "by": "1m"})[1]
    assert moved["expired"] == ["2026-01-01T00:01:00+00:00 key a expires"] == moved["fired"][-1:]
    assert len(moved["fired"]) > 1


def test_what_a_move_made_due_is_named_with_its_row(lists: Lists) -> None:
    lists.cloud.kv_server().execute("SET", "a", "1", "EX", 90)
    lists.cloud.queue()
    answer = {"url": "http://127.0.0.1:9", "answer": [500, 200, 200]}
    ask(lists.app, "POST", "/fakes/queue/destinations", answer)
    created = {"Upstash-Cron": "1 0 * * *", "Upstash-Schedule-Id": "nightly"}
    delayed = {"Upstash-Delay": "30s", "Upstash-Retry-Delay": "1000"}
    for target, headers, body in (
        ("/v2/publish/http://127.0.0.1:9/", delayed, '{"to": "ada"}'),
        ("/v2/schedules/http://127.0.0.1:9/", created, "report"),
    ):
        sent = {"method": "POST", "target": target, "headers": headers, "body": body}
        ask(lists.app, "POST", "/fakes/queue/requests", sent)
    moved = ask(lists.app, "POST", "/clock", {"action": "advance", "by": "2m"})[1]
    assert [(event["kind"], event["what"]) for event in moved["events"]] == [
        ("delivery", 'delivery: POST http://127.0.0.1:9/ {"to": "ada"}'),
        ("wait", 'retry 1: POST http://127.0.0.1:9/ {"to": "ada"}'),
        ("schedule", "schedule nightly, every day at 00:01: http://127.0.0.1:9/"),
        ("delivery", "delivery: POST http://127.0.0.1:9/ report"),
        ("expiry", "expired: a"),
    ]
    rows = {row["number"]: row for row in ask(lists.app, "GET", "/journal")[1]}
    named = [(event["row"], event["item"]) for event in moved["events"]]
    assert [rows[row]["attempt"] for row, _ in named if row][:3] == [1, 2, 1]
    assert rows[named[0][0]]["subjects"][0]["name"] == named[0][1]
    assert (named[2], rows[named[4][0]]["operation"]) == ((0, "nightly"), "expired")


def test_what_the_last_moves_caused_is_kept_as_long_as_the_last_can_be_undone(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    for key, seconds in (("a", 30), ("b", 90)):
        kv.execute("SET", key, "1", "EX", seconds)

    def moves() -> Any:
        return ask(lists.app, "GET", "/due")[1]["moves"]

    assert moves() == []
    for by in ("1m", "1m", "1s"):
        body = {"action": "advance", "by": by, "undoable": True}
        result = ask(lists.app, "POST", "/clock", body)[1]["result"]
        assert moves()[0] == result
    # The last one caused nothing, but can be undone; the others caused something.
    spans = [(move["since"][14:19], move["now"][14:19]) for move in moves()]
    assert spans == [("02:00", "02:01"), ("01:00", "02:00"), ("00:00", "01:00")]
    assert [(move["expired"], move["undoable"]) for move in moves()] == [
        (0, True), (1, False), (1, False),
    ]  # fmt: skip
    ask(lists.app, "POST", "/clock/undo")
    assert [move["expired"] for move in moves()] == [1, 1]
    # Of a move that causes nothing, nothing remains when it cannot be undone any more.
    ask(lists.app, "POST", "/clock", body)
    ask(lists.app, "POST", "/clock", body)
    assert [move["expired"] for move in moves()] == [0, 1, 1]
    ask(lists.app, "POST", "/begin", {})
    assert moves() == []
