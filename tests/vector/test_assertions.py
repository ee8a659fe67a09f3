"""Test the matching of upserts and queries, and the description of the closest mismatch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.matching import Field, Query
from pytest_fakecloud.core.results import Results, expect
from pytest_fakecloud.handle import Context
from pytest_fakecloud.vector.assertions import QUERY_FIELDS, UPSERT_FIELDS, shown
from pytest_fakecloud.vector.handle import VectorIndex
from tests.ids import steady

from .test_handle import post

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
    (UPSERT_FIELDS, {"id": b"a"}, "id=b'a' can never match"),
    (UPSERT_FIELDS, {"id": np.array([1, 2])}, "id=array.* can never match"),
    (UPSERT_FIELDS, {"metadata": "x"}, "metadata='x' can never match: pass a dict"),
    (
        UPSERT_FIELDS,
        {"metadata": {1: 1}},
        "can never match: pass a dict of JSON values with string keys",
    ),
    (UPSERT_FIELDS, {"metadata": {"x": float("nan")}}, "can never match"),
    (UPSERT_FIELDS, {"data": 5}, "data=5 can never match"),
    (UPSERT_FIELDS, {"vector": 5}, "vector=5 can never match: pass a list of numbers"),
    (UPSERT_FIELDS, {"vector": ["x"]}, r"\['x'\] is not a vector: .*expected a number, got 'x'"),
    (UPSERT_FIELDS, {"vector": [float("nan")]}, "is not a vector"),
    (UPSERT_FIELDS, {"vector": np.zeros((1, 2))}, "is not a vector: .*array of 1x2"),
    (UPSERT_FIELDS, {"vektor": [1]}, "'vektor' is not a field of .*; did you mean 'vector'"),
    (QUERY_FIELDS, {"top_k": "3"}, "top_k='3' can never match: pass a whole number from 1 up"),
    (QUERY_FIELDS, {"top_k": 0}, "top_k=0 can never match"),
    (QUERY_FIELDS, {"top_k": 1.5}, "top_k=1.5 can never match"),
    (QUERY_FIELDS, {"filter": 5}, "filter=5 can never match"),
    (QUERY_FIELDS, {"filter": None}, "filter=None can never match"),
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


def test_the_index_asks_so() -> None:
    with VectorIndex(Context.alone(), dimension=2) as index:
        post(index, "/upsert/ns", [{"id": "user-1", "vector": [0.1, 2], "metadata": {"n": 1}}])
        post(index, "/query/ns", {"vector": [0.1, 2], "filter": "n = 1"})
        upserted: list[dict[str, Any]] = [
            {"id": re.compile("user")}, {"id": "user*"}, {"metadata": {"n": ANY}}, {},
            {"vector": np.float32([0.1, 2])}, {"namespace": re.compile("n")}, {"vector": (0.1, 2)},
        ]  # fmt: skip
        for asked in upserted:
            assert index.assert_upserted(**asked).only()["id"] == "user-1"
            with pytest.raises(AssertionError, match="never, found 1"):
                index.assert_upserted(times=0, **asked)
            with pytest.raises(AssertionError, match="never, found 1"):
                index.assert_not_upserted(**asked)
        queried: list[dict[str, Any]] = [
            {"filter": re.compile("n =")}, {"filter": "n*"}, {"top_k": 10}, {"vector": [0.1, 2]}, {},
        ]  # fmt: skip
        for asked in queried:
            assert index.assert_queried(**asked).where(topK=10, top_k=10).only()
            with pytest.raises(AssertionError, match="never, found 1"):
                index.assert_queried(times=0, **asked)
            with pytest.raises(AssertionError, match="never, found 1"):
                index.assert_not_queried(**asked)
        index.assert_not_upserted("admin*")
        index.assert_not_queried(top_k=5)
        found = index.vectors("ns")
        assert found.where(vector=np.float32([0.1, 2])) == found.where(id="user*") == found
        for records in (found, index.pending(), index.assert_upserted(), index.assert_queried()):
            with pytest.raises(ContractError, match="did you mean 'vector'"):
                records.where(vektor=[1])


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


def test_an_absent_field_is_called_absent() -> None:
    with pytest.raises(AssertionError, match="data is absent, not 'x'"):
        expected(data="x")


def test_of_many_the_likest_is_named() -> None:
    seen: Items = [{"id": f"user-{n}"} for n in range(500)] + [{"id": "article-77"}]
    with pytest.raises(AssertionError) as caught:
        expected(None, seen, id="artikle-77")
    lines = str(caught.value).splitlines()
    assert lines[1] == "  not id='article-77': id is 'article-77', not 'artikle-77'"
    assert len(lines) == 7


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


def test_long_values_are_cut_to_what_differs() -> None:
    text = "t" * 5000
    seen = [{"vector": [0.0] * 500, "metadata": {"text": text, "x": 1, "old": 1}}]
    with pytest.raises(AssertionError) as caught:
        expected(None, seen, vector=[0.0] * 400 + [1.0] * 100)
    assert (
        "vector is <500 numbers> that differs in 100 numbers, first in [400]: 0.0, not 1.0"
        in str(caught.value)
    )
    deep = [{"metadata": {"pages": [{"text": text}, {"text": text + "end"}]}, "data": text}]
    wanted = {"metadata": {"pages": [{"text": text}, {"text": text}]}, "data": text[:-1] + "x"}
    with pytest.raises(AssertionError) as other:
        expected(None, deep, **wanted)
    assert str(other.value).endswith(
        "metadata.pages[1].text from character 5000 on is 'end', not ''; "
        "data from character 4999 on is 't', not 'x'"
    )
    many = [{"metadata": {str(n): n for n in range(100)}}]
    with pytest.raises(AssertionError, match=r"metadata\.2 is 2, not 3 and 97 more$"):
        expected(None, many, metadata={str(n): n + 1 for n in range(100)})
    assert max(len(str(caught.value)), len(str(other.value))) < 1500


def test_what_a_client_sent_as_a_vector_may_be_anything() -> None:
    with pytest.raises(AssertionError, match=r"vector is 5, not \[1.0\]"):
        expected(None, [{"vector": 5}], vector=[1.0])


def test_a_predicate_that_raises_is_a_mistake_of_the_test() -> None:
    assert expected(id="7", metadata=lambda m: 1 / (m["x"] - 1)) == [SEEN[1]]
    assert expected(0, id="z", metadata=lambda m: m["y"]) == []
    with pytest.raises(ContractError, match=r"metadata=<lambda> raised KeyError\('y'\)"):
        expected(0, metadata=lambda m: m["y"])


@pytest.mark.parametrize("times", [-1, "2", True])
def test_a_count_that_is_none(times: Any) -> None:
    with pytest.raises(ContractError, match=r"times=.* is not a count"):
        expected(times)


def test_nothing_at_all_is_said() -> None:
    with VectorIndex(Context.alone()) as index:
        with pytest.raises(AssertionError, match="no client has made a query at all"):
            index.assert_queried(top_k=1)
        with pytest.raises(AssertionError, match="no client has made an upsert at all"):
            index.assert_upserted("a")
