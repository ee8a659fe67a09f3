"""The connected clients of one server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from .client import Client

if TYPE_CHECKING:
    from ..model import User
    from .blocking import Waiters

S = TypeVar("S", bound=Client)


class Clients(Generic[S]):
    """The connections to the database port, and event streams; transports add and remove them.

    ``waiters`` are the clients that are blocked, ``streaming`` the sessions of event streams.
    """

    def __init__(self, waiters: Waiters, streaming: set[S]) -> None:
        self._waiters = waiters
        self._streaming = streaming
        self.connected: dict[int, S] = {}
        """The sessions of the database port by number."""

    def of_port(self) -> list[S]:
        """Return a copy of the list of database port sessions, which other threads may open or
        close.
        """
        return list(self.connected.copy().values())

    def of(self, user: User) -> list[S]:
        """Return the connections and event streams of a user."""
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
