"""Parsers for parts of requests: path segments, query strings, JSON, booleans and integers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote_to_bytes


def segment_bytes(raw: str) -> bytes:
    """Return the bytes of one raw path segment, with percent escapes decoded once."""
    return unquote_to_bytes(raw.encode("latin-1"))


def decode_segment(raw: str) -> str:
    """Return one raw path segment as a string; invalid UTF-8 becomes U+FFFD."""
    return segment_bytes(raw).decode("utf-8", "replace")


def query_items(query_string: str) -> list[tuple[str, str]]:
    """Return the decoded names and values of a raw query string in order, including empty values."""
    items = []
    for part in query_string.split("&"):
        if part:
            name, _, value = part.partition("=")
            items.append((_unquote(name), _unquote(value)))
    return items


def _unquote(raw: str) -> str:
    return unquote_to_bytes(raw.replace("+", " ").encode("latin-1")).decode("utf-8", "replace")


def json_value(body: bytes) -> Any:
    """Parse a body as JSON, whatever its Content-Type.

    Raises ``ValueError`` with line and column for invalid JSON, and for values nested too deeply
    for the parser.
    """
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError("the body is not valid UTF-8") from None
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None


def flag(text: str | None, default: bool = False) -> bool:
    """Parse a boolean: ``true``, ``false``, ``1`` or ``0``, ignoring case. Raises ``ValueError``
    for any other string.
    """
    if text is None:
        return default
    word = text.strip().lower()
    if word in ("true", "1"):
        return True
    if word in ("false", "0"):
        return False
    raise ValueError(f"expected true or false, got {text!r}")


def integer(
    text: str, *, minimum: int | None = None, maximum: int | None = None, name: str = "value"
) -> int:
    """Parse a decimal integer within the given bounds; raise ``ValueError`` otherwise."""
    stripped = text.strip()
    digits = stripped[1:] if stripped[:1] == "-" else stripped
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise ValueError(f"{name} must be an integer, got {text[:40]!r}")
    number = int(stripped)
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {number}")
    return number
