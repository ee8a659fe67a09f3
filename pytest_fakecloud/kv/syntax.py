"""Parses arguments, finds options and formats numbers by the strict rules of Redis.

Parsers raise `CommandError` with the error message of Redis. Commands that have a message of their
own pass it as ``error``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from .errors import INVALID_CURSOR, NOT_FLOAT, NOT_INTEGER, CommandError

I64_MIN = -(2**63)
I64_MAX = 2**63 - 1


def decoded(data: bytes) -> str:
    """Decode UTF-8. Invalid bytes become surrogates, which `encoded()` converts back."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def try_int(text: bytes) -> int | None:
    """Return the 64-bit integer of a canonical string (not ``+1``, ``01``, ``-0``), or None."""
    if len(text) > 20:
        return None
    try:
        value = int(text)
    except ValueError:
        return None
    if b"%d" % value == text and I64_MIN <= value <= I64_MAX:
        return value
    return None


_INTEGER_START = rb"[ \t-\r]*([+-]?\d+)"


def integer_at_start(text: bytes) -> int:
    """Return the 32-bit integer that ``atoi()`` of glibc reads: ``1`` from ``1abc``, 0 from ``abc``."""
    match = re.match(_INTEGER_START, text[:64])
    value = 0 if match is None else min(max(int(match[1]), I64_MIN), I64_MAX)
    return (value + 2**31) % 2**32 - 2**31


def parse_int(
    text: bytes,
    low: int = I64_MIN,
    high: int = I64_MAX,
    error: bytes = NOT_INTEGER,
    outside: bytes = b"",
) -> int:
    """Parse an integer; raise ``error`` or, for one outside the range, ``outside`` if it is given."""
    value = try_int(text)
    if value is None or not low <= value <= high:
        raise CommandError(error if value is None else outside or error)
    return value


def parse_cursor(text: bytes) -> int:
    """Parse a cursor like ``strtoul``: negative numbers wrap around, an empty string is 0."""
    match = re.fullmatch(rb"([+-]?)0*(\d{1,20})", text or b"0")
    if match is None or int(match[2]) >= 2**64:
        raise CommandError(INVALID_CURSOR)
    return int(match[1] + match[2]) % 2**64


# Possessive quantifiers (++) do not backtrack. With ordinary ones, a long number followed by a
# letter would take quadratic time.
DECIMAL = re.compile(rb"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?")
HEXADECIMAL = rb"[+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)(?:[pP][+-]?\d++)?"
INFINITY = rb"(?i)[+-]?inf(?:inity)?"


def parse_float(text: bytes, error: bytes = NOT_FLOAT) -> float:
    """Parse a double like ``strtod``, but not NaN and no number that over- or underflows."""
    if DECIMAL.fullmatch(text):
        value = float(text)
        if math.isinf(value) or (value == 0 and is_nonzero(text)):
            raise CommandError(error)
        return value
    if re.fullmatch(INFINITY, text):
        return float(text)
    if re.fullmatch(HEXADECIMAL, text):
        try:
            value = float.fromhex(text.decode())
        except OverflowError:
            raise CommandError(error) from None
        if value == 0 and hexadecimal_value(text) != 0:
            raise CommandError(error)
        return value
    raise CommandError(error)


def is_nonzero(text: bytes) -> bool:
    """Return whether a decimal float has a digit other than 0 before its exponent."""
    mantissa = re.split(rb"[eE]", text)[0]
    return any(byte in b"123456789" for byte in mantissa)


_MAX_EXPONENT = 10**5
"""Limit of exponents. Above it, no mantissa of up to 5,120 characters yields a valid number."""


def parse_exponent(text: bytes) -> int:
    """Return the exponent of a number. It is clamped, because int() parses at most 4,300 digits."""
    digits = text.lstrip(b"+-").lstrip(b"0")
    value = min(int(digits[:7] or b"0"), _MAX_EXPONENT)
    return -value if text.startswith(b"-") else value


def hexadecimal_value(text: bytes) -> Fraction:
    """Return the exact value of a hexadecimal float. The string must match ``HEXADECIMAL``."""
    mantissa, _, power = text.lower().partition(b"p")
    whole, _, decimals = mantissa.lstrip(b"+-")[2:].partition(b".")
    digits = int(whole + decimals, 16)
    exponent = parse_exponent(power) - 4 * len(decimals)
    value = digits * Fraction(2) ** exponent
    return -value if mantissa.startswith(b"-") else value


def format_double(value: float) -> bytes:
    """Return the shortest string that parses as the same double, as in replies with scores.

    Integers up to 2^62 are written in full. Larger numbers, and numbers below 1e-6, have an
    exponent, as in Valkey 9 and in Redis since 7.2.
    """
    if math.isinf(value):
        return b"inf" if value > 0 else b"-inf"
    if math.isnan(value):
        return b"nan"
    if value == int(value) and abs(value) <= 2**62:
        return b"-0" if value == 0 and math.copysign(1, value) < 0 else b"%d" % int(value)
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    power = int(exponent or 0) - len(mantissa.partition(".")[2])
    # The conditions of `emit_digits()` in Valkey, where `power` is that of the last digit.
    notation = "f" if -7 < power < 8 or 1e-3 <= abs(value) < 1e4 else "e"
    if notation == "f" and not exponent:
        return text.encode()
    return format(Decimal(text), notation).encode()


# -- 80-bit floats ---------------------------------------------------------------------------------

LongDouble: TypeAlias = "Fraction | float"
"""An 80-bit float, with which Redis computes INCRBYFLOAT, HINCRBYFLOAT and timeouts.

It is an exact fraction with 64 significant bits, or a float that is infinite.
"""
_UNDERFLOW_FACTOR = 1 << 16446
"""The reciprocal of half the smallest 80-bit float."""


def parse_long_double(text: bytes, error: bytes = NOT_FLOAT) -> LongDouble:
    """Parse an 80-bit float. Infinities are valid, NaN is not."""
    if len(text) >= 5120:
        raise CommandError(error)
    if re.fullmatch(INFINITY, text):
        return float(text)
    if DECIMAL.fullmatch(text):
        exponent = parse_exponent(text.lower().partition(b"e")[2])
        if abs(exponent) > 6000:
            if not is_nonzero(text):
                return Fraction(0)
            raise CommandError(error)
        # Convert through Decimal, because Fraction parses strings of at most 4,300 digits.
        exact = Fraction(Decimal(text.decode()))
    elif re.fullmatch(HEXADECIMAL, text):
        exact = hexadecimal_value(text)
    else:
        raise CommandError(error)
    number = _rounded(exact)
    if isinstance(number, float) or 0 < abs(exact) * _UNDERFLOW_FACTOR <= 1:
        raise CommandError(error)
    return number


def long_double_sum(left: LongDouble, right: LongDouble) -> LongDouble:
    """Return the sum of two 80-bit floats, rounded to an 80-bit float; NaN for opposite infinities."""
    if isinstance(left, float):
        return left + right if isinstance(right, float) else left
    if isinstance(right, float):
        return right
    return _rounded(left + right)


def _rounded(value: Fraction) -> LongDouble:
    """Round a fraction to 64 significant bits, or to an infinity."""
    shift = value.numerator.bit_length() - value.denominator.bit_length() - 64
    scaled = value / Fraction(2) ** shift
    if abs(scaled) >= 2**64:
        scaled /= 2
        shift += 1
    rounded = round(scaled) * Fraction(2) ** shift
    if abs(rounded) >= 2**16384:
        return math.inf if value > 0 else -math.inf
    return rounded


def format_long_double(value: LongDouble) -> bytes:
    """Format a number as INCRBYFLOAT does: up to 17 decimals, no exponent, no trailing zeros.

    The number must not be NaN.
    """
    if isinstance(value, float):
        return b"inf" if value > 0 else b"-inf"
    scaled = round(abs(value) * 10**17)
    whole, decimals = divmod(scaled, 10**17)
    # Format two parts, because Python formats integers of at most 4,300 digits.
    high, low = divmod(whole, 10**4000)
    digits = f"{high}{low:04000d}" if high else f"{low}"
    text = f"{digits}.{decimals:017d}".rstrip("0").rstrip(".")
    return f"-{text}".encode() if value < 0 and text != "0" else text.encode()


def option_places(
    line: list[bytes], start: int, lengths: Mapping[bytes, int]
) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the upper-case word of each option from ``start`` on.

    ``lengths`` are the numbers of words of the options that have arguments, with their names.
    """
    at = start
    while at < len(line):
        word = line[at].upper()
        yield at, word
        at += lengths.get(word, 1)
