"""Read bearer tokens and basic credentials from headers; compare them in constant time."""

from __future__ import annotations

import base64
import binascii
import hmac
import os


def new_token(length: int = 48) -> str:
    """Return a random token of ``length`` hexadecimal digits. It never depends on the seed."""
    return os.urandom((length + 1) // 2).hex()[:length]


def bearer_token(header: str | None) -> str | None:
    """Return the token of an ``Authorization: Bearer`` header, or None."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def basic_credentials(header: str | None) -> tuple[bytes, bytes] | None:
    """Return the user and password of an ``Authorization: Basic`` header as bytes, or None.

    They are bytes because clients disagree about the encoding: compare them with ``same()``.
    """
    if header is None:
        return None
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
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
