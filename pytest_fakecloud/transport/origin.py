"""Origins (scheme, host and port of a server), and the fakes that they are redirected to."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from ..core.errors import ContractError

Origin = tuple[str, str, int]
"""Scheme, host and port."""
PORTS = {"http": 80, "https": 443}


class Detour(NamedTuple):
    """The fake that an origin is redirected to, and the file of its certificate authority.

    Client libraries open a connection of their own to the fake for each request, without the
    proxies and certificates that are set for the client.
    """

    url: str
    ca_file: str | None = None


def origin_of(scheme: str, host: str, port: int | None) -> Origin:
    """Return an origin with the usual port of the scheme if none is given."""
    # A final dot only marks a host name as fully qualified, so remove it.
    return scheme, host.rstrip("."), port or PORTS.get(scheme, 0)


def parse_origin(text: str) -> Origin:
    """Parse an origin; raise ``ContractError`` for any other string."""
    try:
        parts = urlsplit(text)
        origin = origin_of(parts.scheme, parts.hostname or "", parts.port)
        is_origin = parts.scheme in PORTS and origin[1] and parts.path in ("", "/")
        if is_origin and not parts.query and not parts.fragment:
            return origin
    except (AttributeError, TypeError, ValueError):
        pass  # The text is not a string, or its port is invalid.
    raise ContractError(
        f"{text!r} is not an origin: pass scheme and host, such as 'https://kv.example.com'"
    )
