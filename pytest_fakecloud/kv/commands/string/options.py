"""The options of SET, GETEX and MSETEX, and the conditions that SET and DELEX share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ... import errors
from ...engine.engine import Session
from ...engine.keyspace import String
from ...errors import CommandError
from ...table.expiry import EXPIRY_WORDS, expiry_ms
from ...table.registry import Args
from ..arguments import options

COMPARISONS = frozenset({b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})
"""Conditions that compare a value, or its digest, with the argument after them."""

_EXPIRIES = dict.fromkeys(EXPIRY_WORDS, 1)
SET_SIZES: Mapping[bytes, int] = {
    **dict.fromkeys((b"NX", b"XX", b"GET", b"KEEPTTL"), 0),
    **_EXPIRIES,
    **dict.fromkeys(COMPARISONS, 1),
}
"""The options of SET with their numbers of values."""
GETEX_SIZES: Mapping[bytes, int] = {b"PERSIST": 0, **_EXPIRIES}
MSETEX_SIZES: Mapping[bytes, int] = {
    **dict.fromkeys((b"NX", b"XX", b"KEEPTTL"), 0),
    **_EXPIRIES,
}

_DIGEST = re.compile(rb"[0-9a-fA-F]{16}")


@dataclass(eq=False, repr=False, slots=True)
class SetOptions:
    """The options of SET, GETEX or MSETEX."""

    condition: bytes = b""
    """NX, XX, or one of ``COMPARISONS`` with its ``operand``."""
    operand: bytes = b""
    lifetime: bytes = b""
    """KEEPTTL, PERSIST, or an expiry word such as EX with its ``amount``."""
    amount: bytes = b""
    get: bool = False

    @property
    def keep_ttl(self) -> bool:
        return self.lifetime == b"KEEPTTL"

    def expires_at(self, session: Session, name: str) -> int | None:
        """Return the expiry in Unix milliseconds; an error contains the command's name."""
        if self.lifetime not in EXPIRY_WORDS:
            return None
        return expiry_ms(self.lifetime, self.amount, session.now_ms, name)


def parse_set_options(
    session: Session, args: Args, at: int, sizes: Mapping[bytes, int]
) -> SetOptions:
    """Parse options from ``at`` on.

    NX, XX and options about the lifetime may be repeated. The last number of an expiry counts.
    """
    given = SetOptions()
    for word, values in options(args, at, sizes):
        if word == b"GET":
            given.get = True
        elif word in (b"NX", b"XX"):
            if given.condition not in (b"", word):
                raise CommandError(errors.SYNTAX)
            given.condition = word
        elif word in COMPARISONS:
            if given.condition or not session.engine.table.knows[f"SET {word.decode()}"]:
                raise CommandError(errors.SYNTAX)
            given.condition, given.operand = word, values[0]
        else:
            if given.lifetime not in (b"", word):
                raise CommandError(errors.SYNTAX)
            given.lifetime, given.amount = word, values[0] if values else b""
    return given


def is_condition_met(condition: bytes, operand: bytes, value: object) -> bool:
    """Return whether the current value of a key meets a condition of SET or DELEX."""
    if condition == b"NX":
        return value is None
    if condition == b"XX":
        return value is not None
    if condition in (b"IFDEQ", b"IFDNE") and not _DIGEST.fullmatch(operand):
        raise CommandError(errors.BAD_DIGEST)
    if value is None:
        return condition in (b"IFNE", b"IFDNE")
    if not isinstance(value, bytes | bytearray):
        raise CommandError(errors.WRONGTYPE)
    whole = condition in (b"IFEQ", b"IFNE")
    same = value == operand if whole else digest(value) == operand.lower()
    return same == (condition in (b"IFEQ", b"IFDEQ"))


def digest(value: String) -> bytes:
    """Return the XXH3 digest of a string as 16 hexadecimal digits."""
    import xxhash  # imported here because it is rarely needed

    digits: str = xxhash.xxh3_64_hexdigest(value)
    return digits.encode()
