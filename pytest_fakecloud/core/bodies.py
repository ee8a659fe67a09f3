"""Values in the bodies of requests and responses, and their texts."""

from __future__ import annotations

import base64
import json
from typing import Any

from .characters import printable

_WORDS = ("True", "False", "None")


def parsed(body: bytes | str) -> Any:
    """Parse a JSON body; return None if it is not JSON, or is nested too deeply."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def items_of(body: bytes | str) -> list[dict[str, Any]]:
    """Return the objects in a JSON body: one object, or those in a list and in lists inside it."""
    value = parsed(body)
    items = value if isinstance(value, list) else [value]
    lists = [item if isinstance(item, list) else [item] for item in items]
    return [item for item_list in lists for item in item_list if isinstance(item, dict)]


def from_base64(value: str) -> str:
    """Return the text that a Base64 string encodes; the string itself if it does not encode text."""
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except ValueError:
        return value


def compact(value: Any) -> str:
    """Return a JSON value as one line."""
    return printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def scalar(value: Any) -> str:
    """Format a value of a response; quote only strings that look like another type."""
    if not isinstance(value, str) or value in _WORDS:
        return compact(value)
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return value if value and value == value.strip() else compact(value)
    return f"'{value}'" if '"' in value and "'" not in value else compact(value)
