"""Parsers for parts of requests: path segments, query strings, JSON and credentials."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any


def decode_segment(raw: str) -> str:
    """Return one raw path segment as a string; invalid UTF-8 becomes U+FFFD."""
    return decode_bytes(raw).decode("utf-8", "replace")


def decode_bytes(raw: str) -> bytes:
    """Return the bytes of a raw path segment, without its percent-encoding."""
    if "%" not in raw:
        return raw.encode("latin-1")
    # Imported here, because few requests of a first fake are percent-encoded.
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(raw.encode("latin-1"))


def query_items(query_string: str) -> list[tuple[str, str]]:
    """Return the decoded names and values of a raw query string in order, including empty values."""
    items = []
    for part in query_string.split("&"):
        if part:
            name, _, value = part.partition("=")
            items.append((_decode_query(name), _decode_query(value)))
    return items


def _decode_query(raw: str) -> str:
    return decode_segment(raw.replace("+", " "))


def json_value(body: bytes) -> Any:
    """Parse a body as JSON; raise ``ValueError``, also for values nested too deeply."""
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError("the body is not valid UTF-8") from None
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None


def bearer_token(header: str | None) -> str | None:
    """Return the token of an ``Authorization: Bearer`` header, or None."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def basic_credentials(header: str | None) -> tuple[bytes, bytes] | None:
    """Return user and password of an ``Authorization: Basic`` header, for ``same()``, or None."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
    except ValueError:
        return None
    user, colon, password = decoded.partition(b":")
    return (user, password) if colon else None


def same(given: str | bytes | None, expected: str) -> bool:
    """Return whether a credential equals the expected one, encoded as UTF-8 or as Latin-1."""
    if given is None:
        return False
    if isinstance(given, str):
        given = given.encode("utf-8", "surrogatepass")
    if hmac.compare_digest(given, expected.encode()):
        return True
    try:
        return hmac.compare_digest(given, expected.encode("latin-1"))
    except UnicodeEncodeError:
        return False
