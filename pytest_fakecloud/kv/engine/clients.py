"""The connected clients of a server, and their lines in CLIENT LIST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from .client import Client

if TYPE_CHECKING:
    from ..acl.users import AclUser
    from .blocking import Waiters

S = TypeVar("S", bound=Client)

_BUFFERS = dict.fromkeys(
    ("qbuf", "qbuf-free", "argv-mem", "multi-mem", "rbs", "rbp", "obl", "oll", "omem", "tot-mem"), 0
)


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


def client_line(
    client: Client, now_us: int, *, waits: bool, running: str = "", libraries: bool = True
) -> bytes:
    """Return a client's line in the reply of CLIENT LIST.

    Pass ``waits=True`` for a blocked client, and ``libraries=False`` to omit ``lib-name`` and
    ``lib-ver``. ``running`` is the name of the command that requests the line; empty in the lines
    of other clients. All sizes of buffers are 0 (decided here: a fake has no buffers), except that
    of the query buffer of the client that sent the command.
    """
    subscriptions, tracking = client.subscriptions, client.tracking
    fields = {
        "id": client.id,
        "addr": client.address,
        "laddr": client.local_address,
        "fd": 8,
        "name": client.name.decode("latin-1"),
        "age": (now_us - client.created_us) // 1_000_000,
        "idle": (now_us - client.last_us) // 1_000_000,
        "flags": _flags(client, waits),
        "db": client.db.index,
        "sub": len(subscriptions["channel"]),
        "psub": len(subscriptions["pattern"]),
        "ssub": len(subscriptions["shard"]),
        "multi": client.in_exec or (-1 if client.queue is None else len(client.queue)),
        **_BUFFERS,
        "qbuf": _line_size(running),
        "events": "r",
        "cmd": (not client.in_exec and running) or client.last_command or "NULL",
        "user": client.user.name,
        "redir": -1 if tracking is None else tracking.redirect,
        "resp": client.resp,
    }
    if libraries:
        for name in ("lib-name", "lib-ver"):
            fields[name] = client.library.get(name, b"").decode("latin-1")
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    return text.encode("latin-1") + b"\n"


def _flags(client: Client, waits: bool) -> str:
    tracking = client.tracking
    found = {
        "O": client.monitor is not None,
        "P": any(client.subscriptions.values()),
        "x": client.queue is not None or bool(client.in_exec),
        "b": waits,
        "t": tracking is not None,
        "R": tracking is not None and tracking.broken,
        "B": tracking is not None and "bcast" in tracking.words,
        "d": client.watch_broken,
        "e": client.no_evict,
        "T": client.no_touch,
    }
    return "".join(letter for letter, holds in found.items() if holds) or "N"


def _line_size(command: str) -> int:
    """Return the size in bytes of a command's name (``client|list``) as sent in the Redis protocol."""
    words = command.split("|") if command else []
    sizes = [len(word) + len(str(len(word))) + len("$\r\n\r\n") for word in words]
    return sum(sizes) + (len("*2\r\n") if words else 0)
