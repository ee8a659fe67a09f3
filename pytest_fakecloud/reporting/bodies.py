"""Bodies as a reader wants them: JSON compact, HTML as text, Base64 decoded, long ones shortened.

Two texts that differ never become the same: what is shortened carries a check of the whole.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import zlib
from typing import Any

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""What a terminal would obey, for ``str.translate``."""

_WORDS = ("True", "False", "None")
_TAGS = re.compile(r"(?s)<(script|style|head)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>")
_TITLE = re.compile(r"(?is)<title[^>]*>(.*?)</title>")


def shortened(text: str, most: int = 48) -> str:
    """A text of at most some characters: its two ends and a check of the whole where it is longer."""
    if len(text) <= most:
        return text
    # Eight characters for the gap and the check.
    room = max(2, most - 8)
    tail = room // 3
    check = zlib.crc32(text.encode("utf-8", "surrogatepass")) & 0xFFFF
    return f"{text[: room - tail]}…{text[-tail:]} #{check:04x}"


def printable(text: str) -> str:
    r"""The text with surrogates that stand alone (``"\ud800"``) as JSON writes them.

    Nothing that is written as UTF-8, a page or an event, can hold them.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def compact(value: Any) -> str:
    """A JSON value in one line."""
    return printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def scalar(value: Any) -> str:
    """A value of an answer: text as it is, in quotes only where it could be taken for another type."""
    if not isinstance(value, str) or value in _WORDS:
        return compact(value)
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return value if value and value == value.strip() else compact(value)
    return f"'{value}'" if '"' in value and "'" not in value else compact(value)


def parsed(body: bytes | str) -> Any:
    """A body as JSON; None where it is none, or too deep."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def readable(body: bytes | str, kind: str = "") -> str:
    """A body in one line: compact JSON, the words of HTML, or the text itself.

    ``kind`` is its content type. Base64 fields of a callback (``body``, ``sourceBody``) are decoded.
    """
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    stripped = text.lstrip()
    if stripped[:1] in ("{", "["):
        value = parsed(text)
        if value is not None:
            return compact(decoded(value))
    if "html" in kind or stripped[:9].lower().startswith(("<!doctype", "<html")):
        title = _TITLE.search(text)
        words = html.unescape(_TAGS.sub(" ", text))
        text = f"{html.unescape(title[1])}: {words}" if title else words
    return " ".join(text.split())


def decoded(value: Any) -> Any:
    """A callback's or dead letter's JSON with its Base64 fields decoded; anything else as it is."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for name in ("sourceBody", "body", "responseBody") if "sourceBody" in value else ():
        inner = found.get(name)
        if isinstance(inner, str):
            text = plain(inner)
            found[name] = text if (whole := parsed(text)) is None else whole
    if isinstance(value.get("bodyBase64"), str):
        found["bodyBase64"] = plain(value["bodyBase64"])
    return found


def plain(value: str) -> str:
    """A Base64 text decoded; itself where it is none, or no text."""
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return value
