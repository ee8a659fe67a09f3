"""Parsing and formatting numbers."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.syntax import (
    format_double,
    format_long_double,
    long_double_sum,
    parse_cursor,
    parse_float,
    parse_int,
    parse_long_double,
    try_int,
)


class TestIntegers:
    @given(st.integers(-(2**63), 2**63 - 1))
    def test_canonical_text_is_read(self, number: int) -> None:
        assert try_int(str(number).encode()) == number

    @pytest.mark.parametrize(
        "text",
        ["", " 1", "1 ", "+1", "01", "-0", "1.0", "1e3", "1_0", "٣", "9223372036854775808", "0x1"],
    )
    def test_anything_else_is_not(self, text: str) -> None:
        assert try_int(text.encode()) is None

    def test_ranges_and_texts(self) -> None:
        assert parse_int(b"5", 1, 5) == 5
        with pytest.raises(CommandError, match="mine"):
            parse_int(b"6", 1, 5, b"mine")

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("0", 0), ("+5", 5), ("0" * 30 + "7", 7), ("18446744073709551615", 2**64 - 1),
            ("-1", 2**64 - 1), ("-18446744073709551615", 1), ("", 0),
        ],
    )  # fmt: skip
    def test_cursors_are_read_as_strtoul_does(self, text: str, value: int) -> None:
        assert parse_cursor(text.encode()) == value

    @pytest.mark.parametrize(
        "text",
        ["-", "+", "x", "5 ", " 5", "1e3", "18446744073709551616", "-18446744073709551616",
         "9" * 5000, "+-5", "0x5"],
    )  # fmt: skip
    def test_invalid_cursors(self, text: str) -> None:
        with pytest.raises(CommandError, match="ERR invalid cursor"):
            parse_cursor(text.encode())


class TestDoubles:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1", 1.0), ("-.5", -0.5), ("1.", 1.0), ("1e3", 1000.0), ("0x1p4", 16.0),
            ("INF", math.inf),
        ],
    )  # fmt: skip
    def test_forms(self, text: str, value: float) -> None:
        assert parse_float(text.encode()) == value

    @pytest.mark.parametrize(
        "text", ["", "nan", " 1", "1 ", "1e400", "1e-400", "-0x1p-2000", "1_0", "abc", "1,5"]
    )
    def test_refusals(self, text: str) -> None:
        with pytest.raises(CommandError):
            parse_float(text.encode())

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_what_is_written_reads_back(self, value: float) -> None:
        text = format_double(value)
        assert struct.pack("d", float(text)) == struct.pack("d", value)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (3.1, "3.1"), (1e10, "10000000000"), (-0.0, "-0"), (1e20, "1e+20"), (1.5e-7, "1.5e-7"),
            (0.0001, "0.0001"), (math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"),
            (123456789.125, "123456789.125"), (5e18, "5e+18"),
            (2.0**63, "9223372036854776000"),
        ],
    )  # fmt: skip
    def test_layout(self, value: float, text: str) -> None:
        assert format_double(value) == text.encode()

    @pytest.mark.parametrize("text", [b"1" * 200_000 + b"x", b"0x" + b"1" * 200_000 + b"z"])
    def test_many_digits_with_a_letter_behind_take_no_longer(self, text: bytes) -> None:
        """A pattern that could match digits in two ways would take half an hour and block
        everything.
        """
        with pytest.raises(CommandError):
            parse_float(text)


class TestLongDoubles:
    @pytest.mark.parametrize(
        ("left", "right", "total"),
        [
            ("0.1", "0.2", "0.3"), ("10.50", "0.1", "10.6"), ("5.0e3", "2.0e2", "5200"),
            ("-1", "1", "0"), ("1e17", "0.5", "100000000000000000.5"), ("3.0e-5", "0", "0.00003"),
            ("123456789.123456789", "0", "123456789.12345678899873747"), ("0e7000", "1", "1"),
        ],
    )  # fmt: skip
    def test_sums(self, left: str, right: str, total: str) -> None:
        result = long_double_sum(
            parse_long_double(left.encode()), parse_long_double(right.encode())
        )
        assert format_long_double(result) == total.encode()

    def test_infinities(self) -> None:
        infinity = parse_long_double(b"inf")
        assert format_long_double(parse_long_double(b"-inf")) == b"-inf"
        for other in (b"1", b"1e400", b"inf"):
            assert long_double_sum(infinity, parse_long_double(other)) == math.inf
            assert long_double_sum(parse_long_double(other), infinity) == math.inf
        assert math.isnan(float(long_double_sum(infinity, parse_long_double(b"-inf"))))

    @pytest.mark.parametrize("text", ["nan", "x", "1e7000", "", "1" * 6000])
    def test_refusals(self, text: str) -> None:
        with pytest.raises(CommandError):
            parse_long_double(text.encode())
