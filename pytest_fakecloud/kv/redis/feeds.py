"""Messages of a real server: subscriptions and MONITOR, each received by a thread.

A lost connection is reopened as long as its session is subscribed. As for any client of a real
server, messages that are published in the meantime are lost. If the session's user may no longer
log in or subscribe, the session ends instead.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from ..algorithms.quoting import split_words
from ..reply import Push
from .links import Link, Login, Unreachable
from .rewriting import Prefixes, escaped

RECONNECT = 0.2
"""Seconds between attempts to reconnect."""
_MONITOR_PATIENCE = 2.0
"""Maximum number of seconds to wait for the server's confirmation of MONITOR."""


class Feed(threading.Thread):
    """A thread that sends a command and passes all replies to ``take`` until ``stop()``.

    A lost connection is opened again. If the login or the command is rejected, the thread calls
    ``rejected`` and ends, or tries again without it. ``opened`` is set after the first reply.
    """

    def __init__(
        self,
        link: Link,
        login: Login | None,
        opening: list[bytes],
        take: Callable[[Any], None],
        *,
        name: str,
        rejected: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name=f"fakecloud {name}", daemon=True)
        self._link = link
        self._login = login
        self._opening = opening
        self._take = take
        self._rejected = rejected
        self._stopped = threading.Event()
        self._connection: Any = None
        self.opened = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except (AuthenticationError, NoPermissionError):
                if self._rejected is None:
                    self._stopped.wait(RECONNECT)
                else:
                    self._rejected()
                    return
            except (RedisError, OSError, Unreachable):
                # The connection was lost or rejected, or the server is not running: retry.
                self._stopped.wait(RECONNECT)
            except Exception:
                # A client that is reading may raise any error when `stop()` closes its connection.
                if not self._stopped.is_set():
                    raise

    def _read(self) -> None:
        connection = self._link.dedicated(self._login)
        self._connection = connection
        try:
            connection.send_command(*self._opening, check_health=False)
            while not self._stopped.is_set():
                self._take(connection.read_response(disable_decoding=True))
                self.opened.set()
        finally:
            connection.disconnect()

    def stop(self) -> None:
        self._stopped.set()
        if self._connection is not None:
            self._connection.disconnect()


class _Subscription(Feed):
    """A session's subscription to a channel (``kind="channel"``) or a pattern."""

    def __init__(
        self, link: Link, prefixes: Prefixes, session: Any, kind: str, name: bytes
    ) -> None:
        is_pattern = kind == "pattern"
        channels = escaped(prefixes.channels) if is_pattern else prefixes.channels
        super().__init__(
            link,
            session.login,
            [b"PSUBSCRIBE" if is_pattern else b"SUBSCRIBE", channels + name],
            self._pass_on,
            name=f"subscription to {name!r}",
            rejected=session.wake if session.login is not None else None,
        )
        self._prefixes = prefixes
        self._session = session
        self._confirmation = b"psubscribe" if is_pattern else b"subscribe", name
        self._lock = threading.Lock()
        self._unconfirmed: list[int] | None = []
        """Numbers of subscriptions to report in confirmations; None once the server has confirmed."""

    def confirm(self, count: int) -> None:
        """Push a confirmation with this number of subscriptions, once the server has confirmed."""
        with self._lock:
            if self._unconfirmed is not None:
                self._unconfirmed.append(count)
                return
        self._session.push(Push([*self._confirmation, count]))

    def _pass_on(self, message: Any) -> None:
        head, *names, payload = message
        if bytes(head) == self._confirmation[0]:
            with self._lock:
                counts, self._unconfirmed = self._unconfirmed or (), None
            for count in counts:
                self._session.push(Push([*self._confirmation, count]))
            return
        # Remove the prefix only from the names. The payload was chosen by the client.
        self._session.push(Push([bytes(head), *map(self._prefixes.strip, names), payload]))


class Subscriptions:
    """The subscriptions of all sessions, each on its own connection to the real server."""

    def __init__(self, link: Link, prefixes: Prefixes) -> None:
        self._link = link
        self._prefixes = prefixes
        self._lock = threading.Lock()
        self._feeds: dict[Any, dict[tuple[str, bytes], _Subscription]] = {}
        """The subscriptions of each session by their kind and name."""
        self._closed = False

    def subscribe(self, session: Any, kind: str, name: bytes) -> None:
        with self._lock:
            # A client can subscribe while the fake is being closed.
            if self._closed:
                return
            feeds = self._feeds.setdefault(session, {})
            feed = feeds.get((kind, name))
            if feed is None:
                feed = _Subscription(self._link, self._prefixes, session, kind, name)
                feeds[kind, name] = feed
                feed.start()
            feed.confirm(len(feeds))

    def drop(self, session: Any) -> None:
        with self._lock:
            feeds = self._feeds.pop(session, {})
        for feed in feeds.values():
            feed.stop()

    def patterns(self) -> int:
        """Return the number of different patterns to which sessions of this process are subscribed."""
        with self._lock:
            each = (key for feeds in self._feeds.values() for key in feeds)
            return len({name for kind, name in each if kind == "pattern"})

    def close(self) -> None:
        with self._lock:
            self._closed = True
            feeds = [feed for each in self._feeds.values() for feed in each.values()]
            self._feeds.clear()
        for feed in feeds:
            feed.stop()


_LINE = re.compile(rb"(\d+)\.(\d{6}) \[(\d+) (.*?)\] (.*)", re.DOTALL)
_DATABASE = SimpleNamespace(index=0)
"""The only database that a fake has for its clients."""


class MonitorFeed:
    """The functions that receive all commands. While there are any, one connection runs MONITOR."""

    def __init__(self, link: Link, prefixes: Prefixes) -> None:
        self._link = link
        self._prefixes = prefixes
        self._lock = threading.Lock()
        self._watchers: tuple[Callable[[int, Any, list[bytes]], None], ...] = ()
        self._feed: Feed | None = None
        self._closed = False

    def append(self, watcher: Callable[[int, Any, list[bytes]], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._watchers = (*self._watchers, watcher)
            if self._feed is None:
                self._feed = Feed(self._link, None, [b"MONITOR"], self._pass_on, name="monitor")
                self._feed.start()
            feed = self._feed
        feed.opened.wait(_MONITOR_PATIENCE)

    def remove(self, watcher: Callable[[int, Any, list[bytes]], None]) -> None:
        with self._lock:
            self._watchers = tuple(each for each in self._watchers if each is not watcher)
            if self._watchers or self._feed is None:
                return
            feed, self._feed = self._feed, None
        feed.stop()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            feed, self._feed, self._watchers = self._feed, None, ()
        if feed is not None:
            feed.stop()

    def _pass_on(self, line: bytes) -> None:
        found = _LINE.fullmatch(line)
        if found is None:
            return
        seconds, micros, database, address, words = found.groups()
        if self._prefixes.shared and not self._concerns_this_fake(int(database), words):
            return
        argv = list(map(self._prefixes.without, split_words(words) or ()))
        at_us = int(seconds) * 1_000_000 + int(micros)
        # The client has only the attributes that `monitor_line()` needs.
        client = SimpleNamespace(
            db=_DATABASE, in_script=address == b"lua", address=address.decode("utf-8", "replace")
        )
        for watcher in self._watchers:
            watcher(at_us, client, argv)

    def _concerns_this_fake(self, database: int, words: bytes) -> bool:
        # Hide commands without names of this fake, because another client could have sent them.
        if self._prefixes.keys:
            return self._prefixes.keys in words or self._prefixes.channels in words
        return database == self._link.database
