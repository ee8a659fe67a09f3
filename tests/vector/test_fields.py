"""Test the reading of JSON values; ``scenarios/fields.txt`` has what requests show of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.fields import VectorFields, as_floats, as_sparse
from pytest_fakecloud.vector.model import Fusion, UpdateMode, VectorRecord
from pytest_fakecloud.vector.settings import VectorLimits

from .building import rejects


def fields(value: Any) -> VectorFields:
    return VectorFields(value, VectorLimits())


@given(st.lists(st.integers(-(2**70), 2**70) | st.floats(-3e38, 3e38), max_size=20))
def test_numbers_become_float32(values: list[float]) -> None:
    floats = as_floats(values)
    assert floats.dtype == np.float32
    assert floats.tolist() == [float(np.float32(value)) for value in values]


@pytest.mark.parametrize("value", [10**400, float("nan"), float("-inf")])
def test_numbers_that_json_cannot_have(value: float) -> None:
    with rejects(422, "finite and within the range of a 32-bit float"):
        as_floats([value])
    with pytest.raises(VectorError, match="finite"):
        as_sparse({"indices": [1], "values": [float("inf")]})


def test_a_query_and_a_change_with_defaults() -> None:
    query = fields({"vector": [1]}).query()
    assert (query.top_k, query.filter, query.weighting, query.fusion) == (10, "", None, Fusion.RRF)
    assert query.include == (False, False, False)
    assert fields({}).max_idle_us() == 3600 * 1_000_000
    assert fields({"id": "a", "data": ""}).change()[1] is UpdateMode.OVERWRITE
    patch = {"id": "a", "metadata": {}, "metadataUpdateMode": "PATCH"}
    assert fields(patch).change() == (VectorRecord("a", metadata={}), UpdateMode.PATCH)
