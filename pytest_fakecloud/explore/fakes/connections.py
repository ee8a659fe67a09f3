"""The connections in memory of an exploration, and the threads that serve them."""

from __future__ import annotations

import errno
import socket
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from ...cloud.fake import core_of
from ...http.hub import Mount
from .gate import Aside
from .memory_link import MemoryLink, error_of

_CLIENT_PORTS = range(49_152, 65_536)
_LOCAL = ("127.0.0.1", "localhost")


class Connections:
    """The connections in memory of an exploration; they outlive its trials, as their clients may."""

    def __init__(self, fakes: Sequence[Any]) -> None:
        self._fakes = fakes
        self._ports = cycle(_CLIENT_PORTS)
        # Use no lock. A finalizer can send at any time, also in the middle of these methods, so they
        # only use operations that other code cannot interrupt.
        self.by_fileno: dict[int, MemoryLink] = {}
        self.aside: dict[int, Aside] = {}
        """The threads aside that handle requests, by their identifiers."""
        self.ended: deque[MemoryLink] = deque()
        """The connections to close as soon as no thread handles their requests."""
        self.streams: dict[int, MemoryLink] = {}
        """The connections over which threads send streams, by the thread."""
        self._moved: dict[int, int] = {}
        """The actual port for each port of a fake, in a forked process."""

    def after_fork(self) -> None:
        for mount in self._mounts():
            mount.reopen()
            self._moved[mount.port] = mount.listener.getsockname()[1]
        for link in self.by_fileno.values():
            link.mount.live.add(link)

    def actual(self, address: Any) -> Any:
        """Return the address of a server for a socket of the system."""
        if self._moved and isinstance(address, tuple) and address[1] in self._moved:
            return address[0], self._moved[address[1]], *address[2:]
        return address

    def _mounts(self) -> Iterator[Mount]:
        return (mount for fake in self._fakes for mount in core_of(fake).mounts)

    def connect(self, client: socket.socket, address: Any) -> bool:
        """Connect a socket; return False without a fake there. Raises ``OSError`` if it is connected."""
        mount = self._mount_at(address) if client.family == socket.AF_INET else None
        if mount is None:
            return False
        if self.link_of(client) is not None:
            raise error_of(errno.EISCONN)
        link = MemoryLink(client, ("127.0.0.1", next(self._ports)), mount, self)
        fileno = link.fileno

        def drop(_: object) -> None:
            if self.by_fileno.get(fileno) is link:
                del self.by_fileno[fileno]
            link.shut_down()

        link.client = weakref.ref(client, drop)
        self.by_fileno[fileno] = link
        with mount.lock:
            mount.live.add(link)
        return True

    def _mount_at(self, address: Any) -> Mount | None:
        if not isinstance(address, tuple):
            return None
        host, port = address[:2]
        plain = (mount for mount in self._mounts() if mount.port == port and mount.tls is None)
        mount = next(plain, None)
        is_here = mount is not None and mount.is_listening and host in (mount.host, *_LOCAL)
        return mount if is_here else None

    def link_of(self, client: socket.socket) -> MemoryLink | None:
        """Return the connection of a client's socket, or None if it is not connected to a fake."""
        link = self.by_fileno.get(client.fileno())
        return link if link is not None and link.client() is client else None

    def at(self, fileobj: Any) -> MemoryLink | None:
        """Return the connection of a socket or of its descriptor, as selectors take them, or None."""
        link = self.by_fileno.get(fileno_of(fileobj))
        return link if link is not None and link.client() is not None else None

    def closed(self, link: MemoryLink) -> None:
        """Called after a client has closed its socket."""
        self.by_fileno.pop(link.fileno, None)
        link.hang_up()

    def sweep(self) -> None:
        """Close the connections that have ended while no thread handled their requests."""
        while self.ended:
            self.ended.popleft().serve()

    def close(self) -> None:
        """End all connections, after the exploration."""
        for link in [*self.by_fileno.values()]:
            link.shut_down()
        self.by_fileno.clear()
        self.sweep()

    def aside_here(self) -> Aside | None:
        """Return this thread, if it is one aside."""
        return self.aside.get(threading.get_ident())


def fileno_of(fileobj: Any) -> int:
    """Return the descriptor of an object that selectors take."""
    return int(fileobj if isinstance(fileobj, int) else fileobj.fileno())
