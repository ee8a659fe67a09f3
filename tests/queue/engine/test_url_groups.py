"""Test URL groups: the indexed store behaves like a plain list of endpoints."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.queue.engine.url_groups import UrlGroups
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.settings import PlanLimits

from ..scene import DEST, Scene

URLS = [f"https://{name}.example.com/" for name in "abc"]
NAMES = [None, None, "x", "y"]


@dataclass
class Plain:
    """A group as a list of ``[url, name]`` that is searched from first to last."""

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
    data: Any = SimpleNamespace(
        clock=Timekeeper(now="2026-01-01T00:00:00Z"),
        limits=PlanLimits(**limits),
        new_id=lambda prefix: f"{prefix}{next(numbers)}",
    )
    return UrlGroups(data)


@given(st.lists(steps, max_size=25))
def test_a_group_is_what_a_plain_list_would_be(taken: list[Any]) -> None:
    store, plain = groups(), Plain()
    group = store.create("g")
    for what, url, name, only_name in taken:
        if what == "add":
            store.add(group, url, name)
            plain.add(url, name)
        elif what == "remove":
            item = {"url": None if only_name else url, "name": name}
            store.remove_endpoints(group, [item])
            plain.remove(item["url"], name)
            # A group is deleted with its last endpoint.
            assert (store.find("g") is None) == (not plain.rows)
            group = store.create("g")
        elif plain.rows:
            # ``PUT /v1/endpoints/<id>`` changes the URL of an endpoint.
            place = len(url + str(name)) % len(plain.rows)
            endpoint = list(group.endpoints)[place]
            assert store.endpoint(endpoint.id)[1] is endpoint
            group.change(endpoint, url, endpoint.name)
            plain.rows[place][0] = url
        for twin in (group, group.copy()):
            assert [[endpoint.url, endpoint.name] for endpoint in twin.endpoints] == plain.rows
    assert len(group.endpoints) == len(plain.rows)


def test_a_copy_is_independent() -> None:
    store = groups()
    group = store.add_all("g", [(URLS[0], "x")])
    group.headers.append(("X-Team", "a"))
    twin = group.copy()
    store.add(group, URLS[1], "x")
    store.add(group, URLS[2], None)
    group.headers.append(("X-Team", "b"))
    assert [endpoint.url for endpoint in twin.endpoints] == [URLS[0]]
    assert twin.headers == [("X-Team", "a")]


@pytest.mark.parametrize(
    ("most", "more"),
    [
        *[(most, [bad]) for most in (None, 2) for bad in (("ftp://x", None), (URLS[1], "a\nb"))],
        (2, [(URLS[1], None), (URLS[2], None)]),
    ],
)
def test_one_refused_endpoint_refuses_the_list(most: Any, more: Any) -> None:
    store = groups(endpoints_per_group=most)
    wanted = [(URLS[0], None), *more]
    with pytest.raises(QueueError):
        store.add_all("g", wanted)
    assert store.find("g") is None
    store.add_all("g", [(URLS[2], "z")])
    with pytest.raises(QueueError):
        store.add_all("g", wanted)
    assert [endpoint.url for endpoint in store.get("g").endpoints] == [URLS[2]]


def test_endpoints_of_no_text_remove_nothing() -> None:
    with Scene() as scene:
        scene.ok("POST", "/v2/topics/g/endpoints", json={"endpoints": [{"url": DEST}]})
        for item in ({"name": ["x"]}, {"name": {}}, {"name": 5}):
            answer = scene.request("DELETE", "/v2/topics/g/endpoints", json={"endpoints": [item]})
            assert answer.status in (200, 400)
        assert scene.get("/v2/topics/g")["endpoints"] == [{"url": DEST}]
        assert scene.violations == []


def test_endpoints_of_a_name_and_of_a_url_come_in_their_order() -> None:
    store = groups()
    group = store.create("g")
    for url, name in zip(URLS, ("z", "x", "y"), strict=True):
        store.add(group, url, name)
    for first, second in ((0, 2), (2, 0), (1, 2), (2, 1)):
        endpoints = group.all_with(url=URLS[first], name=("z", "x", "y")[second])
        assert [endpoint.url for endpoint in endpoints] == [
            URLS[index] for index in sorted((first, second))
        ]


def test_an_endpoint_of_no_name_is_not_the_one_of_another_without() -> None:
    store = groups()
    group = store.create("g")
    for url in URLS:
        store.add(group, url, None)
    assert [endpoint.url for endpoint in group.endpoints] == URLS


def test_ids_are_those_of_groups_and_endpoints() -> None:
    store = groups()
    group = store.add_all("g", [(URLS[0], None)])
    (endpoint,) = group.endpoints
    assert (group.id, endpoint.id) == ("tpc_0", "ept_1")
    assert store.find("tpc_0") is store.find("g") is group
    # A name takes precedence over an id.
    named = store.create("tpc_0")
    assert store.find("tpc_0") is named
    assert store.find("tpc_9") is None


@pytest.mark.parametrize("by_id", [False, True])
def test_an_endpoint_knows_whether_its_topic_was_named_by_id(by_id: bool) -> None:
    store = groups()
    group = store.create("g")
    assert store.add(group, URLS[0], None).by_id is False
    assert store.add(group, URLS[1], None, by_id=by_id).by_id is by_id


def test_instants_of_a_group_are_those_of_its_creation_and_of_its_last_change() -> None:
    store = groups()
    clock = store._data.clock

    def later() -> int:
        clock.advance("1s")
        return clock.now_us()

    created_us = later()
    group = store.create("g")
    assert (group.created_us, group.updated_us) == (created_us, created_us)
    later()
    assert store.create("g").updated_us == created_us
    added_us = later()
    store.add(group, URLS[0], None)
    assert group.updated_us == added_us
    renamed_us = later()
    store.rename(group, "h")
    assert (group.created_us, group.updated_us) == (created_us, renamed_us)
    removed_us = later()
    store.remove_endpoints(group, [{"url": URLS[1]}])
    assert group.updated_us == removed_us


def test_a_group_keeps_its_place_when_it_is_renamed() -> None:
    store = groups()
    for name in "abc":
        store.create(name)
    store.rename(store.get("b"), "z")
    assert [(key, group.name) for key, group in store.by_name.items()] == [
        ("a", "a"),
        ("z", "z"),
        ("c", "c"),
    ]
    store.rename(store.get("z"), "z")
    store.remove(store.get("z"))
    store.remove(store.get("a"))
    assert list(store.by_name) == ["c"]


@pytest.mark.parametrize(
    ("attempt", "status", "text"),
    [
        (lambda store: store.create("a b"), 400, "invalid topic name: "),
        (lambda store: store.rename(store.get("g"), "a b"), 400, "invalid topic name: "),
        (
            lambda store: store.rename(store.get("g"), "h"),
            400,
            "invalid topic name: 'h' is already in use",
        ),
        (lambda store: store.create("i"), 412, "quota maxTopics exceeded, current limit: 2"),
        (
            lambda store: store.add(store.get("g"), URLS[1], None),
            412,
            "quota maxEndpointsPerTopic exceeded, current limit: 1",
        ),
        (lambda store: store.add(store.get("h"), "ftp://x", None), 400, "invalid endpoint url"),
        (
            lambda store: store.add(store.get("h"), URLS[0], "a\nb"),
            400,
            "invalid endpoint name: 'a\\nb' contains a control character",
        ),
    ],
)
def test_refusals_of_groups_and_endpoints(attempt: Any, status: int, text: str) -> None:
    store = groups(groups=2, endpoints_per_group=1)
    store.add_all("g", [(URLS[0], None)])
    store.create("h")
    with pytest.raises(QueueError) as caught:
        attempt(store)
    assert caught.value.status == status
    assert caught.value.message.startswith(text)
    assert list(store.by_name) == ["g", "h"]


def test_a_list_that_only_names_what_is_there_fits_into_a_full_group() -> None:
    store = groups(endpoints_per_group=2)
    group = store.add_all("g", [(URLS[0], "x"), (URLS[1], None)])
    store.add_all("g", [(URLS[2], "x"), (URLS[1], "y")])
    assert [(endpoint.url, endpoint.name) for endpoint in group.endpoints] == [
        (URLS[2], "x"),
        (URLS[1], "y"),
    ]
    # The second endpoint of a name replaces the first, so the list fits.
    made = store.add_all("h", [(URLS[0], "x"), (URLS[1], "x"), (URLS[2], None)])
    assert [endpoint.url for endpoint in made.endpoints] == [URLS[1], URLS[2]]


def test_a_list_that_does_not_fit_changes_nothing_of_a_full_group() -> None:
    store = groups(endpoints_per_group=2)
    group = store.add_all("g", [(URLS[0], "x"), (URLS[1], "y")])
    with pytest.raises(QueueError, match="maxEndpointsPerTopic"):
        store.add_all("g", [(URLS[0], "z"), (URLS[2], None)])
    assert [(endpoint.url, endpoint.name) for endpoint in group.endpoints] == [
        (URLS[0], "x"),
        (URLS[1], "y"),
    ]
