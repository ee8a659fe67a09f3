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


class TestScanning:
    def test_scans_of_a_large_hash_return_every_field(self, run: Run) -> None:
        for number in range(600):
            run("HSET", "h", f"f{number}", number)
        cursor, seen = b"0", []
        while True:
            cursor, page = run(b"HSCAN", b"h", cursor, b"COUNT", b"50")
            seen += page[::2]
            run("HDEL", "h", "f599")
            run("HSET", "h", f"new{len(seen)}", 1)
            if cursor == b"0":
                break
        assert {b"f%d" % number for number in range(599)} <= set(seen)
        assert len(seen) == len(set(seen))
