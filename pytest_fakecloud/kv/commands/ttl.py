"""Expiry times and conditions, and the options of the commands that set them.

The commands are those of the EXPIRE and HEXPIRE families, SET, GETEX, MSETEX, HGETEX and HSETEX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .. import errors
from ..engine.keyspace import String
from ..engine.session import Session
from ..errors import CommandError
from ..table.registry import TTL_OPTIONS, Args, Unit
from ..table.syntax import I64_MAX, I64_MIN, parse_int
from .arguments import options, running

_OPTION_UNITS = {word.encode(): unit for word, unit in TTL_OPTIONS.items()}


def expiry_ms(
    session: Session, text: bytes, unit: Unit | None = None, *, may_be_past: bool = False
) -> int:
    """Return the Unix milliseconds of an expiry that the running command sets.

    The default unit is the one in the command's row. Only the EXPIRE and HEXPIRE families accept
    zero and negative numbers.
    """
    if unit is None:
        unit = running(session).effects.ttl_unit
        assert unit is not None
    amount_ms = parse_int(text) * unit.milliseconds
    since_ms = 0 if unit.is_absolute else session.now_ms
    if not I64_MIN <= amount_ms <= I64_MAX - since_ms or (amount_ms <= 0 and not may_be_past):
        raise CommandError(errors.invalid_expire(running(session).full_name))
    return amount_ms + since_ms


def expiry_reply(session: Session, unit: Unit, at_ms: int) -> int:
    """Return an expiry as a number of a unit, rounded to the nearest integer like in Redis."""
    milliseconds = at_ms if unit.is_absolute else at_ms - session.now_ms
    return (milliseconds + unit.milliseconds // 2) // unit.milliseconds


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
    if present_ms is None:
        return condition.isdisjoint({b"XX", b"GT"})
    if b"NX" in condition or (b"GT" in condition and wanted_ms <= present_ms):
        return False
    return b"LT" not in condition or wanted_ms < present_ms


# -- SET -----------------------------------------------------------------------------------------

_TTL_WORDS = frozenset({*_OPTION_UNITS, b"KEEPTTL", b"PERSIST"})
COMPARISONS = frozenset({b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})
"""Conditions that compare a value, or its digest, with the argument after them."""
_SIZES = {
    **dict.fromkeys((*_OPTION_UNITS, *COMPARISONS), 1),
    **dict.fromkeys((b"KEEPTTL", b"PERSIST", b"GET", b"NX", b"XX", b"FNX", b"FXX"), 0),
}


@dataclass(eq=False, repr=False, slots=True)
class SetOptions:
    """The options of SET, GETEX, MSETEX, HGETEX or HSETEX."""

    flags: frozenset[bytes] = frozenset()
    """Words such as GET, and at most one of NX and XX and one of FNX and FXX."""
    comparison: tuple[bytes, bytes] | None = None
    """One of ``COMPARISONS`` with its operand, instead of NX or XX."""
    ttl_word: bytes = b""
    """KEEPTTL, PERSIST, or an expiry word such as EX with its ``ttl_number``."""
    ttl_number: bytes = b""

    @property
    def keep_ttl(self) -> bool:
        return self.ttl_word == b"KEEPTTL"

    def is_met(self, value: object) -> bool:
        """Return whether the current value of a key meets the condition, if there is one."""
        if b"NX" in self.flags:
            return value is None
        if b"XX" in self.flags:
            return value is not None
        return self.comparison is None or meets(*self.comparison, value)

    def expires_at(self, session: Session) -> int | None:
        """Return the expiry in Unix milliseconds, or None without a new one."""
        unit = _OPTION_UNITS.get(self.ttl_word)
        return None if unit is None else expiry_ms(session, self.ttl_number, unit)


def parse_set_options(session: Session, args: Args, at: int) -> SetOptions:
    """Parse options from ``at`` on.

    Flags and options about the TTL may be repeated. The last number of an expiry counts.
    """
    given = SetOptions()
    for word, values in options(args, at, _SIZES, of=running(session)):
        if word in _TTL_WORDS:
            if given.ttl_word not in (b"", word):
                raise CommandError(errors.SYNTAX)
            given.ttl_word, given.ttl_number = word, values[0] if values else b""
        elif word in COMPARISONS:
            if given.comparison is not None:
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
    if comparison in (b"IFDEQ", b"IFDNE") and not re.fullmatch(rb"[0-9a-fA-F]{16}", operand):
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
