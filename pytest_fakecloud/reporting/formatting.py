"""Format values for reports: compact JSON, readable bodies, and lists.

HTML is converted to text and Base64 is decoded. Shortened bodies that differ stay different,
because each ends with a checksum of the whole body.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping
from http.client import responses
from typing import Any
from unicodedata import category, normalize

from ..core.errors import listed
from ..core.timers import to_datetime

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""A table for ``str.translate`` that escapes control characters, which a terminal would execute."""

PIPELINED = 12
"""Maximum number of commands of a pipeline that are shown; failed commands are always shown."""
EXCERPT = 400
"""Maximum length of a body in a row, in characters."""
_TOKEN = re.compile(r"eyJ[\w-]+\.(eyJ[\w-]+)\.(?:[\w-]*|\*\*\*)")
"""A JSON web token, possibly with a masked signature."""
_BASE64_LEAST = 16
"""Minimum length of a string that is decoded as Base64; shorter words may be Base64 by chance."""
_END_OF_TIME = 253_402_300_800
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


def printable(text: str) -> str:
    r"""Escape the lone surrogates (``"\ud800"``) of a string, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def visible(text: str) -> str:
    """Escape the characters of a string that a reader cannot see or distinguish.

    These are invisible and bidirectional characters, unusual spaces and decomposed letters.
    """
    if text.isascii():
        return text
    hidden = {"Cf", "Zs", "Zl", "Zp"}
    if normalize("NFC", text) != text:
        hidden.add("Mn")
    return "".join(
        one.encode("ascii", "backslashreplace").decode()
        if one != " " and category(one) in hidden
        else one
        for one in text
    )


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
    """Return the objects in a JSON body, which is one object or a list of them."""
    value = parsed(body)
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


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
    """Decode the strings in a JSON value that contain JSON, Base64 or web tokens.

    A decoded string becomes an object that names its encoding, so that it cannot be mistaken for
    JSON that was sent. The Base64 fields of a callback or dead letter are replaced directly. A
    value that is nested too deeply is returned unchanged.
    """
    try:
        return _decoded(value)
    except RecursionError:
        return value


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _inside(value)
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = ("sourceBody", "body", "responseBody") if "sourceBody" in value else ()
    found = {}
    for name, inner in value.items():
        if name == "bodyBase64" and isinstance(inner, str):
            found[name] = from_base64(inner)
        elif name in fields and isinstance(inner, str):
            text = from_base64(inner)
            found[name] = text if (whole := parsed(text)) is None else _decoded(whole)
        else:
            found[name] = inner if name in fields else _decoded(inner)
    return found


def _inside(text: str) -> Any:
    """Return an object that maps a string's encoding to its content, or the string itself."""
    if text[:1] in ("{", "["):
        value = parsed(text)
        return {"JSON in a string": _decoded(value)} if isinstance(value, dict | list) else text
    token = _TOKEN.fullmatch(text)
    if token:
        claims = parsed(from_base64(_padded(token[1])))
        return {"JWT": _with_times(claims)} if isinstance(claims, dict) else text
    if len(text) < _BASE64_LEAST:
        return text
    coded = _padded(text) if "-" in text or "_" in text else text
    inner = from_base64(coded)
    is_readable = inner.isascii() and all(one.isprintable() or one in "\r\n\t" for one in inner)
    if inner == coded or not is_readable:
        return text
    value = parsed(inner)
    return {"Base64": _decoded(value) if isinstance(value, dict | list) else inner}


def _padded(text: str) -> str:
    """Convert URL-safe Base64 to the standard alphabet, with padding."""
    return text.translate({45: "+", 95: "/"}) + "=" * (-len(text) % 4)


def _with_times(claims: dict[str, Any]) -> dict[str, Any]:
    found = dict(claims)
    for name in ("exp", "nbf", "iat"):
        seconds = claims.get(name)
        if type(seconds) is int and 0 < seconds < _END_OF_TIME:
            found[name] = f"{seconds} ({to_datetime(seconds * 1_000_000):%Y-%m-%d %H:%M:%SZ})"
    return found


def each_from_base64(value: Any) -> Any:
    """Return a JSON value with its Base64 strings decoded."""
    if isinstance(value, list):
        return [each_from_base64(each) for each in value]
    if isinstance(value, dict):
        return {key: each_from_base64(each) for key, each in value.items()}
    return from_base64(value) if isinstance(value, str) else value


def from_base64(value: str) -> str:
    """Return the text that a Base64 string encodes; the string itself if it does not encode text."""
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except ValueError:
        return value


def namespace(name: str) -> str:
    return f"namespace {compact(name)}" if name else "the default namespace"


def pairs(values: Mapping[str, Any]) -> str:
    """Format names with values in JSON, which distinguishes strings from numbers."""
    return listed([f"{name}={shortened(compact(value))}" for name, value in values.items()])


def phrase_of(status: int) -> str:
    """Return the reason phrase of a status; empty if it has none."""
    return responses.get(status, "")
