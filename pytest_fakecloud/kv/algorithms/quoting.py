"""Splits lines into words, for inline commands and shebang lines."""

from __future__ import annotations

import re

_SPACES = b" \n\r\t\v\f\0"
_WORD = re.compile(
    rb"""
    ([^ \n\r\t\v\f\0"']*)
    (?: " ((?: \\. | [^"\\] )*+) " | ' ((?: \\' | [^'] )*+) ' )?
    (?: [ \n\r\t\v\f\0]+ | \Z )
    """,
    re.VERBOSE | re.DOTALL,
)
"""Any bytes and then, optionally, a string in quotes, which ends the word; and spaces."""
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_words(line: bytes) -> list[bytes] | None:
    r"""Split a line into words as a shell does; return None if a quote is not closed properly.

    Double quotes support escapes (``\x41``, ``\n``). Single quotes support only ``\'``.
    """
    line = line.strip(_SPACES)
    words: list[bytes] = []
    at = 0
    while at < len(line):
        match = _WORD.match(line, at)
        if match is None:
            return None
        plain, double_quoted, single_quoted = match.groups(b"")
        unescaped = _ESCAPE.sub(_unescaped, double_quoted) or single_quoted.replace(rb"\'", b"'")
        words.append(plain + unescaped)
        at = match.end()
    return words


def _unescaped(match: re.Match[bytes]) -> bytes:
    digits, character = match.groups(b"")
    return bytes.fromhex(digits.decode()) or _CONTROLS.get(character, character)
