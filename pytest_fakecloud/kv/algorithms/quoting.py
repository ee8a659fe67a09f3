"""Splits lines into words, for inline commands and shebang lines."""

from __future__ import annotations

_ESCAPES = dict(zip(b"nrtba", b"\n\r\t\b\a", strict=True))
_SPACES = b" \n\r\t\v\f\0"
_HEX = frozenset(b"0123456789abcdefABCDEF")


def split_words(line: bytes) -> list[bytes] | None:
    r"""Split a line into words as a shell does; return None if a quote is not closed properly.

    Double quotes support escapes (``\x41``, ``\n``). Single quotes support only ``\'``.
    """
    words: list[bytes] = []
    at, size = 0, len(line)
    while True:
        while at < size and line[at] in _SPACES:
            at += 1
        if at == size:
            return words
        word = bytearray()
        while at < size and line[at] not in _SPACES:
            quote = line[at]
            if quote not in b"\"'":
                word.append(quote)
                at += 1
                continue
            end = _quoted(line, at + 1, quote, word)
            # A closing quote must be followed by a space or the end of the line.
            if end is None or (end < size and line[end] not in _SPACES):
                return None
            at = end
            break
        words.append(bytes(word))


def _quoted(line: bytes, at: int, quote: int, word: bytearray) -> int | None:
    """Append a quoted string to ``word``; return the position after it, or None if it is open."""
    size = len(line)
    while at < size:
        byte = line[at]
        if byte == quote:
            return at + 1
        length = 1
        if byte == ord("\\") and at + 1 < size:
            following = line[at + 1]
            if quote == ord("'"):
                if following == quote:
                    byte, length = quote, 2
            elif following == ord("x") and at + 3 < size and set(line[at + 2 : at + 4]) <= _HEX:
                byte, length = int(line[at + 2 : at + 4], 16), 4
            else:
                byte, length = _ESCAPES.get(following, following), 2
        word.append(byte)
        at += length
    return None
