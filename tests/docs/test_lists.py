"""Check that lists in the guides are complete."""

from __future__ import annotations

import re

import pytest

from docs.generate.scenarios import TARGETS
from pytest_fakecloud import Cloud, Fake, FaultPlan
from pytest_fakecloud.cloud.services import SERVICES, fake_class
from pytest_fakecloud.faults.plan import fault_words
from pytest_fakecloud.verify.run import plan

from .blocks import DOCS

if not DOCS.exists():
    pytest.skip("an installed package has no docs folder", allow_module_level=True)


def section(page: str, title: str) -> str:
    text = (DOCS / "guides" / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.completeness
def test_every_fault_is_in_the_guide() -> None:
    rows = re.findall(r"^\| (`.+?) \|", section("faults.md", "Choose a fault"), re.M)
    documented = re.findall(r"`(\w+)\(", "".join(rows))
    assert sorted(documented) == sorted([*fault_words(FaultPlan), "up"])


@pytest.mark.completeness
def test_every_route_of_the_broker_is_in_the_guide() -> None:
    text = (DOCS / "guides" / "broker.md").read_text(encoding="utf-8")
    documented = {
        (method, re.sub("[A-Z]+", "{}", path))
        for method, path in re.findall(r"`(GET|POST|DELETE) (/[^`?]+)", text)
    }
    with Cloud() as cloud:
        routes = {
            (method, re.sub(r"{\w+}", "{}", route.pattern))
            for route in cloud.broker()._app.routes()
            for method in route.methods.split()
        }
    assert {path for _, path in documented} == {path for _, path in routes}
    assert documented <= routes


@pytest.mark.completeness
def test_the_numbers_of_requests_of_a_comparison_are_in_the_guide() -> None:
    text = section("verify.md", "What it does to your service")
    sentence = text.partition("It sends about ")[2].partition(", which")[0]
    documented = [int(number) for number in re.findall(r"[0-9]+", sentence)]
    planned = [
        sum(len(scenario.steps) + len(scenario.cleanup) for scenario in plan(TARGETS[service]))
        for service in ("kv", "vector", "queue", "broker")
    ]
    assert documented == [pytest.approx(count, rel=0.1) for count in planned]


@pytest.mark.completeness
def test_every_assertion_is_in_the_guide() -> None:
    table = section("assertions.md", "Choose an assertion")
    documented = {
        name: set(re.findall(r"`(assert_\w+)`", names))
        for name, names in re.findall(r"^\| (.+?) \| (.+) \|$", table, re.M)
    }
    assert documented["all"] == _assertions(Fake)
    for service in SERVICES.values():
        own = _assertions(fake_class(service)) - _assertions(Fake)
        assert documented.get(f"`{service.fixture}`", set()) >= own, service.fixture


def _assertions(kind: type) -> set[str]:
    names = {name for name in dir(kind) if name.startswith("assert_")}
    names -= {"assert_request_made"}  # inherited from HTTPServer
    return {name for name in names if not name.startswith("assert_not_")}
