"""Strings with ``*`` for any characters; ``\\*`` is a literal star."""

from __future__ import annotations

import re
from functools import lru_cache

_STAR = re.compile(r"(?<!\\)\*")


@lru_cache(maxsize=256)
def pieces_of(text: str) -> tuple[str, ...]:
    """Return the literal pieces of a glob pattern, between its stars."""
    return tuple(piece.replace("\\*", "*") for piece in _STAR.split(text))


def consists_of(pieces: tuple[str, ...], found: str) -> bool:
    """Return whether a string consists of these pieces in order, with anything between them."""
    # Search for the pieces one by one: a regular expression with several stars could take
    # exponential time.
    first, *middle = pieces
    if not middle:
        return found == first
    last = middle.pop()
    at, end = len(first), len(found) - len(last)
    if at > end or not (found.startswith(first) and found.endswith(last)):
        return False
    for piece in middle:
        place = found.find(piece, at, end)
        if place < 0:
            return False
        at = place + len(piece)
    return True
