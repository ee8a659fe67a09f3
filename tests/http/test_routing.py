"""Route tables: raw parameters, precedence of routes, and hints."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.recorder import Recorder
from pytest_fakecloud.core.violations import Violations
from pytest_fakecloud.http.app import App, Instruments
from pytest_fakecloud.http.routing import Match, Route, RouteTable


def endpoint(app: App, request: Any) -> object:
    return None


def route(methods: str, pattern: str) -> Route:
    return Route(methods, pattern, pattern.strip("/") or "root", endpoint)


@pytest.mark.parametrize(
    ("pattern", "path", "params"),
    [
        ("/", "/", {}),
        ("/", "//", None),
        ("/", "/x", None),
        ("/topics", "/topics", {}),
        ("/topics", "/topics/", {}),
        ("/topics", "/topics//", None),
        ("/topics", "/Topics", None),
        ("/topics", "/topicsx", None),
        ("/a.b", "/axb", None),
        ("/produce/{topic}", "/produce/a", {"topic": "a"}),
        ("/produce/{topic}", "/produce/a/", {"topic": "a"}),
        ("/produce/{topic}", "/produce/a%2Fb", {"topic": "a%2Fb"}),
        ("/produce/{topic}", "/produce/%", {"topic": "%"}),
        ("/produce/{topic}", "/produce/", None),
        ("/produce/{topic}", "/produce", None),
        ("/produce/{topic}", "/produce/a/b", None),
        ("/{a}/x/{b}", "/1/x/2", {"a": "1", "b": "2"}),
        ("/{a}/x/{b}", "//x/2", None),
        ("/publish/{url*}", "/publish/https://a/b?", {"url": "https://a/b?"}),
        ("/publish/{url*}", "/publish/", {"url": ""}),
        ("/publish/{url*}", "/publish", {"url": ""}),
        ("/publish/{url*}", "/publishx", None),
        ("/publish/{url*}", "/publish//", {"url": "/"}),
        ("/{tail*}", "/", {"tail": ""}),
        ("/{tail*}", "/a//b/", {"tail": "a//b/"}),
        ("/x/{a}/{rest*}", "/x/1/2/3", {"a": "1", "rest": "2/3"}),
        ("/x/{a}/{rest*}", "/x/1", {"a": "1", "rest": ""}),
        ("/x/{a}/{rest*}", "/x/", None),
    ],
)
def test_patterns(pattern: str, path: str, params: dict[str, str] | None) -> None:
    table = RouteTable([route("GET", pattern)])
    expected = Match() if params is None else Match(table.routes[0], params)
    assert table.match("GET", path) == expected


def test_the_most_specific_route_wins() -> None:
    table = RouteTable(
        [
            route("GET", "/{anything*}"), route("GET", "/topics/{name}"),
            route("GET", "/topics/all"), route("POST", "/topics/all"),
        ]
    )  # fmt: skip

    def winner(method: str, path: str) -> str:
        match = table.match(method, path)
        assert match.route is not None
        return match.route.pattern

    assert winner("GET", "/topics/all") == "/topics/all"
    assert winner("POST", "/topics/all") == "/topics/all"
    assert winner("GET", "/topics/a/b") == "/{anything*}"
    assert winner("GET", "/other") == "/{anything*}"


@pytest.mark.parametrize("pattern", ["/a/{b}/{rest*}", "/a/{c}/{others*}"])
def test_two_routes_with_the_same_method_and_pattern_are_an_error(pattern: str) -> None:
    first = route("GET HEAD", "/a/{b}/{rest*}")
    RouteTable([first, route("POST", pattern), route("GET", "/a/{b}/{rest}")])
    with pytest.raises(ValueError, match=re.escape(f"are both HEAD {pattern}; remove one of them")):
        RouteTable([first, route("HEAD POST", pattern)])


def test_a_path_for_other_methods_names_all_of_them() -> None:
    table = RouteTable([route("GET HEAD", "/a/{b}"), route("POST", "/a/{b}"), route("PUT", "/c")])
    assert table.match("DELETE", "/a/1") == Match(allowed=frozenset({"GET", "HEAD", "POST"}))
    assert table.match("get", "/c") == Match(allowed=frozenset({"PUT"}))
    assert table.match("GET", "/d") == Match()


def test_the_nearest_routes_are_a_hint() -> None:
    table = RouteTable([route("POST", "/produce/{topic}"), route("GET", "/topics")])
    assert table.nearest("POST", "/prodcue/orders").startswith("POST /produce/{topic}")
    assert table.nearest("PATCH", "/~~~") == "POST /produce/{topic}, GET /topics"


@pytest.mark.parametrize("path", ["/a/9", "/~~~~~~"])
def test_three_routes_are_hint_enough(path: str) -> None:
    table = RouteTable([route("GET", f"/a/{number}") for number in range(5)])
    hint = table.nearest("GET", path).split(", ")
    assert len(hint) == len(set(hint)) == 3
    assert set(hint) <= {f"GET /a/{number}" for number in range(5)}


def test_the_apps_of_a_class_share_their_table() -> None:
    class One(App):
        @classmethod
        def routes(cls) -> list[Route]:
            return [route("GET", f"/{cls.__name__}")]

    class Two(One):
        pass

    def instruments() -> Instruments:
        clock = Timekeeper()
        return Instruments(clock, Recorder(clock.now_us), Violations())

    assert One(instruments()).table is One(instruments()).table
    assert [app(instruments()).table.routes[0].pattern for app in (One, Two)] == ["/One", "/Two"]
    left = weakref.ref(Two)
    del Two
    gc.collect()
    assert left() is None


SEGMENT = st.text("ab/%.{}*", max_size=6)


@given(SEGMENT, st.lists(st.sampled_from(["a", "b", "{x}", "{y}"]), max_size=3), st.booleans())
def test_a_pattern_takes_apart_what_it_put_together(
    text: str, parts: list[str], tail: bool
) -> None:
    if len(parts) != len(set(parts)):
        parts = parts[:1]
    pattern = "/" + "/".join([*parts, "{rest*}"] if tail else parts)
    path = "/" + text
    match = RouteTable([route("GET", pattern)]).match("GET", path)
    if match.route is not None:
        params = match.params
        filled = re.sub(r"\{(\w+)\*?\}", lambda m: params[m.group(1)], pattern)
        assert filled.rstrip("/") == path.rstrip("/")
        assert all(v and "/" not in v for k, v in params.items() if k != "rest")
