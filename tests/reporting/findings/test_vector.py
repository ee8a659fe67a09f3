"""Findings about queries and records, and similar cases without a finding."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud, Response
from pytest_fakecloud.reporting.statement.failed import UnequalValues
from pytest_fakecloud.vector.report import findings as vector
from pytest_fakecloud.vector.report import lookups

from .cases import Scene, check, found, kinds


def asks(*requests: tuple[str, Any], index: Any = None, **settings: Any) -> Scene:
    """Send requests, given as path and body, to an index."""
    preset = index

    def run(cloud: Cloud) -> None:
        index = preset or cloud.vector_index(**settings)
        for path, body in requests:
            httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)

    return run


def record(id: str, metadata: Any = None, *, to: str = "upsert") -> tuple[str, Any]:
    body = {"id": id, "vector": [1, 0]}
    return to, body if metadata is None else {**body, "metadata": metadata}


def query(filter: str | None = None, **more: Any) -> dict[str, Any]:
    asked = {"vector": [1, 0], "topK": 1, "includeMetadata": True, **more}
    return asked if filter is None else {**asked, "filter": filter}


def held(cloud: Cloud) -> None:
    """Query in a block of ``holding()``, and again after it."""
    index = cloud.vector_index()
    with index.holding():
        asks(A, ALL, index=index)(cloud)
    asks(ALL, index=index)(cloud)


def point(id: str, *vector: float) -> tuple[str, Any]:
    return "upsert", {"id": id, "vector": vector}


def weighted(id: str, number: float, index: int = 1) -> tuple[str, Any]:
    sparse = {"indices": [index], "values": [number]}
    return "upsert", {"id": id, "sparseVector": sparse}


def hybrid(id: str, number: float, *vector: float) -> tuple[str, Any]:
    route, body = weighted(id, number)
    return route, {**body, "vector": vector}


A = record("a", {"n": 1})
A2 = record("a", {"n": 2})
A_FULL, B_FULL = (record(id, to="upsert/full") for id in "ab")
TEXT = ("query", query('n = "1"'))
ALL = ("query", query())
SPARSE_PART = {"sparseVector": {"indices": [1], "values": [1]}, "topK": 1}
SPARSE = ("query", SPARSE_PART)
HYBRID = ("query", {**SPARSE_PART, "vector": [1, 0]})


def with_other_answer(cloud: Cloud) -> None:
    """Query with a filter that accepts one of two records; a fault removes it from the answer."""
    index = cloud.vector_index()
    asks(A2, record("b", {"n": 1}), index=index)(cloud)
    index.faults.call(lambda: Response(body={"result": []}), "after", route="query")
    asks(("query", query("n = 1")), index=index)(cloud)


def queried_early(
    *requests: tuple[str, Any],
    first: tuple[tuple[str, Any], ...] = (),
    then: tuple[tuple[str, Any], ...] = (),
    **settings: Any,
) -> Scene:
    """Make requests to an index whose records are ready after a second, those that are made ``first``
    two seconds earlier and those of ``then`` two seconds later.
    """

    def run(cloud: Cloud) -> None:
        index = cloud.vector_index(ready_after="1s", **settings)
        asks(*first, index=index)(cloud)
        cloud.clock.advance("2s")
        asks(*requests, index=index)(cloud)
        cloud.clock.advance("2s")
        asks(*then, index=index)(cloud)

    return run


CASES: dict[str, Scene] = {
    "a query before the only record is ready": queried_early(A, ALL),
    "a query with a filter before one of two is ready": queried_early(
        A, record("b", {"n": 2}), ("query", query("n = 1"))
    ),
    "queries of a batch before their records are ready": queried_early(
        A, B_FULL, ("query", [query(), query("n = 9")])
    ),
    "a query by data before its record is ready": queried_early(
        A, ("query/full", query()), B_FULL, ("query/full", query())
    ),
    "a query after the records are ready": queried_early(A, then=(ALL,)),
    "a query for fewer records than there are": queried_early(
        A, then=(("query", query() | {"topK": 1}), record("b"), ("query", query() | {"topK": 1}))
    ),
    "a query before a record that is written again": queried_early(A, ALL, then=(A,)),
    "a query before a record that is deleted": queried_early(A, ALL, then=(("delete", ["a"]),)),
    "a query whose only hit is less near than a record that is not ready": queried_early(
        point("c", 0, 1), point("b", 1, 1), ALL, first=(point("a", 0.1, 1),)
    ),
    "a query whose only hit is nearer than a record that is not ready": queried_early(
        point("b", 1, 1), ALL, first=(point("a", 1, 0),)
    ),
    "a query whose hit was written again": queried_early(
        point("b", 1, 1), ALL, first=(point("a", 0, 1),), then=(point("a", 0, 1),)
    ),
    "a query before an update is ready": queried_early(
        ("update", {"id": "a", "vector": [1, 0]}), ALL, first=(point("a", 0, 1), point("b", 1, 1))
    ),
    "a query before sparse vectors are ready": queried_early(
        weighted("b", 2),
        weighted("c", 3, index=2),
        SPARSE,
        first=(weighted("a", 1),),
        kind="sparse",
    ),
    "a hybrid query before the nearest record is ready": queried_early(
        hybrid("c", 3, 1, 0),
        HYBRID,
        first=(hybrid("a", 1, 0, 1), hybrid("b", 2, 1, 1)),
        kind="hybrid",
    ),
    "a hybrid query before a record is ready that is not near": queried_early(
        hybrid("c", 1, 0, 1),
        HYBRID,
        first=(hybrid("a", 2, 1, 1), hybrid("b", 3, 1, 0)),
        kind="hybrid",
    ),
    "a query of an index that loses hits": queried_early(
        B_FULL, ALL, first=(A,), recall=0, lose_first=True
    ),
    "a query before as many reads as records need": asks(A, ALL, ALL, ready_after_reads=1),
    "a query in a block that holds changes": held,
    "a filter on what is absent": asks(A, ("query", query("m = 1"))),
    "a filter that matches": asks(A, ("query", query("n = 1"))),
    "a decomposed letter": asks(
        record("a", {"c": "Zu\u0308rich"}), ("query", query("c = 'Z\u00fcrich'"))
    ),
    "a filter of one of two queries": asks(A, ("query", [query("n = 1"), TEXT[1]])),
    "a filter after a query without one": asks(A, ALL, TEXT),
    "a filter of a query whose answer a fault replaced": with_other_answer,
    "a filter of a query in steps": asks(A, ("resumable-query", TEXT[1])),
    "a filter after a query where nothing is": asks(A, ("query/none", TEXT[1]), TEXT),
    "two records that a filter rejected for one reason": asks(
        A, record("b", {"n": 1}), record("c", {"n": 2}), TEXT
    ),
    "records that a filter rejected for other reasons, the nearest first": asks(
        *(
            ("upsert", {"id": id, "vector": [number, 1], "metadata": {"n": number}})
            for number, id in enumerate("abcde")
        ),
        TEXT,
    ),
    "a filter of a query that has no dimension in common with a record": asks(
        ("upsert", {"id": "a", "sparseVector": {"indices": [1], "values": [1]}}),
        ("query", {"sparseVector": {"indices": [2], "values": [1]}, "filter": "n = 1"}),
        kind="sparse",
    ),
    "a filter that accepts a record that is not ready": queried_early(
        record("b", {"n": 2}), A, ("query", query("n = 1"))
    ),
    "an array": asks(record("a", {"n": ["x"]}), ("query", query("n = 'x'"))),
    "a filter before the same id of another namespace": asks(
        A, TEXT, record("a", {"n": "1"}, to="upsert/other")
    ),
    "a record that matched before an update": asks(
        record("a", {"n": 1, "m": 2}),
        record("b", {"n": 1}),
        ("update", {"id": "a", "metadata": {"m": 3}}),
        ("query", query("n = 1")),
    ),
    "a filter that is none": asks(A, ("query", query("n =="))),
    "a filter of what came after it": asks(
        record("b", {"n": "1"}), ("query", TEXT[1] | {"topK": 1}), ("upsert", [A[1]])
    ),
    "vectors that are not counted yet": asks(B_FULL, A, ALL, ready_after="1s"),
    "vectors that came after the query": asks(("query/none", query()), A),
}


test_findings = check("vector", CASES)


def test_the_findings_of_queries_know_every_write(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    httpx.post(index.url + "/info", headers=index.headers)
    app: Any = index._app
    assert app.writes == {*vector._WRITES, *lookups.REMOVALS}


RECORDS = [
    {"id": "tea", "vector": [1, 0], "metadata": {"price": 4, "name": "Tea"}},
    {"id": "pot", "vector": [0.9, 0.1], "metadata": {"price": "3", "name": "Pot"}},
    {"id": "base", "vector": [0, 1], "metadata": {"doc": "base"}},
]


@pytest.mark.parametrize(
    ("top_k", "filter", "left", "right", "expected"),
    [
        (2, "price < 5", ["tea"], ["tea", "pot"], ["pot"]),
        (2, "price < 5", ["tea", "pot"], ["tea"], ["pot"]),
        (2, "price < 5", {"tea": 1.0}, {"tea": 1.0, "pot": 0.9}, ["pot"]),
        (2, "price < 5", ["Tea"], ["Tea", "Pot"], ["pot"]),
        (2, "price < 5", [{"id": "tea"}], [{"id": "tea"}, {"id": "pot"}], ["pot"]),
        (2, "price < 5", ["tea"], ["tea", "mug"], None),
        (2, "price < 5", ["cup"], ["pot"], None),
        (1, "price < 5", ["tea"], ["pot"], ["pot"]),
        (1, "price < 5", ["tea"], ["base"], None),
        (2, "price > 5", [], ["base"], ["base"]),
        (2, "price > 5", [], ["mug"], ["pot", "tea", "base"]),
    ],
)
def test_a_filter_rejects_records_that_the_test_expected(
    cloud: Cloud, top_k: int, filter: str, left: Any, right: Any, expected: list[str] | None
) -> None:
    index = cloud.vector_index()
    index.load(RECORDS)
    request = {"vector": [0.9, 0.1], "topK": top_k, "filter": filter, "includeMetadata": True}
    asks(("query", request), index=index)(cloud)
    code = test_a_filter_rejects_records_that_the_test_expected.__code__
    compared = UnequalValues(code, left, right)
    every = found(cloud, raised=AssertionError(), unequal=compared)
    groups = [[finding.values, *finding.values.get("others", ())] for finding in every]
    ids = [[id for group in finding for id in group["ids"]] for finding in groups]
    assert ids == ([] if expected is None else [expected])


def test_later_writes_do_not_explain_an_earlier_query(cloud: Cloud) -> None:
    index = cloud.vector_index()
    asks(record("a", {"n": "1"}), ("query", query("n = 1")), index=index)(cloud)
    assert kinds(cloud) == ["filter_rejected"]
    asks(("update", {"id": "a", "metadata": {"n": "2"}}), index=index)(cloud)
    assert kinds(cloud) == []
