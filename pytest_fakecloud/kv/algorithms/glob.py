"""Redis glob patterns, matched in time proportional to pattern length times string length.

``*`` matches any run of bytes, ``?`` any byte, and ``[a-c]`` and ``[^x]`` a class. A backslash
escapes the next byte. A pattern is split at its stars. The pieces between the stars have fixed
lengths, so it is correct to match each piece at its first possible position, and no position is
tried twice. Pieces without wildcards are found in linear time.

A pattern with more than 1,000 stars before its last character matches nothing, as in redis-server
since its correction of CVE-2024-31228, which 7.0.15 has in the packages of Debian and Ubuntu.

A single regular expression with an atomic group for each star (as in ``fnmatch``) is twice as fast
for short patterns, but takes seconds to compile for a pattern as long as a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache

from ...core.field_types import pieces_matcher

_KEPT_LENGTH = 4096
_MOST_STARS = 1000
"""Maximum number of stars, of which adjacent ones count once, and the last character does not."""

Element = int | frozenset[int] | None
"""An element of a pattern: a byte, a set of bytes, or None, which matches any byte."""


def matcher(pattern: bytes, nocase: bool = False) -> Callable[[bytes], bool]:
    """Return a cached function that tests strings."""
    return (_kept if len(pattern) <= _KEPT_LENGTH else _matcher)(pattern, nocase)


def _matcher(pattern: bytes, nocase: bool) -> Callable[[bytes], bool]:
    if pattern == b"*":
        return lambda text: True
    pattern = pattern.lower() if nocase else pattern
    if pattern.count(b"*") > _MOST_STARS:
        elements = _pieces(pattern)
        if len(elements) - (1 if elements[-1] else 2) > _MOST_STARS:
            return lambda text: False
    if not any(special in pattern for special in (b"?", b"[", b"\\")):
        match = pieces_matcher(pattern.split(b"*"))
    else:
        pieces = [_Piece(elements) for elements in _pieces(pattern)]
        match = _starred(pieces) if len(pieces) > 1 else pieces[0].is_whole
    return (lambda text: match(text.lower())) if nocase else match


_kept = lru_cache(maxsize=512)(_matcher)


class _Piece:
    """The part of a pattern between two stars, with one element for each byte that it matches."""

    def __init__(self, elements: list[Element]) -> None:
        self.length = len(elements)
        self._elements = elements
        plain = [element for element in elements if isinstance(element, int)]
        self._plain = bytes(plain) if len(plain) == len(elements) else None

    @cached_property
    def _expression(self) -> re.Pattern[bytes]:
        return re.compile(b"".join(map(_source, self._elements)), re.DOTALL)

    def is_whole(self, text: bytes) -> bool:
        return len(text) == self.length and self.is_at(text, 0)

    def is_at(self, text: bytes, start: int) -> bool:
        """Return whether the piece matches at ``start``; the string must be long enough."""
        if self._plain is not None:
            return text.startswith(self._plain, start)
        if self.length <= _KEPT_LENGTH:
            return self._expression.match(text, start) is not None
        # Compiling a regular expression of this length would take many times longer.
        return all(
            element is None or (element == byte if isinstance(element, int) else byte in element)
            for element, byte in zip(self._elements, text[start:], strict=False)
        )

    def find(self, text: bytes, start: int, stop: int) -> int:
        """Return the first position of a match between ``start`` and ``stop``, or -1."""
        if self._plain is not None:
            return text.find(self._plain, start, stop)
        if stop - start < self.length:
            return -1
        match = self._expression.search(text, start, stop)
        return -1 if match is None else match.start()


def _starred(pieces: list[_Piece]) -> Callable[[bytes], bool]:
    """Return the matcher of a pattern with at least one star."""
    head, *others, tail = pieces
    middle = [piece for piece in others if piece.length]
    least = sum(piece.length for piece in pieces)

    def match(text: bytes) -> bool:
        stop = len(text) - tail.length
        if len(text) < least or not head.is_at(text, 0) or not tail.is_at(text, stop):
            return False
        position = head.length
        for piece in middle:
            start = piece.find(text, position, stop)
            if start < 0:
                return False
            position = start + piece.length
        return True

    return match


def _source(element: Element) -> bytes:
    if element is None:
        return b"."
    if isinstance(element, int):
        return b"\\x%02x" % element
    if not element:
        return b"(?!)."
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(element)) + b"]"


def _pieces(pattern: bytes) -> list[list[Element]]:
    pieces: list[list[Element]] = [[]]
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        at += 1
        if byte == ord("*"):
            if pieces[-1] or len(pieces) == 1:
                pieces.append([])
        elif byte == ord("?"):
            pieces[-1].append(None)
        elif byte == ord("["):
            element, at = _class(pattern, at)
            pieces[-1].append(element)
        else:
            # A backslash at the end of the pattern matches itself.
            if byte == ord("\\") and at < len(pattern):
                byte = pattern[at]
                at += 1
            pieces[-1].append(byte)
    return pieces


_ALL = frozenset(range(256))


def _class(pattern: bytes, at: int) -> tuple[Element, int]:
    negated = pattern[at : at + 1] == b"^"
    at += negated
    members: set[int] = set()
    while at < len(pattern):
        length = len(pattern) - at
        if pattern[at] == ord("\\") and length >= 2:
            members.add(pattern[at + 1])
            at += 2
        elif pattern[at] == ord("]"):
            at += 1
            break
        elif length >= 3 and pattern[at + 1] == ord("-"):  # A range such as a-c, or even a-].
            members |= _range(pattern[at], pattern[at + 2])
            at += 3
        else:
            members.add(pattern[at])
            at += 1
    return _shared(_ALL - members if negated else frozenset(members)), at


@lru_cache(maxsize=512)
def _shared(members: frozenset[int]) -> frozenset[int]:
    # Return the same object for equal sets, because a pattern can contain a class a million times.
    return members


@lru_cache(maxsize=512)
def _range(start: int, end: int) -> frozenset[int]:
    # Redis compares signed chars, so bytes above 127 sort before the others.
    low, high = sorted((start - 256 if start > 127 else start, end - 256 if end > 127 else end))
    return frozenset(byte % 256 for byte in range(low, high + 1))
