"""Play the scenarios of this folder."""

from __future__ import annotations

import pytest

from pytest_fakecloud.queue.rest.app import QueueApp

from ...notations import cases
from . import FOLDER, play, scenarios

# `tests/queue/rest/test_table.py` plays `headers.txt`.


@pytest.mark.completeness
@pytest.mark.parametrize(("settings", "lines"), cases(FOLDER, "headers"))
def test_a_scenario(settings: dict[str, object], lines: list[str]) -> None:
    play(settings, lines)


@pytest.mark.completeness
def test_scenarios_of_endpoints_have_the_names_of_routes() -> None:
    names = {name.partition(":")[0] for name in scenarios("endpoints")}
    assert names <= {route.name for route in QueueApp.routes()}
