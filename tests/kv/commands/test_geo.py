"""Geohashes: scores, strings, distances, and the cells that cover a shape."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_fakecloud.kv.commands import geo
from pytest_fakecloud.kv.commands.geo import Cell, Shape

LONGITUDES = st.floats(-180, 180)
LATITUDES = st.floats(-85, 85)


def test_known_scores() -> None:
    """The scores that a real server stores for the positions in its own documentation."""
    assert geo.encode(13.361389, 38.115556) == 3479099956230698
    assert geo.encode(15.087269, 37.502669) == 3479447370796909
    assert geo.standard_geohash(3479099956230698) == b"sqc8b49rny0"


@given(LONGITUDES, LATITUDES)
def test_decoding_gives_the_position_back(longitude: float, latitude: float) -> None:
    assume(longitude < 180)
    position = geo.decode(geo.encode(longitude, latitude))
    assert position[0] == pytest.approx(longitude, abs=6e-6)
    assert position[1] == pytest.approx(latitude, abs=3e-6)


@given(LONGITUDES, LATITUDES, LONGITUDES, LATITUDES)
def test_distances_are_symmetric(a: float, b: float, c: float, d: float) -> None:
    assert geo.distance(a, b, c, d) == pytest.approx(geo.distance(c, d, a, b), abs=1e-3)
    assert geo.distance(a, b, a, b) == 0


@given(LONGITUDES, st.floats(-75, 75), LONGITUDES, st.floats(-75, 75), st.floats(1, 3e6))
def test_what_a_circle_holds_lies_in_its_cells(
    longitude: float, latitude: float, other_longitude: float, other_latitude: float, radius: float
) -> None:
    # Across the date line the server itself searches one side only.
    assume(abs(longitude) < 140 and abs(other_longitude) < 180)
    shape = Shape(longitude, latitude, 1.0, radius)
    score = geo.encode(other_longitude, other_latitude)
    if shape.distance_inside(*geo.decode(score)) is not None:
        assert any(low <= score < high for low, high in (cell.scores() for cell in shape.cells()))


def test_neighbours_wrap_around() -> None:
    corner = Cell(0, 3)
    assert corner.moved(-1, 0).moved(1, 0) == corner
    assert corner.moved(-1, 0).bounds()[2] == 180.0


def test_a_box_is_measured_along_the_parallel_of_the_position() -> None:
    box = Shape(0.0, 60.0, 1000.0, None, 200.0, 200.0)
    assert box.distance_inside(1.7, 60.0) is not None
    assert box.distance_inside(1.7, 59.2) is not None
    assert box.distance_inside(1.85, 60.0) is None
    assert box.distance_inside(0.0, 61.0) is None


@pytest.mark.parametrize("score", [0.0, -1.0, 1e300, float("inf"), float("-inf"), 2.0**63])
def test_any_score_decodes_to_some_position(score: float) -> None:
    longitude, latitude = geo.decode(score)
    assert abs(longitude) <= 180
    assert abs(latitude) <= geo.LATITUDE[1]
