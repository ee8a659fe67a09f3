"""Structs are declared, created and compared like frozen dataclasses."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.structs import Struct


class Point(Struct):
    x: int
    y: int = 0


class Named(Point):
    name: str = ""


def test_fields_are_given_by_position_or_by_name() -> None:
    assert vars(Point(1)) == {"y": 0, "x": 1}
    assert Point(1, 2) == Point(x=1, y=2)
    assert Named(1, 2, "a") == Named(x=1, y=2, name="a")


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((1,), {"z": 1}), ((), {"y": 1}), ((), {"z": 1})]
)
def test_missing_and_unknown_fields_are_errors(
    given: tuple[int, ...], named: dict[str, int]
) -> None:
    with pytest.raises(TypeError, match="Point: missing or unknown fields: "):
        Point(*given, **named)


def test_too_many_values_are_an_error() -> None:
    with pytest.raises(TypeError, match="Point takes 2 values, not 3"):
        Point(1, 2, 3)  # type: ignore[call-arg]


def test_structs_are_equal_if_class_and_fields_are() -> None:
    assert Point(1) != Point(2)
    assert Point(1) != Named(1)
    assert len({Point(1), Point(1, 0), Named(1)}) == 2


def test_a_copy_has_other_values() -> None:
    point = Named(1, name="a")
    assert point._replace(y=5) == Named(1, 5, "a")
    assert repr(point) == "Named(x=1, y=0, name='a')"
