"""Expiry times and conditions, and the options of the commands that set them.

The commands are those of the EXPIRE and HEXPIRE families, SET, GETEX, MSETEX, HGETEX and HSETEX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .. import errors
from ..engine.engine import Session
from ..engine.keyspace import String
from ..errors import CommandError
from ..table.registry import Args
from ..table.syntax import I64_MAX, I64_MIN, parse_int
from .arguments import options

EXPIRY_WORDS = frozenset({b"EX", b"PX", b"EXAT", b"PXAT"})
"""Expiries in seconds and milliseconds: from now, and as Unix times."""


def expiry_ms(
    word: bytes, text: bytes, now_ms: int, name: str, *, may_be_past: bool = False
) -> int:
    """Return the Unix milliseconds of an expiry such as ``EX 10``; an error contains ``name``.

    Only the EXPIRE and HEXPIRE families accept zero and negative numbers.
    """
    amount_ms = parse_int(text) * (1000 if word in (b"EX", b"EXAT") else 1)
    since_ms = now_ms if word in (b"EX", b"PX") else 0
    if not I64_MIN <= amount_ms <= I64_MAX - since_ms or (amount_ms <= 0 and not may_be_past):
        raise CommandError(errors.invalid_expire(name))
    return amount_ms + since_ms


def nearest_second(milliseconds: int) -> int:
    """Convert milliseconds to seconds, as Redis does for TTL and EXPIRETIME."""
    return (milliseconds + 500) // 1000


# -- EXPIRE --------------------------------------------------------------------------------------

Condition = frozenset[bytes]
"""The conditions of an EXPIRE command: a subset of NX, XX, GT and LT."""


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


def allows_expiry(condition: Condition, present_ms: int | None, wanted_ms: int) -> bool:
    """Return whether a new expiry may replace the current one. A missing expiry counts as infinite."""
    if b"NX" in condition and present_ms is not None:
        return False
    if b"XX" in condition and present_ms is None:
        return False
    if b"GT" in condition and (present_ms is None or wanted_ms <= present_ms):
        return False
    return not (b"LT" in condition and present_ms is not None and wanted_ms >= present_ms)


# -- SET -----------------------------------------------------------------------------------------

_LIFETIMES = EXPIRY_WORDS | {b"KEEPTTL", b"PERSIST"}
COMPARISONS = frozenset({b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})
"""Conditions that compare a value, or its digest, with the argument after them."""
EXPIRY_SIZES: Mapping[bytes, int] = dict.fromkeys(EXPIRY_WORDS, 1)
"""The expiry options with their numbers of values, for ``parse_set_options()``."""
_DIGEST = re.compile(rb"[0-9a-fA-F]{16}")


@dataclass(eq=False, repr=False, slots=True)
class SetOptions:
    """The options of SET, GETEX, MSETEX, HGETEX or HSETEX."""

    flags: frozenset[bytes] = frozenset()
    """Words such as GET, and at most one of NX and XX and one of FNX and FXX."""
    comparison: tuple[bytes, bytes] | None = None
    """One of ``COMPARISONS`` with its operand, instead of NX or XX."""
    lifetime: bytes = b""
    """KEEPTTL, PERSIST, or an expiry word such as EX with its ``amount``."""
    amount: bytes = b""

    @property
    def keep_ttl(self) -> bool:
        return self.lifetime == b"KEEPTTL"

    def is_met(self, value: object) -> bool:
        """Return whether the current value of a key meets the condition, if there is one."""
        if b"NX" in self.flags:
            return value is None
        if b"XX" in self.flags:
            return value is not None
        return self.comparison is None or meets(*self.comparison, value)

    def expires_at(self, session: Session, name: str) -> int | None:
        """Return the expiry in Unix milliseconds; an error contains the command's name."""
        if self.lifetime not in EXPIRY_WORDS:
            return None
        return expiry_ms(self.lifetime, self.amount, session.now_ms, name)


def parse_set_options(
    session: Session, args: Args, at: int, sizes: Mapping[bytes, int]
) -> SetOptions:
    """Parse options from ``at`` on.

    Flags and options about the lifetime may be repeated. The last number of an expiry counts.
    """
    given = SetOptions()
    for word, values in options(args, at, sizes):
        if word in _LIFETIMES:
            if given.lifetime not in (b"", word):
                raise CommandError(errors.SYNTAX)
            given.lifetime, given.amount = word, values[0] if values else b""
        elif word in COMPARISONS:
            is_known = session.engine.table.knows[f"SET {word.decode()}"]
            if not is_known or given.comparison is not None:
                raise CommandError(errors.SYNTAX)
            given.comparison = (word, values[0])
        else:
            given.flags |= {word}
    if given.flags:
        conditions = len(given.flags & {b"NX", b"XX"}) + (given.comparison is not None)
        if conditions > 1 or {b"FNX", b"FXX"} <= given.flags:
            raise CommandError(errors.SYNTAX)
    return given


def meets(comparison: bytes, operand: bytes, value: object) -> bool:
    """Return whether the current value of a key meets one of ``COMPARISONS``."""
    if comparison in (b"IFDEQ", b"IFDNE") and not _DIGEST.fullmatch(operand):
        raise CommandError(errors.BAD_DIGEST)
    if value is None:
        return comparison in (b"IFNE", b"IFDNE")
    if not isinstance(value, bytes | bytearray):
        raise CommandError(errors.WRONGTYPE)
    if comparison in (b"IFDEQ", b"IFDNE"):
        is_equal = digest(value) == operand.lower()
    else:
        is_equal = value == operand
    return is_equal == (comparison in (b"IFEQ", b"IFDEQ"))


def digest(value: String) -> bytes:
    """Return the XXH3 digest of a string as 16 hexadecimal digits."""
    import xxhash  # imported here because it is rarely needed

    digits: str = xxhash.xxh3_64_hexdigest(value)
    return digits.encode()
