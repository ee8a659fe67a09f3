"""Run the official JavaScript client of the broker in Node, with both engines.

Skipped if Node or the package is missing: `npm ci` in `tests/clients/js` installs it. The second
engine is Kafka's, on librdkafka's mock cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud.broker.handle import Broker
from pytest_fakecloud.cloud import Cloud
from pytest_fakecloud.core.timeparse import monotonic

from . import node

pytestmark = pytest.mark.slow


def words(broker: Broker) -> dict[str, Callable[..., Any]]:
    """Return the functions through which the JavaScript tests control the broker."""

    def until_parked() -> int:
        until = monotonic() + 10
        while not broker._engine.waiting:
            assert monotonic() < until, "no call waits"
        return len(broker._engine.waiting)

    def fault(kind: str, status: int | None, route: str, times: int) -> int:
        if kind == "answer":
            broker.faults.answer(status or 500, route=route, times=times)
        else:
            broker.faults.lose_answer(route=route, times=times)
        return times

    return {
        "create_topic": lambda name, partitions: broker.create_topic(name, partitions).name,
        "advance": lambda duration: len(broker.clock.advance(duration)),
        "now": broker.clock.now_ms,
        "calls": lambda route: len(broker.journal.calls(route=route)),
        "until_parked": until_parked,
        "fault": fault,
    }


SKIPPED = {"memory": [], "kafka": ["topicPartitionOffsets at a time"]}
"""The tests of the JavaScript file that an engine cannot support."""
CANNOT = ["virtual time", "groups without delay", "offsets by time"]
"""A real cluster does not support these; the last one only fails on the mock cluster (librdkafka
issue 4755).
"""


@pytest.fixture
def on_kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Yield the settings of a broker that uses the mock cluster."""
    pytest.importorskip("confluent_kafka")
    from pytest_fakecloud.broker.kafka import engine as kafka_engine

    from ..broker.kafka.mock_cluster import SETTINGS, MockCluster, library

    path = library()
    if path is None:
        pytest.skip("this librdkafka shows no mock cluster")
    mock = MockCluster(path)
    monkeypatch.setattr(kafka_engine, "Cluster", mock.administered())
    yield {"engine": f"kafka://{mock.bootstrap}?{SETTINGS}", "session_timeout": "1300ms"}
    mock.close()


@pytest.fixture(params=["memory", "kafka"])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def environment(request: pytest.FixtureRequest, engine: str) -> Iterator[dict[str, str]]:
    settings = request.getfixturevalue("on_kafka") if engine == "kafka" else {}
    cannot = "\n".join(CANNOT if engine == "kafka" else [])
    # The JavaScript client encodes each character of the credentials as one byte, that is, in
    # Latin-1.
    with (
        Cloud(seed=1) as cloud,
        cloud.broker(
            username="jürgen", password="pässwörd", instance_limit=None, **settings
        ) as broker,
        node.control(words(broker)) as control,
    ):
        yield {**broker.env, **control, "FAKE_CANNOT": cannot}


def test_the_javascript_client(environment: dict[str, str], engine: str) -> None:
    node.need("@upstash/kafka")
    outcome = node.run("kafka.test.mjs", environment)
    assert list(outcome.skipped) == SKIPPED[engine]
    assert outcome.passed >= 29 - len(outcome.skipped), outcome.output
