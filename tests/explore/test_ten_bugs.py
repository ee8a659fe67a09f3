"""Ten bugs that occur in practice: each is found with a short story, each correction passes."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from pytest_fakecloud import BrokenSchedule, Cloud, Exploration

from ..budget import cases
from .bugs import NAMES, Scenario

pytestmark = pytest.mark.slow


def scenario(name: str, cloud: Cloud, *, corrected: bool) -> Scenario:
    made: Scenario = importlib.import_module(f"tests.explore.bugs.{name}").scenario(
        cloud, corrected
    )
    return made


def explored(cloud: Cloud, of: Scenario, **options: Any) -> Exploration:
    return cloud.explore(
        of.run, of.check, workers=of.workers, setup=of.setup, **{**of.options, **options}
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_bug_is_found_and_told_in_six_lines(name: str, cloud: Cloud) -> None:
    of = scenario(name, cloud, corrected=False)
    with pytest.raises(BrokenSchedule) as found:
        explored(cloud, of)
    assert found.value.events <= 6
    assert found.value.story.count("\n") <= 6, "an entry for each line but that of the check"
    with pytest.raises(BrokenSchedule) as again:
        explored(cloud, of, schedule=found.value.schedule)
    assert again.value.story == found.value.story


@pytest.mark.parametrize("name", NAMES)
def test_the_correction_holds_for_the_whole_budget_and_every_single_event(
    name: str, cloud: Cloud
) -> None:
    budget = max(200, cases(20))
    found = explored(cloud, scenario(name, cloud, corrected=True), budget=budget)
    assert found.tried > budget * 0.4
    assert found.singles == found.all_singles
