"""Redirects requests for an origin that is hard-coded in the application under test.

Requests sent by ``requests`` (also while ``responses`` is active), ``httpx`` and ``urllib3`` are
redirected to the fake's own address, where all features of the fake work. A request that the
service has no route for is reported like any unrouted request.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from ..core.errors import ContractError
from .detour import Detour
from .inprocess import origins
from .origin import parse_origin


class Interception(AbstractContextManager["Interception"]):
    """Redirects one origin to the address of a fake, from construction until ``close()``.

    Raises ``ContractError`` if the origin is already intercepted.
    """

    def __init__(self, url: str, origin: str, ca_file: str | None = None) -> None:
        self._key = parse_origin(origin)
        self.origin = origin.rstrip("/")
        self._open = origins.redirect(self._key, Detour(url, ca_file))
        if not self._open:
            raise ContractError(
                f"{self.origin} is already intercepted: end that interception first"
            )

    def close(self) -> None:
        """Stop intercepting. Can be called repeatedly."""
        if self._open:
            self._open = False
            origins.restore(self._key)

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Interception of {self.origin}{'' if self._open else ' closed'}>"
