"""Readable bodies."""

from __future__ import annotations

import html
import re
from typing import Any

from ..cloud.services import SERVICES
from ..core.bodies import compact, from_base64, parsed

EXCERPT = 400
"""Maximum length of a body in a row, in characters."""
_BASE64_LEAST = 16
"""Minimum length of a string that is decoded as Base64; shorter words may be Base64 by chance."""
_TAGS = re.compile(r"(?s)<(script|style|head)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>")
_TITLE = re.compile(r"(?is)<title[^>]*>(.*?)</title>")


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
    # A service may define fields of its objects as Base64.
    declared = [item for service in SERVICES.values() for item in service.base64_fields.items()]
    base64_fields = {name for of_object, names in declared if of_object in value for name in names}
    return {name: (_of_base64_field(name, item) if name in base64_fields else _decoded(item))
            for name, item in value.items()}  # fmt: skip


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
