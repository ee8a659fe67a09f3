"""Hash commands."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run


class TestRandomFields:
    @pytest.fixture(autouse=True)
    def _fields(self, run: Run) -> None:
        run("HSET h a 1 b 2 c 3")

    def test_one(self, run: Run) -> None:
        assert run("HRANDFIELD h") in {b"a", b"b", b"c"}

    def test_different_ones_and_repeats(self, run: Run) -> None:
        assert len(set(run("HRANDFIELD h 2"))) == 2
        assert len(run("HRANDFIELD h -10")) == 10
        flat = run("HRANDFIELD h -4 WITHVALUES")
        assert {flat[at]: flat[at + 1] for at in range(0, 8, 2)}.items() <= {
            b"a": b"1",
            b"b": b"2",
            b"c": b"3",
        }.items()
