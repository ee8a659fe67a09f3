"""Check that no request causes a 500 or a hang, and that every failure has the documented envelope."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.broker.handle import Broker
from pytest_fakecloud.handle import Context
from pytest_fakecloud.http.messages import Answer, Request

from .conftest import START

WORDS = [
    "topic", "topics", "partition", "offset", "timestamp", "key", "value", "headers", "timeout",
    "topicPartitionOffsets", "orders", "nope", "", "a b", "g", "i", "é", "\ud800", "x" * 250,
]  # fmt: skip
numbers = st.sampled_from(
    [0, 1, 2, 3, -1, 2**31, 2**63, -(2**63), 10**12, 10**30, 0.5, float("inf")]
)
scalars = st.one_of(st.none(), st.booleans(), numbers, st.sampled_from(WORDS))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=8,
)
places = st.fixed_dictionaries(
    {"topic": st.just("orders"), "partition": st.sampled_from([0, 1, 2, 3]), "offset": numbers},
    optional={"value": scalars, "key": scalars, "timestamp": numbers, "timeout": numbers},
)
bodies = st.one_of(
    st.binary(max_size=20),
    st.one_of(values, places, st.lists(places, max_size=3)).map(
        lambda value: json.dumps(value).encode("utf-8", "surrogatepass")
    ),
)
segments = st.sampled_from(
    [
        "orders", "nope", "g", "i", "latest", "earliest", "0", "-1", "%", "%ff", "%2F", "a%20b",
        "x" * 250,
    ]
)  # fmt: skip
heads = st.sampled_from(
    ["produce", "fetch", "consume", "commit", "delete-consumer", "topics", "consumers", "committed",
     "offsets", "webhook", "nowhere"]
)  # fmt: skip
paths = st.builds(
    lambda head, rest, query: "/" + "/".join([head, *rest]) + query,
    heads,
    st.lists(segments, max_size=3),
    st.sampled_from(
        ["", "/", "?timeout=0", "?timeout=", "?timeout=1e9", "?timeout=999999999999", "?topic=orders",
         "?key=%ff", "?topic=%ff&user=&pass="]
    ),
)  # fmt: skip
headers = st.lists(
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
def broker() -> Iterator[Broker]:
    with Broker(
        Context.alone(now=START, seed=1), topics={"orders": 3}, instance_limit=None
    ) as made:
        made._time.wait_cap = 0.0
        yield made


@given(method=st.sampled_from(["GET", "POST", "DELETE"]), path=paths, body=bodies, extra=headers)
@pytest.mark.slow
def test_every_answer_is_one_of_the_broker(
    broker: Broker, method: str, path: str, body: bytes, extra: list[tuple[str, str]]
) -> None:
    credentials = [("Authorization", broker.headers["Authorization"])]
    before = broker.topic("orders").end_offsets
    answer = broker._app.answer(Request(method, path, [*credentials, *extra], body))
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, bytes)
    parsed: Any = json.loads(answer.body.decode("utf-8"))
    if answer.status == 200:
        return
    assert answer.status in (400, 404, 405, 409, 413)
    assert set(parsed) == {"error", "status"}
    assert parsed["status"] == answer.status
    assert parsed["error"]
    assert broker.topic("orders").end_offsets == before
    assert [problem for problem in broker._context.problems if problem.kind == "bug"] == []
