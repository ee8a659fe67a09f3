"""The two kinds of error: what a service would answer, and misuse by the tester."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ContractError", "ServiceError"]


class ServiceError(Exception):
    """An answer the real service would give to a bad request.

    ``status`` is the HTTP status, ``message`` the service's own text, ``headers`` extra response
    headers. Every service subclasses it; its app renders the body in the service's envelope.
    """

    def __init__(
        self, status: int, message: str, *, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


class ContractError(Exception):
    """The tester used a handle, the clock or a setting in a way that has no meaning.

    The text says what came, what was expected and what to do. Never answered to a client.
    """
