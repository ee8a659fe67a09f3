"""Changes characters in strings: escapes what cannot be encoded, or what a reader cannot see."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any
from unicodedata import category, normalize


def printable(text: str) -> str:
    r"""Escape the lone surrogates (``"\ud800"``) of a string, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
"""Categories of characters that a terminal executes, that change the order of a line, or that a reader
cannot see.
"""
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols without a visible form."""
_SHOWN = frozenset(" \t\n")


def visible(text: str) -> str:
    """Escape characters that a reader cannot see or distinguish, and those that a terminal executes or
    that change the order of a line. Tabs and line feeds stay.
    """
    if text.isascii() and text.isprintable():
        return text
    hidden = _HIDDEN | {"Mn"} if normalize("NFC", text) != text else _HIDDEN
    unseen = {
        character for character in set(text) - _SHOWN
        if category(character) in hidden or character in _BLANK or _is_noncharacter(character)
    }  # fmt: skip
    return text.translate(
        {ord(character): character.encode("unicode_escape").decode() for character in unseen}
    )


def _is_noncharacter(character: str) -> bool:
    code = ord(character)
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


def map_strings(value: Any, change: Callable[[str], str], *, names: bool = True) -> Any:
    """Return a value with every string in it changed, the ``names`` of members only if true. Bytes are
    changed as Latin-1.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, bytes):
        return change(value.decode("latin-1")).encode("latin-1")
    if isinstance(value, list | tuple):
        return [map_strings(item, change, names=names) for item in value]
    if isinstance(value, Mapping):
        return {map_strings(name, change) if names else name: map_strings(item, change, names=names)
                for name, item in value.items()}  # fmt: skip
    return value


def shortened(text: str, most: int = 48) -> str:
    """Shorten a string to ``most`` characters: its two ends and a checksum of the whole string. Only the
    beginning of JSON, whose end would seem to belong to the last name before the gap.
    """
    if len(text) <= most:
        return text
    # The gap and the checksum take eight characters.
    room = max(2, most - 8)
    tail = 0 if text.startswith(("{", "[")) else room // 3
    check = zlib.crc32(text.encode("utf-8", "surrogatepass")) & 0xFFFF
    return f"{text[: room - tail]}…{text[len(text) - tail :]} #{check:04x}"


def first_words(description: str, most: int) -> str:
    """Return the first words of a description, in at most so many characters. Its values may be
    shortened, so a checksum of the whole would be one of nothing.
    """
    if len(description) <= most:
        return description
    beginning = description[: most - 4]
    return f"{beginning.rpartition(' ')[0] or beginning} ..."
