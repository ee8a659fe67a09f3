"""Fakes over the control API, in process: requests that the console sends, views, and due times."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud, standalone
from pytest_fakecloud.cloud.services import data_module
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.vector.inspect import data as vector
from pytest_fakecloud.vector.inspect.data import projected

from .conftest import ask, message


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z") as opened:
        yield opened


def post(cloud: Cloud, name: str, **body: Any) -> tuple[int, Any]:
    return ask(ControlApp(cloud, "token"), "POST", f"/fakes/{name}/requests", body)


def test_a_stream_without_end_is_left_to_a_client(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    for _ in range(2):
        assert "the response is an endless stream" in message(
            post(cloud, "kv_server", target="/monitor", headers={"Accept": "text/event-stream"})
        )
    assert kv.execute("CLIENT", "LIST").count("cmd=monitor") == 0


def test_a_cursor_leads_over_each_entry_once_while_they_are_written() -> None:
    """Requests after the highest known number return every entry once, in order."""
    with Cloud(seed=1, delivery="driven") as cloud:
        kv = cloud.kv_server()
        app = ControlApp(cloud, "token")

        def write() -> None:
            for number in range(150):
                kv.journal._recorder.add_event("x", str(number))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        seen: list[dict[str, Any]] = []
        while True:
            ended = not any(thread.is_alive() for thread in threads)
            after = seen[-1]["number"] if seen else 0
            rows = ask(app, "GET", f"/journal?after={after}")[1]
            assert all(row["number"] > after for row in rows)
            seen += rows
            if ended and not rows:
                break
        numbers = [row["number"] for row in seen]
        assert numbers == sorted(set(numbers))
        assert numbers == [entry.number for entry in cloud.journal.entries]
        assert len(numbers) == 600


# -- views -----------------------------------------------------------------------------------------


def view(fake: Any) -> dict[str, Any]:
    content: dict[str, Any] = data_module(fake.fixture).content(fake)
    return content


SERVERS = {
    "vendor": {}, "one node": {"dialect": "redis", "cluster": True},
    "three primaries": {"dialect": "redis", "cluster": 3},
    "sentinel": {"dialect": "redis", "sentinel": True},
}  # fmt: skip
FAULTS = {
    "delay": [0], "random": [1], "rate_limit": [0], "respond": [503], "sequence": [[503]],
    "burst_limit": [1], "daily_limit": [1], "partial_produce": [1],
}  # fmt: skip
"""Arguments of the kinds of faults that need some."""
CONSOLE = Path(standalone.__file__).parent / "page"


@pytest.mark.parametrize("settings", SERVERS.values(), ids=SERVERS)
def test_every_kind_of_fault_in_a_view_can_be_injected_and_has_words(
    cloud: Cloud, settings: dict[str, Any]
) -> None:
    app, words = ControlApp(cloud, "token"), CONSOLE.joinpath("faults.js").read_text("utf-8")
    for fake in (cloud.kv_server(**settings), cloud.vector_index(), cloud.broker(), cloud.queue()):
        kinds = ask(app, "GET", f"/fakes/{fake.name}/view")[1]["fault_kinds"]
        assert [kind for kind in kinds if f" {kind}: {{does: " not in words] == []
        for kind in kinds:
            body = {"kind": kind, "args": FAULTS.get(kind, [])}
            assert ask(app, "POST", f"/fakes/{fake.name}/faults", body)[0] == 200, kind


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
    for first, point in zip([*places, (4.0, 2.0)], [*points, query], strict=True):
        for second, other in zip(places, points, strict=True):
            assert point is not None
            assert other is not None
            assert math.dist(point, other) == pytest.approx(math.dist(first, second), abs=1e-5)
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
    point = {shown_vector["id"]: shown_vector["point"] for shown_vector in here["vectors"]}
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
    point = {shown_vector["id"]: shown_vector["point"] for shown_vector in space["vectors"]}
    nearest = min(point, key=lambda name: math.dist(point[name], space["query"]["point"]))
    assert (nearest, space["query"]["found"]) == ("a", ["a"])


def test_a_server_shows_its_memory(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    before = view(kv)["memory"]
    kv.load({"a": "x" * 1000})
    assert view(kv)["memory"] > before + 1000
