"""String commands."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import NOW_MS, Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = "ERR value is not an integer or out of range"


class TestSet:
    def test_a_value_set_is_a_value_read(self, run: Run) -> None:
        assert run("SET k v") == OK
        assert run("GET k") == b"v"
        assert run("GET missing") is None

    def test_any_bytes_are_kept(self, run: Run) -> None:
        run(b"SET", b"\xff\x00", b"\x00\xfe\r\n")
        assert run(b"GET", b"\xff\x00") == b"\x00\xfe\r\n"

    @pytest.mark.parametrize(
        ("words", "left_ms"),
        [
            ("EX 10", 10_000),
            ("px 1500", 1_500),
            (f"EXAT {NOW_MS // 1000 + 7}", 7_000),
            (f"PXAT {NOW_MS + 3}", 3),
        ],
    )
    def test_each_expiry_word(self, run: Run, words: str, left_ms: int) -> None:
        run(f"SET k v {words}")
        assert run("PTTL k") == left_ms

    def test_the_key_expires_on_the_millisecond(self, run: Run, clock: Timekeeper) -> None:
        run("SET k v PX 1000")
        clock.advance(0.999)
        assert run("GET k") == b"v"
        clock.advance(0.001)
        assert run("GET k") is None

    def test_nx_and_xx(self, run: Run) -> None:
        assert run("SET k 1 XX") is None
        assert run("SET k 1 NX") == OK
        assert run("SET k 2 NX") is None
        assert run("SET k 2 XX") == OK
        assert run("GET k") == b"2"

    def test_get_returns_the_value_before(self, run: Run) -> None:
        assert run("SET k 1 GET") is None
        assert run("SET k 2 GET") == b"1"
        assert run("SET k 3 NX GET") == b"2"
        assert run("GET k") == b"2"

    def test_keepttl(self, run: Run) -> None:
        run("SET k 1 EX 10")
        run("SET k 2 KEEPTTL")
        assert run("TTL k") == 10
        run("SET k 3")
        assert run("TTL k") == -1

    def test_ifeq_and_ifne_compare_the_value(self, run: Run) -> None:
        assert run("SET k 1 IFEQ 0") is None
        assert run("SET k 1 IFNE 0") == OK
        assert run("SET k 2 IFEQ 0") is None
        assert run("SET k 2 IFEQ 1") == OK
        assert run("SET k 3 IFNE 2") is None
        assert run("SET k 3 IFNE 1 GET") == b"2"

    def test_ifdeq_and_ifdne_compare_the_digest(self, run: Run) -> None:
        run("SET k value")
        digest = run("DIGEST k")
        assert run(b"SET", b"k", b"new", b"IFDNE", digest) is None
        assert run(b"SET", b"k", b"new", b"IFDEQ", digest.upper()) == OK
        assert run(b"SET", b"k", b"newer", b"IFDEQ", digest) is None
        assert run(b"SET", b"k", b"newer", b"IFDNE", digest) == OK
        assert run.error("SET k v IFDEQ short").startswith("ERR digest must be exactly 16")

    @pytest.mark.parametrize(
        "words", ["NX XX", "EX", "EX 1 PX 1", "EX 1 KEEPTTL", "FOO", "IFEQ", "IFEQ 1 NX", "PERSIST"]
    )
    def test_words_that_do_not_go_together(self, run: Run, words: str) -> None:
        assert run.error(f"SET k v {words}") == "ERR syntax error"

    @pytest.mark.parametrize("amount", ["0", "-1", "9223372036854775807"])
    def test_an_expiry_must_be_positive_and_fit(self, run: Run, amount: str) -> None:
        text = "ERR invalid expire time in 'set' command"
        assert run.error(f"SET k v EX {amount}") == text

    def test_an_expiry_must_be_an_integer(self, run: Run) -> None:
        assert run.error("SET k v EX 1.5") == NOT_INTEGER

    def test_too_few_words(self, run: Run) -> None:
        assert run.error("SET k") == "ERR wrong number of arguments for 'set' command"

    def test_get_minds_the_type_but_set_does_not(self, run: Run) -> None:
        run("LPUSH k x")
        assert run.error("GET k") == WRONGTYPE
        assert run.error("SET k v GET") == WRONGTYPE
        assert run.error("SET k v IFEQ x") == WRONGTYPE
        assert run("SET k v") == OK


class TestWholeValues:
    def test_setnx(self, run: Run) -> None:
        assert run("SETNX k 1") == 1
        assert run("SETNX k 2") == 0

    def test_setex_and_psetex(self, run: Run) -> None:
        assert run("SETEX k 10 v") == OK
        assert run("TTL k") == 10
        assert run("PSETEX k 10 v") == OK
        assert run("PTTL k") == 10
        assert run.error("SETEX k 0 v") == "ERR invalid expire time in 'setex' command"
        assert run.error("PSETEX k -1 v") == "ERR invalid expire time in 'psetex' command"

    def test_getset_and_getdel(self, run: Run) -> None:
        assert run("GETSET k 1") is None
        assert run("GETSET k 2") == b"1"
        assert run("GETDEL k") == b"2"
        assert run("GETDEL k") is None

    def test_getex_changes_only_the_expiry(self, run: Run) -> None:
        assert run("GETEX k") is None
        run("SET k v")
        for words, left_ms in [
            ("EX 10", 10_000),
            ("PX 10", 10),
            (f"EXAT {NOW_MS // 1000 + 1}", 1000),
            (f"PXAT {NOW_MS + 5}", 5),
            ("PERSIST", -1),
            ("", -1),
        ]:
            assert run(f"GETEX k {words}") == b"v"
            assert run("PTTL k") == left_ms
        assert run("GETEX k EXAT 1") == b"v"
        assert run("EXISTS k") == 0

    def test_getex_refusals(self, run: Run) -> None:
        run("SET k v")
        assert run.error("GETEX k EX 0") == "ERR invalid expire time in 'getex' command"
        assert run.error("GETEX k NX") == "ERR syntax error"
        assert run.error("GETEX k EX 1 PERSIST") == "ERR syntax error"

    def test_several_keys(self, run: Run) -> None:
        assert run("MSET a 1 b 2") == OK
        run("LPUSH l x")
        assert run("MGET a b l missing") == [b"1", b"2", None, None]
        assert run("MSETNX b 3 c 3") == 0
        assert run("MSETNX c 3 d 4") == 1
        assert run.error("MSET a 1 b") == "ERR wrong number of arguments for 'mset' command"
        assert run.error("MSETNX a 1 b") == "ERR wrong number of arguments for 'msetnx' command"

    def test_msetex(self, run: Run) -> None:
        assert run("MSETEX 2 a 1 b 2 EX 10") == 1
        assert run("TTL b") == 10
        assert run("MSETEX 1 a 5 KEEPTTL") == 1
        assert run("TTL a") == 10
        assert run("MSETEX 2 a 1 c 1 NX PX 5") == 0
        assert run("MSETEX 2 a 1 c 1 XX") == 0
        assert run(f"MSETEX 1 a 1 XX EXAT {NOW_MS // 1000 + 3}") == 1
        assert run(f"MSETEX 1 c 1 NX PXAT {NOW_MS + 30}") == 1
        assert run("PTTL c") == 30
        for count in (0, 2**31, 2**63 - 1):
            text = "ERR invalid numkeys value or out of range"
            assert run.error(f"MSETEX {count} a 1") == text
        assert run.error("MSETEX 2 a 1") == "ERR syntax error"


class TestConditionalRemoval:
    def test_delex(self, run: Run) -> None:
        assert run("DELEX k") == 0
        run("SET k v")
        assert run("DELEX k IFEQ x") == 0
        assert run("DELEX k IFNE v") == 0
        assert run("DELEX k IFEQ v") == 1
        run("SET k v")
        digest = run("DIGEST k").decode()
        assert run(f"DELEX k IFDNE {digest}") == 0
        assert run(f"DELEX k IFDEQ {digest}") == 1
        assert run.error("DELEX k FOO x") == "ERR syntax error"
        assert run.error("DELEX k IFEQ") == "ERR wrong number of arguments for 'delex' command"

    def test_delifeq(self, run: Run) -> None:
        run("SET k v")
        assert run("DELIFEQ k x") == 0
        assert run("DELIFEQ k v") == 1
        assert run("DELIFEQ k v") == 0

    def test_digest_is_sixteen_digits_of_xxh3(self, run: Run) -> None:
        assert run("DIGEST k") is None
        run("SET k ''")
        assert run("DIGEST k") == b"2d06800538d394c2"


class TestParts:
    def test_append_and_strlen(self, run: Run) -> None:
        assert run("APPEND k Hello") == 5
        assert run("APPEND k ' World'") == 11
        assert run("STRLEN k") == 11
        assert run("GET k") == b"Hello World"
        assert run("STRLEN missing") == 0

    @pytest.mark.parametrize(
        ("start", "end", "part"),
        [(0, 3, "This"), (-3, -1, "ing"), (0, -1, "This is a string"), (10, 100, "string"),
         (5, 3, ""), (-1, -5, ""), (-100, 0, "T"), (0, -100, "T")],
    )  # fmt: skip
    def test_getrange(self, run: Run, start: int, end: int, part: str) -> None:
        run("SET k 'This is a string'")
        assert run("GETRANGE", "k", start, end) == part.encode()
        assert run("SUBSTR", "k", start, end) == part.encode()

    def test_setrange(self, run: Run) -> None:
        run("SET k 'Hello World'")
        assert run("SETRANGE k 6 Redis") == 11
        assert run("GET k") == b"Hello Redis"
        assert run("SETRANGE new 3 x") == 4
        assert run("GET new") == b"\0\0\0x"
        assert run("SETRANGE none 5 ''") == 0
        assert run("EXISTS none") == 0

    def test_offsets_and_sizes_have_bounds(self, run: Run) -> None:
        assert run.error("SETRANGE k -1 x") == "ERR offset is out of range"
        text = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
        assert run.error("SETRANGE k 536870912 x") == text
        assert run.error("SETRANGE k x x") == NOT_INTEGER


class TestLcs:
    @pytest.fixture(autouse=True)
    def _texts(self, run: Run) -> None:
        run("MSET a ohmytext b mynewtext")

    def test_the_subsequence_and_its_length(self, run: Run) -> None:
        assert run("LCS a b") == b"mytext"
        assert run("LCS a b LEN") == 6
        assert run("LCS a missing") == b""

    def test_ranges(self, run: Run) -> None:
        assert run("LCS a b IDX") == [b"matches", [[[4, 7], [5, 8]], [[2, 3], [0, 1]]], b"len", 6]
        assert run("LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN") == [
            b"matches",
            [[[4, 7], [5, 8], 4]],
            b"len",
            6,
        ]

    def test_refusals(self, run: Run) -> None:
        text = "ERR If you want both the length and indexes, please just use IDX."
        assert run.error("LCS a b LEN IDX") == text
        run("LPUSH l x")
        assert run.error("LCS a l") == "ERR The specified keys must contain string values"

    def test_its_table_must_fit_into_a_request(self, run: Run) -> None:
        run("CONFIG SET proto-max-bulk-len 1048576")
        for key, sign, length in [("a", "x", 600), ("b", "y", 600), ("c", "x", 9)]:
            run("SET", key, sign * length)
        text = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
        assert run.error("LCS a b") == text
        assert run("LCS a c LEN") == 9
        assert run.error("LCS a b FOO") == "ERR syntax error"
