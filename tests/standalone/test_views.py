"""Views of fakes, in process."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.standalone.browse import vector
from pytest_fakecloud.standalone.control.data import view
from pytest_fakecloud.standalone.control.handles import send


def test_a_view_shows_some_vectors_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "MOST_IN_VIEW", 3)
    with Cloud() as cloud:
        index = cloud.vector_index(dimension=2)
        index.load({str(number): [number, 1] for number in range(10)})
        (namespace,) = view(index)["namespaces"]
    assert namespace["count"] == 10
    assert [item["id"] for item in namespace["vectors"]] == ["0", "1", "2"]
    assert all(len(item["point"]) == 2 for item in namespace["vectors"])


def test_no_more_than_is_shown_is_made_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "MOST_IN_VIEW", 3)
    with Cloud() as cloud:
        index = cloud.vector_index(dimension=2)
        index.load({str(number): [number, 1] for number in range(10)})
        made: list[Any] = []
        plain = index._plain
        monkeypatch.setattr(index, "_plain", lambda record: (made.append(record), plain(record))[1])
        view(index)
    assert len(made) == 3


def test_looking_is_no_read_that_changes_wait_for() -> None:
    with Cloud() as cloud:
        index = cloud.vector_index(dimension=2, ready_after_reads=2)
        index.client().upsert([("a", [1.0, 2.0])])
        for _ in range(5):
            view(index)
        assert [item["id"] for item in index.pending()] == ["a"]


def test_the_plot_is_the_plane_in_which_the_vectors_differ_most() -> None:
    # The vectors are in one plane, so the plot keeps their distances.
    places = [(0.0, 0.0), (4.0, 0.0), (0.0, 2.0), (3.0, 1.0), (-2.0, -2.0)]
    *points, query = vector.projected([[x, 7.0, y] for x, y in places], [4.0, 7.0, 2.0])
    for first, one in zip([*places, (4.0, 2.0)], [*points, query], strict=True):
        for second, other in zip(places, points, strict=True):
            assert one is not None
            assert other is not None
            assert math.dist(one, other) == pytest.approx(math.dist(first, second), abs=1e-5)
    assert vector.projected([[1.0, 2.0], []], [1.0]) == [[0.0, 0.0], None, None]
    assert vector.projected([[1.0], [3.0]]) in (
        [[1.0, 0.0], [-1.0, 0.0], None],
        [[-1.0, 0.0], [1.0, 0.0], None],
    )
    assert vector.projected([], [1.0]) == [None]


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


def test_a_message_tells_when_it_is_tried_next_and_memory_is_counted() -> None:
    with Cloud(now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        queue, kv = cloud.queue(), cloud.kv_server()
        queue.client().message.publish(url="https://app.example/x", body="1", delay="5m")
        assert view(queue)["messages"][0]["next"] == "2026-01-01T00:05:00+00:00"
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
