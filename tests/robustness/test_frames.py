"""Short runs of the fuzzers; ``python -m tests.http.fuzzing 100000`` is a long one."""

from __future__ import annotations

import random

import pytest

from tests.budget import cases
from tests.http.fuzzing import FUZZER as HTTP
from tests.kv.fuzzing import FUZZER as RESP


@pytest.mark.parametrize("seed", range(3))
def test_hostile_requests(seed: int) -> None:
    rounds, on_port = cases(500), cases(60)
    read, served = HTTP.run(rounds, on_port, seed)
    # Both outcomes must occur, or the grammar tests nothing.
    assert read["served"] > rounds / 5
    assert read["400"] > rounds / 5
    assert served["200"] + served["404"] > on_port / 12


@pytest.mark.parametrize("seed", range(cases(1)))
def test_hostile_frames(seed: int) -> None:
    read, on_port = RESP.run(500, 60, seed)
    assert read["read"] > 100
    assert read["ERR Protocol error: invalid multibulk length"] > 20
    assert on_port["answered"] > 20


@pytest.mark.long
def test_hostile_frames_for_long() -> None:
    RESP.run(250_000, 10_000, random.randrange(2**32))
