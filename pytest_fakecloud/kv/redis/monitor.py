"""Commands that a real server reports with MONITOR, for the clients of one fake."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .feeds import Feed
from .prefixes import Prefixes

if TYPE_CHECKING:
    from .connection import Link

_LINE = re.compile(rb"(\d+)\.(\d{6}) \[(\d+) (.*?)\] (.*)", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_SIGNS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


class _ObservedClient:
    """The client of an observed command, with the attributes that ``monitor_line()`` needs."""

    def __init__(self, address: bytes) -> None:
        self.db = SimpleNamespace(index=0)  # To its clients, a fake has a single database.
        self.in_script = address == b"lua"
        self.address = address.decode("utf-8", "replace")


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
        """Add a function that is called with each command."""
        with self._lock:
            if self._closed:
                return
            self._watchers = (*self._watchers, watcher)
            if self._feed is None:
                self._feed = Feed(self._link, None, [b"MONITOR"], self._pass_on, "monitor")
                self._feed.start()
            feed = self._feed
        feed.opened.wait(2.0)

    def remove(self, watcher: Callable[[int, Any, list[bytes]], None]) -> None:
        with self._lock:
            self._watchers = tuple(each for each in self._watchers if each is not watcher)
            if self._watchers or self._feed is None:
                return
            feed, self._feed = self._feed, None
        feed.stop()

    def close(self) -> None:
        """Remove all functions, and ignore later ones."""
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
        argv = [self._prefixes.without(_unquoted(word)) for word in _WORD.findall(words)]
        at_us = int(seconds) * 1_000_000 + int(micros)
        for watcher in self._watchers:
            watcher(at_us, _ObservedClient(address), argv)

    def _concerns_this_fake(self, database: int, words: bytes) -> bool:
        # Hide commands without names of this fake, because another client could have sent them.
        if self._prefixes.keys:
            return self._prefixes.keys in words or self._prefixes.channels in words
        return database == self._link.database


def _unquoted(word: bytes) -> bytes:
    def sign(found: re.Match[bytes]) -> bytes:
        text = found[1]
        return bytes.fromhex(text[1:].decode()) if len(text) == 3 else _SIGNS.get(text, text)

    return _ESCAPE.sub(sign, word)
