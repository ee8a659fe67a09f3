"""The sockets of explored code and its checks, which are connected to the fakes in memory."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.errors import ContractError
from ...core.frames import stack_of
from ...process.replace import Patch
from ..fakes.memory_link import MemoryLink
from ..simulation.current_thread import PROMISE
from ..simulation.pool import is_of_a_strand
from ..simulation.simulation import Simulation
from .asyncio_library import without_patching

if TYPE_CHECKING:
    from .world import World

_Method: TypeAlias = Callable[..., Any]
SOCKET_METHODS = (
    "connect", "connect_ex", "shutdown", "close", "send", "sendall", "sendmsg", "recv", "recv_into",
    "getpeername", "getsockname",
)  # fmt: skip
"""The methods of sockets that ``Sockets`` replaces in explored code."""


def check_sockets() -> None:
    """Raise ``ContractError`` if the class of sockets lacks methods that have to be replaced."""
    kind = socket.socket
    originals = (name for name in SOCKET_METHODS if hasattr(socket.SocketType, name))
    missing = [name for name in originals if not hasattr(kind, name)]
    if missing:
        library = kind.__module__.partition(".")[0]
        raise ContractError(
            f"{library} has replaced socket.socket by {kind.__module__}.{kind.__qualname__}, which has "
            f"no methods {', '.join(missing)}, but explore() has to replace them to connect clients to "
            f"the fakes: {without_patching(library)}"
        )


def socket_patches(world: World) -> Iterator[Patch]:
    sockets = Sockets(world)

    def method(name: str) -> Callable[..., Any]:
        ours, original = getattr(sockets, name), getattr(socket.socket, name)
        return lambda sock, *args, **options: ours(original, sock, *args, **options)

    for name in SOCKET_METHODS:
        if hasattr(socket.socket, name):
            yield socket.socket, name, method(name)


class Sockets:
    """The methods of sockets in explored code. Each gets the original one first."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._connections = world.fakes.connections

    def connect(self, original: _Method, sock: socket.socket, address: Any, /) -> Any:
        is_in_memory = self._world.current_thread.role().has_fake_time
        if is_in_memory and self._connections.connect(sock, address):
            return None
        return original(sock, self._connections.actual(address))

    def connect_ex(self, original: _Method, sock: socket.socket, address: Any, /) -> int:
        return self.connect(original, sock, address) or 0

    def getpeername(self, original: _Method, sock: socket.socket) -> Any:
        link = self._connections.link_of(sock)
        return original(sock) if link is None else link.mount.address

    def getsockname(self, original: _Method, sock: socket.socket) -> Any:
        link = self._connections.link_of(sock)
        return original(sock) if link is None else link.address

    def send(self, original: _Method, sock: socket.socket, data: Any, *args: Any) -> Any:
        link = self._sending(sock)
        return original(sock, data, *args) if link is None else self._send(link, sock, bytes(data))

    def sendall(self, original: _Method, sock: socket.socket, data: Any, *args: Any) -> None:
        self.send(original, sock, data, *args)

    def sendmsg(self, original: _Method, sock: socket.socket, parts: Any, *args: Any) -> Any:
        link = self._sending(sock)
        if link is None:
            return original(sock, parts, *args)
        return self._send(link, sock, b"".join(parts))

    def recv(self, original: _Method, sock: socket.socket, size: int, flags: int = 0, /) -> Any:
        link = self._connections.link_of(sock)
        if link is None:
            return original(sock, size, flags)
        self._world.waits.wait_until(link.has_news, sock.gettimeout() if size else 0)
        return link.take(size, flags)

    def recv_into(
        self, original: _Method, sock: socket.socket, buffer: Any, nbytes: int = 0, flags: int = 0
    ) -> Any:
        if self._connections.link_of(sock) is None:
            return original(sock, buffer, nbytes, flags)
        view = memoryview(buffer).cast("B")
        data = self.recv(original, sock, nbytes or view.nbytes, flags)
        view[: len(data)] = data
        return len(data)

    def close(self, original: _Method, sock: socket.socket) -> None:
        link = self._connections.link_of(sock)
        original(sock)
        if link is not None and sock.fileno() < 0:
            self._connections.closed(link)

    def shutdown(self, original: _Method, sock: socket.socket, how: int, /) -> None:
        link = self._connections.link_of(sock)
        if link is None:
            original(sock, how)
        elif how != socket.SHUT_RD:
            link.hang_up()

    def _send(self, link: MemoryLink, sock: socket.socket, data: bytes) -> int:
        link.send(data)
        library = self._world.async_library() if sock.gettimeout() == 0 else None
        loop = None if library is None else library.fake_time_loop()
        if loop is None:
            link.serve()
        else:
            link.serve_aside(loop.wake)
        self._connections.sweep()
        simulation, strand = self._world.simulation, self._world.current_thread.strand()
        if simulation is not None and strand is not None:
            # The strand may have crashed in the request, which this thread has handled.
            simulation.turns.check_alive(strand)
        return len(data)

    def _sending(self, sock: socket.socket) -> MemoryLink | None:
        """Return the connection on which this thread is about to send, unless it is a real one."""
        link, simulation = self._connections.link_of(sock), self._world.simulation
        if simulation is not None and self._world.current_thread.role() is not PROMISE:
            _note_sender(simulation, sock, link)
        return link


def _note_sender(simulation: Simulation, sock: socket.socket, link: MemoryLink | None) -> None:
    """Note on whose behalf this thread is about to send."""
    strand = None if link is None else simulation.current_thread.strand()
    if link is None or strand is None:
        _note_sender_elsewhere(simulation, sock)
        return
    simulation.call_sites.note(link.port)
    if (simulation.turns.has_ended or strand.root.crashed) and any(
        # Python ignores exceptions in finalizers.
        frame.f_code.co_name == "__del__"
        for frame in stack_of(sys._getframe(1))
    ):
        raise ConnectionResetError("the process has ended")
    simulation.turns.check_alive(strand)
    if strand is not strand.host or strand.loop is None:
        simulation.callers.note_sender(strand, link.port)


def _note_sender_elsewhere(simulation: Simulation, sock: socket.socket) -> None:
    """Note the sender in a thread that is not explored, such as the loop of an ASGI application, or on
    a connection that does not lead to a fake, or that began before the exploration.
    """
    thread, port = simulation.current_thread, 0
    strand = thread.strand() or thread.carried()
    with contextlib.suppress(OSError, IndexError):
        port = sock.getsockname()[1]
        simulation.call_sites.note(port)
    # The thread of a strand that has just ended wakes loops whose sleeps end by a socket pair, which
    # has no port.
    if port or not is_of_a_strand(threading.current_thread()):
        simulation.callers.note_other_sender(strand, port)
