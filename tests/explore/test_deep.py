"""Bugs of several disturbances: the search finds each, guided by states, and accuses no correction."""

from __future__ import annotations

import contextlib

import pytest

from pytest_fakecloud import BrokenPromiseError, Cloud, ContractError
from pytest_fakecloud.explore.values.schedule import Schedule

from ..budget import cases
from .bugs import Make
from .bugs.deep import DEEP, buried_job
from .bugs.events import EVENTS
from .conftest import opened
from .test_bugs import explored, named

pytestmark = pytest.mark.slow


def test_a_bug_of_four_crashes_is_found_within_1000_schedules() -> None:
    with opened() as cloud, pytest.raises(BrokenPromiseError) as caught:
        explored(cloud, buried_job(cloud, False))
    assert len(caught.value.disturbances) >= 4
    assert caught.value.schedule.count("crash") >= 4


def test_the_correction_of_a_bug_of_four_crashes_is_not_accused(cloud: Cloud) -> None:
    explored(cloud, buried_job(cloud, True), budget=cases(20))


@pytest.mark.parametrize("make", [make for make in DEEP if make is not buried_job], ids=named)
def test_a_bug_of_several_disturbances_is_found_and_its_correction_is_not_accused(
    make: Make,
) -> None:
    with opened() as cloud, pytest.raises(BrokenPromiseError) as caught:
        explored(cloud, make(cloud, False), seed=1)
    print(f"{make.__name__}: {caught.value.tried} schedules: {caught.value.schedule}")
    assert len(caught.value.disturbances) >= 2
    with opened() as cloud:
        explored(cloud, make(cloud, True), budget=cases(20))


@pytest.mark.parametrize("make", EVENTS, ids=named)
def test_a_bug_of_three_events_is_found_and_none_of_them_can_be_left_out(make: Make) -> None:
    with opened() as cloud, pytest.raises(BrokenPromiseError) as caught:
        explored(cloud, make(cloud, False))
    error = caught.value
    assert len(error.disturbances) >= 3
    assert error.tried <= 1000
    assert error.cause
    schedule = Schedule.parse(error.schedule)
    for disturbance in schedule:
        # Without this one, a later one may have no place, which is an error.
        with opened() as cloud, contextlib.suppress(ContractError):
            explored(cloud, make(cloud, False), schedule=str(schedule.without([disturbance])))
    with opened() as cloud:
        explored(cloud, make(cloud, True), budget=cases(20))
