"""Test resumable queries: batches, idle timeouts and closing."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.vector.engine.engine import VectorEngine
from pytest_fakecloud.vector.model import VectorQuery, VectorRecord

from ..building import engine, floats, ids

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


def test_a_uuid_has_the_form_of_one_and_comes_from_the_seed() -> None:
    uuids = [engine(seed=seed).start_query("", NEAR, HOUR)[0] for seed in (1, 1, 2)]
    assert uuids[0] == uuids[1] != uuids[2]
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", uuids[0]
    )
