"""Recognizes the byte strings that Redis stores as integers."""

from __future__ import annotations

import re

_CANONICAL = re.compile(rb"(?:0|-?[1-9][0-9]{0,18})\Z")


def canonical_integer(text: bytes) -> int | None:
    """Return the 64-bit integer of a canonical string (not ``01``, ``+1``, ``-0``), or None."""
    if not _CANONICAL.match(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
