"""Values of reports as strings: readable bodies and compact JSON."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from ..cloud.services import SERVICES
from ..core.characters import printable

EXCERPT = 400
"""Maximum length of a body in a row, in characters."""
_BASE64_LEAST = 16
"""Minimum length of a string that is decoded as Base64; shorter words may be Base64 by chance."""
_WORDS = ("True", "False", "None")
_TAGS = re.compile(r"(?s)<(script|style|head)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>")
_TITLE = re.compile(r"(?is)<title[^>]*>(.*?)</title>")


def shortened(text: str, most: int = 48) -> str:
    """Shorten a string to ``most`` characters: its two ends and a checksum of the whole string."""
    if len(text) <= most:
        return text
    # The gap and the checksum take eight characters.
    room = max(2, most - 8)
    tail = room // 3
    check = zlib.crc32(text.encode("utf-8", "surrogatepass")) & 0xFFFF
    return f"{text[: room - tail]}…{text[-tail:]} #{check:04x}"


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


def readable(body: bytes | str, kind: str = "") -> str:
    """Return a body as one line: compact JSON, the text of HTML, or the body itself.

    ``kind`` is its content type. Encoded strings in JSON are decoded (`decoded()`).
    """
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    stripped = text.lstrip()
    if stripped[:1] in ("{", "["):
        value = parsed(text)
        if value is not None:
            return compact(decoded(value))
    if "html" in kind or stripped[:9].lower().startswith(("<!doctype", "<html")):
        title = _TITLE.search(text)
        text = html.unescape(_TAGS.sub(" ", text))
        if title:
            name = " ".join(html.unescape(title[1]).split())
            if name[:3].isdigit():
                return name
            text = " ".join(text.split()).removeprefix(name)
            text = f"{name}: {text}" if text.strip() else name
    return " ".join(text.split())


def decoded(value: Any) -> Any:
    """Decode the strings in a JSON value that contain JSON or Base64.

    A decoded string becomes an object that names its encoding, so that it cannot be mistaken for
    JSON that was sent. A value that is nested too deeply is returned unchanged.
    """
    try:
        return _decoded(value)
    except RecursionError:
        return value


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _inside(value)
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    base64_fields = _base64_fields(value)
    return {name: (_of_base64_field(name, item) if name in base64_fields else _decoded(item))
            for name, item in value.items()}  # fmt: skip


def _base64_fields(value: Mapping[str, Any]) -> set[str]:
    """Return the fields of a JSON object that are Base64 by the definition of a service."""
    declared = [item for service in SERVICES.values() for item in service.base64_fields.items()]
    return {name for of_object, names in declared if of_object in value for name in names}


def _of_base64_field(name: str, item: Any) -> Any:
    if not isinstance(item, str):
        return item
    text = from_base64(item)
    if name.endswith("Base64"):
        return text  # The name of the field says that it was encoded.
    value = parsed(text)
    return {"Base64": text if value is None else _decoded(value)}


def _inside(text: str) -> Any:
    """Return an object that maps a string's encoding to its content, or the string itself."""
    if text[:1] in ("{", "["):
        value = parsed(text)
        return {"JSON in a string": _decoded(value)} if isinstance(value, dict | list) else text
    if len(text) < _BASE64_LEAST:
        return text
    coded = text
    if "-" in text or "_" in text:  # URL-safe Base64, whose padding may be missing
        coded = text.translate({45: "+", 95: "/"}) + "=" * (-len(text) % 4)
    inner = from_base64(coded)
    is_readable = inner.isascii() and all(
        character.isprintable() or character in "\r\n\t" for character in inner
    )
    if inner == coded or not is_readable:
        return text
    value = parsed(inner)
    return {"Base64": _decoded(value) if isinstance(value, dict | list) else inner}


def from_base64(value: str) -> str:
    """Return the text that a Base64 string encodes; the string itself if it does not encode text."""
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except ValueError:
        return value
