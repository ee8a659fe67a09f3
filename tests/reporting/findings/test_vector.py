"""Findings about queries and records, and similar cases without a finding."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx

from pytest_fakecloud import Cloud, Response
from pytest_fakecloud.vector.report import findings as vector

from .cases import Inject, Scene, check, fails_afterwards, kinds, loses_answer


def asks(*requests: tuple[str, Any], index: Any = None, **settings: Any) -> Scene:
    """Send requests, given as path and body, to an index."""
    given = index

    def run(cloud: Cloud) -> None:
        index = given or cloud.vector_index(**settings)
        for path, body in requests:
            httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)

    return run


def record(id: str, metadata: Any = None, *, to: str = "upsert") -> tuple[str, Any]:
    body = {"id": id, "vector": [1, 0]}
    return to, body if metadata is None else {**body, "metadata": metadata}


def by_data(id: str, metadata: Any = None) -> tuple[str, Any]:
    return "upsert-data", {"id": id, "data": "text", "metadata": metadata or {"n": 1}}


def measured(text: str) -> list[float]:
    return [float(len(text)), 1.0]


def records(count: int, *, n: int = 1) -> tuple[str, Any]:
    return "upsert", [record(f"r{number}", {"n": n})[1] for number in range(count)]


def query(filter: str | None = None, **more: Any) -> dict[str, Any]:
    asked = {"vector": [1, 0], "topK": 1, "includeMetadata": True, **more}
    return asked if filter is None else {**asked, "filter": filter}


A = record("a", {"n": 1})
A2 = record("a", {"n": 2})
A_FULL, B_FULL = (record(id, to="upsert/full") for id in "ab")
TEXT = ("query", query('n = "1"'))
ALL = ("query", query())
BARE = ("query", query(includeMetadata=False))


def lost_upsert(cloud: Cloud, then: str, fault: Inject = loses_answer) -> None:
    """Upsert a record without receiving its answer, and then one with the same vector."""
    index = cloud.vector_index()
    fault(index.faults)
    for path, id in (("upsert", "a"), (then, "b")):
        with suppress(httpx.TransportError):
            body = {"id": id, "vector": [1, 0]}
            httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)


def with_other_answer(cloud: Cloud) -> None:
    """Query with a filter that accepts one of two records; a fault removes it from the answer."""
    index = cloud.vector_index()
    asks(A2, record("b", {"n": 1}), index=index)(cloud)
    index.faults.call(lambda: Response(body={"result": []}), "after", route="query")
    asks(("query", query("n = 1")), index=index)(cloud)


def answered_by_fault(cloud: Cloud) -> None:
    """Upsert a record that a fault accepts instead of the index, and then other metadata."""
    index = cloud.vector_index()
    index.faults.respond(200, {"result": "Success"}, times=1)
    asks(A, A2, index=index)(cloud)


def queried_early(*requests: tuple[str, Any], then: tuple[tuple[str, Any], ...] = ()) -> Scene:
    """Make requests to an index whose records are ready after a second."""

    def run(cloud: Cloud) -> None:
        index = cloud.vector_index(ready_after="1s")
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
    "a filter on what is absent": asks(A, ("query", query("m = 1"))),
    "a filter that matches": asks(A, ("query", query("n = 1"))),
    "a record written twice": asks(A, A),
    "a record that was deleted": asks(A, ("delete", ["a"]), A2),
    "a decomposed letter": asks(
        record("a", {"c": "Zu\u0308rich"}), ("query", query("c = 'Z\u00fcrich'"))
    ),
    "a filter of one of two queries": asks(A, ("query", [query("n = 1"), TEXT[1]])),
    "a filter after a query without one": asks(A, ALL, TEXT),
    "a filter of a query whose answer a fault replaced": with_other_answer,
    "an upsert that only a fault accepted": answered_by_fault,
    "a filter of a query in steps": asks(A, ("resumable-query", TEXT[1])),
    "a filter after a query where nothing is": asks(A, ("query/none", TEXT[1]), TEXT),
    "two records that a filter rejected for one reason": asks(
        A, record("b", {"n": 1}), record("c", {"n": 2}), TEXT
    ),
    "an array": asks(record("a", {"n": ["x"]}), ("query", query("n = 'x'"))),
    "the default namespace": asks(A_FULL, ALL),
    "the others by their counts": asks(A, B_FULL, ("query/none", query())),
    "an empty namespace after a full one": asks(A_FULL, ("query/full", query()), ALL),
    "a namespace that was full before the query": asks(
        records(2), ("query/none", query()), B_FULL, A
    ),
    "a filter before the same id of another namespace": asks(
        A, TEXT, record("a", {"n": "1"}, to="upsert/other")
    ),
    "no metadata before the same id of another namespace": asks(
        A, BARE, record("a", to="upsert/other")
    ),
    "metadata of one of two queries": asks(A, ("query", [query(), query(includeMetadata=False)])),
    "metadata of records in steps": asks(A, ("resumable-query", query(includeMetadata=False))),
    "a record of a batch and its own namespace": asks(
        record("a", {"n": 2}, to="upsert/other"),
        ("upsert", [A[1], record("b", {"n": 1})[1]]),
        ("upsert", [A2[1], record("b", {"n": 2})[1]]),
    ),
    "more than four": asks(records(6), records(6, n=2)),
    "replaced after other calls": asks(A, ALL, A2),
    "records by their data": asks(
        by_data("a", {"n": 1}), by_data("a", {"n": 2}), by_data("doc-None"), embedding=measured
    ),
    "None in one of a batch": asks(ALL, ("upsert", [A[1], record("doc-None")[1]])),
    "None before a part of a document": asks(record("None#3", to="upsert/tenant")),
    "None as the whole id": asks(record("None")),
    "none in small letters, as in a name": asks(record("doc-none")),
    "None within a word": asks(record("Nonesuch-1"), record("doc:aNone")),
    "None in metadata": asks(record("a", {"author": "None"})),
    "None in an id that is deleted": asks(A, ("delete", ["doc-None"])),
    "None in an id that was rejected": asks(("upsert", {"id": "doc-None", "vector": []})),
    "a deletion elsewhere": asks(A_FULL, ("delete", ["b"]), ("delete", ["a"])),
    "a deletion of one id": asks(A, B_FULL, ("delete/full", {"ids": ["a"]})),
    "a fetch of one id": asks(A, B_FULL, ("fetch/full", {"ids": ["a"]})),
    "a fetch of what nobody has": asks(A, ("fetch", {"ids": ["b"]})),
    "a fetch of one of two": asks(A, B_FULL, ("fetch", {"ids": ["a", "b"]})),
    "a deletion of many": asks(
        records(6), B_FULL, ("delete/full", [f"r{number}" for number in range(6)])
    ),
    "a record that matched before an update": asks(
        record("a", {"n": 1, "m": 2}),
        record("b", {"n": 1}),
        ("update", {"id": "a", "metadata": {"m": 3}}),
        ("query", query("n = 1")),
    ),
    "an update that keeps the other fields": asks(
        record("a", {"n": 1, "m": 2}),
        ("update", {"id": "a", "metadata": {"m": 3}, "metadataUpdateMode": "PATCH"}),
    ),
    "an update of a record that an update wrote": asks(
        record("a", {"n": 1, "m": 2}),
        ("update", {"id": "a", "metadata": {"n": 1, "m": 3}}),
        ("update", {"id": "a", "metadata": {"m": 3}}),
    ),
    "an upsert again under another id": lambda cloud: lost_upsert(cloud, "upsert"),
    "an upsert again under another id after a truncated answer": lambda cloud: lost_upsert(
        cloud, "upsert", lambda faults: faults.truncate(times=1)
    ),
    "an upsert again under another id after an error": lambda cloud: lost_upsert(
        cloud, "upsert", fails_afterwards
    ),
    "an upsert of the same vector to another namespace": lambda cloud: lost_upsert(
        cloud, "upsert/other"
    ),
    "a filter that is none": asks(A, ("query", query("n =="))),
    "a filter of what came after it": asks(
        record("b", {"n": "1"}), ("query", TEXT[1] | {"topK": 1}), ("upsert", [A[1]])
    ),
    "no metadata of records without": asks(record("a"), BARE),
    "metadata that came later": asks(
        record("a"), BARE, ("update", {"id": "a", "metadata": {"n": 1}})
    ),
    "metadata of a record that was deleted and written again": asks(
        record("a"), BARE, ("delete", ["a"]), A
    ),
    "records that came the first time": asks(A, record("b", {"n": 2})),
    "the same id in another namespace": asks(A, record("a", {"n": 2}, to="upsert/other")),
    "a record without metadata before": asks(record("a"), A2),
    "a record without metadata now": asks(A, record("a")),
    "a record that an update changed": asks(
        A, ("update", {"id": "a", "metadata": {"n": 2}}), record("a", {"n": 3})
    ),
    "vectors that are not counted yet": asks(B_FULL, A, ALL, ready_after="1s"),
    "vectors that came after the query": asks(("query/none", query()), A),
    "vectors that came after the query, and one again": asks(
        A, ("query/none", query()), record("b"), A
    ),
    "a deletion of what nobody has": asks(A, ("delete", ["b"])),
    "a deletion": asks(A, A_FULL, ("delete", ["a"])),
}


test_findings = check("vector", CASES)


def test_the_findings_of_queries_know_every_write(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    httpx.post(index.url + "/info", headers=index.headers)
    app: Any = index._app
    assert app.writes == {*vector._WRITES, *vector._REMOVALS}


def test_later_writes_do_not_explain_an_earlier_query(cloud: Cloud) -> None:
    index = cloud.vector_index()
    asks(record("a", {"n": "1"}), ("query", query("n = 1")), index=index)(cloud)
    assert kinds(cloud) == ["filter_rejected"]
    asks(("update", {"id": "a", "metadata": {"n": "2"}}), index=index)(cloud)
    assert kinds(cloud) == []
    asks(record("b", to="upsert/other"), ("query/none", query()), index=index)(cloud)
    assert kinds(cloud) == ["empty_namespace"]
    asks(("delete/other", ["c"]), index=index)(cloud)
    assert kinds(cloud) == []
