"""Channels, patterns and shard channels, and the sessions subscribed to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..algorithms.glob import matcher
from ..reply import Push

if TYPE_CHECKING:
    from .client import Client

KINDS = ("channel", "pattern", "shard")

_WORDS = {
    "channel": (b"subscribe", b"unsubscribe", b"message"),
    "pattern": (b"psubscribe", b"punsubscribe", b"pmessage"),
    "shard": (b"ssubscribe", b"sunsubscribe", b"smessage"),
}


class PubSub:
    """The subscriptions of all sessions.

    Messages are passed to ``session.deliver`` as ``Push`` lists. The function is called under the
    engine's lock, so it may only queue a message for a thread of the transport; it must not write
    to a socket or run a test's code.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, dict[bytes, dict[Client, None]]] = {kind: {} for kind in KINDS}

    def subscribe(self, session: Client, kind: str, name: bytes) -> None:
        """Subscribe a session to a name, and push the confirmation."""
        session.subscriptions[kind][name] = None
        self._listeners[kind].setdefault(name, {})[session] = None
        session.push(Push([_WORDS[kind][0], name, self._count(session, kind)]))

    def unsubscribe(self, session: Client, kind: str, names: list[bytes]) -> None:
        """Unsubscribe a session from names, or from all names of a kind if none are given."""
        word = _WORDS[kind][1]
        going: list[bytes | None] = list(names or session.subscriptions[kind])
        for name in going or [None]:
            if name is not None:
                self._forget(session, kind, name)
            session.push(Push([word, name, self._count(session, kind)]))

    def drop(self, session: Client) -> None:
        """Remove a session that ended, without pushing confirmations."""
        for kind in KINDS:
            for name in list(session.subscriptions[kind]):
                self._forget(session, kind, name)

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message to a channel; return the number of deliveries, one per subscription."""
        receivers = 0
        for session in self._listeners["channel"].get(channel, ()):
            session.push(Push([b"message", channel, message]))
            receivers += 1
        for pattern, sessions in self._listeners["pattern"].items():
            if matcher(pattern)(channel):
                for session in sessions:
                    session.push(Push([b"pmessage", pattern, channel, message]))
                    receivers += 1
        return receivers

    def publish_to_shard(self, channel: bytes, message: bytes) -> int:
        """Send a message to a shard channel; return the number of receivers."""
        sessions = self._listeners["shard"].get(channel, {})
        for session in sessions:
            session.push(Push([b"smessage", channel, message]))
        return len(sessions)

    def names(self, kind: str) -> list[bytes]:
        """Return the names of a kind that have subscribers."""
        return list(self._listeners[kind])

    def listeners(self, kind: str, name: bytes) -> int:
        """Return the number of subscribers of a name."""
        return len(self._listeners[kind].get(name, ()))

    def _forget(self, session: Client, kind: str, name: bytes) -> None:
        session.subscriptions[kind].pop(name, None)
        sessions = self._listeners[kind].get(name)
        if sessions is not None:
            sessions.pop(session, None)
            if not sessions:
                del self._listeners[kind][name]

    def _count(self, session: Client, kind: str) -> Any:
        # Count shard channels separately, and channels and patterns together.
        if kind == "shard":
            return len(session.subscriptions["shard"])
        return len(session.subscriptions["channel"]) + len(session.subscriptions["pattern"])
