"""Subscriptions to channels, patterns and shard channels."""

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
    """The pub/sub subscriptions of all sessions.

    Messages are passed to ``session.deliver`` as ``Push`` lists. That function is called under the
    engine's lock, so it must only queue a message for a thread of the transport, and must not write
    to a socket or run a test's code.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, dict[bytes, dict[Client, None]]] = {kind: {} for kind in KINDS}

    def subscribe(self, session: Client, kind: str, name: bytes) -> None:
        """Subscribe a session to a channel or pattern, and push the confirmation."""
        session.subscriptions[kind][name] = None
        self._listeners[kind].setdefault(name, {})[session] = None
        session.push(Push([_WORDS[kind][0], name, self._count(session, kind)]))

    def unsubscribe(self, session: Client, kind: str, names: list[bytes]) -> None:
        """Unsubscribe a session from the named channels or patterns; without names, from all."""
        word = _WORDS[kind][1]
        going: list[bytes | None] = list(names or session.subscriptions[kind])
        for name in going or [None]:
            if name is not None:
                self._forget(session, kind, name)
            session.push(Push([word, name, self._count(session, kind)]))

    def drop(self, session: Client) -> None:
        """Remove the subscriptions of a session that has ended, without pushing confirmations."""
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
        sessions = self._listeners["shard"].get(channel, {})
        for session in sessions:
            session.push(Push([b"smessage", channel, message]))
        return len(sessions)

    def names(self, kind: str) -> list[bytes]:
        return list(self._listeners[kind])

    def listeners(self, kind: str, name: bytes) -> int:
        return len(self._listeners[kind].get(name, ()))

    def _forget(self, session: Client, kind: str, name: bytes) -> None:
        session.subscriptions[kind].pop(name, None)
        sessions = self._listeners[kind].get(name)
        if sessions is not None:
            sessions.pop(session, None)
            if not sessions:
                del self._listeners[kind][name]

    def _count(self, session: Client, kind: str) -> Any:
        # The number in a confirmation counts shard channels separately, but channels and patterns
        # together.
        if kind == "shard":
            return len(session.subscriptions["shard"])
        return len(session.subscriptions["channel"]) + len(session.subscriptions["pattern"])
