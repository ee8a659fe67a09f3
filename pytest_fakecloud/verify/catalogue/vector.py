"""Scenarios of the vector index, with dense vectors in a namespace of the run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from . import Scenario, Step, scenario

_scenario = partial(scenario, "vector")
_AWAY = (Step("DELETE", "/delete-namespace/{p}ns"), Step("DELETE", "/delete-namespace/{p}other"))


def scenarios(dimension: int) -> Iterator[Scenario]:
    """Yield scenarios for an index whose dense vectors have this dimension."""

    def vector(*first: float) -> list[float]:
        return [*first[:dimension], *[0.25] * (dimension - len(first))]

    records: list[dict[str, Any]] = [
        {"id": "a", "vector": vector(1, 0.1), "metadata": {"kind": "x", "n": 1, "tags": ["p"]}},
        {"id": "b", "vector": vector(0.1, 1), "metadata": {"kind": "y", "n": 2}, "data": "text b"},
        {"id": "c", "vector": vector(-1, 0.1), "metadata": {"kind": "x", "n": 3, "deep": {"k": 1}}},
    ]
    fill = Step("POST", "/upsert/{p}ns", json=records, settle=True)

    def story(title: str, *steps: Step, filled: bool = True) -> Scenario:
        return _scenario(title, *((fill, *steps) if filled else steps), cleanup=_AWAY)

    def post(path: str, json: Any, **rest: Any) -> Step:
        return Step("POST", path, json=json, **rest)

    yield story(
        "upsert and fetch",
        post("/fetch/{p}ns", {"ids": ["a", "missing", "b"]}),
        post("/fetch/{p}ns", {"ids": ["b"], "includeMetadata": True, "includeData": True}),
        post("/fetch/{p}ns", {"ids": []}),
        post("/fetch/{p}ns", {"ids": "a"}),
        post("/fetch/{p}ns", {}),
        post("/upsert/{p}ns", {"id": "a", "vector": vector(0.5)}, settle=True),
        post("/fetch/{p}ns", {"ids": ["a"], "includeMetadata": True}),
        post("/fetch/{p}ns", {"prefix": "a"}),
    )
    yield story(
        "rejected upserts",
        post("/upsert/{p}ns", {"id": "d", "vector": [*vector(1), 1]}),
        post("/upsert/{p}ns", {"id": "d"}),
        post("/upsert/{p}ns", {"vector": vector(1)}),
        post("/upsert/{p}ns", {"id": 5, "vector": vector(1)}),
        post("/upsert/{p}ns", {"id": "d", "vector": ["x"]}),
        post("/upsert/{p}ns", {"id": "d", "vector": vector(1), "metadata": "text"}),
        post("/upsert/{p}ns", []),
        Step("POST", "/upsert/{p}ns", body="not json"),
        filled=False,
    )
    yield story(
        "query",
        post("/query/{p}ns", {"vector": vector(1, 0.2), "topK": 2}),
        post("/query/{p}ns", {"vector": vector(1), "topK": 3, "includeMetadata": True}),
        post("/query/{p}ns", {"vector": vector(1), "topK": 1, "includeData": True}),
        post(
            "/query/{p}ns", [{"vector": vector(1), "topK": 1}, {"vector": vector(0, 1), "topK": 1}]
        ),
        post("/query/{p}ns", {"vector": [*vector(1), 1], "topK": 1}),
        post("/query/{p}ns", {"vector": vector(1), "topK": 0}),
        post("/query/{p}ns", {"vector": vector(1), "topK": 100000}),
        post("/query/{p}ns", {"topK": 1}),
        post("/query/{p}other", {"vector": vector(1), "topK": 1}),
    )
    filters = (
        "kind = 'x'", "kind != 'x'", "n > 1 AND n <= 3", "kind = 'y' OR n = 3", "n IN (1, 2)",
        "n NOT IN (1, 2)", "HAS FIELD deep", "HAS NOT FIELD deep", "deep.k = 1", "tags CONTAINS 'p'",
        "tags NOT CONTAINS 'p'", "kind GLOB '[xz]'", "kind NOT GLOB 'x*'", "(n = 1)", "n = '1'",
        "n =", "kind LIKE 'x'", "",
    )  # fmt: skip
    yield story(
        "metadata filters",
        *(post("/query/{p}ns", {"vector": vector(1), "topK": 3, "filter": one}) for one in filters),
    )
    yield story(
        "range",
        post("/range/{p}ns", {"cursor": "0", "limit": 2}, loose=frozenset({"nextCursor"})),
        post("/range/{p}ns", {"cursor": "0", "limit": 10, "includeMetadata": True}),
        post("/range/{p}ns", {"cursor": "0", "limit": 10, "prefix": "b"}),
        post("/range/{p}ns", {"cursor": "x", "limit": 1}),
        post("/range/{p}ns", {"limit": 1}),
        post("/range/{p}ns", {"cursor": "0", "limit": 0}),
    )
    yield story(
        "update",
        post("/update/{p}ns", {"id": "a", "metadata": {"n": 9}}, settle=True),
        post("/fetch/{p}ns", {"ids": ["a"], "includeMetadata": True}),
        post(
            "/update/{p}ns",
            {"id": "a", "metadata": {"m": 1}, "metadataUpdateMode": "PATCH"},
            settle=True,
        ),
        post("/fetch/{p}ns", {"ids": ["a"], "includeMetadata": True}),
        post("/update/{p}ns", {"id": "a", "data": "new text"}, settle=True),
        post("/fetch/{p}ns", {"ids": ["a"], "includeData": True}),
        post("/update/{p}ns", {"id": "missing", "metadata": {}}),
        post("/update/{p}ns", {"id": "a"}),
        post("/update/{p}ns", {"id": "a", "metadata": {}, "metadataUpdateMode": "BAD"}),
    )
    yield story(
        "delete",
        Step("DELETE", "/delete/{p}ns", json={"ids": ["a", "missing"]}, settle=True),
        Step("DELETE", "/delete/{p}ns", json=["b"], settle=True),
        Step("DELETE", "/delete/{p}ns", json={"filter": "kind = 'x'"}, settle=True),
        post("/range/{p}ns", {"cursor": "0", "limit": 10}),
        Step("DELETE", "/delete/{p}ns", json={}),
        Step("DELETE", "/delete/{p}ns", json={"filter": "bad filter ="}),
    )
    yield story(
        "namespaces",
        Step("DELETE", "/reset/{p}ns", settle=True),
        post("/range/{p}ns", {"cursor": "0", "limit": 10}),
        Step("DELETE", "/delete-namespace/{p}ns"),
        Step("DELETE", "/delete-namespace/{p}ns"),
        post("/range/{p}ns", {"cursor": "0", "limit": 10}),
    )
    yield story(
        "resumable query",
        post(
            "/resumable-query/{p}ns",
            {"vector": vector(1), "topK": 1, "maxIdle": 60},
            loose=frozenset({"uuid"}),
            keep={"uuid": "result.uuid"},
        ),
        post("/resumable-query-next", {"uuid": "{uuid}", "additionalK": 1}),
        post("/resumable-query-end", {"uuid": "{uuid}"}),
        post("/resumable-query-next", {"uuid": "{uuid}", "additionalK": 1}),
    )
    yield _scenario(
        "credentials and unknown paths",
        Step("GET", "/info", token=None),
        Step("GET", "/info", token="wrong"),
        post("/nothing-here", {}),
    )
