"""Applications with bugs that occur in practice: each bug is found, and each correction passes."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import pytest

from pytest_fakecloud import BrokenPromiseError, Cloud, Exploration

from ..budget import cases
from .bugs import Make, Scenario, locks, queues, reads
from .bugs.ten import TEN
from .conftest import opened

pytestmark = pytest.mark.slow


def of(module: ModuleType) -> list[Make]:
    functions = [value for name, value in vars(module).items() if callable(value)]
    return [f for f in functions if f.__module__ == module.__name__ and f.__name__ != "parts"]


def explored(cloud: Cloud, of: Scenario, **options: Any) -> Exploration:
    return cloud.explore(
        of.run, of.check, workers=of.workers, setup=of.setup, **{**of.options, **options}
    )


def named(make: Make) -> str:
    return make.__name__


@pytest.mark.parametrize("make", TEN, ids=named)
def test_the_bug_is_found_with_a_story_of_six_lines(make: Make, cloud: Cloud) -> None:
    of = make(cloud, False)
    with pytest.raises(BrokenPromiseError) as caught:
        explored(cloud, of)
    assert len(caught.value.disturbances) <= 6
    changes = len(caught.value.disturbances) if len(caught.value.disturbances) > 1 else 0
    lines = caught.value.story.count("\n") - changes
    assert lines <= 6, "an entry for each line but that of the check, and those of changes"
    with pytest.raises(BrokenPromiseError) as again:
        explored(cloud, of, schedule=caught.value.schedule)
    assert again.value.story == caught.value.story


@pytest.mark.parametrize("make", TEN, ids=named)
def test_the_correction_holds_for_the_whole_budget_and_every_single_disturbance(
    make: Make, cloud: Cloud
) -> None:
    of = make(cloud, True)
    # A third of this budget is left for orders of calls and for several disturbances.
    singles = explored(cloud, of, budget=1, trust=False).all_singles
    budget = max(singles * 3 // 2, cases(20))
    result = explored(cloud, of, budget=budget)
    assert result.tried > budget * 0.4
    assert result.singles == result.all_singles
    assert not result.anomalies


@pytest.mark.parametrize("make", [*of(locks), *of(queues), *of(reads)], ids=named)
def test_the_bug_is_found_and_its_correction_is_not_accused(make: Make) -> None:
    started = time.perf_counter()
    with opened() as cloud, pytest.raises(BrokenPromiseError) as caught:
        explored(cloud, make(cloud, False))
    assert "replays" not in str(caught.value), "it repeats"
    print(f"{make.__name__}: {caught.value.tried} schedules, {time.perf_counter() - started:.1f} s")
    print(caught.value.story, caught.value.schedule, sep="\n")
    with opened() as cloud:
        explored(cloud, make(cloud, True), budget=cases(20))
