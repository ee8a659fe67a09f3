"""Geo commands, apart from the scenarios of real servers."""

from __future__ import annotations

from tests.kv.conftest import Run


def test_scores_that_are_no_positions_do_no_harm(run: Run) -> None:
    run("ZADD z inf a -inf b 1e300 c -5 d 1.5 e")
    assert len(run("GEOPOS z a b c d e")) == 5
    assert len(run("GEOHASH z a b c d e")) == 5
    assert isinstance(run("GEODIST z a b"), bytes)
    assert isinstance(run("GEOSEARCH z FROMLONLAT 0 0 BYRADIUS 30000 km"), list)
