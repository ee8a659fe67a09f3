"""The connected clients of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from .client import Client

if TYPE_CHECKING:
    from ..acl.users import AclUser
    from .blocking import Waiters

S = TypeVar("S", bound=Client)


class Clients(Generic[S]):
    """Connections to the database port and event streams, which the transports add and remove."""

    def __init__(self, waiters: Waiters, streaming: set[S]) -> None:
        self._waiters = waiters
        self._streaming = streaming
        self.connected: dict[int, S] = {}
        """Sessions of the database port by client ID."""

    def of_port(self) -> list[S]:
        """Return a new list of the port's sessions, because other threads add and remove sessions."""
        return list(self.connected.copy().values())

    def of(self, user: AclUser) -> list[S]:
        return [each for each in (*self.of_port(), *self._streaming.copy()) if each.user is user]

    def disconnect(self, session: Client) -> None:
        """Ask the transport of a connection or event stream to close it."""
        session.closing = True
        waiter = self._waiters.of(session.id)
        if waiter is not None:
            self._waiters.remove(waiter)
            waiter.finish(None)
        if session.wake is not None:
            session.wake()
