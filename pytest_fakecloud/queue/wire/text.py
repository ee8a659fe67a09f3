"""Strings as they are sent over HTTP, with one Latin-1 character per byte."""

from __future__ import annotations


def as_text(wire: str) -> str:
    """Decode Latin-1 wire characters as UTF-8. Return them unchanged if they are not UTF-8."""
    if wire.isascii():
        return wire
    try:
        return wire.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return wire


def as_wire(text: str) -> str:
    """Encode a string as UTF-8 and return it with one Latin-1 character per byte."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def quoted(wire: str) -> str:
    """Return decoded wire characters in quotes, for error messages."""
    return repr(as_text(wire))
