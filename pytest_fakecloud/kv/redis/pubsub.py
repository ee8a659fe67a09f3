"""Subscriptions of clients on a real server.

A lost connection is reopened as long as its session is subscribed. As for any client of a real
server, messages that are published in the meantime are lost. If the session's user may no longer
log in or subscribe, the session ends instead.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..reply import Push
from .feeds import Feed
from .prefixes import Prefixes, escaped

if TYPE_CHECKING:
    from .connection import Link


class Subscriptions:
    """The subscriptions of all sessions, each on its own connection to the real server."""

    def __init__(self, link: Link, prefixes: Prefixes) -> None:
        self._link = link
        self._prefixes = prefixes
        self._lock = threading.Lock()
        self._feeds: dict[Any, list[Feed]] = {}
        self._patterns: dict[Any, list[bytes]] = {}
        self._closed = False

    def subscribe(self, session: Any, kind: str, name: bytes) -> None:
        """Subscribe a session to a channel (``kind="channel"``) or a pattern."""
        with self._lock:
            # A client can subscribe while the fake is being closed.
            if self._closed:
                return
            feeds = self._feeds.setdefault(session, [])
            feed = self._new_feed(session, kind, name, len(feeds) + 1)
            feeds.append(feed)
            if kind == "pattern":
                self._patterns.setdefault(session, []).append(name)
            feed.start()

    def _new_feed(self, session: Any, kind: str, name: bytes, count: int) -> Feed:
        prefixes, channels = self._prefixes, self._prefixes.channels
        confirmed = False
        word = b"SUBSCRIBE" if kind == "channel" else b"PSUBSCRIBE"

        def take(message: Any) -> None:
            nonlocal confirmed
            head, *rest = message
            if bytes(head).endswith(b"subscribe"):
                if not confirmed:
                    session.push(Push([bytes(head), name, count]))
                confirmed = True
                return
            # Remove the prefix only from the names. The payload was chosen by the client.
            *where, payload = rest
            session.push(Push([bytes(head), *map(prefixes.strip, where), payload]))

        sent = (channels if kind == "channel" else escaped(channels)) + name
        return Feed(
            self._link,
            session.login,
            [word, sent],
            take,
            f"subscription to {name!r}",
            session.wake if session.login is not None else None,
        )

    def drop(self, session: Any) -> None:
        """Remove all subscriptions of a session."""
        with self._lock:
            feeds = self._feeds.pop(session, [])
            self._patterns.pop(session, None)
        for feed in feeds:
            feed.stop()

    def patterns(self) -> int:
        """Return the number of different patterns to which sessions of this process are subscribed."""
        with self._lock:
            return len({name for names in self._patterns.values() for name in names})

    def close(self) -> None:
        """Remove all subscriptions, and ignore later ones."""
        with self._lock:
            self._closed = True
            feeds = [feed for each in self._feeds.values() for feed in each]
            self._feeds.clear()
            self._patterns.clear()
        for feed in feeds:
            feed.stop()
