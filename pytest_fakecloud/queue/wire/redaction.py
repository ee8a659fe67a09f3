"""Redaction, which replaces parts of messages by ``REDACTED:<sha256>`` in everything the API shows.

Deliveries are not redacted. Source: the vendor's page on redacted fields. The redaction of a workflow
run applies to all its messages, also to later steps and the failure function, and to the responses to
them. Decided here: an invoked run has its own redaction, as it has its own retries. A callback has the
redaction of the message on which it reports. Headers that a body repeats, such as those in the body
of a callback, are hidden only with the body.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from ..errors import bad_request
from ..model import HeaderList, Redaction
from .text import header_map, quoted, unprefixed

_ONE_HEADER = r"(?i)headers?\[([^\[\]]+)\]\Z"
_FORWARDED = r"(?:(?:failure-)?callback-)*forward-(.+)"
"""Matches settings that forward a header, also nested ones of callbacks."""


def read_redaction(text: str) -> Redaction:
    """Parse a comma-separated list of ``body``, ``header`` and ``header[Name]``."""
    body = False
    every = False
    names: set[str] = set()
    for part in (piece.strip() for piece in text.split(",")):
        if part.lower() == "body":
            body = True
        elif part.lower() in ("header", "headers"):
            every = True
        elif found := re.match(_ONE_HEADER, part):
            names.add(found.group(1).strip().lower())
        elif part:
            raise bad_request(
                f"invalid redact field: {quoted(part)}, expected body, header or header[<name>]"
            )
    return Redaction(body=body, all_headers=every, headers=frozenset(names))


def hidden(value: object) -> str:
    """Return the replacement of bytes, of a string, or of another JSON value."""
    if not isinstance(value, bytes):
        text = value if isinstance(value, str) else json.dumps(value)
        value = text.encode("utf-8", "surrogatepass")
    return f"REDACTED:{hashlib.sha256(value).hexdigest()}"


def shown_text(body: bytes, redaction: Redaction) -> str:
    """Return a body as text. An empty body is never replaced."""
    return hidden(body) if body and redaction.body else body.decode("utf-8", "replace")


def shown_json(value: object, redaction: Redaction) -> object:
    """Return a JSON value that is a body or a part of one. A missing value is never replaced."""
    return value if value is None or not redaction.body else hidden(value)


def shown_headers(headers: Iterable[tuple[str, str]], redaction: Redaction) -> dict[str, list[str]]:
    """Return headers of a delivery or of its response as the API represents them."""
    return {
        name: [hidden(one) for one in values] if redaction.hides_header(name) else values
        for name, values in header_map(headers).items()
    }


def shown_json_headers(headers: object, redaction: Redaction) -> object:
    """Return headers that a client sent as JSON, which can be any value."""
    if not isinstance(headers, dict):
        return hidden(headers) if redaction.all_headers and headers is not None else headers
    shown: dict[str, object] = {}
    for name, values in headers.items():
        if not redaction.hides_header(name):
            shown[name] = values
        else:
            shown[name] = (
                [hidden(one) for one in values] if isinstance(values, list) else hidden(values)
            )
    return shown


def shown_settings(headers: Iterable[tuple[str, str]], redaction: Redaction) -> HeaderList:
    """Return headers of a request to the queue, of which only forwarded headers are redacted."""
    shown: HeaderList = []
    for name, value in headers:
        own = unprefixed(name)
        setting = None if own is None else re.fullmatch(_FORWARDED, own)
        forwarded = name if own is None else setting and setting[1]
        is_hidden = forwarded and redaction.hides_header(forwarded)
        shown.append((name, hidden(value) if is_hidden else value))
    return shown
