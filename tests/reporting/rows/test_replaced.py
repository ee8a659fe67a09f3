"""Rows say which other value a write replaced, if an earlier row had written it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from upstash_vector.types import MetadataUpdateMode

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.render.wording import describe
from pytest_fakecloud.reporting.report import report_of


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-03-01T12:00:00Z", transport="inprocess") as opened:
        yield opened


def last_answer(cloud: Cloud) -> str:
    report = report_of(cloud)
    return describe(report.rows[-1], report.lookups).answer


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (["SET k a", "SET k b"], 'OK (was "a")'),
        (["SET k a", "SET k a"], "OK"),
        (["SET k a NX EX 30", "SET k b XX EX 30"], 'OK (was "a")'),
        (["SET k a", "SET k b NX"], "null"),
        (["SET k a", "DEL k", "SET k b"], "OK"),
        (["SET k a", "APPEND k a", "SET k b"], "OK"),
        (["SET k a", "FLUSHALL", "SET k b"], "OK"),
        (["SET k a EX 30", "SET k b KEEPTTL", "SET k c"], "OK"),
        (["HSET k a 1 b 2", "HSET k a 3 b 2 c 4"], '1 (a was "1")'),
        (["HSET k a 1", "DEL k", "HSET k a 2"], "1"),
        (['SET k {"a":1,"b":2}', 'SET k {"a":3}'], "OK (a was 1, dropped b)"),
    ],
)
def test_values_of_keys_and_fields(cloud: Cloud, lines: list[str], answer: str) -> None:
    client: Any = cloud.kv_server().client(allow_telemetry=False)
    for line in lines:
        client.execute(line.split())
    assert last_answer(cloud) == answer


def test_a_value_that_has_expired_or_that_the_test_replaced_is_not_known(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    client = kv.client()
    client.set("k", "a", ex=30)
    cloud.clock.advance("30s")
    client.set("k", "b")
    assert last_answer(cloud) == "OK"
    kv.execute("SET", "k", "c")
    client.set("k", "d")
    assert last_answer(cloud) == "OK"


def test_several_keys_of_a_pipeline(cloud: Cloud) -> None:
    client = cloud.kv_server().client()
    for value in "12":
        pipeline = client.pipeline()
        pipeline.set("a", value).set("b", value)
        pipeline.exec()
    assert last_answer(cloud) == '2 answers (a was "1", b was "1")'


def test_metadata_and_vectors_that_had_been_deleted(cloud: Cloud) -> None:
    client: Any = cloud.vector_index(dimension=1).client()
    client.upsert([("a", [1.0], {"n": 1, "m": "x"}), ("b", [1.0], {"n": 1})])
    client.update("a", metadata={"n": 2})
    assert last_answer(cloud) == '{"updated":1} (n was 1, dropped m)'
    client.update("a", metadata={"m": 2}, metadata_update_mode=MetadataUpdateMode.PATCH)
    client.delete("b")
    client.upsert([("a", [1.0], {"n": 4}), ("b", [1.0], {"n": 5})])
    assert last_answer(cloud) == "Success (b was deleted)"
    client.upsert([("a", [1.0], {"n": 5}), ("b", [1.0], {"n": 6})])
    assert last_answer(cloud) == "Success (a: n was 4, b: n was 5)"


def test_a_write_that_was_not_carried_out_replaces_nothing(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=1)
    client: Any = index.client(retries=0)
    client.upsert([("a", [1.0], {"n": 1})])
    index.faults.respond(503, times=1)
    with pytest.raises(Exception, match="Service Unavailable"):
        client.upsert([("a", [1.0], {"n": 2})])
    assert last_answer(cloud) == "503 Service Unavailable"
    client.upsert([("a", [1.0], {"n": 3})])
    assert last_answer(cloud) == "Success"
