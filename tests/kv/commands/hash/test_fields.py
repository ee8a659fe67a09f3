"""Hash commands."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class TestFields:
    def test_setting_and_reading(self, run: Run) -> None:
        assert run("HSET h a 1 b 2") == 2
        assert run("HSET h b 3 c 4") == 1
        assert run("HGET h b") == b"3"
        assert run("HGET h missing") is None
        assert run("HGET none a") is None
        assert run("HMGET h a missing c") == [b"1", None, b"4"]
        assert run("HMGET none a b") == [None, None]
        assert run("HGETALL h") == [b"a", b"1", b"b", b"3", b"c", b"4"]
        assert run("HKEYS h") == [b"a", b"b", b"c"]
        assert run("HVALS h") == [b"1", b"3", b"4"]
        assert (run("HLEN h"), run("HLEN none")) == (3, 0)
        assert (run("HEXISTS h a"), run("HEXISTS h x")) == (1, 0)
        assert (run("HSTRLEN h a"), run("HSTRLEN h x")) == (1, 0)
        assert run("HGETALL none") == []

    def test_hmset_and_hsetnx(self, run: Run) -> None:
        assert run("HMSET h a 1 b 2") == OK
        assert run("HSETNX h a 5") == 0
        assert run("HSETNX h c 5") == 1

    def test_the_last_field_takes_the_key_along(self, run: Run) -> None:
        run("HSET h a 1 b 2")
        assert run("HDEL h a x") == 1
        assert run("HDEL h b") == 1
        assert run("EXISTS h") == 0
        assert run("HDEL h b") == 0

    def test_fields_come_with_values(self, run: Run) -> None:
        for name in ("hset", "hmset"):
            text = f"ERR wrong number of arguments for '{name}' command"
            assert run.error(f"{name} h a 1 b") == text

    @pytest.mark.parametrize(
        "line",
        [
            "HSET s a 1", "HGET s a", "HGETALL s", "HDEL s a", "HLEN s", "HSETNX s a 1",
            "HINCRBY s a 1",
        ],
    )  # fmt: skip
    def test_other_types_are_refused(self, run: Run, line: str) -> None:
        run("SET s x")
        assert run.error(line) == WRONGTYPE
        assert run("GET s") == b"x"


class TestNumbers:
    def test_hincrby(self, run: Run) -> None:
        assert run("HINCRBY h n 5") == 5
        assert run("HINCRBY h n -7") == -2
        run("HSET h text abc big 9223372036854775807")
        assert run.error("HINCRBY h text 1") == "ERR hash value is not an integer"
        assert run.error("HINCRBY h big 1") == "ERR increment or decrement would overflow"
        assert run.error("HINCRBY h n x") == "ERR value is not an integer or out of range"

    def test_a_failed_change_makes_no_key(self, run: Run) -> None:
        run.error("HINCRBY none n x")
        run.error("HINCRBYFLOAT none n x")
        assert run("EXISTS none") == 0

    def test_hincrbyfloat(self, run: Run) -> None:
        assert run("HINCRBYFLOAT h n 10.5") == b"10.5"
        assert run("HINCRBYFLOAT h n 0.1") == b"10.6"
        assert run("HINCRBYFLOAT h n -5") == b"5.6"
        run("HSET h text abc")
        assert run.error("HINCRBYFLOAT h text 1") == "ERR hash value is not a float"
        assert run.error("HINCRBYFLOAT h n inf") == "ERR value is NaN or Infinity"
        assert run.error("HINCRBYFLOAT h n x") == "ERR value is not a valid float"


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

    def test_counts_have_bounds(self, run: Run) -> None:
        text = (
            "ERR value is out of range, "
            "value must between -9223372036854775807 and 9223372036854775807"
        )
        assert run.error("HRANDFIELD h -9223372036854775808") == text
        text = "ERR value is out of range"
        assert run.error("HRANDFIELD h 9223372036854775807 WITHVALUES") == text
        assert run.error("HRANDFIELD h -9000000000000000000") == text
        assert run.error("HRANDFIELD h 1 FOO") == "ERR syntax error"


class TestScanning:
    @pytest.mark.dialect("redis")
    def test_stock_returns_a_small_hash_whole(self, run: Run) -> None:
        run("HSET h aa 1 ab 2 b 3")
        assert run("HSCAN h 0 COUNT 1") == [b"0", [b"aa", b"1", b"ab", b"2", b"b", b"3"]]

    def test_the_vendor_pages_by_exact_count(self, run: Run) -> None:
        run("HSET h aa 1 ab 2 b 3")
        first, page = run("HSCAN h 0 COUNT 1")
        assert page == [b"aa", b"1"]
        second, page = run("HSCAN", "h", first, "COUNT", 1, "NOVALUES")
        assert page == [b"ab"]
        assert run("HSCAN", "h", second, "COUNT", 1, "MATCH", "a*") == [b"0", []]
        assert b"0" not in (first, second)
        assert run("HSCAN h 0 COUNT 3") == [b"0", [b"aa", b"1", b"ab", b"2", b"b", b"3"]]

    def test_a_small_hash_is_one_page(self, run: Run) -> None:
        run("HSET h aa 1 ab 2 b 3")
        assert run("HSCAN h 0") == [b"0", [b"aa", b"1", b"ab", b"2", b"b", b"3"]]
        assert run("HSCAN h 0 MATCH a*") == [b"0", [b"aa", b"1", b"ab", b"2"]]
        assert run("HSCAN h 0 NOVALUES") == [b"0", [b"aa", b"ab", b"b"]]
        assert run("HSCAN none 0") == [b"0", []]

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

    def test_refusals(self, run: Run) -> None:
        run("HSET h a 1")
        assert run.error("HSCAN h x") == "ERR invalid cursor"
        assert run.error("HSCAN h 0 COUNT 0") == "ERR syntax error"
        assert run.error("HSCAN h 0 FOO 1") == "ERR syntax error"


class TestEncoding:
    def test_thresholds(self, run: Run) -> None:
        run("HSET h a 1")
        assert run("OBJECT ENCODING h") == b"listpack"
        run("HSET", "h", "a", "x" * 64)
        assert run("OBJECT ENCODING h") == b"listpack"
        run("HSET", "h", "a", "x" * 65)
        assert run("OBJECT ENCODING h") == b"hashtable"
        run("HSET h a 1")
        assert run("OBJECT ENCODING h") == b"hashtable"

    def test_the_number_of_fields(self, run: Run) -> None:
        for number in range(512):
            run("HSET", "h", number, 1)
        assert run("OBJECT ENCODING h") == b"listpack"
        run("HSET h more 1")
        assert run("OBJECT ENCODING h") == b"hashtable"

    def test_thresholds_can_be_set(self, run: Run) -> None:
        run("CONFIG SET hash-max-listpack-entries 1")
        run("HSET h a 1 b 2")
        assert run("OBJECT ENCODING h") == b"hashtable"
