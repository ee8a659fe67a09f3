"""Glob patterns as Redis matches them, in time at most proportional to pattern times text.

``*`` any run, ``?`` any byte, ``[a-c]`` and ``[^x]`` classes, a backslash takes the next byte as it
is. A pattern is cut at its stars; the pieces between have a fixed length, so taking each at its
first possible place is right, and nothing is ever tried twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

__all__ = ["has_wildcard", "matcher", "matches"]


def matches(pattern: bytes, text: bytes, nocase: bool = False) -> bool:
    """Whether the whole text matches the pattern."""
    return matcher(pattern, nocase)(text)


def has_wildcard(pattern: bytes) -> bool:
    """Whether the pattern can match anything but its own text."""
    return any(byte in b"*?[\\" for byte in pattern)


@lru_cache(maxsize=512)
def matcher(pattern: bytes, nocase: bool = False) -> Callable[[bytes], bool]:
    """A function that tells whether a text matches the pattern; kept for the next call."""
    if pattern == b"*":
        return _anything
    pieces = _pieces(pattern)
    flags = re.DOTALL | (re.IGNORECASE if nocase else 0)
    if len(pieces) == 1:
        whole = re.compile(pieces[0], flags)
        return lambda text: whole.fullmatch(text) is not None
    head = re.compile(pieces[0], flags)
    middle = [re.compile(piece, flags) for piece in pieces[1:-1] if piece]
    tail = re.compile(pieces[-1] + rb"\Z", flags)
    tail_length = _length(pieces[-1])

    def match(text: bytes) -> bool:
        found = head.match(text)
        if found is None:
            return False
        position = found.end()
        for piece in middle:
            found = piece.search(text, position)
            if found is None:
                return False
            position = found.end()
        last = len(text) - tail_length
        return last >= position and tail.match(text, last) is not None

    return match


def _anything(text: bytes) -> bool:
    return True


_NOTHING = b"(?!)."


def _length(piece: bytes) -> int:
    # Each element of a piece consumes one byte: an escape of four characters, a dot, or a class.
    return len(re.findall(rb"\\x..|\[[^]]*\]|\(\?!\)\.|\.", piece))


def _literal(byte: int) -> bytes:
    return b"\\x%02x" % byte


def _pieces(pattern: bytes) -> list[bytes]:
    pieces = [b""]
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        at += 1
        if byte == 0x2A:  # *
            if pieces[-1] or len(pieces) == 1:
                pieces.append(b"")
        elif byte == 0x3F:  # ?
            pieces[-1] += b"."
        elif byte == 0x5B:  # [
            element, at = _class(pattern, at)
            pieces[-1] += element
        else:
            if byte == 0x5C and at < len(pattern):  # backslash; the last byte stands for itself
                byte = pattern[at]
                at += 1
            pieces[-1] += _literal(byte)
    return pieces


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    negated = pattern[at : at + 1] == b"^"
    at += negated
    members: set[int] = set()
    while at < len(pattern):
        left = len(pattern) - at
        if pattern[at] == 0x5C and left >= 2:
            members.add(pattern[at + 1])
            at += 2
        elif pattern[at] == 0x5D:  # ]
            at += 1
            break
        elif left >= 3 and pattern[at + 1] == 0x2D:  # a-c, even where c is "]"
            members.update(_range(pattern[at], pattern[at + 2]))
            at += 3
        else:
            members.add(pattern[at])
            at += 1
    if not members:
        return (b"." if negated else _NOTHING), at
    body = b"".join(_literal(byte) for byte in sorted(members))
    return b"[" + (b"^" if negated else b"") + body + b"]", at


def _range(start: int, end: int) -> set[int]:
    # Redis compares signed chars, so bytes above 127 come before the others.
    low, high = sorted((start - 256 if start > 127 else start, end - 256 if end > 127 else end))
    return {byte % 256 for byte in range(low, high + 1)}
