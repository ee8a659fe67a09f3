"""Parses the expiry options that SET, GETEX, MSETEX, HGETEX, HSETEX and EXPIRE share."""

from __future__ import annotations

from .. import errors
from ..errors import CommandError
from .syntax import I64_MAX, I64_MIN, parse_int

EXPIRY_WORDS = frozenset({b"EX", b"PX", b"EXAT", b"PXAT"})

Condition = frozenset[bytes]
"""The conditions of an EXPIRE command: a subset of NX, XX, GT and LT."""


def expiry_ms(word: bytes, text: bytes, now_ms: int, name: str) -> int:
    """Return the Unix milliseconds of an option such as ``EX 10``, which must be in the future."""
    amount = parse_int(text)
    if amount <= 0 or (word in (b"EX", b"EXAT") and amount > I64_MAX // 1000):
        raise CommandError(errors.invalid_expire(name))
    at_ms = amount * 1000 if word in (b"EX", b"EXAT") else amount
    if word in (b"EX", b"PX"):
        at_ms += now_ms
    if at_ms > I64_MAX:
        raise CommandError(errors.invalid_expire(name))
    return at_ms


def relative_ms(text: bytes, seconds: bool, base_ms: int, name: str) -> int:
    """Return the Unix milliseconds of an EXPIRE command, which may be in the past.

    ``base_ms`` is the current time if the number is relative, else 0.
    """
    amount = parse_int(text)
    if seconds:
        if not I64_MIN // 1000 < amount <= I64_MAX // 1000:
            raise CommandError(errors.invalid_expire(name))
        amount *= 1000
    if amount > I64_MAX - base_ms:
        raise CommandError(errors.invalid_expire(name))
    return amount + base_ms


def nearest_second(milliseconds: int) -> int:
    """Convert milliseconds to seconds, as Redis does for TTL and EXPIRETIME."""
    return (milliseconds + 500) // 1000


def parse_conditions(words: list[bytes]) -> Condition:
    """Parse the options NX, XX, GT and LT; raise an error for an invalid combination."""
    found: set[bytes] = set()
    for word in words:
        upper = word.upper()
        if upper not in (b"NX", b"XX", b"GT", b"LT"):
            raise CommandError(errors.unsupported_option(word))
        found.add(upper)
    if b"NX" in found and len(found) > 1:
        raise CommandError(errors.EXPIRE_NX_WITH_OTHERS)
    if b"GT" in found and b"LT" in found:
        raise CommandError(errors.EXPIRE_GT_AND_LT)
    return frozenset(found)


def is_met(condition: Condition, present_ms: int | None, wanted_ms: int) -> bool:
    """Return whether a new expiry may replace the current one. A missing expiry counts as infinite."""
    if b"NX" in condition and present_ms is not None:
        return False
    if b"XX" in condition and present_ms is None:
        return False
    if b"GT" in condition and (present_ms is None or wanted_ms <= present_ms):
        return False
    return not (b"LT" in condition and present_ms is not None and wanted_ms >= present_ms)
