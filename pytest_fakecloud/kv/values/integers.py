"""Which byte strings the server stores as integers."""

from __future__ import annotations

import re

_CANONICAL = re.compile(rb"(?:0|-?[1-9][0-9]{0,18})\Z")


def canonical_integer(text: bytes) -> int | None:
    """The 64-bit signed integer whose only spelling is ``text``, or None.

    ``01``, ``+1``, ``-0`` and `` 1`` are strings to the server, not integers.
    """
    if not _CANONICAL.match(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
