"""Bitmap commands."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run

BIT_OFFSET = "ERR bit offset is not an integer or out of range"


class TestSingleBits:
    def test_setbit_returns_the_bit_before(self, run: Run) -> None:
        assert run("SETBIT k 7 1") == 0
        assert run("SETBIT k 7 0") == 1
        assert run("GET k") == b"\0"
        assert run("GETBIT k 7") == 0
        assert run("SETBIT k 17 1") == 0
        assert run("STRLEN k") == 3
        assert run("GETBIT k 17") == 1
        assert run("GETBIT k 1000") == 0
        assert run("GETBIT missing 0") == 0

    @pytest.mark.parametrize("offset", ["-1", "x", "4294967296"])
    def test_offsets_have_bounds(self, run: Run, offset: str) -> None:
        assert run.error(f"SETBIT k {offset} 1") == BIT_OFFSET
        assert run.error(f"GETBIT k {offset}") == BIT_OFFSET

    def test_a_bit_is_one_or_zero(self, run: Run) -> None:
        assert run.error("SETBIT k 1 2") == "ERR bit is not an integer or out of range"


class TestRanges:
    @pytest.mark.parametrize(
        ("words", "count"),
        [
            ("", 26), ("0 0", 4), ("1 1", 6), ("1 1 BYTE", 6), ("5 30 BIT", 17), ("-2 -1", 7),
            ("3 1", 0), ("-1 -5", 0),
        ],
    )  # fmt: skip
    def test_bitcount(self, run: Run, words: str, count: int) -> None:
        run("SET k foobar")
        assert run(f"BITCOUNT k {words}") == count

    def test_bitcount_refusals(self, run: Run) -> None:
        run("SET k foobar")
        assert run.error("BITCOUNT k 0") == "ERR syntax error"
        assert run.error("BITCOUNT k 0 1 FOO") == "ERR syntax error"
        assert run.error("BITCOUNT k x 1") == "ERR value is not an integer or out of range"
        assert run("BITCOUNT missing") == 0

    @pytest.mark.parametrize(
        ("value", "words", "place"),
        [
            (b"\xff\xf0\x00", "0", 12), (b"\x00\xff\xf0", "1 0", 8), (b"\x00\xff\xf0", "1 2", 16),
            (b"\x00\xff\xf0", "1 2 -1 BYTE", 16), (b"\x00\xff\xf0", "1 7 15 BIT", 8),
            (b"\x00\x00\x00", "1", -1), (b"\xff\xff", "0", 16), (b"\xff\xff", "0 0 -1", -1),
            (b"\xff\xff", "0 5", -1),
        ],
    )  # fmt: skip
    def test_bitpos(self, run: Run, value: bytes, words: str, place: int) -> None:
        run(b"SET", b"k", value)
        assert run(f"BITPOS k {words}") == place

    def test_bitpos_of_nothing(self, run: Run) -> None:
        assert run("BITPOS missing 1") == -1
        assert run("BITPOS missing 0") == 0
        assert run.error("BITPOS k 2") == "ERR The bit argument must be 1 or 0."
        assert run.error("BITPOS k x") == "ERR value is not an integer or out of range"


class TestBitop:
    @pytest.mark.parametrize("operation", ["AND", "OR", "XOR", "DIFF", "DIFF1", "ANDOR", "ONE"])
    def test_operations_of_three(self, run: Run, operation: str) -> None:
        run(b"SET", b"a", b"\x0f")
        run(b"SET", b"b", b"\x33\x0f")
        run(b"SET", b"c", b"\x15")
        # a = 00001111, b = 00110011 00001111, c = 00010101
        expected = {
            "AND": bytes([0x0F & 0x33 & 0x15, 0]),
            "OR": bytes([0x0F | 0x33 | 0x15, 0x0F]),
            "XOR": bytes([0x0F ^ 0x33 ^ 0x15, 0x0F]),
            "DIFF": bytes([0x0F & ~(0x33 | 0x15), 0]),
            "DIFF1": bytes([(0x33 | 0x15) & ~0x0F, 0x0F]),
            "ANDOR": bytes([0x0F & (0x33 | 0x15), 0]),
            "ONE": bytes([0b00101000, 0x0F]),
        }[operation]
        assert run(f"BITOP {operation} dest a b c") == 2
        assert run("GET dest") == expected

    def test_not(self, run: Run) -> None:
        run(b"SET", b"a", b"\x0f\xff")
        assert run("BITOP NOT dest a") == 2
        assert run("GET dest") == b"\xf0\x00"

    def test_nothing_in_nothing_out(self, run: Run) -> None:
        run("SET dest x")
        assert run("BITOP AND dest none nowhere") == 0
        assert run("EXISTS dest") == 0

    def test_refusals(self, run: Run) -> None:
        text = "ERR BITOP NOT must be called with a single source key."
        assert run.error("BITOP NOT dest a b") == text
        for operation in ("DIFF", "DIFF1", "ANDOR"):
            text = f"ERR BITOP {operation} must be called with at least two source keys"
            assert run.error(f"BITOP {operation} dest a").startswith(text)
        assert run.error("BITOP FOO dest a") == "ERR syntax error"
        run("LPUSH l x")
        assert run.error("BITOP AND dest l").startswith("WRONGTYPE")


class TestBitfield:
    def test_reading_and_writing(self, run: Run) -> None:
        assert run("BITFIELD k SET u8 0 255 GET u4 0 GET i4 0 INCRBY u8 #1 10") == [0, 15, -1, 10]
        assert run("BITFIELD_RO k GET u8 8 GET i64 1000") == [10, 0]
        assert run("BITFIELD_RO none GET u8 0") == [0]
        assert run("BITFIELD none GET u8 0") == [0]

    @pytest.mark.parametrize(
        ("overflow", "unsigned", "signed"),
        [("WRAP", 4, -126), ("SAT", 255, 127), ("FAIL", None, None)],
    )
    def test_overflow(
        self, run: Run, overflow: str, unsigned: int | None, signed: int | None
    ) -> None:
        run("BITFIELD k SET u8 0 250 SET i8 8 120")
        words = f"OVERFLOW {overflow} INCRBY u8 0 10 INCRBY i8 8 10"
        assert run(f"BITFIELD k {words}") == [unsigned, signed]

    def test_underflow(self, run: Run) -> None:
        assert run("BITFIELD k OVERFLOW SAT INCRBY u8 0 -1 INCRBY i8 8 -200") == [0, -128]
        assert run("BITFIELD j INCRBY u8 0 -1 SET u8 8 -1 GET u8 8") == [255, 0, 255]

    @pytest.mark.parametrize(
        ("given", "kept"), [(-(2**63) + 127, 127), (-(2**63) + 128, -128), (2**63 - 1, 127)]
    )
    def test_saturation_compares_64_bits(self, run: Run, given: int, kept: int) -> None:
        # The distance from the first to the highest value exceeds a server's integers.
        assert run(f"BITFIELD k OVERFLOW SAT SET i8 0 {given} GET i8 0") == [0, kept]
        assert run(f"BITFIELD j OVERFLOW SAT INCRBY i8 0 {given}") == [127 if given > 0 else -128]

    @pytest.mark.parametrize("kind", ["u64", "i65", "u0", "x8", "8", "i", "i01"])
    def test_types_have_bounds(self, run: Run, kind: str) -> None:
        assert run.error(f"BITFIELD k GET {kind} 0") == (
            "ERR Invalid bitfield type. Use something like i16 u8. "
            "Note that u64 is not supported but i64 is."
        )

    def test_refusals(self, run: Run) -> None:
        assert run.error("BITFIELD k GET u8 -1") == BIT_OFFSET
        assert run.error("BITFIELD_RO k GET u8 #x") == BIT_OFFSET
        assert run.error("BITFIELD k OVERFLOW FOO") == "ERR Invalid OVERFLOW type specified"
        assert run.error("BITFIELD k SET u8 0") == "ERR syntax error"
        assert run.error("BITFIELD_RO k GET u8") == "ERR syntax error"
        text = "ERR BITFIELD_RO only supports the GET subcommand"
        assert run.error("BITFIELD_RO k SET u8 0 1") == text
        assert run.error("BITFIELD k SET u8 0 x") == "ERR value is not an integer or out of range"


class TestHugeValues:
    """Values longer than a block that is processed at once."""

    def test_far_bits(self, run: Run) -> None:
        assert run("SETBIT k 9999999 1") == 0
        assert run("STRLEN k") == 1_250_000
        assert run("BITCOUNT k") == 1
        assert run("BITPOS k 1") == 9_999_999
        assert run("BITPOS k 0") == 0
        assert run("BITOP NOT n k") == 1_250_000
        assert run("BITCOUNT n") == 9_999_999
        assert run("BITPOS n 0") == 9_999_999
        assert run("BITPOS n 1") == 0
        assert run("BITPOS k 1 5 9999998 BIT") == -1
        assert run("BITCOUNT n 3 9999998 BIT") == 9_999_996
        assert run("BITCOUNT n 1 -2") == 9_999_984
        assert run("BITOP XOR both k n short") == 1_250_000
        assert run("BITPOS both 0") == 10_000_000

    def test_a_value_grows_bit_by_bit(self, run: Run) -> None:
        for offset in range(0, 4000, 7):
            assert run(f"SETBIT k {offset} 1") == 0
        assert run("BITCOUNT k") == 572

    @pytest.mark.parametrize("offset", ["4294967296", "#536870912"])
    def test_results_that_would_be_too_long_take_no_memory(self, run: Run, offset: str) -> None:
        assert run.error(f"BITFIELD k SET u8 {offset} 1") == BIT_OFFSET
        assert run("EXISTS k") == 0


def test_a_span_that_ends_before_it_begins_has_no_bits(run: Run) -> None:
    run("SET b abc")
    assert run("BITCOUNT b 5 9 BIT") == 2
    assert run("BITCOUNT b 9 5 BIT") == run("BITCOUNT b 9 5") == run("BITCOUNT b -1 -3") == 0
