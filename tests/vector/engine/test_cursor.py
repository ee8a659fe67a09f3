"""Test resumable queries: batches, idle timeouts and closing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.vector.engine import VectorEngine
from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.model import VectorQuery, VectorRecord
from pytest_fakecloud.vector.settings import VectorLimits

from ..building import NOW, engine, floats, ids, put, rejects

HOUR = 3_600_000_000
NEAR = VectorQuery(floats(1, 0), top_k=2)


def line_of(count: int, clock: Timekeeper | None = None, **settings: object) -> VectorEngine:
    index = engine(clock, **settings)
    index.upsert(
        "", [VectorRecord(str(n), floats(1, n / 10), metadata={"n": n}) for n in range(count)]
    )
    return index


@given(count=st.integers(0, 30), steps=st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_batches_continue_the_ranking(count: int, steps: list[int]) -> None:
    index = line_of(count)
    uuid, hits = index.start_query("", VectorQuery(floats(1, 0), top_k=steps[0]), HOUR)
    got = ids(hits)
    for step in steps[1:]:
        got += ids(index.next_hits(uuid, step)[0])
    assert got == [str(n) for n in range(min(count, sum(steps)))]


def test_a_filter_holds_for_every_batch() -> None:
    index = line_of(20)
    uuid, hits = index.start_query("", VectorQuery(floats(1, 0), top_k=2, filter="n > 10"), HOUR)
    assert ids(hits) == ["11", "12"]
    assert ids(index.next_hits(uuid, 3)[0]) == ["13", "14", "15"]


def test_batches_see_the_index_as_it_is() -> None:
    index = line_of(4)
    uuid, hits = index.start_query("", NEAR, HOUR)
    assert ids(hits) == ["0", "1"]
    index.delete("", ["2"])
    put(index, new=(1, 0))
    assert ids(index.next_hits(uuid, 5)[0]) == ["new", "3"]


def test_a_uuid_has_the_form_of_one_and_comes_from_the_seed() -> None:
    uuids = [engine(seed=seed).start_query("", NEAR, HOUR)[0] for seed in (1, 1, 2)]
    assert uuids[0] == uuids[1] != uuids[2]
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", uuids[0]
    )


def test_idle_for_too_long_is_gone() -> None:
    clock = Timekeeper(NOW)
    index = line_of(10, clock)
    uuid, _ = index.start_query("", NEAR, 10_000_000)
    clock.advance(10)
    assert ids(index.next_hits(uuid, 1)[0]) == ["2"]
    clock.advance(10)
    assert ids(index.next_hits(uuid, 1)[0]) == ["3"]
    clock.advance(11)
    with rejects(404, "idle for longer than its maxIdle"):
        index.next_hits(uuid, 1)
    with pytest.raises(VectorError, match="does not exist"):
        index.end_query(uuid)


def test_ended_twice_is_an_error() -> None:
    index = line_of(3)
    uuid, _ = index.start_query("", NEAR, HOUR)
    index.end_query(uuid)
    for again in (index.end_query, lambda uuid: index.next_hits(uuid, 1)):
        with rejects(404, "was ended"):
            again(uuid)


def test_a_cursor_follows_its_namespace() -> None:
    index = engine()
    put(index, "old", a=(1, 0), b=(1, 1), c=(0, 1))
    uuid, _ = index.start_query("old", NEAR, HOUR)
    index.rename_namespace("old", "new")
    assert ids(index.next_hits(uuid, 5)[0]) == ["c"]
    index.delete_namespace("new")
    assert index.next_hits(uuid, 5)[0] == []


def test_a_cursor_never_reads_a_namespace_that_took_the_name_of_its_own() -> None:
    index = engine()
    put(index, "ns", a=(1, 0), b=(1, 1), c=(0, 1))
    put(index, "other", x=(1, 0), y=(1, 1), z=(0, 1))
    overwritten, _ = index.start_query("ns", NEAR, HOUR)
    moved, _ = index.start_query("other", NEAR, HOUR)
    index.rename_namespace("other", "ns", delete_existing=True)
    snapshot = index.snapshot()
    assert index.next_hits(overwritten, 5)[0] == []
    assert ids(index.next_hits(moved, 5)[0]) == ["z"]
    index.delete_namespace("ns")
    put(index, "ns", new=(1, 0))
    assert index.next_hits(moved, 5)[0] == []
    index.end_query(moved)
    index.restore(snapshot)
    assert index.next_hits(overwritten, 5)[0] == []
    assert ids(index.next_hits(moved, 5)[0]) == ["z"]


def test_a_limit_on_live_queries() -> None:
    clock = Timekeeper(NOW)
    index = line_of(3, clock, limits=VectorLimits(resumable_queries=2))
    first, _ = index.start_query("", NEAR, HOUR)
    index.start_query("", NEAR, 1_000_000)
    with pytest.raises(VectorError, match="Live resumable query limit exceeded: 3, maximum: 2"):
        index.start_query("", NEAR, HOUR)
    clock.advance(2)
    second, _ = index.start_query("", NEAR, HOUR)
    index.end_query(first)
    index.end_query(second)


def test_a_snapshot_remembers_what_was_handed_out() -> None:
    index = line_of(5)
    uuid, _ = index.start_query("", NEAR, HOUR)
    snapshot = index.snapshot()
    assert ids(index.next_hits(uuid, 2)[0]) == ["2", "3"]
    index.end_query(uuid)
    index.restore(snapshot)
    assert ids(index.next_hits(uuid, 2)[0]) == ["2", "3"]
