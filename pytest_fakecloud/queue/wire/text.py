"""Strings and headers as they are sent over HTTP.

A string has one Latin-1 character per byte. Headers are pairs, or JSON objects that map names to lists
of values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import bad_request
from ..model import HeaderList

HOP_BY_HOP = frozenset({
    "host", "content-length", "connection", "transfer-encoding", "accept-encoding", "keep-alive",
    "te", "upgrade", "trailer", "proxy-connection", "proxy-authorization", "proxy-authenticate",
    "expect",
})  # fmt: skip
"""Headers about a message's framing or about a single connection, which are not forwarded."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that a header value must not contain."""
_MAX_BODY = 2_000
"""Maximum number of characters of a shortened body."""


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


def shortened_body(body: bytes) -> str:
    return body[: _MAX_BODY * 4].decode("utf-8", "replace")[:_MAX_BODY]


def quoted(wire: str) -> str:
    return repr(as_text(wire))


def canonical(name: str) -> str:
    """Return a header name in canonical case (``X-My-Id`` for ``x-my-id``)."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def unprefixed(name: str) -> str | None:
    """Return a header name after ``Upstash-`` or ``Service-`` in lower case, or None."""
    lower = name.lower()
    return lower.partition("-")[2] if lower.startswith(("upstash-", "service-")) else None


def first_setting(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the first value of a header, whose name is given in lower case without its prefix."""
    return next((value for key, value in headers if unprefixed(key) == name), None)


def overridden(base: HeaderList, by: HeaderList) -> HeaderList:
    """Return headers combined with those in ``by``, which replace headers of the same name."""
    replaced = {name.lower() for name, _ in by}
    return [pair for pair in base if pair[0].lower() not in replaced] + by


def check_header(name: str, value: str) -> None:
    """Raise a 400 error if a header's name or value is malformed."""
    if not _TOKEN.match(name):
        raise bad_request(f"invalid header name: {quoted(name)}")
    if CONTROL.search(value):
        raise bad_request(f"invalid header value for {name}: it contains a control character")


def json_headers(headers: Mapping[str, Any]) -> HeaderList:
    """Return headers as pairs, from a JSON object that maps names to values or lists of values.

    Raises a 400 error for values that are not strings, numbers or booleans.
    """
    pairs: HeaderList = []
    for name, values in headers.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, dict | list) or value is None:
                raise bad_request(f"invalid header {name}: expected a string")
            # JSON writes true and 1.5 as the service does.
            text = value if isinstance(value, str) else json.dumps(value)
            pairs.append((as_wire(str(name)), as_wire(text)))
    return pairs


def header_map(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return headers as the API represents them, with lists of values by canonical name."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(canonical(name), []).append(as_text(value))
    return found
