"""Fakes over the control API, in process: requests that the console sends, views, and due times."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.journal import recorder_of
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.control.data import view
from pytest_fakecloud.standalone.control.handles import send
from pytest_fakecloud.vector.report import data as vector
from pytest_fakecloud.vector.report.data import projected

from .conftest import ask, message


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z") as opened:
        yield opened


def post(cloud: Cloud, name: str, **body: Any) -> tuple[int, Any]:
    return ask(ControlApp(cloud, "token"), "POST", f"/handles/{name}/requests", body)


def test_a_command_runs_with_the_credentials_of_the_fake_and_is_in_the_journal(
    cloud: Cloud,
) -> None:
    kv = cloud.kv_server()
    status, answer = post(cloud, "kv_server", body=["SET", "a", "é"])
    assert (status, answer["status"]) == (200, 200)
    assert json.loads(answer["body"]) == {"result": "OK"}
    assert kv.value("a") == "é"
    assert [call.route for call in kv.journal.calls()] == ["command"]


def test_other_credentials_are_those_that_count(cloud: Cloud) -> None:
    cloud.kv_server()
    _, answer = post(cloud, "kv_server", body=["GET", "a"], headers={"authorization": "Bearer no"})
    assert answer["status"] == 401


def test_a_text_goes_as_it_is(cloud: Cloud) -> None:
    queue = cloud.queue()
    _, answer = post(cloud, "queue", target="/v2/publish/http://127.0.0.1:9/x", body='{"n":  1}')
    assert answer["status"] == 200
    assert queue.messages()[0].body == b'{"n":  1}'


def test_a_request_meets_the_faults_of_the_fake(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    kv.faults.lose_response(times=1)
    assert post(cloud, "kv_server", body=["SET", "a", "1"])[1] == {"broken": "lose"}
    assert kv.value("a") == "1"


def test_a_stream_without_end_is_left_to_a_client(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    for _ in range(2):
        assert "the response is an endless stream" in message(
            post(cloud, "kv_server", target="/monitor", headers={"Accept": "text/event-stream"})
        )
    assert kv.execute("CLIENT", "LIST").count("cmd=monitor") == 0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"method": "A B"}, "method must be a word"),
        ({"method": 5}, "method is 5; pass a string"),
        ({"target": "http://other.example/"}, "target must be a path"),
        ({"target": "/a b"}, "target must be a path"),
        ({"target": "/a\r\nX: y"}, "target must be a path"),
        ({"headers": ["a"]}, "headers is ['a']; pass an object"),
        ({"headers": {"a": "b\r\nc: d"}}, "is not a header"),
        ({"headers": {"a b": "c"}}, "is not a header"),
        ({"headers": {"a": 5}}, "headers.a is 5; pass a string"),
        ({"path": "/"}, "'path' is not a field of "),
    ],
)
def test_what_no_client_could_send_is_refused(
    cloud: Cloud, body: dict[str, Any], text: str
) -> None:
    kv = cloud.kv_server()
    assert text in message(post(cloud, "kv_server", **body))
    assert not kv.journal.calls()


def test_what_falls_due_is_told_in_its_order(cloud: Cloud) -> None:
    cloud.queue()
    for delay in ("2h", "5m", "1d"):
        post(
            cloud, "queue", target=f"/v2/publish/http://127.0.0.1:9/{delay}",
            headers={"Upstash-Delay": delay},
        )  # fmt: skip
    due = ask(ControlApp(cloud, "token"), "GET", "/due")[1]
    assert (due["now"], due["count"]) == ("2026-01-01T00:00:00+00:00", 3)
    assert [(one["at"], one["what"]) for one in due["due"]] == [
        ("2026-01-01T00:05:00+00:00", "delivery: POST http://127.0.0.1:9/5m"),
        ("2026-01-01T02:00:00+00:00", "delivery: POST http://127.0.0.1:9/2h"),
        ("2026-01-02T00:00:00+00:00", "delivery: POST http://127.0.0.1:9/1d"),
    ]
    cloud.clock.advance("5m")
    first = ask(ControlApp(cloud, "token"), "GET", "/due")[1]["due"][0]
    assert first["what"] == "retry 1: POST http://127.0.0.1:9/5m"
    post(
        cloud, "queue", target="/v2/schedules/http://127.0.0.1:9/nightly",
        headers={"Upstash-Cron": "0 3 * * *", "Upstash-Schedule-Id": "nightly"},
    )  # fmt: skip
    last = ask(ControlApp(cloud, "token"), "GET", "/due")[1]["due"][-2]
    assert last["what"] == "schedule: http://127.0.0.1:9/nightly"
    for one, id in ((first, first["item"]), (last, "nightly")):
        path = f"/handles/{one['handle']}/lists/{one['list']}"
        items = ask(ControlApp(cloud, "token"), "GET", path)[1]["items"]
        assert id in [item["id"] for item in items]
    cloud.reset()
    assert ask(ControlApp(cloud, "token"), "GET", "/due")[1]["due"] == []


def test_a_cursor_leads_over_each_entry_once_while_they_are_written() -> None:
    """Requests after the highest known number return every entry once, in order."""
    with Cloud(seed=1, delivery="driven") as cloud:
        kv = cloud.kv_server()
        app = ControlApp(cloud, "token")

        def write() -> None:
            for number in range(150):
                recorder_of(kv.journal).add_event("x", str(number))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        seen: list[dict[str, Any]] = []
        while True:
            ended = not any(thread.is_alive() for thread in threads)
            after = seen[-1]["number"] if seen else 0
            found = ask(app, "GET", f"/journal?after={after}")[1]
            assert all(row["number"] > after for row in found)
            seen += found
            if ended and not found:
                break
        numbers = [row["number"] for row in seen]
        assert numbers == sorted(set(numbers))
        assert numbers == [entry.number for entry in cloud.journal.entries]
        assert len(numbers) == 600


# -- views -----------------------------------------------------------------------------------------


@pytest.fixture
def ten(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an index with ten vectors, whose view shows three."""
    monkeypatch.setattr(vector, "MOST_IN_VIEW", 3)
    index = cloud.vector_index(dimension=2)
    index.load({str(number): [number, 1] for number in range(10)})
    return index


def test_a_view_shows_some_vectors_and_counts_all(ten: Any) -> None:
    (namespace,) = view(ten)["namespaces"]
    assert namespace["count"] == 10
    assert [item["id"] for item in namespace["vectors"]] == ["0", "1", "2"]
    assert all(len(item["point"]) == 2 for item in namespace["vectors"])


def test_no_more_than_is_shown_is_made_plain(ten: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    plain = ten._plain
    monkeypatch.setattr(ten, "_plain", lambda record: (made.append(record), plain(record))[1])
    view(ten)
    assert len(made) == 3


def test_looking_is_no_read_that_changes_wait_for(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2, ready_after_reads=2)
    index.client().upsert([("a", [1.0, 2.0])])
    for _ in range(5):
        view(index)
    assert [item["id"] for item in index.pending()] == ["a"]


def test_the_plot_is_the_plane_in_which_the_vectors_differ_most() -> None:
    # The vectors are in one plane, so the plot keeps their distances.
    places = [(0.0, 0.0), (4.0, 0.0), (0.0, 2.0), (3.0, 1.0), (-2.0, -2.0)]
    *points, query = projected([[x, 7.0, y] for x, y in places], [4.0, 7.0, 2.0])
    for first, one in zip([*places, (4.0, 2.0)], [*points, query], strict=True):
        for second, other in zip(places, points, strict=True):
            assert one is not None
            assert other is not None
            assert math.dist(one, other) == pytest.approx(math.dist(first, second), abs=1e-5)
    assert projected([[1.0, 2.0], []], [1.0]) == [[0.0, 0.0], None, None]
    assert projected([[1.0], [3.0]]) in (
        [[1.0, 0.0], [-1.0, 0.0], None],
        [[-1.0, 0.0], [1.0, 0.0], None],
    )
    assert projected([], [1.0]) == [None]


def test_thelast_query_of_a_namespace_is_among_its_vectors() -> None:
    with Cloud() as cloud:
        index = cloud.vector_index(dimension=2)
        index.load({"a": [0, 0], "b": [4, 0], "c": [0, 2]})
        index.load({"other": [1, 1]}, namespace="n")
        assert [space["query"] for space in view(index)["namespaces"]] == [None, None]
        client = index.client()
        client.query([1.0, 1.0], top_k=3, namespace="n")
        client.query([4.0, 0.0], top_k=1)
        batch = [{"vector": [0.0, 0.0], "topK": 1}] * 2
        httpx.post(f"{index.url}/query", json=batch, headers=index.headers)
        here, there = view(index)["namespaces"]
    point = {one["id"]: one["point"] for one in here["vectors"]}
    assert here["query"]["found"] == ["b"]
    assert here["query"]["point"] == pytest.approx(point["b"], abs=1e-5)
    assert there["query"]["found"] == ["other"]


def test_a_query_by_text_is_where_its_embedding_is() -> None:
    with Cloud() as cloud:
        index = cloud.vector_index(embedding=True)
        for name, text in {"a": "a red kettle", "b": "the rules of chess", "c": "tea"}.items():
            index.client().upsert([{"id": name, "data": text}])
        index.client().query(data="a red kettle", top_k=1)
        (space,) = view(index)["namespaces"]
    point = {one["id"]: one["point"] for one in space["vectors"]}
    nearest = min(point, key=lambda name: math.dist(point[name], space["query"]["point"]))
    assert (nearest, space["query"]["found"]) == ("a", ["a"])


def test_a_message_tells_when_it_is_tried_next_and_a_server_its_memory() -> None:
    with Cloud(now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        queue, kv = cloud.queue(), cloud.kv_server()
        queue.client().message.publish(url="https://app.example/x", body="1", delay="5m")
        assert view(queue)["messages"][0]["next"] == "2026-01-01T00:05:00+00:00"
        kv.load({"set": set("abcdefgh")})
        assert view(kv)["keys"][0]["value"] == list("abcdefgh")
        before = view(kv)["memory"]
        kv.load({"a": "x" * 1000})
        assert view(kv)["memory"] > before + 1000


def test_a_workflow_run_is_shown_with_its_steps() -> None:
    with Cloud(now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        queue = cloud.queue()
        headers = {"Upstash-Workflow-RunId": "wfr_1", "Upstash-Workflow-Init": "true"}
        send(queue, "POST", "/v2/publish/https://app.example/flow", headers, {"order": 7})
        (run,) = view(queue)["workflows"]
    assert (run["workflowRunId"], run["workflowState"]) == ("wfr_1", "RUN_STARTED")
    assert run["workflowUrl"] == "https://app.example/flow"
    assert [group["type"] for group in run["steps"]] == ["next"]
