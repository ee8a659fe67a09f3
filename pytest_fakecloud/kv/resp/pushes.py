"""Messages that the engine pushes to a client of the database port, and their order with replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..reply import NO_REPLY, Push, Reply, Status, to_resp
from .answers import Raw

if TYPE_CHECKING:
    from ..engine.engine import Engine, Session
    from .outbox import Outbox

_MESSAGES = frozenset({b"message", b"pmessage", b"smessage", b"invalidate"})
"""Kinds of pushes that confirm no SUBSCRIBE or UNSUBSCRIBE."""


class Pushes:
    """The pushed messages of one connection.

    Most messages are sent immediately. A message that the client's own command causes follows its
    reply, and in a transaction the confirmations of SUBSCRIBE are part of the reply to EXEC.
    ``is_replying`` returns whether the calling thread is running a command of the client, and
    ``cut`` closes the connection.
    """

    def __init__(
        self,
        engine: Engine,
        session: Session,
        outbox: Outbox,
        is_replying: Callable[[], bool],
        cut: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._session = session
        self._outbox = outbox
        self._is_replying = is_replying
        self._cut = cut
        self._confirmations: list[Push] = []
        self._after_reply: list[bytes] = []

    def push(self, message: list[Any]) -> None:
        """Add a message to the outbox. Called under the engine's lock, from any thread."""
        session = self._session
        if session.in_exec and isinstance(message, Push) and message[0] not in _MESSAGES:
            self._confirmations.append(message)
            return
        if session.closing:
            return
        if isinstance(message, Push):
            data = to_resp(message, session.resp)
        else:
            data = b"".join(to_resp(Status(line)) for line in message)
        if self._is_replying() and not self._engine.tracking.evicting and _follows_reply(message):
            self._after_reply.append(data)
            return
        self._outbox.put(data)
        if self._outbox.exceeds_limits():
            self._cut()
        elif not self._outbox.owner_will_send:
            self._outbox.send_later()

    def with_confirmations(self, reply: Reply) -> Reply:
        """Return the reply to EXEC with the confirmations in place of the replies to SUBSCRIBE."""
        if not self._confirmations:
            return reply
        confirmations, self._confirmations = self._confirmations, []
        if not isinstance(reply, list):
            return reply
        data = b"".join(to_resp(push, self._session.resp) for push in confirmations)
        first = next((at for at, item in enumerate(reply) if item is NO_REPLY), None)
        # The first SUBSCRIBE carries the confirmations of all.
        return [
            Raw(data if at == first else b"") if item is NO_REPLY else item
            for at, item in enumerate(reply)
        ]

    def take_after_reply(self) -> bytes:
        """Remove and return the messages to send after the reply."""
        if not self._after_reply:
            return b""
        data = b"".join(self._after_reply)
        self._after_reply.clear()
        return data


def _follows_reply(message: list[Any]) -> bool:
    """Return whether a message that the client itself caused is sent after the reply."""
    if not isinstance(message, Push):
        return True  # A list of strings consists of lines of MONITOR.
    return message[0] == b"invalidate" or message[1:2] == [b"__redis__:invalidate"]
