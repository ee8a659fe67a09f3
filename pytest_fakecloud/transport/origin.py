"""Origins: scheme, host and port of a server."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..core.errors import ContractError

Origin = tuple[str, str, int]
"""Scheme, host and port."""
PORTS = {"http": 80, "https": 443}


def origin_of(scheme: str, host: str, port: int | None) -> Origin:
    """Return an origin with the usual port of the scheme if none is given."""
    # A final dot only marks a host name as fully qualified, so remove it.
    return scheme, host.rstrip("."), port or PORTS.get(scheme, 0)


def parse_origin(text: str) -> Origin:
    """Parse an origin into scheme, host and port; raise ``ContractError`` for any other string."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except (AttributeError, TypeError, ValueError):
        # The text is not a string, or its port is invalid.
        parts = None
    if (
        parts is None
        or parts.scheme not in PORTS
        or not (parts.hostname or "").rstrip(".")
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
    ):
        raise ContractError(
            f"{text!r} is not an origin: pass scheme and host, such as 'https://kv.example.com'"
        )
    return parts.scheme, (parts.hostname or "").rstrip("."), port or PORTS[parts.scheme]
