"""Test the matching of upserts and queries, and the description of the closest mismatch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.journal import Results, expect
from pytest_fakecloud.core.matching import Field, Query
from pytest_fakecloud.vector.fake import QUERY_FIELDS, UPSERT_FIELDS, VectorIndex, shown
from tests.ids import steady

Items = list[dict[str, Any]]
SEEN: Items = [
    {"id": "user-1", "metadata": {"x": 1}, "vector": [0.5] * 3, "namespace": "", "data": "a*b"},
    {"id": "7", "metadata": {"x": 2}, "sparseVector": {"indices": [1], "values": [1]}},
    {"id": "user-2", "metadata": {"x": 2}},
]
HAPPENED: list[tuple[dict[str, Any], list[int]]] = [
    ({"id": "user-1"}, [0]), ({"id": "user*"}, [0, 2]), ({"id": re.compile("user")}, [0, 2]),
    ({"id": re.compile("^[0-9]$")}, [1]), ({"id": 7}, [1]), ({"id": np.int64(7)}, [1]),
    ({"id": str.isdigit}, [1]), ({"id": ANY}, [0, 1, 2]),
    ({"id": "user-2", "metadata": {"x": 2}}, [2]), ({"metadata": {"x": ANY}}, [0, 1, 2]),
    ({"metadata": lambda m: m["x"] > 1}, [1, 2]), ({"data": "a*b"}, [0]), ({"data": "a\\*b"}, [0]),
    ({"data": re.compile("b$")}, [0]), ({"vector": [0.5, 0.5, 0.5]}, [0]),
    ({"vector": np.full(3, 0.5)}, [0]), ({"vector": lambda v: len(v) == 3}, [0]),
    ({"vector": pytest.approx([0.5, 0.5, 0.5000001])}, [0]), ({"namespace": ""}, [0]),
    ({}, [0, 1, 2]),
]  # fmt: skip
NEVER: list[tuple[Mapping[str, Field], dict[str, Any], str]] = [
    (UPSERT_FIELDS, {"id": ["a"]}, r"id=\['a'\] can never match: pass a (text|string)"),
    (UPSERT_FIELDS, {"id": True}, "id=True can never match"),
    (UPSERT_FIELDS, {"id": np.array([1, 2])}, "id=array.* can never match"),
    (UPSERT_FIELDS, {"vector": 5}, "vector=5 can never match: pass a list of numbers"),
    (UPSERT_FIELDS, {"vector": ["x"]}, r"\['x'\] is not a vector: .*expected a number, got 'x'"),
    (UPSERT_FIELDS, {"vector": [float("nan")]}, "is not a vector"),
    (UPSERT_FIELDS, {"vector": np.zeros((1, 2))}, "is not a vector: .*array of 1x2"),
    (UPSERT_FIELDS, {"vektor": [1]}, "'vektor' is not a field of .*; did you mean 'vector'"),
    (QUERY_FIELDS, {"top_k": "3"}, "top_k='3' can never match: pass a whole number from 1 up"),
    (QUERY_FIELDS, {"top_k": 0}, "top_k=0 can never match"),
]


def expected(
    times: int | None = None, seen: Items = SEEN, /, **wanted: Any
) -> Results[dict[str, Any]]:
    query = Query(wanted, UPSERT_FIELDS, "upsert")
    return expect("an upsert", seen, query, times=times, show=shown)


@pytest.mark.parametrize(("wanted", "places"), HAPPENED, ids=steady)
def test_what_happened(wanted: dict[str, Any], places: list[int]) -> None:
    assert expected(**wanted) == [SEEN[place] for place in places]
    assert len(expected(len(places), **wanted)) == len(places)
    with pytest.raises(AssertionError, match=f"never, found {len(places)}"):
        expected(0, **wanted)


@pytest.mark.parametrize(("fields", "wanted", "reason"), NEVER, ids=steady)
def test_what_can_never_be(
    fields: Mapping[str, Field], wanted: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ContractError, match=reason):
        Query(wanted, fields, "item")


def test_failures_name_the_nearest_first_and_what_differed() -> None:
    with pytest.raises(AssertionError) as caught:
        expected(id="7", metadata={"x": 1})
    lines = str(caught.value).splitlines()
    assert lines == [
        "expected an upsert id='7' metadata={'x': 1} at least once, found 0",
        "  not id='7' metadata={'x': 2} sparseVector=<1 numbers>: metadata.x is 2, not 1",
        "  not id='user-1' metadata={'x': 1} vector=<3 numbers> namespace='' data='a*b': "
        "id is 'user-1', not '7'",
        "  not id='user-2' metadata={'x': 2}: id is 'user-2', not '7'; metadata.x is 2, not 1",
    ]


@pytest.mark.parametrize("kind", [list, tuple, np.array, np.float32])
def test_vectors_agree_as_the_index_keeps_them(kind: Any) -> None:
    sent = [{"id": "a", "vector": [0.1, 2]}, {"id": "b", "vector": np.float32([0.1, 2]).tolist()}]
    assert len(expected(2, sent, vector=kind([0.1, 2]))) == 2
    with pytest.raises(AssertionError, match=r"vector is \[0.1, 2\], not 3 numbers"):
        expected(None, sent, vector=kind([0.1, 2, 3]))
    with pytest.raises(AssertionError, match=r"vector is \[0.1, 2\], not \[0.1.*, 3.0\]"):
        expected(None, sent, vector=kind([0.1, 3]))
    for odd in (["x", 1], [None, 1], [[1], 1], [True, 1], "xy", {"a": 1, "b": 2}, [10**400, 1]):
        with pytest.raises(AssertionError, match="vector is "):
            expected(None, [{"vector": odd}], vector=kind([0.1, 2]))


def test_long_vectors_are_cut_to_what_differs() -> None:
    with pytest.raises(AssertionError) as caught:
        expected(None, [{"vector": [0.0] * 500}], vector=[0.0] * 400 + [1.0] * 100)
    assert (
        "vector is <500 numbers> that differs in 100 numbers, first in [400]: 0.0, not 1.0"
        in str(caught.value)
    )


def test_what_a_client_sent_as_a_vector_may_be_anything() -> None:
    with pytest.raises(AssertionError, match=r"vector is 5, not \[1.0\]"):
        expected(None, [{"vector": 5}], vector=[1.0])


@pytest.mark.parametrize("name", ["includeVectors", "includeMetadata", "includeData"])
@pytest.mark.parametrize(
    ("sent", "wanted", "count"),
    [(True, True, 1), ("true", True, 1), ("false", False, 1), ("true", False, 0), (None, True, 0)],
)
def test_a_flag_that_was_sent_as_a_string(name: str, sent: Any, wanted: bool, count: int) -> None:
    query = Query({name: wanted}, QUERY_FIELDS, "query")
    expect("a query", [{"id": "a", name: sent}], query, times=count, show=shown)


def test_nothing_at_all_is_said() -> None:
    with VectorIndex(Context.alone()) as index:
        with pytest.raises(AssertionError, match="no client has made a query at all"):
            index.assert_queried(top_k=1)
        with pytest.raises(AssertionError, match="no client has made an upsert at all"):
            index.assert_upserted("a")
