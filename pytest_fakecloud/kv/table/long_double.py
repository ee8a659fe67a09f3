"""The 80-bit floats with which Redis computes INCRBYFLOAT, HINCRBYFLOAT and timeouts."""

from __future__ import annotations

import decimal
import fractions
import math
import re
from typing import TypeAlias

from ..errors import NOT_FLOAT, CommandError
from .syntax import DECIMAL, HEXADECIMAL, INFINITY, hexadecimal_value, is_nonzero, parse_exponent

LongDouble: TypeAlias = "fractions.Fraction | float"
"""An 80-bit float: an exact fraction with 64 significant bits, or a float that is infinite."""

_UNDERFLOW_FACTOR = 2**16446
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
                return fractions.Fraction(0)
            raise CommandError(error)
        # Convert through Decimal, because Fraction parses strings of at most 4,300 digits.
        exact = fractions.Fraction(decimal.Decimal(text.decode()))
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


def _rounded(value: fractions.Fraction) -> LongDouble:
    """Round a fraction to 64 significant bits, or to an infinity."""
    if value == 0:
        return value
    numerator, denominator = abs(value.numerator), value.denominator
    shift = numerator.bit_length() - denominator.bit_length() - 64
    scaled = fractions.Fraction(numerator, denominator) / (fractions.Fraction(2) ** shift)
    if scaled >= 2**64:
        scaled /= 2
        shift += 1
    rounded = fractions.Fraction(round(scaled)) * (fractions.Fraction(2) ** shift)
    if rounded >= 2**16384:
        return math.inf if value > 0 else -math.inf
    return rounded if value > 0 else -rounded


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
