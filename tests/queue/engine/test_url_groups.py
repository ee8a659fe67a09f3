"""URL groups: what is found at once is what a look at each endpoint would find."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.queue.engine.url_groups import UrlGroups
from pytest_fakecloud.queue.errors import QueueError

from ..scene import DEST, Scene

URLS = [f"https://{name}.example.com/" for name in "abc"]
NAMES = [None, None, "x", "y"]


@dataclass
class Plain:
    """A group as a list of `[url, name]`, looked through from the first to the last."""

    rows: list[list[Any]] = field(default_factory=list)

    def add(self, url: str, name: str | None) -> None:
        named = [row for row in self.rows if name is not None and row[1] == name]
        for row in named or [row for row in self.rows if row[0] == url]:
            row[:] = [url, name if name is not None else row[1]]
            return
        self.rows.append([url, name])

    def remove(self, url: str | None, name: str | None) -> None:
        self.rows = [
            row
            for row in self.rows
            if not ((url is not None and row[0] == url) or (name is not None and row[1] == name))
        ]


steps = st.tuples(
    st.sampled_from(["add", "add", "add", "remove", "change"]),
    st.sampled_from(URLS),
    st.sampled_from(NAMES),
    st.booleans(),
)


def groups(**limits: int) -> UrlGroups:
    numbers = itertools.count()
    return UrlGroups(lambda prefix: f"{prefix}{next(numbers)}", **limits)


@given(st.lists(steps, max_size=25))
def test_a_group_is_what_a_plain_list_would_be(taken: list[Any]) -> None:
    store, plain = groups(), Plain()
    group = store.create("g", 0)
    for what, url, name, only_name in taken:
        if what == "add":
            store.add(group, url, name, 0)
            plain.add(url, name)
        elif what == "remove":
            item = {"url": None if only_name else url, "name": name}
            store.remove_endpoints(group, [item], 0)
            plain.remove(item["url"], name)
            # It goes with its last endpoint.
            assert (store.find("g") is None) == (not plain.rows)
            group = store.create("g", 0)
        elif plain.rows:
            # PUT /v1/endpoints/<id>: another URL for one that is there.
            place = len(url + str(name)) % len(plain.rows)
            endpoint = list(group.endpoints)[place]
            assert store.endpoint(endpoint.id)[1] is endpoint
            group.endpoints.change(endpoint, url, endpoint.name)
            plain.rows[place][0] = url
        for one in (group, group.copy()):
            assert [[each.url, each.name] for each in one.endpoints] == plain.rows
    assert len(group.endpoints) == len(plain.rows)


def test_a_copy_is_independent() -> None:
    store = groups()
    group = store.add_all("g", [(URLS[0], "x")], 0)
    twin = group.copy()
    store.add(group, URLS[1], "x", 0)
    store.add(group, URLS[2], None, 0)
    assert [one.url for one in twin.endpoints] == [URLS[0]]


@pytest.mark.parametrize(
    "wanted",
    [
        [(URLS[0], None), ("ftp://x", None)],
        [(URLS[0], None), (URLS[1], "a\nb")],
        [(URLS[0], None), (URLS[1], None), (URLS[2], None)],
    ],
)
def test_of_a_list_with_one_that_is_refused_none_is_added(wanted: Any) -> None:
    store = groups(most_endpoints=2)
    with pytest.raises(QueueError):
        store.add_all("g", wanted, 0)
    assert store.find("g") is None
    store.add_all("g", [(URLS[2], "z")], 0)
    with pytest.raises(QueueError):
        store.add_all("g", wanted, 0)
    assert [one.url for one in store.get("g").endpoints] == [URLS[2]]


def test_endpoints_of_no_text_remove_nothing() -> None:
    with Scene() as scene:
        scene.ok("POST", "/v2/topics/g/endpoints", json={"endpoints": [{"url": DEST}]})
        for item in ({"name": ["x"]}, {"name": {}}, {"name": 5}):
            answer = scene.request("DELETE", "/v2/topics/g/endpoints", json={"endpoints": [item]})
            assert answer.status in (200, 400)
        assert scene.get("/v2/topics/g")["endpoints"] == [{"url": DEST}]
        assert scene.queue._context.problems == []
