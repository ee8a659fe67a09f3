"""The budget of steps that bounds a command."""

from __future__ import annotations

import threading

import pytest

from pytest_fakecloud.core.budget import STEPS, OverBudget, budgeted, spend


def test_a_budget_ends_with_an_error() -> None:
    with budgeted():
        spend(STEPS)
        with pytest.raises(OverBudget, match="more than 10,000,000 steps; request less"):
            spend(1)


def test_nothing_is_bounded_between_commands() -> None:
    with budgeted():
        spend(STEPS)
    spend(10 * STEPS)


def test_a_budget_inside_another_is_a_part_of_it() -> None:
    with budgeted():
        spend(STEPS - 1)
        with budgeted():
            spend(1)
        with pytest.raises(OverBudget):
            spend(1)


def test_each_thread_has_its_own() -> None:
    done = []

    def other() -> None:
        with budgeted():
            spend(STEPS)
            done.append(True)

    with budgeted():
        spend(STEPS)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert done == [True]
