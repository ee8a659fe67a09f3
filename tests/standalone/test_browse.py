"""The lists of the control API: all data of a fake, page by page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from pytest_fakecloud import Cloud, Response
from pytest_fakecloud.queue.report.data import LISTS
from pytest_fakecloud.standalone.api import ControlApp
from tests.harness import in_threads

from .conftest import ask, message

NOW = "2026-01-01T00:00:00Z"


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
        return ask(self.app, "GET", f"/handles/{path}" + (f"?{text}" if text else ""))

    def post(self, path: str) -> tuple[int, Any]:
        return ask(self.app, "POST", f"/handles/{path}", {})

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


def test_all_keys_are_in_the_pages_and_counted(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load({f"key:{number:04}": "x" for number in range(2005)})
    pages = list(lists.every("kv_server/lists/keys", limit=500))
    assert [(page["first"], len(page["items"])) for page in pages] == [
        (1, 500), (501, 500), (1001, 500), (1501, 500), (2001, 5),
    ]  # fmt: skip
    assert {(page["total"], page["matching"]) for page in pages} == {(2005, 2005)}
    assert [key for page in pages for key in ids(page, "key")] == sorted(kv.keys())
    back = lists.get("kv_server/lists/keys", limit=500, before=pages[1]["previous"])
    assert back == pages[0]
    assert back["previous"] is None


def test_the_page_before_repeats_nothing_if_items_were_removed(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load({f"key:{number}": "x" for number in range(8)})
    first = lists.get("kv_server/lists/keys", limit=4)
    second = lists.get("kv_server/lists/keys", limit=4, after=first["next"])
    kv.execute("DEL", "key:1", "key:2")
    back = lists.get("kv_server/lists/keys", limit=4, before=second["previous"])
    assert (back["first"], ids(back, "key")) == (1, ["key:0", "key:3"])
    after = lists.get("kv_server/lists/keys", limit=4, after=back["next"])
    assert ids(after, "key") == ids(second, "key")


def test_a_search_finds_a_key_far_behind_the_first_page(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load({f"key:{number:04}": "x" for number in range(2005)} | {"Zoë": "y", "k[1]": "z"})
    assert ids(lists.get("kv_server/lists/keys", search="1999"), "key") == ["key:1999"]
    assert ids(lists.get("kv_server/lists/keys", search="ZOË"), "key") == ["Zoë"]
    page = lists.get("kv_server/lists/keys", search="key:200?", limit=2)
    assert (page["total"], page["matching"]) == (2007, 5)
    assert ids(page, "key") == ["key:2000", "key:2001"]


def test_a_cursor_survives_changes_of_the_list(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load(dict.fromkeys("bdfhj", "x"))
    first = lists.get("kv_server/lists/keys", limit=2)
    kv.execute("DEL", "d")
    kv.load({"a": "x", "e": "x"})
    assert ids(lists.get("kv_server/lists/keys", limit=2, after=first["next"]), "key") == ["e", "f"]


def test_a_page_whose_items_were_removed_is_empty_and_leads_to_the_others(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load(dict.fromkeys("abcd", "x"))
    first = lists.get("kv_server/lists/keys", limit=2)
    second = lists.get("kv_server/lists/keys", limit=2, after=first["next"])
    kv.execute("DEL", "c", "d")
    behind = lists.get("kv_server/lists/keys", limit=2, after=first["next"])
    assert (behind["first"], behind["matching"], behind["items"], behind["next"]) == (
        0,
        2,
        [],
        None,
    )
    assert lists.get("kv_server/lists/keys", limit=2, before=behind["previous"]) == first | {
        "total": 2, "matching": 2, "next": None, "facets": {"string": 2},
    }  # fmt: skip
    kv.execute("DEL", "a", "b")
    kv.load({"x": "1"})
    before = lists.get("kv_server/lists/keys", limit=2, before=second["previous"])
    assert (before["items"], before["previous"]) == ([], None)
    assert ids(lists.get("kv_server/lists/keys", after=before["next"]), "key") == ["x"]
    kv.execute("DEL", "x")
    for cursor in ({"after": first["next"]}, {"before": second["previous"]}):
        page = lists.get("kv_server/lists/keys", **cursor)
        assert (page["items"], page["previous"], page["next"]) == ([], None, None)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"after": "x"}, "cursor"),
        ({"after": "{}"}, "cursor"),
        ({"after": "[5]"}, "cursor"),
        ({"before": "[" * 100_000}, "cursor"),
        ({"limit": 0}, "limit must be from 1 to 500"),
        ({"sort": "colour"}, "'colour' is not a field of this list. Known fields"),
        ({"limit": 501}, "limit must be from 1 to 500"),
        ({"limit": "9" * 19}, "limit must be a whole number"),
        ({"limit": "²"}, "limit must be a whole number"),
        ({"serach": "x"}, "'serach' is not a parameter of this list; did"),
    ],
)
def test_what_no_page_can_be_is_refused(lists: Lists, query: Any, text: str) -> None:
    lists.cloud.kv_server().load({"a": "1"})
    assert text in message(lists.refused("kv_server/lists/keys", **query))


def test_an_unknown_list_or_item_is_not_found(lists: Lists) -> None:
    lists.cloud.kv_server()
    lists.cloud.vector_index(dimension=2)
    lists.cloud.broker(topics={"orders": 1})
    lists.cloud.queue()
    lists.cloud.callback_capture()
    for path, text in {
        "kv_server/lists/kys": "did you mean 'keys'?",
        "kv_server/lists/keys/gone": "there is no key 'gone'",
        "kv_server/lists/indexes/x": "its pages are complete",
        "vector_index/lists/vectors/gone": "has no vector 'gone'",
        "broker/lists/topics/gone": "there is no topic 'gone'",
        "broker/lists/records": "there is no topic ''",
        "broker/lists/records/0-1": "has no record",
        "broker/lists/records/0-1?topic=orders": "topic 'orders' has no record '0-1'",
        "broker/lists/groups/gone": "there is no consumer group",
        "queue/lists/messages/gone": "there is no message",
        "queue/lists/runs/gone": "there is no workflow run",
        "callback_capture/lists": "has no lists",
    }.items():
        assert text in message(lists.refused(path), 404)


def test_a_list_is_sorted_by_a_field_page_by_page(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = lists.cloud.kv_server()
    for number, (name, ttl) in enumerate({"a": 500, "b": 9, "c": None, "d": 4000}.items()):
        kv.execute("SET", name, "x" * number * 500, *(["EX", ttl] if ttl else []))
    orders = {
        sort: [ids(page) for page in lists.every("kv_server/lists/keys", sort=sort, limit=3)]
        for sort in ("ttl_ms", "-ttl_ms", "-bytes", "type")
    }
    assert orders == {
        "ttl_ms": [["b", "a", "d"], ["c"]],
        "-ttl_ms": [["d", "a", "b"], ["c"]],
        "-bytes": [["d", "c", "b"], ["a"]],
        "type": [["a", "b", "c"], ["d"]],
    }
    monkeypatch.setattr("pytest_fakecloud.reporting.data.MOST_SORTED", 3)
    status, answer = lists.refused("kv_server/lists/keys", sort="type")
    assert (status, "too many to sort" in answer["error"]["message"]) == (422, True)


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


def test_keys_are_filtered_by_type_and_show_their_expiry(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load({"s": "text", "h": {"f": "1"}, "l": ["a", "b"], "s2": "more"})
    kv.execute("EXPIRE", "s", 90)
    page = lists.get("kv_server/lists/keys", type="string")
    assert page["facets"] == {"hash": 1, "list": 1, "string": 2}
    assert (page["total"], page["matching"], ids(page, "key")) == (4, 2, ["s", "s2"])
    row = page["items"][0]
    assert (row["ttl_ms"], row["expires"]) == (90_000, "2026-01-01T00:01:30+00:00")
    assert (row["preview"], row["length"], row["bytes"] > 0) == ("text", 4, True)
    assert page["items"][1]["ttl_ms"] is None


def test_keys_are_grouped_by_namespace(lists: Lists) -> None:
    lists.cloud.kv_server().load(
        {"plain": "1", "a:": "1", "a:1": "1", "a:1:x": "1", "a:1:y": "1", ":": "1", "a*:b": "1"}
    )
    root = lists.get("kv_server/lists/keys", view="tree")
    assert (root["total"], ids(root, "key")) == (7, ["plain"])
    folders = [{"name": name, "keys": many} for name, many in ((":", 1), ("a*:", 1), ("a:", 4))]
    assert root["folders"] == folders
    inside = lists.get("kv_server/lists/keys", view="tree", under="a:")
    assert ids(inside, "key") == ["a:", "a:1"]
    assert inside["folders"] == [{"name": "a:1:", "keys": 2}]


def test_a_key_shows_its_elements_in_pages(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.load({
        "hash": {f"f{number:03}": str(number) for number in range(120)},
        "list": ["b", "a"], "set": {"y", "x"}, "zset": [("ann", 1.5), ("bob", 2.0)],
        "stream": [("1-0", {"a": "b"})],
    })  # fmt: skip
    kv.execute("JSON.SET", "doc", "$", '{"a": [1]}')
    found = lists.get("kv_server/lists/keys/hash", limit=50)
    assert found["columns"] == ["field", "value"]
    assert (found["elements"]["total"], len(found["elements"]["items"])) == (120, 50)
    found = lists.get("kv_server/lists/keys/hash", search="f119", limit=50)
    assert found["elements"]["items"] == [{"field": "f119", "value": "119"}]
    names = ("list", "set", "zset", "stream")
    assert [lists.get(f"kv_server/lists/keys/{name}")["elements"]["items"] for name in names] == [
        [{"index": 0, "value": "b"}, {"index": 1, "value": "a"}],
        [{"member": "x"}, {"member": "y"}],
        [{"member": "ann", "score": "1.5"}, {"member": "bob", "score": "2.0"}],
        [{"id": "1-0", "fields": '{"a": "b"}'}],
    ]  # fmt: skip
    assert lists.get("kv_server/lists/keys/doc")["value"] == '{\n  "a": [\n    1\n  ]\n}'


def test_keys_and_values_that_are_no_text_are_shown_and_found_by_id(lists: Lists) -> None:
    lists.cloud.kv_server().execute("SET", b"\xff/ %", b"\xfe")
    (row,) = lists.get("kv_server/lists/keys")["items"]
    assert (row["id"], row["is_text"]) == ("%FF%2F%20%25", False)
    found = lists.get(f"kv_server/lists/keys/{row['id']}")
    assert (found["value"], found["is_editable"]) == ("\ufffd", False)


def test_search_indexes_show_schema_and_documents(lists: Lists) -> None:
    kv = lists.cloud.kv_server()
    kv.execute(
        "SEARCH.CREATE", "books", "ON", "HASH", "PREFIX", "1", "b:", "SCHEMA", "title", "TEXT"
    )
    kv.load({"b:1": {"title": "running shoes"}})
    kv.execute("SEARCH.WAITINDEXING", "books")
    (row,) = lists.get("kv_server/lists/indexes")["items"]
    assert (row["name"], row["documents"], row["pending"]) == ("books", 1, 0)
    assert row["fields"] == [{"field": "title", "type": "TEXT", "options": []}]
    assert lists.get("kv_server/lists")["indexes"] == 1


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
    counts = lists.get("vector_index/lists")
    assert (counts["vectors"], counts["info"]["dimension"]) == (1101, 2)


# -- broker ----------------------------------------------------------------------------------------


def test_records_are_listed_from_the_newest_an_offset_or_a_time(lists: Lists) -> None:
    broker = lists.cloud.broker(topics={"orders": 2})
    for number in range(6):
        broker.produce("orders", f"value {number}", key=f"k{number}", partition=number % 2)
        lists.cloud.clock.advance("1m")
    page = lists.get("broker/lists/records", topic="orders", limit=2)
    assert (page["total"], ids(page)) == (6, ["1-2", "0-2"])
    assert ids(lists.get("broker/lists/records", topic="orders", offset=1, partition=0)) == [
        "0-1",
        "0-2",
    ]
    assert ids(lists.get("broker/lists/records", topic="orders", at="2026-01-01T00:04:00Z")) == [
        "0-2",
        "1-2",
    ]
    assert ids(lists.get("broker/lists/records", topic="orders", search="VALUE 3")) == ["1-1"]
    one = lists.get("broker/lists/records/1-1", topic="orders")
    assert (one["key"], one["value"], one["headers"]) == ("k3", "value 3", [])
    refused = lists.refused("broker/lists/records", topic="orders", at="soon")
    assert "at must be a time such as" in message(refused)


def test_topics_and_groups_show_offsets_and_lag(lists: Lists) -> None:
    broker = lists.cloud.broker(topics={"orders": 2})
    broker.join("billing", "one", ["orders"])
    broker.produce("orders", "x", partition=1)
    topic = lists.get("broker/lists/topics/orders")
    assert topic["partitions"][1] == {"partition": 1, "start": 0, "end": 1}
    group = lists.get("broker/lists/groups/billing")
    assert (group["total_lag"], group["members"][0]["name"]) == (1, "one")
    assert lists.get("broker/lists") == {"topics": 1, "groups": 1}


# -- queue -----------------------------------------------------------------------------------------


def publish(lists: Lists, queue: Any, url: str, **headers: str) -> str:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer = ask(
        lists.app, "POST", f"/handles/{queue.name}/requests",
        {"target": f"/v2/publish/{url}", "body": {"n": 1}, "headers": given},
    )  # fmt: skip
    assert (status, answer["status"]) == (200, 200), answer
    return str(json.loads(answer["body"])["messageId"])


def test_messages_are_listed_by_state_with_all_about_them(lists: Lists) -> None:
    queue = lists.cloud.queue()
    queue.destinations.respond("https://app.example/bad", Response(500, b"", {"Retry-After": "5"}))
    queue.destinations.accept("https://app.example/good")
    bad = publish(
        lists, queue, "https://app.example/bad", Upstash_Retries="0",
        Upstash_Forward_X_Id="7", Upstash_Label="mail",
    )  # fmt: skip
    good = publish(
        lists, queue, "https://app.example/good", Upstash_Callback="https://app.example/good"
    )
    later = publish(lists, queue, "https://app.example/good", Upstash_Delay="1h")
    queue.clock.advance("1m")
    page = lists.get("queue/lists/messages")
    assert ids(page) == [later, good, bad]
    assert page["facets"] == {"dead_lettered": 1, "delivered": 1, "pending": 1}
    assert ids(lists.get("queue/lists/messages", state="pending")) == [later]
    assert ids(lists.get("queue/lists/messages", search="MAIL")) == [bad]
    found = lists.get(f"queue/lists/messages/{bad}")
    assert (found["body"], found["headers"]["X-Id"]) == ('{"n": 1}', ["7"])
    (attempt,) = found["attempts"]
    assert (attempt["status"], attempt["headers"]) == (500, {"Retry-After": ["5"]})
    assert found["settings"] == {"labels": "mail", "timeout": "7200 s"}
    (letter,) = lists.get("queue/lists/dead-letters")["items"]
    assert (letter["message"], letter["status"], letter["id"]) == (bad, 500, found["dlq_id"])
    (callback,) = lists.get("queue/lists/callbacks")["items"]
    assert callback["about"] == good
    assert [one["id"] for one in lists.get(f"queue/lists/messages/{good}")["callbacks"]] == ids(
        lists.get("queue/lists/callbacks")
    )
    assert lists.get("queue/lists")["messages"] == 3


def test_dead_letters_are_sorted_by_when_they_failed(lists: Lists) -> None:
    queue = lists.cloud.queue()
    queue.destinations.respond("https://app.example/bad", 500)
    for retries in ("1", "0"):
        publish(lists, queue, "https://app.example/bad", Upstash_Retries=retries)
    queue.clock.advance("1h")
    times = [one["at"] for one in lists.get("queue/lists/dead-letters")["items"]]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 2


def test_a_message_that_has_ended_has_no_next_attempt(lists: Lists) -> None:
    queue = lists.cloud.queue()
    queue.destinations.respond("https://app.example/bad", 500)
    later = publish(lists, queue, "https://app.example/bad", Upstash_Delay="1h")
    tried = publish(lists, queue, "https://app.example/bad", Upstash_Retries="0")
    queue.clock.advance("1s")
    ask(lists.app, "POST", f"/handles/{queue.name}/requests",
        {"method": "DELETE", "target": f"/v2/messages/{later}"})  # fmt: skip
    for id in (later, tried):
        assert lists.get(f"queue/lists/messages/{id}")["next"] is None


def test_messages_are_filtered(lists: Lists) -> None:
    queue = lists.cloud.queue()
    for path, status, label in (("bad", 503, "mail"), ("good", 200, "sms")):
        queue.destinations.respond(f"https://app.example/{path}", status)
        publish(lists, queue, f"https://app.example/{path}", Upstash_Label=label)
        queue.clock.advance("1s")

    def found(**filters: str) -> list[str]:
        page = lists.get("queue/lists/messages", **filters)
        assert page["total"] == 2
        return [item["label"] for item in page["items"]]

    assert found(status="503") == found(status="5xx") == found(label="mail") == ["mail"]
    assert found(status="5") == found(status="xx") == []
    assert found(url="/good") == found(since="2026-01-01T00:00:01") == ["sms"]
    assert found(until="2026-01-01T00:00:01Z") == ["mail"]
    assert "must be a time such as" in message(
        lists.refused("queue/lists/messages", since="yesterday")
    )


def test_a_pending_message_is_delivered_now(lists: Lists) -> None:
    queue = lists.cloud.queue()
    queue.destinations.accept("https://app.example/good")
    later = publish(lists, queue, "https://app.example/good", Upstash_Delay="1h")
    status, row = lists.post(f"queue/messages/{later}/deliver")
    assert (status, row["next"]) == (200, "2026-01-01T00:00:00+00:00")
    queue.deliver_due()
    assert queue.message(later).state == "delivered"
    assert lists.cloud.clock.now().isoformat() == "2026-01-01T00:00:00+00:00"
    assert "there is no message 'gone'" in message(lists.post("queue/messages/gone/deliver"), 404)
    assert "the message is delivered" in message(lists.post(f"queue/messages/{later}/deliver"))


def test_a_message_that_waits_for_others_is_not_delivered_now(lists: Lists) -> None:
    queue = lists.cloud.queue()
    limit = {"Upstash_Flow_Control_Key": "k", "Upstash_Flow_Control_Value": "rate=1,period=1h"}
    _, waiting = (publish(lists, queue, "https://app.example/x", **limit) for _ in range(2))
    queue.destinations.accept("https://app.example/x")
    queue.deliver_due()
    (key,) = lists.get("queue/lists/flow-control")["items"]
    assert (key["key"], key["waits"], key["waiting"], key["rate"]) == ("k", 1, [waiting], 1)
    assert "is waiting for flow control k" in message(
        lists.post(f"queue/messages/{waiting}/deliver")
    )


def test_a_schedule_runs_at_once_and_keeps_its_plan(lists: Lists) -> None:
    lists.cloud.queue().schedule("https://app.example/nightly", "0 3 * * *", id="nightly", body="x")
    (row,) = lists.get("queue/lists/schedules")["items"]
    assert (row["next"][0], row["body"]) == ("2026-01-01T03:00:00+00:00", "x")
    status, ran = lists.post("queue/schedules/nightly/run")
    assert (status, len(ran["messages"])) == (200, 1)
    assert ids(lists.get("queue/lists/messages")) == ran["messages"]
    assert lists.get("queue/lists/schedules")["items"][0]["next"] == row["next"]
    assert lists.post("queue/schedules/gone/run")[0] == 404


def test_queues_groups_and_runs_are_listed(lists: Lists) -> None:
    queue = lists.cloud.queue()
    queue.load({
        "url_groups": {"team": ["https://a.example", "https://b.example"]},
        "queues": {"ordered": {"parallelism": 2}},
    })  # fmt: skip
    publish(
        lists, queue, "https://app.example/flow",
        Upstash_Workflow_RunId="wfr_1", Upstash_Workflow_Init="true",
    )  # fmt: skip
    (group,) = lists.get("queue/lists/url-groups")["items"]
    assert [one["url"] for one in group["endpoints"]] == ["https://a.example", "https://b.example"]
    (ordered,) = lists.get("queue/lists/queues")["items"]
    assert (ordered["name"], ordered["parallelism"], ordered["lag"]) == ("ordered", 2, 0)
    (run,) = lists.get("queue/lists/runs")["items"]
    assert (run["id"], run["state"]) == ("wfr_1", "started")
    found = lists.get("queue/lists/runs/wfr_1")
    assert (found["input"], found["record"]["workflowState"]) == ('{"n": 1}', "RUN_STARTED")


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
        lists.app, "POST", "/handles/queue/requests",
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

    monkeypatch.setattr(queue._time, "settle", settle)
    for name in LISTS:
        lists.get(f"queue/lists/{name}")
    lists.get("queue/view")
    assert free
    assert all(free)


def test_acts_of_a_queue_are_refused_elsewhere(lists: Lists) -> None:
    lists.cloud.kv_server()
    assert "is not a queue" in message(lists.post("kv_server/messages/x/deliver"))
