"""Any request to a service is answered in its documented form, and no failure changes its data.

All requests come from one grammar; a service adds its routes and the names of its fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_fakecloud import Cloud
from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.vector.fake import VectorIndex
from pytest_fakecloud.vector.fields import KNOWN

from .grammar import QUERIES, SEGMENTS, as_json, bodies, numbers, values

with Cloud(seed=0) as _cloud:
    ROUTES = {
        fixture: [
            (route.methods, route.pattern) for route in getattr(_cloud, fixture)()._app.routes()
        ]
        for fixture in ("broker", "vector_index")
    }
"""The methods and the paths of each service."""


def paths(fixture: str, *names: str) -> st.SearchStrategy[tuple[str, str]]:
    """Methods and targets of a service, some of them wrong."""

    @st.composite
    def drawn(draw: Any) -> tuple[str, str]:
        methods, pattern = draw(st.sampled_from(ROUTES[fixture]))
        segments = st.sampled_from([*names * 4, *SEGMENTS])
        path = re.sub(r"{(\w+)\*?}", lambda _: draw(segments), pattern)
        more = draw(st.sampled_from([*[""] * 9, "/nobody"]))
        method = draw(st.sampled_from([*methods.split() * 6, "GET", "POST", "DELETE"]))
        return method, path + more + draw(st.sampled_from(QUERIES))

    return drawn()


def answered(
    fake: Any, method: str, target: str, headers: list[tuple[str, str]], body: bytes
) -> Any:
    """Return the status and the JSON of an answer."""
    login = ("Authorization", fake.headers["Authorization"])
    answer = fake._app.respond(
        Request(method, target.encode().decode("latin-1"), [login, *headers], body)
    )
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, bytes)
    assert [violation for violation in fake._context.violations if violation.kind == "bug"] == []
    return answer.status, json.loads(answer.body.decode("utf-8"))


# -- broker ---------------------------------------------------------------------------------------

WORDS = [
    "topic", "topics", "partition", "offset", "timestamp", "key", "value", "headers", "timeout",
    "topicPartitionOffsets", "orders", "nope", "g", "i",
]  # fmt: skip
scalars = values(WORDS)
places = st.fixed_dictionaries(
    {"topic": st.just("orders"), "partition": st.sampled_from([0, 1, 2, 3]), "offset": numbers},
    optional={"value": scalars, "key": scalars, "timestamp": numbers, "timeout": numbers},
)
broker_headers = st.lists(
    st.tuples(
        st.sampled_from(
            ["Kafka-Auto-Offset-Reset", "Broker-Auto-Commit-Interval", "Kafka-Session-Timeout-Ms",
             "Kafka-Enable-Auto-Commit", "X-Custom", "Content-Type"]
        ),
        st.sampled_from(["earliest", "none", "5000", "-1", "true", "", "\xff", "9" * 30]),
    ),
    max_size=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        cloud._timekeeper.wait_cap = 0.0
        yield cloud


@pytest.fixture(scope="module")
def broker(cloud: Cloud) -> Broker:
    return cloud.broker(topics={"orders": 3}, instance_limit=None)


@pytest.mark.slow
@given(
    paths("broker", "orders", "nope", "g", "i", "latest", "earliest"),
    bodies(scalars, places, st.lists(places, max_size=3)),
    broker_headers,
)
def test_the_broker(
    broker: Broker, way: tuple[str, str], body: bytes, headers: list[tuple[str, str]]
) -> None:
    before = broker.topic("orders").end_offsets
    status, answer = answered(broker, *way, headers, body)
    if status != 200:
        assert status in (400, 404, 405, 409, 413)
        assert set(answer) == {"error", "status"}
        assert answer["status"] == status
        assert answer["error"]
        assert broker.topic("orders").end_offsets == before


# -- vector_index ---------------------------------------------------------------------------------

INDEXES: list[Any] = [
    {"kind": "dense", "dimension": 2},
    {"kind": "sparse"},
    {"kind": "hybrid", "dimension": 2, "embedding": True},
    {"kind": "dense", "similarity": "DOT_PRODUCT", "recall": 0.5, "shuffle_ties": True},
]
names = st.sampled_from(["", "a", "0", "é", "a" * 50])
vectors = st.lists(numbers, min_size=2, max_size=2)
sparse = st.fixed_dictionaries(
    {"indices": st.lists(st.integers(-2, 3), max_size=3), "values": st.lists(numbers, max_size=3)}
)
anything = values(["IDF", "RRF", "DBSF", "PATCH", "SPARSE"]) | vectors | sparse
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "id": names,
    "vector": vectors,
    "sparseVector": sparse,
    "data": names,
    "ids": st.lists(names, max_size=3),
    "filter": st.sampled_from(["", "n = 1", "a.b[0] GLOB '*'", "HAS FIELD a", "("]),
    "topK": st.integers(1, 5),
}
fields = st.sets(st.sampled_from(sorted(KNOWN)), max_size=7).flatmap(
    lambda names: st.fixed_dictionaries(
        {name: LIKELY.get(name, anything) | anything for name in sorted(names)}
    )
)
vector_requests = st.lists(
    st.tuples(
        st.sampled_from(ROUTES["vector_index"]).map(lambda route: route[1].partition("/{")[0]),
        st.sampled_from(["", "/ns"]),
        (fields | st.lists(fields, max_size=3) | anything).map(as_json),
    ),
    max_size=6,
)


def scores(value: Any) -> Iterator[Any]:
    """Yield every score of an answer; a number that JSON cannot represent would be null."""
    if isinstance(value, dict) and "score" in value:
        yield value["score"]
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from scores(item)


@pytest.fixture(scope="module")
def indexes(cloud: Cloud) -> list[VectorIndex]:
    return [cloud.vector_index(name=f"index {n}", **chosen) for n, chosen in enumerate(INDEXES)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(INDEXES) - 1), vector_requests)
def test_an_index(
    indexes: list[VectorIndex], number: int, requests: list[tuple[str, str, bytes]]
) -> None:
    index = indexes[number]
    index.reset()
    for path, namespace, body in requests:
        status, answer = answered(index, "POST", path + namespace, [], body)
        assert status in (200, 400, 404, 422), answer
        assert list(answer) == (["result"] if status == 200 else ["error", "status"])
        assert all(isinstance(score, float) for score in scores(answer))
