"""Test values of declared classes as plain JSON, and the errors for JSON of another shape."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pytest

from pytest_fakecloud import ContractError
from pytest_fakecloud.core.calls import Headers
from pytest_fakecloud.core.plain_data import from_plain, to_plain


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclass
class Shape:
    name: str
    data: bytes
    kind: Literal["line", "area"] = "line"
    points: list[Point] = field(default_factory=list)
    ends: tuple[Point, Point] | None = None
    queue: deque[str] = field(default_factory=deque)
    order: OrderedDict[str, None] = field(default_factory=OrderedDict)
    by_point: dict[tuple[int, int], bytes] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    headers: Headers = field(default_factory=Headers)
    error: BaseException | None = None
    inner: Shape | None = None
    free: Any = None


WHOLE = Shape(
    "é",
    b"\xff\x00",
    "area",
    [Point(1), Point(2, 3.5)],
    (Point(0), Point(9)),
    deque(["a", "b"]),
    OrderedDict(b=None, a=None),
    {(1, 2): b"x"},
    frozenset({"b", "a"}),
    Headers((("Accept", "a"), ("accept", "b"))),
    inner=Shape("small", b"text"),
    free={"any": [1, None]},
)


def read(data: Any) -> Shape:
    shape: Shape = from_plain(Shape, data, "shape")
    return shape


def test_every_kind_of_value_survives_json() -> None:
    again = read(json.loads(json.dumps(to_plain(WHOLE))))
    assert again == WHOLE
    assert (type(again.queue), type(again.order), list(again.order)) == (
        deque,
        OrderedDict,
        ["b", "a"],
    )


def test_an_empty_mapping_of_any_keys_survives_json() -> None:
    assert from_plain(dict[tuple[int, int], str], to_plain({}), "pairs") == {}


def test_defaults_are_left_out() -> None:
    assert to_plain(Shape("a", b"b")) == {"name": "a", "data": "b"}


@pytest.mark.parametrize("error", [ValueError("too small"), TimeoutError()])
def test_an_exception_keeps_its_name_and_text(error: BaseException) -> None:
    again = read(to_plain(Shape("a", b"", error=error))).error
    assert (type(again).__name__, str(again), repr(again)) == (
        type(error).__name__,
        str(error),
        repr(error),
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": 5}, "shape.name is 5; pass a string"),
        ({"name": True}, "shape.name is True; pass a string"),
        ({"kind": "cube"}, "shape.kind is 'cube'; pass one of 'line', 'area'"),
        ({"points": {}}, "shape.points is {}; pass a list"),
        ({"points": [[1, 2]]}, "shape.points[0] is [1, 2]; pass an object"),
        ({"points": [{"y": 1}]}, "shape.points[0]: x is missing"),
        ({"ends": [{"x": 1}]}, "shape.ends is [{'x': 1}]; pass a list of 2 items"),
        ({"order": []}, "shape.order is []; pass an object"),
        ({"data": {"base64": "?"}}, "shape.data: Only base64 data is allowed"),
        (
            {"data": {"hex": "00"}},
            "shape.data is {'hex': '00'}; pass a string, or {\"base64\": \"…\"}",
        ),
        (
            {"error": {"type": "A"}},
            "shape.error is {'type': 'A'}; pass an object with type and text",
        ),
        ({"nmae": "a"}, "shape: 'nmae' is not a field of Shape"),
    ],
)
def test_errors_name_the_place_and_what_to_pass(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ContractError) as caught:
        read({"name": "a", "data": ""} | change)
    assert str(caught.value).startswith(text)


def test_an_undeclared_class_has_no_plain_form() -> None:
    with pytest.raises(TypeError, match="object has no plain form"):
        to_plain(object())
