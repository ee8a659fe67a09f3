"""The budget of steps that bounds a command."""

from __future__ import annotations

import threading

import pytest

from pytest_fakecloud.core.budget import STEPS, Budgeted, OverBudget, spend


def test_a_budget_ends_with_an_error() -> None:
    with Budgeted():
        spend(STEPS)
        with pytest.raises(OverBudget, match="more than 10,000,000 steps; request less"):
            spend(1)


def test_nothing_is_bounded_between_commands() -> None:
    with Budgeted():
        spend(STEPS)
    spend(10 * STEPS)


def test_a_budget_inside_another_is_a_part_of_it() -> None:
    with Budgeted():
        spend(STEPS - 1)
        with Budgeted():
            spend(1)
        with pytest.raises(OverBudget):
            spend(1)


def test_each_thread_has_its_own() -> None:
    done = []

    def other() -> None:
        with Budgeted():
            spend(STEPS)
            done.append(True)

    with Budgeted():
        spend(STEPS)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert done == [True]
