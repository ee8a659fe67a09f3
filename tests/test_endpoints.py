"""Every endpoint succeeds in a scenario of its service: each method of each pattern of a path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.calls import CALL_FIELDS
from pytest_fakecloud.http.messages import Request
from pytest_fakecloud.http.routing import RouteTable

from .notations import alternatives, complete

pytestmark = pytest.mark.completeness

SCENARIOS = {
    "vector_index": "vector/scenarios/rest.txt",
    "broker": "broker/scenarios/rest.txt",
    "queue": "queue/scenarios/endpoints.txt",
}
"""For each fixture, the file of scenarios for a new endpoint. Other files of the folder count, too."""
NOT_PLAYED = {
    "vector_index": frozenset[str](),
    "broker": frozenset({"consumers"}),  # tests/broker/engine/test_groups.py
    "queue": frozenset({"rotate_keys", "chat"}),  # tests/queue/rest/test_table.py
}
"""Endpoints with tests of their own, because they compare more than responses."""


@pytest.mark.parametrize("fixture", SCENARIOS)
def test_every_endpoint_is_played_by_a_scenario(fixture: str) -> None:
    file = Path(__file__).parent / SCENARIOS[fixture]
    with Cloud() as cloud:
        table: RouteTable = getattr(cloud, fixture)()._app.table
    played = played_endpoints(table, file.parent)
    missing = [
        (route, method)
        for route in table.routes
        for method in route.methods.split()
        if (method, route.pattern) not in played
    ]
    complete(
        file,
        (
            f"== {route.name}\n{method} {route.pattern} => <response that is no error>"
            for route, method in missing
            if route.name not in NOT_PLAYED[fixture]
        ),
        "NOT_PLAYED of tests/test_endpoints.py",
    )
    assert {route.name for route, _ in missing} == NOT_PLAYED[fixture]


@pytest.mark.parametrize("fixture", SCENARIOS)
def test_facts_of_path_parameters(fixture: str) -> None:
    """They are decoded, and none has the name of a field that all calls have, which would hide it."""
    with Cloud() as cloud:
        app = getattr(cloud, fixture)()._app
        hidden = CALL_FIELDS.keys() & app.fact_fields.keys()
        assert not hidden, f"all calls have a field {', '.join(hidden)}: rename the parameter"
        for route in app.table.routes:
            path = re.sub(r"{\w+\*?}", "a%20b", route.pattern)
            request = Request(route.methods.split()[0], path, [], b"")
            request.route, request.params = route.name, dict.fromkeys(route.parameters, "a%20b")
            facts = app.facts(request)
            # A destination is a URL, which keeps its own encoding.
            for name in app.fact_fields.keys() & request.params.keys() - {"destination"}:
                assert facts[name] in ("a b", ["a b"]), (route, name)


def played_endpoints(table: RouteTable, folder: Path) -> set[tuple[str, str]]:
    """Return the methods and patterns of the endpoints that succeed in scenarios of a service.

    A request without a method is a POST. Lines without a response do not count, nor do errors.
    """
    lines = [line for file in folder.glob("*.txt") for line in file.read_text("utf-8").splitlines()
             if re.search(r" => (?![45]\d\d\b)", line)]  # fmt: skip
    requests = [re.match(r"(?:\d+x )?(?:([A-Z]+) )?(/[^ ?]*)", text)
                for line in lines for text in alternatives(line)]  # fmt: skip
    calls = [(request[1] or "POST", request[2]) for request in requests if request]
    routes = [(method, table.match(method, path).route) for method, path in calls]
    return {(method, route.pattern) for method, route in routes if route is not None}
