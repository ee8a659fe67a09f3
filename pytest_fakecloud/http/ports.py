"""Chooses the ports of fakes."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from os import urandom
from socket import getaddrinfo
from typing import Any, TypeAlias

BACKLOG = 1024
Listeners: TypeAlias = dict[tuple[str, int], socket.socket]
"""Listening sockets by host and port, for servers that start later and take them from here. Clients
that connect before then wait.
"""


def listen(host: str, port: int, *, is_given: bool = True) -> socket.socket:
    """Return a socket that listens on a port. Raises ``OSError``. If the port ``is_given`` by the
    user, earlier connections may still use it, because it must be usable again immediately after
    a restart.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Set the protocol number, because some libraries check it before they set TCP_NODELAY.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        if sys.platform == "win32":  # pragma: no cover - Windows
            # Windows: SO_REUSEADDR would allow a second process to take the port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        elif is_given:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        if sys.platform != "win32":
            # Connections inherit the option. On Linux, a connection without it blocks the port for
            # the next listener. Set it after bind(), which must not choose a port with connections.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """Return a socket that is connected to a server. Like ``socket.create_connection()``, which a test
    may have replaced, as it may ``getaddrinfo()``.
    """
    *others, last = getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for candidate in others:
        with suppress(OSError):
            return _connected(candidate, seconds)
    return _connected(last, seconds)


def _connected(candidate: Any, seconds: float) -> socket.socket:
    family, kind, protocol, _, address = candidate
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(seconds)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def below_tls(sock: socket.socket) -> Any:
    """Return the methods that a socket has below TLS: those of a TLS socket change what its reader uses.

    They are looked up in the class of the socket, because gevent and pytest-socket replace
    ``socket.socket``, whose methods then reject sockets of the class before.
    """
    secured = [kind for kind in type(sock).__mro__ if "do_handshake" in vars(kind)]
    return super(secured[-1], sock) if secured else sock


def is_free(host: str, port: int) -> bool:
    """Return whether a server can listen on a port."""
    try:
        listen(host, port).close()
    except OSError:
        return False
    return True


def close_listeners(listeners: Listeners) -> None:
    """Close listening sockets. A server may have closed one that it has taken."""
    while listeners:
        listeners.popitem()[1].close()


class PortAllocator:
    """Gives consecutive ports from a random start, outside the system's ephemeral range.

    The system soon reuses an ephemeral port that was freed (1,362 of 20,000 binds reused one within
    the next thousand), so a late request of a finished test could reach the next test's server.
    This sequence does not reuse a port until it has gone through the whole range.
    """

    LOWEST, HIGHEST = 10_240, 65_535

    def __init__(self, ephemeral: tuple[int, int] | None = None) -> None:
        first, last = ephemeral or ephemeral_range()
        below = range(self.LOWEST, max(self.LOWEST, min(first, self.HIGHEST)))
        above = range(max(last + 1, self.LOWEST), self.HIGHEST + 1)
        best = max(below, above, key=len)
        # If too few ports are outside the ephemeral range, use ports inside it as well.
        self.ports = best if len(best) >= 1024 else range(self.LOWEST, self.HIGHEST + 1)
        self._first = self._next = int.from_bytes(urandom(4)) % len(self.ports)

    def take(self) -> int:
        """Return the next port of the range."""
        port = self.ports[self._next]
        self._next = (self._next + 1) % len(self.ports)
        return port

    def has_given(self, port: int) -> bool:
        """Return whether a port was taken in the current round through the range."""
        if port not in self.ports:
            return False
        size = len(self.ports)
        return (self.ports.index(port) - self._first) % size < (self._next - self._first) % size


def ephemeral_range() -> tuple[int, int]:
    """Return the first and the last port that the system assigns to clients."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="utf-8") as file:
            first, last = file.read().split()
        return int(first), int(last)
    except (OSError, ValueError):
        # The range registered for dynamic ports, which macOS and Windows use.
        return 49_152, 65_535
