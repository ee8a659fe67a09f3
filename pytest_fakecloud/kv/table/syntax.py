"""Parses arguments and formats numbers by the strict rules of Redis.

Parsers raise `CommandError` with the error message of Redis. Commands that have a message of their
own pass it as ``error``.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ..errors import NOT_FLOAT, NOT_INTEGER, OUT_OF_INT_RANGE, CommandError

if TYPE_CHECKING:
    from fractions import Fraction


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


_INTEGER_START = re.compile(rb"[ \t-\r]*([+-]?\d+)")


def integer_at_start(text: bytes) -> int:
    """Return the 32-bit integer that ``atoi()`` of glibc reads: ``1`` from ``1abc``, 0 from ``abc``."""
    found = _INTEGER_START.match(text[:64])
    value = 0 if found is None else min(max(int(found[1]), I64_MIN), I64_MAX)
    return (value + 2**31) % 2**32 - 2**31


def parse_int(
    text: bytes, low: int = I64_MIN, high: int = I64_MAX, error: bytes = NOT_INTEGER
) -> int:
    """Parse an integer; raise ``error`` if it is invalid or outside the range."""
    value = try_int(text)
    if value is None or not low <= value <= high:
        raise CommandError(error)
    return value


def parse_database(text: bytes) -> int:
    """Parse a 32-bit database number, which has its own error message. The database may not exist."""
    value = parse_int(text)
    if not -(2**31) <= value < 2**31:
        raise CommandError(OUT_OF_INT_RANGE)
    return value


def parse_unsigned(text: bytes, error: bytes) -> int:
    """Parse a cursor like ``strtoul``: negative numbers wrap around, an empty string is 0."""
    if not text:
        return 0
    found = re.fullmatch(rb"([+-]?)0*(\d{1,20})", text)
    if found is None or int(found[2]) >= 2**64:
        raise CommandError(error)
    return int(found[1] + found[2]) % 2**64


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
    from fractions import Fraction

    mantissa, _, power = text.lower().partition(b"p")
    whole, _, decimals = mantissa.lstrip(b"+-")[2:].partition(b".")
    digits = int(whole + decimals, 16)
    if mantissa.startswith(b"-"):
        digits = -digits
    exponent = parse_exponent(power) - 4 * len(decimals)
    if exponent < 0:
        return Fraction(digits, 2**-exponent)
    return Fraction(digits * 2**exponent)


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
    mantissa, _, exponent_text = repr(value).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, decimals = mantissa.lstrip("-").partition(".")
    digits = (whole + decimals).lstrip("0")
    power = int(exponent_text or 0) - len(decimals)
    stripped = digits.rstrip("0")
    power += len(digits) - len(stripped)
    return (sign + _written(stripped, power)).encode()


def _written(digits: str, power: int) -> str:
    """Write ``digits`` times ten to the ``power``, in the notation of ``emit_digits()`` in Valkey.

    Examples: ``12, 3`` is 12000, ``12, -3`` is 0.012, ``12, 30`` is 1.2e+31.
    """
    count = len(digits)
    exponent = power + count - 1
    if power >= 0 and exponent < count + 7:
        return digits + "0" * power
    if power < 0 and (power > -7 or abs(exponent) < 4):
        point = count + power
        if point <= 0:
            return "0." + "0" * -point + digits
        return digits[:point] + "." + digits[point:]
    text = digits[0] + ("." + digits[1:] if count > 1 else "")
    return f"{text}e{'-' if exponent < 0 else '+'}{abs(exponent)}"
