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
        assert run("HRANDFIELD none") is None

    def test_different_ones_and_repeats(self, run: Run) -> None:
        assert len(set(run("HRANDFIELD h 2"))) == 2
        assert sorted(run("HRANDFIELD h 10")) == [b"a", b"b", b"c"]
        assert len(run("HRANDFIELD h -10")) == 10
        flat = run("HRANDFIELD h -4 WITHVALUES")
        assert {flat[at]: flat[at + 1] for at in range(0, 8, 2)}.items() <= {
            b"a": b"1",
            b"b": b"2",
            b"c": b"3",
        }.items()
        assert run("HRANDFIELD none 5") == []
        assert run("HRANDFIELD h 0") == []

    def test_resp3_pairs(self, run: Run) -> None:
        client = run.other(resp=3)
        assert sorted(client("HRANDFIELD h 3 WITHVALUES"))[0] == [b"a", b"1"]


class TestScanning:
    def test_the_vendor_pages_by_exact_count(self, run: Run) -> None:
        run("HSET h aa 1 ab 2 b 3")
        first, page = run("HSCAN h 0 COUNT 1")
        assert page == [b"aa", b"1"]
        second, page = run("HSCAN", "h", first, "COUNT", 1, "NOVALUES")
        assert page == [b"ab"]
        assert run("HSCAN", "h", second, "COUNT", 1, "MATCH", "a*") == [b"0", []]
        assert b"0" not in (first, second)
        assert run("HSCAN h 0 COUNT 3") == [b"0", [b"aa", b"1", b"ab", b"2", b"b", b"3"]]

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


class TestEncoding:
    def test_the_number_of_fields(self, run: Run) -> None:
        for number in range(512):
            run("HSET", "h", number, 1)
        assert run("OBJECT ENCODING h") == b"listpack"
        run("HSET h more 1")
        assert run("OBJECT ENCODING h") == b"hashtable"
