"""Findings when the journal has cut calls or a response was incomplete: fewer, and never false."""

from __future__ import annotations

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.text import section

from .cases import HOOK, commands, found


def call_everything(cloud: Cloud, padding: str, truncated: tuple[str, str] = ("", "")) -> None:
    """Make calls of which several findings could be made; their bodies contain the padding.

    ``truncated`` is a service and a route of which the first response is truncated.
    """
    long = {"value": padding, "n": 1}
    broker, index, queue = cloud.broker(topics={"t": 1}), cloud.vector_index(), cloud.queue()
    for fake in (broker, index, queue):
        if fake.service == truncated[0]:
            fake.faults.truncate(route=truncated[1])
    client = broker.client()
    for _ in range(2):
        client.post("/produce/t", json=[long, long])
    early = {"Kafka-Auto-Offset-Reset": "earliest", "Kafka-Enable-Auto-Commit": "false"}
    client.get("/consume/g/i/t", headers=early)
    client.post("/commit/g/i", json={"topic": "t", "partition": 0, "offset": 3, **long})
    client.get("/consume/g/i/t", headers=early)
    query = {"vector": [1, 0], "topK": 1, "includeMetadata": True}
    record = {"id": "a", "vector": [1, 0], "metadata": long}
    for path, body in (
        ("upsert", record), ("upsert", {**record, "metadata": {**long, "n": 2}}), ("query", query),
        ("query", [query, query]), ("query", {**query, "filter": f"value = '{padding}' AND n = 1"}),
        ("delete", ["none", padding]),
    ):  # fmt: skip
        httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)
    commands(f"SET a 1 EX 9 | pipeline: DEL a & SET b {padding} & GET b | +10s | GET a")(cloud)
    for ending in "ab":
        headers = {**queue.headers, "Upstash-Cron": "0 9 * * *"}
        url = f"{queue.url}/v2/schedules/{HOOK}"
        httpx.post(url, content=padding + ending, headers=headers)
        headers = {**queue.headers, "Upstash-Deduplication-Id": "a"}
        httpx.post(f"{queue.url}/v2/publish/{HOOK}", content=padding, headers=headers)


def test_a_cut_journal_makes_no_detector_fail_or_state_something_false(cloud: Cloud) -> None:
    cloud.journal.keep_bytes = 0
    call_everything(cloud, "x" * 5_000)
    assert " failed: " not in section(cloud)
    assert [one.kind for one in found(cloud)] == ["deduplicated"]
    assert not found(cloud)[0].values["body_differs"]


@pytest.mark.parametrize(
    "truncated",
    [("broker", "consume"), ("vector", "query"), ("vector", "delete"), ("queue", "publish")],
)
def test_an_incomplete_response_makes_no_detector_fail(
    cloud: Cloud, truncated: tuple[str, str]
) -> None:
    with pytest.raises(httpx.TransportError):
        call_everything(cloud, "x", truncated)
    assert " failed: " not in section(cloud)
