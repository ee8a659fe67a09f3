"""Commands for keys of any type."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.reply import OK, Status
from tests.kv.conftest import Run


class TestExistence:
    def test_deleting(self, run: Run) -> None:
        run("MSET a 1 b 2 c 3")
        assert run("EXISTS a a x") == 2
        assert run("TOUCH a b x") == 2
        assert run("DEL a x") == 1
        assert run("UNLINK b c") == 2
        assert run("DBSIZE") == 0

    def test_the_vendor_takes_unlink_without_keys(self, run: Run) -> None:
        assert run("UNLINK") == 0
        assert run.error("DEL") == "ERR wrong number of arguments for 'del' command"

    @pytest.mark.dialect("redis")
    def test_stock_does_not(self, run: Run) -> None:
        assert run.error("UNLINK") == "ERR wrong number of arguments for 'unlink' command"

    def test_types(self, run: Run) -> None:
        run("SET s 1")
        run("HSET h a 1")
        run("RPUSH l 1")
        run("SADD e 1")
        run("ZADD z 1 a")
        run("XADD x * a 1")
        types = {key: run(f"TYPE {key}").text for key in "shlezx-"}
        assert types == {
            "s": b"string",
            "h": b"hash",
            "l": b"list",
            "e": b"set",
            "z": b"zset",
            "x": b"stream",
            "-": b"none",
        }

    def test_keys_and_randomkey(self, run: Run) -> None:
        assert run("RANDOMKEY") is None
        run("MSET one 1 two 2 three 3")
        assert run("KEYS t*") == [b"two", b"three"]
        assert run("KEYS ?n[a-f]") == [b"one"]
        assert run("KEYS none") == []
        assert run("RANDOMKEY") in {b"one", b"two", b"three"}


class TestScan:
    def test_a_small_database_is_one_page(self, run: Run) -> None:
        for number in range(35):
            run(f"SET key{number} 1")
        cursor, page = run("SCAN 0")
        assert (cursor, len(page)) == (b"0", 35)
        assert run("SCAN 0 MATCH key1?")[0] == b"0"

    def test_count_is_exact(self, run: Run) -> None:
        run("MSET a 1 b 2 c 3")
        cursor, page = run("SCAN 0 COUNT 1")
        assert (cursor != b"0", page) == (True, [b"a"])
        cursor, page = run(b"SCAN", cursor, b"COUNT", b"1")
        assert (cursor != b"0", page) == (True, [b"b"])
        assert run(b"SCAN", cursor, b"COUNT", b"1") == [b"0", [b"c"]]

    @pytest.mark.dialect("redis")
    def test_stock_looks_at_ten(self, run: Run) -> None:
        for number in range(11):
            run(f"SET key{number} 1")
        assert len(run("SCAN 0")[1]) == 10

    def test_type_and_withtype(self, run: Run) -> None:
        run("SET s 1")
        run("RPUSH l 1")
        assert run("SCAN 0 TYPE LIST") == [b"0", [b"l"]]
        assert run("SCAN 0 TYPE nothing") == [b"0", []]
        assert run("SCAN 0 WITHTYPE") == [b"0", [b"s", b"string", b"l", b"list"]]

    def test_every_key_present_throughout_is_met(self, run: Run) -> None:
        for number in range(500):
            run(f"SET key{number} 1")
        cursor, seen = b"0", []
        while True:
            cursor, page = run(b"SCAN", cursor, b"COUNT", b"7")
            seen += page
            run(f"DEL gone{len(seen)} key{499 - len(seen) // 4}")
            run(f"SET gone{len(seen) + 7} 1")
            if cursor == b"0":
                break
        assert len(seen) == len(set(seen))
        assert {b"key%d" % number for number in range(370)} <= set(seen)

    def test_refusals(self, run: Run) -> None:
        assert run.error("SCAN x") == "ERR invalid cursor"
        assert run.error("SCAN 0 COUNT 0") == "ERR syntax error"
        assert run.error("SCAN 0 COUNT x") == "ERR value is not an integer or out of range"
        assert run.error("SCAN 0 FOO") == "ERR syntax error"
        assert run("SCAN 18446744073709551615") == [b"0", []]


class TestNames:
    def test_rename_takes_the_expiry_along(self, run: Run) -> None:
        run("SET a 1 EX 10")
        run("SET b 2")
        assert run("RENAME a b") == OK
        assert (run("GET b"), run("TTL b"), run("EXISTS a")) == (b"1", 10, 0)
        assert run("RENAME b b") == OK
        assert run("RENAMENX b c") == 1
        run("SET d 1")
        assert run("RENAMENX c d") == 0
        assert run.error("RENAME missing x") == "ERR no such key"
        assert run.error("RENAMENX missing x") == "ERR no such key"

    def test_copy(self, run: Run) -> None:
        run("RPUSH a 1 2")
        run("EXPIRE a 10")
        assert run("COPY a b") == 1
        run("RPUSH b 3")
        assert run("LRANGE a 0 -1") == [b"1", b"2"]
        assert run("TTL b") == 10
        assert run("COPY a b") == 0
        assert run("COPY a b REPLACE") == 1
        assert run("LLEN b") == 2
        assert run("COPY a c DB 0") == 1
        assert run("COPY missing d") == 0
        assert run("COPY a a") == 0
        assert run.error("COPY a b DB 1") == "ERR DB index is out of range"
        assert run.error("COPY a b FOO") == "ERR syntax error"

    @pytest.mark.dialect("redis")
    def test_stock_has_sixteen_databases(self, run: Run) -> None:
        run("SET a 1 EX 10")
        assert run("COPY a a DB 1") == 1
        text = "ERR source and destination objects are the same"
        assert run.error("COPY a a") == text
        assert run.error("MOVE a 0") == text
        assert run("MOVE a 1") == 0
        assert run("MOVE a 2") == 1
        assert run("EXISTS a") == 0
        run("SELECT 2")
        assert run("TTL a") == 10
        assert run("MOVE missing 1") == 0

    def test_the_vendor_has_one(self, run: Run) -> None:
        assert run.error("MOVE a 1") == "ERR DB index is out of range"


class TestPayloads:
    @pytest.mark.parametrize(
        ("make", "read"),
        [
            ("SET k v", "GET k"), ("SET k 12", "GET k"), ("HSET k a 1 b 2", "HGETALL k"),
            ("RPUSH k 1 2 3", "LRANGE k 0 -1"), ("SADD k 1 2 x", "SMEMBERS k"),
            ("ZADD k 1.5 a -inf b", "ZRANGE k 0 -1 WITHSCORES"), ("XADD k 5-1 a 1", "XRANGE k - +"),
        ],
    )  # fmt: skip
    def test_round_trip(self, run: Run, make: str, read: str) -> None:
        run(make)
        payload, before = run("DUMP k"), run(read)
        run("DEL k")
        assert run(b"RESTORE", b"k", b"0", payload) == OK
        assert run(read) == before

    def test_expiry_and_idle_time(self, run: Run) -> None:
        run("SET a 1")
        payload = run("DUMP a")
        run(b"RESTORE", b"b", b"1500", payload)
        assert run("PTTL b") == 1500
        later = run.session.now_ms + 9
        run(b"RESTORE", b"c", b"%d" % later, payload, b"ABSTTL")
        assert run("PTTL c") == 9
        run(b"RESTORE", b"d", b"0", payload, b"IDLETIME", b"100")
        assert run("OBJECT IDLETIME d") == 100
        assert run(b"RESTORE", b"e", b"0", payload, b"FREQ", b"5") == OK
        assert run(b"RESTORE-ASKING", b"f", b"0", payload) == OK
        for words in (b"REPLACE", b"ABSTTL REPLACE", b"REPLACE IDLETIME 1", b"REPLACE FREQ 1"):
            assert run(b"RESTORE-ASKING", b"f", b"0", payload, *words.split()) == OK

    def test_replace(self, run: Run) -> None:
        run("SET a 1")
        payload = run("DUMP a")
        assert run.error(b"RESTORE", b"a", b"0", payload) == (
            "BUSYKEY Target key name already exists."
        )
        assert run(b"RESTORE", b"a", b"0", payload, b"REPLACE") == OK

    def test_only_sound_payloads_are_read(self, run: Run) -> None:
        run("SET a 1")
        payload = run("DUMP a")
        bad = "ERR DUMP payload version or checksum are wrong"
        for wrong in (
            b"",
            b"junk",
            payload[:-1],
            payload[:-1] + b"x",
            b"\x80\x04K\x01." + b"x" * 9,
        ):
            assert run.error(b"RESTORE", b"b", b"0", wrong) == bad
        assert run.error(b"RESTORE", b"b", b"-1", payload) == "ERR Invalid TTL value, must be >= 0"
        assert run.error(b"RESTORE", b"b", b"0", payload, b"FOO") == "ERR syntax error"
        text = "ERR Invalid IDLETIME value, must be >= 0"
        assert run.error(b"RESTORE", b"b", b"0", payload, b"IDLETIME", b"-1") == text
        text = "ERR Invalid FREQ value, must be >= 0 and <= 255"
        assert run.error(b"RESTORE", b"b", b"0", payload, b"FREQ", b"256") == text
        assert run("DUMP missing") is None


class TestInspection:
    def test_encodings_of_strings(self, run: Run) -> None:
        for value, encoding in [("12", b"int"), ("x" * 44, b"embstr"), ("x" * 45, b"raw")]:
            run("SET", "k", value)
            assert run("OBJECT ENCODING k") == encoding
        run("SET k x")
        run("APPEND k y")
        assert run("OBJECT ENCODING k") == b"raw"
        assert run("OBJECT ENCODING missing") is None

    def test_refcount(self, run: Run) -> None:
        run("MSET a 9999 b 10000 c x")
        assert [run(f"OBJECT REFCOUNT {key}") for key in "abc"] == [2**31 - 1, 1, 1]
        assert run("OBJECT REFCOUNT missing") is None

    def test_idle_time_is_on_the_clock(self, run: Run, clock: Timekeeper) -> None:
        run("SET k v")
        clock.advance(100)
        assert run("OBJECT IDLETIME k") == 100
        run("TTL k")
        run("TYPE k")
        assert run("OBJECT IDLETIME k") == 100
        run("GET k")
        assert run("OBJECT IDLETIME k") == 0
        assert run("OBJECT IDLETIME missing") is None

    def test_frequencies_need_an_lfu_policy(self, run: Run, clock: Timekeeper) -> None:
        run("SET k v")
        text = run.error("OBJECT FREQ k")
        assert text.startswith("ERR An LFU maxmemory policy is not selected, access frequency not")
        run("CONFIG SET maxmemory-policy allkeys-lfu")
        assert run("OBJECT FREQ k") == 5
        run("GET k")
        assert run("OBJECT FREQ k") == 6
        for _ in range(2000):
            run("GET k")
        often = run("OBJECT FREQ k")
        assert 10 < often < 60
        clock.advance(180)
        assert run("OBJECT FREQ k") == often - 3
        run(b"RESTORE", b"r", b"0", run("DUMP k"), b"FREQ", b"200")
        assert run("OBJECT FREQ r") == 200
        run("SET k w")
        run("DEL k")
        run("SET k v")
        assert run("OBJECT FREQ k") == 5
        assert run.error("OBJECT IDLETIME k").startswith("ERR An LFU maxmemory policy is selected")
        assert run("OBJECT FREQ missing") is None

    def test_help_and_unknown(self, run: Run) -> None:
        assert Status(b"ENCODING <key>") in run("OBJECT HELP")
        text = "ERR unknown subcommand 'FOO'. Try OBJECT HELP."
        assert run.error("OBJECT FOO k") == text


class TestReplicas:
    def test_there_are_none(self, run: Run) -> None:
        assert run("WAIT 1 0") == 0
        assert run("WAITAOF 0 0 0") == [0, 0]
        assert run.error("WAITAOF 1 0 0").startswith("ERR WAITAOF cannot be used when numlocal")
        assert run.error("WAIT 1 -1") == "ERR timeout is negative"
        assert run.error("WAIT 1 x") == "ERR timeout is not an integer or out of range"
