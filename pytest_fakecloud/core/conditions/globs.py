"""Strings with ``*`` for any characters; ``\\*`` is a literal star."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import AnyStr

_STAR = re.compile(r"(?<!\\)\*")


def pieces_of(text: str) -> tuple[str, ...]:
    """Return the literal pieces of a glob pattern, between its stars."""
    return tuple(piece.replace("\\*", "*") for piece in _STAR.split(text))


@lru_cache(maxsize=256)
def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whether a string matches a glob pattern."""
    return pieces_matcher(pieces_of(pattern))


def pieces_matcher(pieces: Sequence[AnyStr]) -> Callable[[AnyStr], bool]:
    """Return a function that tests whether a string consists of these pieces in order, with anything
    between them.

    It searches for the pieces one by one, because a regular expression with several stars could take
    exponential time.
    """
    if len(pieces) == 1:
        return pieces[0].__eq__
    head, tail = pieces[0], pieces[-1]
    middle = [piece for piece in pieces[1:-1] if piece]
    least = sum(map(len, pieces))

    def match(text: AnyStr) -> bool:
        if len(text) < least or not (text.startswith(head) and text.endswith(tail)):
            return False
        position, stop = len(head), len(text) - len(tail)
        for piece in middle:
            found = text.find(piece, position, stop)
            if found < 0:
                return False
            position = found + len(piece)
        return True

    return match
