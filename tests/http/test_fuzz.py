"""A short run of the HTTP fuzzer; ``python -m tests.http.fuzzing 100000`` is a long one."""

from __future__ import annotations

import pytest

from .fuzzing import main


@pytest.mark.parametrize("seed", range(3))
def test_hostile_requests(seed: int) -> None:
    read, served = main(500, 60, seed)
    # The grammar must reach both ends, or it tries nothing.
    assert read["served"] > 100
    assert read["400"] > 100
    assert served["200"] + served["404"] > 5
