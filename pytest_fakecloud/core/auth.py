"""Credentials: bearer tokens and basic users, read from headers and compared in constant time."""

from __future__ import annotations

import base64
import binascii
import hmac
import os


def new_token(length: int = 48) -> str:
    """A fresh random token of that many hexadecimal digits; never from the seed."""
    return os.urandom((length + 1) // 2).hex()[:length]


def bearer_token(header: str | None) -> str | None:
    """The token of an ``Authorization: Bearer`` header, or None."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def basic_credentials(header: str | None) -> tuple[bytes, bytes] | None:
    """User and password bytes of an ``Authorization: Basic`` header, or None.

    Bytes, because clients disagree about the encoding: compare with ``same``.
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
    """Return whether a credential is the expected one, in UTF-8 or Latin-1 bytes."""
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
