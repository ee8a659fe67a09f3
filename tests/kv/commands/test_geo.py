"""Geo commands, apart from the scenarios of real servers."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run


def test_coordinates_are_doubles_in_resp3(run: Run) -> None:
    client = run.other(resp=3)
    client("GEOADD g 13.361389 38.115556 Palermo")
    assert client("GEOPOS g Palermo") == [[13.361389338970184, 38.1155563954963]]


def test_scores_that_are_no_positions_do_no_harm(run: Run) -> None:
    run("ZADD z inf a -inf b 1e300 c -5 d 1.5 e")
    assert len(run("GEOPOS z a b c d e")) == 5
    assert len(run("GEOHASH z a b c d e")) == 5
    assert isinstance(run("GEODIST z a b"), bytes)
    assert isinstance(run("GEOSEARCH z FROMLONLAT 0 0 BYRADIUS 30000 km"), list)


@pytest.mark.parametrize("size", ["inf", "1e308", "1e200"])
def test_a_shape_may_be_larger_than_the_world(run: Run, size: str) -> None:
    run("GEOADD g 10 10 a -170 -80 b")
    for unit in ("m", "mi"):
        assert len(run("GEOSEARCH", "g", "FROMLONLAT", 0, 79, "BYRADIUS", size, unit)) == 2
        assert len(run("GEOSEARCH", "g", "FROMLONLAT", 0, -79, "BYBOX", size, size, unit)) == 2
