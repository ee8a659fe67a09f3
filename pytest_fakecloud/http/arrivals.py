"""A selector that lists connections in the order in which bytes arrive at them."""

from __future__ import annotations

import select
import selectors
from collections.abc import Mapping
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from typing import Any

ARRIVALS = 1 << 2
"""An event: bytes have arrived since the last call of ``select()``."""
LEFT = 1 << 3
"""An event: the client has closed its side, behind the bytes that have arrived."""


class ArrivalSelector(BaseSelector):
    """A selector for Linux, for which sockets can be registered for ``ARRIVALS``, too.

    The selectors of the standard library list a connection as long as it is not read. So it keeps its
    old place if bytes arrive at it after they have arrived at another connection, but before the next
    call of ``select()``. With ``ARRIVALS``, each call lists only what has arrived since the last one.
    The caller must then read until nothing is left.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._keys: dict[int, SelectorKey] = {}

    def register(self, sock: Any, events: int, data: Any = None) -> SelectorKey:
        key = SelectorKey(sock, sock.fileno(), events, data)
        if key.fd in self._keys:
            raise KeyError(f"{sock!r} is already registered")
        self._poll.register(key.fd, _flags_of(events))
        self._keys[key.fd] = key
        return key

    def modify(self, sock: Any, events: int, data: Any = None) -> SelectorKey:
        key = SelectorKey(sock, sock.fileno(), events, data)
        self._poll.modify(key.fd, _flags_of(events))
        self._keys[key.fd] = key
        return key

    def unregister(self, sock: Any) -> SelectorKey:
        fd = sock if isinstance(sock, int) else sock.fileno()
        if fd < 0:  # The socket is closed.
            fd = next((key.fd for key in [*self._keys.values()] if key.fileobj is sock), fd)
        key = self._keys.pop(fd)
        with suppress(OSError):  # The system has done this when the socket was closed.
            self._poll.unregister(fd)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        try:
            listed = self._poll.poll(timeout)
        except InterruptedError:
            return []
        ready = []
        for fd, flags in listed:
            if (key := self._keys.get(fd)) is not None:
                events = EVENT_READ if flags == select.EPOLLIN else _events_of(flags)
                ready.append((key, events))
        return ready

    def get_map(self) -> Mapping[Any, SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._poll.close()
        self._keys.clear()


def _flags_of(events: int) -> int:
    flags = 0
    if events & EVENT_READ:
        flags |= select.EPOLLIN
    if events & EVENT_WRITE:
        flags |= select.EPOLLOUT
    if events & ARRIVALS:
        flags |= select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
    return flags


def _events_of(flags: int) -> int:
    if flags & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
        return EVENT_READ | EVENT_WRITE | LEFT
    return (EVENT_READ if flags & select.EPOLLIN else 0) | (
        EVENT_WRITE if flags & select.EPOLLOUT else 0
    )


def new_selector() -> BaseSelector:
    """Return an ``ArrivalSelector``, or a selector of the standard library on other systems and where
    the process has replaced it, as gevent does.
    """
    has_epoll = selectors.DefaultSelector.__name__ == "EpollSelector" and hasattr(select, "epoll")
    return ArrivalSelector() if has_epoll else selectors.DefaultSelector()
