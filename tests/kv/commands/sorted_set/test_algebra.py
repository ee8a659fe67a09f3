"""Unions, intersections and differences of sorted sets."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run
from tests.kv.scenarios import play, scenarios

SCENARIOS = scenarios("sorted_sets-algebra")


@pytest.mark.dialect("redis")
@pytest.mark.parametrize("name", SCENARIOS)
def test_as_real_servers_answer(run: Run, name: str) -> None:
    play(run, SCENARIOS[name])
