"""Test which values fit which index, and the counting of daily quotas."""

from __future__ import annotations

import pytest

from pytest_fakecloud.vector.engine.checks import DAY_US, Checks, VectorQuota
from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.model import (
    Change,
    Kind,
    VectorQuery,
    VectorRecord,
)
from pytest_fakecloud.vector.settings import VectorLimits

from ..building import floats, sparse

DENSE, SPARSE = floats(1, 2), sparse({1: 1.0})


@pytest.mark.parametrize(
    ("kind", "record", "fits"),
    [
        (Kind.DENSE, VectorRecord("a", DENSE), True),
        (Kind.DENSE, VectorRecord("a", DENSE, SPARSE), False),
        (Kind.DENSE, VectorRecord("a", None, SPARSE), False),
        (Kind.DENSE, VectorRecord("a"), False),
        (Kind.SPARSE, VectorRecord("a", None, SPARSE), True),
        (Kind.SPARSE, VectorRecord("a", DENSE, SPARSE), False),
        (Kind.SPARSE, VectorRecord("a"), False),
        (Kind.HYBRID, VectorRecord("a", DENSE, SPARSE), True),
        (Kind.HYBRID, VectorRecord("a", DENSE), False),
        (Kind.HYBRID, VectorRecord("a", None, SPARSE), False),
    ],
)
def test_records_of_each_kind(kind: Kind, record: VectorRecord, fits: bool) -> None:
    checks = Checks(kind, VectorLimits())
    if fits:
        assert checks.records([record], None) == (2 if kind.has_dense else None)
    else:
        with pytest.raises(VectorError) as caught:
            checks.records([record], None)
        assert caught.value.status == 422


def test_the_first_vector_fixes_the_dimension_for_the_rest() -> None:
    checks = Checks(Kind.DENSE, VectorLimits())
    assert checks.records([], None) is None
    assert checks.records([], 5) == 5
    with pytest.raises(VectorError, match="Invalid vector dimension: 1, expected: 2"):
        checks.records([VectorRecord("a", DENSE), VectorRecord("b", floats(1))], None)


def test_a_hybrid_query_may_carry_one_vector_but_a_change_may_not() -> None:
    checks = Checks(Kind.HYBRID, VectorLimits())
    for query in (VectorQuery(DENSE), VectorQuery(None, SPARSE), VectorQuery(DENSE, SPARSE)):
        assert checks.query(query, 2) is None
    checks.change(Change("a", data="x"), 2)
    checks.change(Change("a", DENSE, SPARSE), 2)
    with pytest.raises(VectorError, match="both vector and sparseVector, or neither"):
        checks.change(Change("a", DENSE), 2)


def test_a_query_brings_its_compiled_filter() -> None:
    predicate = Checks(Kind.DENSE, VectorLimits()).query(VectorQuery(DENSE, filter="n = 1"), 2)
    assert predicate is not None
    assert predicate({"n": 1})
    assert Checks(Kind.DENSE, VectorLimits()).filter("  ") is None


def test_quotas_start_anew_each_day() -> None:
    quota = VectorQuota(VectorLimits(daily_queries=3))
    quota.spend("update", 10**9, 0)
    quota.spend("query", 2, 5)
    state = quota.state()
    with pytest.raises(VectorError, match="Exceeded daily query limit: 3") as caught:
        quota.spend("query", 2, DAY_US - 1)
    assert caught.value.status == 429
    quota.spend("query", 1, DAY_US - 1)
    quota.spend("query", 3, DAY_US)
    quota.restore(state)
    quota.spend("query", 1, 6)
    with pytest.raises(VectorError):
        quota.spend("query", 1, 6)
