"""Which ports fakes are given."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Iterator


def is_free(host: str, port: int) -> bool:
    """Return whether a server can listen on a port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as found:
        if sys.platform != "win32":
            # As the server itself binds: a connection that just ended does not occupy the port.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
            found.listen()
        except OSError:
            return False
    return True


class PortAllocator:
    """Ports one after the other, from a random place, outside the system's ephemeral range.

    The system hands a freed ephemeral port out again soon (1,362 of 20,000 binds within the next
    thousand), so a late request of a finished test could reach the next one's server. In sequence
    a port comes again only after the whole range.
    """

    LOWEST, HIGHEST = 10_240, 65_535

    def __init__(self, ephemeral: tuple[int, int] | None = None) -> None:
        first, last = ephemeral or ephemeral_range()
        below = range(self.LOWEST, max(self.LOWEST, min(first, self.HIGHEST)))
        above = range(max(last + 1, self.LOWEST), self.HIGHEST + 1)
        best = max(below, above, key=len)
        # A system whose ephemeral range is nearly everything leaves no room: share it.
        self.ports = best if len(best) >= 1024 else range(self.LOWEST, self.HIGHEST + 1)
        self._first = self._next = random.SystemRandom().randrange(len(self.ports))

    def __iter__(self) -> Iterator[int]:
        """Candidates for one bind: each port of the range once, going on where the last one ended."""
        for _ in range(len(self.ports)):
            port = self.ports[self._next]
            self._next = (self._next + 1) % len(self.ports)
            yield port

    def has_given(self, port: int) -> bool:
        """Whether a port was a candidate before; all are once the whole range has been used."""
        if port not in self.ports:
            return False
        size = len(self.ports)
        given = (self._next - self._first) % size
        return (self.ports.index(port) - self._first) % size < given


def ephemeral_range() -> tuple[int, int]:
    """First and last of the ports the system gives to clients."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first, last = file.read().split()
        return int(first), int(last)
    except (OSError, ValueError):
        # The registered dynamic range, which macOS and Windows use.
        return 49_152, 65_535
