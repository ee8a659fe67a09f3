"""Applications with bugs from real incidents: each bug is found, and each correction passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from pytest_fakecloud import BrokenSchedule, Cloud, Exploration

from ..budget import cases
from .bugs import Scenario, locks, queues, reads
from .conftest import opened

pytestmark = pytest.mark.slow


def of(module: ModuleType) -> list[Callable[..., Scenario]]:
    found = [value for name, value in vars(module).items() if callable(value)]
    return [f for f in found if f.__module__ == module.__name__ and f.__name__ != "parts"]


ALL = [*of(locks), *of(queues), *of(reads)]


def explored(cloud: Cloud, scenario: Scenario, **options: Any) -> Exploration:
    return cloud.explore(
        scenario.run,
        scenario.check,
        workers=scenario.workers,
        setup=scenario.setup,
        **{**scenario.options, **options},
    )


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_the_bug_is_found_and_its_correction_is_not_accused(
    make: Callable[..., Scenario],
) -> None:
    started = time.perf_counter()
    with opened() as cloud, pytest.raises(BrokenSchedule) as found:
        explored(cloud, make(cloud, False))
    assert "replays" not in str(found.value), "it repeats"
    print(f"{make.__name__}: {found.value.tried} schedules, {time.perf_counter() - started:.1f} s")
    print(found.value.story, found.value.schedule, sep="\n")
    with opened() as cloud:
        explored(cloud, make(cloud, True), budget=max(2 * found.value.tried, cases(20)))
