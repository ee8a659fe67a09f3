"""Unions, intersections and differences of sorted sets."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run
from tests.kv.scenarios import play
from tests.kv.scenarios.sorted_sets import ALGEBRA, SCENARIOS


@pytest.mark.dialect("redis")
@pytest.mark.parametrize("name", ALGEBRA)
def test_as_real_servers_answer(run: Run, name: str) -> None:
    play(run, SCENARIOS[name])
