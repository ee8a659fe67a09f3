"""Test the settings of limits and approximation."""

from __future__ import annotations

from typing import Any

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


def test_limits_made_by_hand_are_checked_too() -> None:
    with pytest.raises(ContractError, match=r"top_k='x' of VectorLimits must be a whole number"):
        VectorLimits(top_k="x")  # type: ignore[arg-type]
