"""A short run of the database port's fuzzer; ``python -m tests.kv.fuzzing 100000`` is a long one."""

from __future__ import annotations

import pytest

from tests.budget import cases

from .fuzzing import main


@pytest.mark.parametrize("seed", range(cases(1)))
def test_hostile_frames(seed: int) -> None:
    read, on_port = main(500, 60, seed)
    # The grammar must produce valid and invalid commands, or it tests nothing.
    assert read["read"] > 100
    assert read["ERR Protocol error: invalid multibulk length"] > 20
    assert on_port["answered"] > 20
