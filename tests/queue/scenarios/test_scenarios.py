"""Play the scenarios of this folder."""

from __future__ import annotations

import re

import pytest

from pytest_fakecloud.http.routing import RouteTable
from pytest_fakecloud.queue.rest.app import QueueApp

from ...notations import cases, complete
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


@pytest.mark.completeness
def test_a_scenario_has_the_routes_to_which_the_burst_limit_does_not_apply() -> None:
    title = "a burst limit does not apply to publishing, triggers and events"
    _, lines = scenarios("limits")[title]
    requests = [match for line in lines if (match := re.search(r"([A-Z]+) (/\S*)", line))]
    table = RouteTable(QueueApp.routes())
    routes = [table.match(request[1], request[2]).route for request in requests]
    patterns = {route.pattern for route in routes if route is not None}
    complete(
        FOLDER / "limits.txt",
        (
            f"to `== {title}`: {route.methods.split()[0]} {route.pattern}"
            for route in QueueApp.routes()
            if not route.counts_for_burst and route.pattern not in patterns
        ),
    )
