"""Check that no body causes an error of the fake itself or an answer that is not JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_fakecloud.handle import Context
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.vector.fields import KNOWN
from pytest_fakecloud.vector.handle import VectorIndex

KINDS: list[dict[str, Any]] = [
    {"kind": "dense", "dimension": 2},
    {"kind": "sparse"},
    {"kind": "hybrid", "dimension": 2, "embedding": True},
    {"kind": "dense", "similarity": "DOT_PRODUCT", "recall": 0.5, "shuffle_ties": True},
]
NUMBERS = st.sampled_from([0, 1, -1, 2, 10, 1.5, 1e38, -3e38, 1e-40, 2**31, 2**63, 2**64 - 1])
WORDS = st.sampled_from(
    ["", "a", "0", "IDF", "RRF", "DBSF", "PATCH", "SPARSE", "n = 1", "é", "a" * 50]
)
VECTORS = st.lists(NUMBERS, min_size=2, max_size=2)
SPARSE = st.fixed_dictionaries(
    {"indices": st.lists(st.integers(-2, 3), max_size=3), "values": st.lists(NUMBERS, max_size=3)}
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS | VECTORS | SPARSE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "id": WORDS,
    "vector": VECTORS,
    "sparseVector": SPARSE,
    "data": WORDS,
    "ids": st.lists(WORDS, max_size=3),
    "filter": st.sampled_from(["", "n = 1", "a.b[0] GLOB '*'", "HAS FIELD a", "("]),
    "topK": st.integers(1, 5),
}
FIELDS = st.sets(st.sampled_from(sorted(KNOWN)), max_size=7).flatmap(
    lambda names: st.fixed_dictionaries(
        {name: LIKELY.get(name, ANYTHING) | ANYTHING for name in sorted(names)}
    )
)
BODIES = FIELDS | st.lists(FIELDS, max_size=3) | ANYTHING
with VectorIndex(Context.alone()) as _index:
    PATHS = st.sampled_from([route.name for route in _index._app.table.routes])
REQUESTS = st.lists(st.tuples(PATHS, st.sampled_from(["", "/ns"]), BODIES), max_size=6)


def scores(value: Any) -> Iterator[Any]:
    """Yield every score of an answer; a number that JSON cannot represent would be null."""
    if isinstance(value, dict):
        if "score" in value:
            yield value["score"]
        else:
            for item in value.values():
                yield from scores(item)
    elif isinstance(value, list):
        for item in value:
            yield from scores(item)


@pytest.fixture(scope="module")
def indexes() -> Iterator[list[VectorIndex]]:
    context = Context.alone(now="2026-01-01T00:00:00Z")
    made = [VectorIndex(context, **settings) for settings in KINDS]
    yield made
    for index in made:
        index.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, len(KINDS) - 1), requests=REQUESTS)
def test_any_json_is_answered(
    indexes: list[VectorIndex], number: int, requests: list[tuple[str, str, Any]]
) -> None:
    index = indexes[number]
    index.reset()
    headers = list(index.headers.items())
    for name, namespace, body in requests:
        request = Request("POST", f"/{name}{namespace}", headers, orjson.dumps(body))
        answer = index._app.answer(request)
        assert isinstance(answer, Answer)
        assert isinstance(answer.body, bytes)
        payload = orjson.loads(answer.body)
        assert answer.status in (200, 400, 404, 422), payload
        assert list(payload) == (["result"] if answer.status == 200 else ["error", "status"])
        assert all(isinstance(score, float) for score in scores(payload))
    assert [problem for problem in index._context.problems if problem.kind == "bug"] == []
