"""Call every method of the index with every kind of value; see ``tests/misuse.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.settings import HandleConfig, read, settings_of
from pytest_fakecloud.handle import Context
from pytest_fakecloud.vector.handle import VectorIndex
from pytest_fakecloud.vector.settings import VectorConfig, VectorLimits
from tests.misuse import COMMON, Table, cases, check_right_types, check_table, check_wrong_types

VALUES: Mapping[str, Any] = {
    **COMMON,
    "text": "n",
    "bytes": b"n",
    "numbers": [1, 2],
    "array": np.array([1, 2]),
    "table": np.array([[1, 2]]),
    "texts": ["n"],
    "mapping": {"n": 1},
    "set": {1, 2},
}
NONE = {"None"}
TEXT = {"text"}
WHOLE = {"whole"}
FREE = {"None", "function", "matcher"}
PARTS = {
    "vector": FREE | {"numbers", "array", "empty list"},
    "sparseVector": FREE | {"empty mapping", "mapping"},
    "data": FREE | TEXT,
    "namespace": FREE | TEXT,
}
UPSERTED = {
    **PARTS,
    "id": FREE | TEXT | {"whole", "negative"},
    "metadata": FREE | {"empty mapping", "mapping"},
}
QUERIED = {
    **PARTS,
    "top_k": FREE | WHOLE,
    "filter": FREE | TEXT,
    "includeVectors": FREE | {"boolean"},
    "includeMetadata": FREE | {"boolean"},
    "includeData": FREE | {"boolean"},
    "weightingStrategy": FREE,
    "fusionAlgorithm": FREE,
    "queryMode": FREE,
    "maxIdle": FREE | WHOLE,
}
METHODS: Table = {
    "load": ({"data": {"b": [1, 2]}}, {"data": {"empty list", "empty mapping"}, "namespace": TEXT}),
    "vectors": ({}, {"namespace": TEXT, "limit": NONE | WHOLE}),
    "matches": (
        {"filter": "n = 1", "metadata": {"n": 1}},
        {"filter": set(), "metadata": NONE | {"empty mapping", "mapping"}},
    ),
    "assert_upserted": ({"times": 0}, {**UPSERTED, "times": NONE | WHOLE}),
    "assert_not_upserted": ({}, UPSERTED),
    "assert_queried": ({"times": 0}, {**QUERIED, "times": NONE | WHOLE}),
    "assert_not_queried": ({}, QUERIED),
    "restore": ({}, {"snapshot": set()}),
}
NOTHING_TO_GIVE = {"namespaces", "pending", "holding", "rotate_token", "close"}


@contextmanager
def prepared() -> Iterator[VectorIndex]:
    with VectorIndex(Context.alone(now="2026-01-01T00:00:00Z"), dimension=2) as made:
        made.load({"a": [1, 2]})
        made.load({"a": [1, 2]}, namespace="n")
        yield made


def test_the_table_has_every_method_and_parameter() -> None:
    check_table(VectorIndex, METHODS, NOTHING_TO_GIVE)


@pytest.mark.parametrize(("method", "name"), cases(METHODS))
def test_a_wrong_type_is_refused_and_changes_nothing(method: str, name: str) -> None:
    with prepared() as index:
        check_wrong_types(
            index, (method, name), METHODS, VALUES, lambda: (index.namespaces(), index.vectors())
        )


@pytest.mark.parametrize(("method", "name"), cases(METHODS))
def test_a_right_type_is_taken(method: str, name: str) -> None:
    check_right_types(prepared, (method, name), METHODS, VALUES)


SETTINGS: Mapping[str, set[str]] = {
    "dimension": NONE | WHOLE,
    "similarity": set(),
    "kind": set(),
    "range_limit": WHOLE,
    "ready_after": NONE | {"whole", "fraction"},
    "ready_after_reads": NONE | WHOLE,
    "recall": WHOLE,
    "lose_first": {"boolean"},
    "filter_budget": NONE | WHOLE,
    "shuffle_ties": {"boolean"},
    "limits": NONE | {"empty mapping"},
    "namespaces": {"empty list", "texts", "empty mapping"},
    "embedding": NONE | {"boolean", "function", "mapping", "empty mapping", "mapping by numbers"},
}


def test_the_table_has_every_setting() -> None:
    assert set(SETTINGS) == settings_of(VectorConfig).keys() - settings_of(HandleConfig).keys()


@pytest.mark.parametrize(("name", "right"), SETTINGS.items())
def test_settings_of_a_wrong_type_are_refused(name: str, right: set[str]) -> None:
    for kind, value in VALUES.items():
        settings: dict[str, Any] = {"recall": 0.5, name: value}  # lose_first needs a recall
        try:
            VectorIndex(Context.alone(), **settings).close()
            taken = True
        except ContractError:
            taken = False
        assert taken == (kind in right), kind


def test_limits_are_a_mapping_or_an_object() -> None:
    limits = read(VectorConfig, {"limits": {"top_k": 10, "data_bytes": None}}, "vector").limits
    assert limits == VectorLimits(top_k=10, data_bytes=None)
    assert read(VectorConfig, {"limits": limits}, "vector").limits is limits
    with pytest.raises(ContractError, match=r"top_k='x' of VectorLimits must be a whole number"):
        VectorLimits(top_k="x")  # type: ignore[arg-type]
