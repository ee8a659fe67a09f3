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


def test_a_list_that_is_too_long_is_not_sorted(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists.cloud.kv_server().load(dict.fromkeys("abcd", "x"))
    monkeypatch.setattr("pytest_fakecloud.reporting.data.MOST_SORTED", 3)
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
    found = lists.get(f"kv_server/lists/keys/{row['id']}")
    assert (found["value"], found["is_editable"]) == ("\ufffd", False)


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


# -- queue -----------------------------------------------------------------------------------------


def publish(lists: Lists, queue: Any, url: str, **headers: str) -> str:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer = ask(
        lists.app, "POST", f"/handles/{queue.name}/requests",
        {"target": f"/v2/publish/{url}", "body": {"n": 1}, "headers": given},
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
