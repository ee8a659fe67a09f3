"""Test the settings of limits and approximation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.settings import read
from pytest_fakecloud.vector.settings import VectorConfig, VectorLimits


def config(**given: Any) -> VectorConfig:
    return read(VectorConfig, given, "vector_index")


def test_given_limits_take_the_place_of_the_defaults() -> None:
    limits = config(limits={"top_k": 10, "metadata_bytes": None}).limits
    assert limits == VectorLimits(top_k=10, metadata_bytes=None)
    assert config(limits=limits).limits is limits


def test_recall_is_any_real_number() -> None:
    for recall in (0, 1, np.float32(0.5), Fraction(1, 3)):
        assert config(recall=recall).recall == recall


def test_limits_made_by_hand_are_checked_too() -> None:
    with pytest.raises(ContractError, match=r"top_k='x' of VectorLimits must be a whole number"):
        VectorLimits(top_k="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"limits": {"topk": 1}},
         r"'topk' is not a setting of limits; did you mean 'top_k'\? Known settings: metadata_"),
        ({"limits": {"top_k": "1"}},
         "top_k='1' of limits must be a whole number of at least 0, or None"),
        ({"limits": {"top_k": True}}, "top_k=True of limits must be a whole number"),
        ({"limits": {"top_k": -1}}, "top_k=-1 of limits must be a whole number of at least 0"),
        ({"limits": ["top_k"]},
         "must be a mapping such as {'top_k': 1000}, a VectorLimits, or None"),
        ({"lose_first": 1}, "lose_first=1 of vector_index must be True or False"),
        ({"recall": 1.5}, "recall=1.5 of vector_index must be a number from 0 to 1"),
        ({"recall": -0.1}, "must be a number from 0 to 1"),
        ({"recall": float("nan")}, "recall=nan of vector_index must be a number from 0 to 1"),
        ({"recall": True}, "recall=True of vector_index must be a number from 0 to 1"),
        ({"filter_budget": 0}, "must be a whole number of at least 1, or None"),
        ({"filter_budget": 2.5}, "filter_budget=2.5 of vector_index must be a whole number"),
    ],
)  # fmt: skip
def test_settings_without_meaning(given: Any, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        config(**given)
