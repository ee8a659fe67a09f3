"""Limits and the approximate world as they are given."""

from __future__ import annotations

import inspect
from fractions import Fraction
from typing import Any, get_type_hints

import numpy as np
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.vector.handle import VectorIndex
from pytest_fakecloud.vector.settings import Approximation, VectorLimits, VectorSettings, limits_of


def test_the_documented_limits_are_on_and_the_others_off() -> None:
    limits = limits_of(None)
    assert (limits.metadata_bytes, limits.data_bytes) == (48 * 1024, 1024 * 1024)
    assert (limits.sparse_entries, limits.prefix_fetch) == (1000, 1000)
    assert limits.top_k is limits.dimension is limits.daily_queries is None


def test_given_limits_take_the_place_of_the_defaults() -> None:
    limits = limits_of({"top_k": 10, "metadata_bytes": None})
    assert (limits.top_k, limits.metadata_bytes, limits.data_bytes) == (10, None, 1024 * 1024)
    assert limits_of(limits) is limits


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topk": 1}, "limits has no 'topk'; the limits are metadata_bytes, .*top_k"),
        ({"top_k": "1"}, "must be a whole number or None, not '1'"),
        ({"top_k": True}, "must be a whole number or None, not True"),
        ({"top_k": -1}, "must be a whole number or None, not -1"),
        (5, "limits=5 is not understood: give a mapping such as {'top_k': 1000}"),
        (["top_k"], "limits=.*is not understood"),
    ],
)
def test_limits_without_meaning(given: Any, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        limits_of(given)


def test_recall_is_any_real_number() -> None:
    for recall in (0, 1, np.float32(0.5), Fraction(1, 3)):
        assert Approximation(recall=recall).recall == recall  # type: ignore[arg-type]


def test_limits_made_by_hand_are_checked_too() -> None:
    with pytest.raises(ContractError, match=r"'top_k'. must be a whole number or None, not 'x'"):
        VectorLimits(top_k="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"lose_first": "no"}, "lose_first must be True or False, not 'no'"),
        ({"shuffle_ties": 1}, "shuffle_ties must be True or False, not 1"),
        ({"recall": 1.5}, "recall must be a number between 0 and 1, not 1.5"),
        ({"recall": -0.1}, "recall must be a number between 0 and 1"),
        ({"recall": "most"}, "recall must be a number between 0 and 1, not 'most'"),
        ({"recall": True}, "recall must be a number between 0 and 1, not True"),
        (
            {"filter_budget": 0},
            "filter_budget must be a whole number of at least 1, or None, not 0",
        ),
        ({"filter_budget": "9"}, "filter_budget must be a whole number .* not '9'"),
        ({"filter_budget": 2.5}, "filter_budget must be a whole number .* not 2.5"),
    ],
)
def test_approximations_without_meaning(given: Any, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        Approximation(**given)


def test_the_settings_are_those_of_the_constructor() -> None:
    """As types too: what the fixture's marker and ``Cloud`` take is what the handle takes."""
    own = inspect.signature(VectorIndex, eval_str=True).parameters.values()
    taken = {p.name: p.annotation for p in own if p.kind is p.KEYWORD_ONLY}
    assert get_type_hints(VectorSettings) == taken
