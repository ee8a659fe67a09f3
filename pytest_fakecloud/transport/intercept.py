"""Answering requests to an origin that is hard-coded in the application under test.

``requests`` (also while ``responses`` is active), ``httpx`` and ``urllib3`` are sent to the fake's own
address instead, so that all it can do happens there as well. What the service has no route for is
reported like any unrouted request.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol
from urllib.parse import urlsplit

from ..core.errors import ContractError
from .detour import Detour
from .inprocess import Origin, origins

_PORTS = {"http": 80, "https": 443}


def parse_origin(text: str) -> Origin:
    """Scheme, host and port of an origin; ``ContractError`` for anything with a path."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except (AttributeError, TypeError, ValueError):  # no text at all, or no port
        parts = None
    if (
        parts is None
        or parts.scheme not in _PORTS
        or not (parts.hostname or "").rstrip(".")
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
    ):
        raise ContractError(
            f"{text!r} is not an origin: give scheme and host, such as 'https://kv.example.com'"
        )
    return parts.scheme, (parts.hostname or "").rstrip("."), port or _PORTS[parts.scheme]


class Fake(Protocol):
    """What answers for an origin."""

    @property
    def url(self) -> str:
        """Its base address, without a trailing slash."""


class Interception(AbstractContextManager["Interception"]):
    """Requests to one origin, answered by a fake; active from construction to ``close()``.

    Raises ``ContractError`` when the origin is intercepted already.
    """

    def __init__(self, handle: Fake, origin: str, ca_file: str | None = None) -> None:
        self._key = parse_origin(origin)
        self.origin = origin.rstrip("/")
        self._open = origins.redirect(self._key, Detour(handle.url, ca_file))
        if not self._open:
            raise ContractError(f"{self.origin} is intercepted already: leave that block first")

    def close(self) -> None:
        """Let requests to the origin go where they went before; any number of calls."""
        if self._open:
            self._open = False
            origins.restore(self._key)

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Interception of {self.origin}{'' if self._open else ' closed'}>"
