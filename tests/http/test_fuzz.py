"""A short run of the HTTP fuzzer; ``python -m tests.http.fuzzing 100000`` is a long one."""

from __future__ import annotations

import pytest

from ..budget import cases
from .fuzzing import main


@pytest.mark.parametrize("seed", range(3))
def test_hostile_requests(seed: int) -> None:
    rounds, on_port = cases(500), cases(60)
    read, served = main(rounds, on_port, seed)
    # Both outcomes must occur, or the grammar tests nothing.
    assert read["served"] > rounds / 5
    assert read["400"] > rounds / 5
    assert served["200"] + served["404"] > on_port / 12
