"""What the console is shown of a fake, in process."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.standalone import views
from pytest_fakecloud.standalone.views import view


def test_a_view_shows_some_vectors_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST", 3)
    with Cloud() as cloud:
        index = cloud.vector_index(dimension=2)
        index.load({str(number): [number, 1] for number in range(10)})
        (namespace,) = view(index)["namespaces"]
    assert namespace["count"] == 10
    assert [item["id"] for item in namespace["vectors"]] == ["0", "1", "2"]
    assert all(len(item["point"]) == 2 for item in namespace["vectors"])


def test_no_more_than_is_shown_is_made_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST", 3)
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
    # Flat in three dimensions already: distances stay as they are.
    places = [(0.0, 0.0), (4.0, 0.0), (0.0, 2.0), (3.0, 1.0), (-2.0, -2.0)]
    points = views._projected([[x, 7.0, y] for x, y in places])
    for first, one in zip(places, points, strict=True):
        for second, other in zip(places, points, strict=True):
            assert one is not None
            assert other is not None
            assert math.dist(one, other) == pytest.approx(math.dist(first, second), abs=1e-5)
    assert views._projected([[1.0, 2.0], []]) == [[0.0, 0.0], None]
    assert views._projected([[1.0], [3.0]]) in (
        [[1.0, 0.0], [-1.0, 0.0]],
        [[-1.0, 0.0], [1.0, 0.0]],
    )
    assert views._projected([]) == []
