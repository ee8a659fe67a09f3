"""Methods of ``socket.socket`` that let other strands run while explored code uses a fake."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .wires import PATIENCE, Wire, Wires

if TYPE_CHECKING:
    from ..simulation.simulation import Simulation

_SIZES: dict[str, Callable[..., int]] = {
    "send": lambda data, *_: len(data),
    "sendall": lambda data, *_: memoryview(data).nbytes,
    "sendmsg": lambda *_: 0,
}
"""The number of bytes that each method sends at most, by its arguments."""
_FLAGS_AT = {"recv": 1, "recv_into": 2}
"""The position of the flags among the arguments of each method that reads."""


class SocketPatches:
    """Replaces the methods of sockets, and counts the bytes of explored connections."""

    def __init__(self, wires: Wires, simulation: Callable[[], Simulation | None]) -> None:
        self._wires = wires
        self._simulation = simulation

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Use the replacements until the block ends."""
        replacements = {
            "connect": self._connecting(socket.socket.connect),
            "shutdown": self._shutting_down(socket.socket.shutdown),
            "close": self._closing(socket.socket.close),
        }
        for name in _SIZES:
            if hasattr(socket.socket, name):
                replacements[name] = self._sending(name, getattr(socket.socket, name))
        for name in _FLAGS_AT:
            replacements[name] = self._reading(name, getattr(socket.socket, name))
        own = vars(socket.socket)
        before = {name: own[name] for name in replacements if name in own}
        for name, method in replacements.items():
            setattr(socket.socket, name, method)
        try:
            yield
        finally:
            for name in replacements:
                if name in before:
                    setattr(socket.socket, name, before[name])
                else:
                    delattr(socket.socket, name)  # The class inherits the method again.

    def _connecting(self, original: Callable[..., None]) -> Callable[..., None]:
        def connect(sock: socket.socket, address: Any, /) -> None:
            simulation = self._simulation()
            is_fake = isinstance(address, tuple) and self._wires.mount_at(address[1]) is not None
            if simulation is None or not is_fake or not simulation.state.is_here():
                original(sock, address)
                return
            try:
                original(sock, address)
            except (BlockingIOError, InterruptedError):
                # Wait for the kernel, because the next strand must not depend on its speed.
                select.select([], [sock], [sock], PATIENCE)
                error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, f"Connect call failed {address}") from None
            self._wires.of(sock)

        return connect

    def _sending(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        size, wires = _SIZES[name], self._wires

        def send(sock: socket.socket, *args: Any) -> Any:
            simulation = self._simulation()
            if simulation is None:
                return original(sock, *args)
            if not simulation.state.is_here():
                simulation.sockets.sends_elsewhere(sock)
                wire = wires.answers(sock, size(*args)) if name == "sendall" else None
                try:
                    return original(sock, *args)
                finally:
                    if wire is not None:
                        wire.is_answering = False
                        wires.progresses()
            wire = wires.of(sock)
            if wire is None:
                return original(sock, *args)
            simulation.sockets.sends(wire.port, is_blocking=sock.gettimeout() != 0)
            if name == "sendall":
                wire.sent += size(*args)
                return original(sock, *args)
            done = original(sock, *args)
            wire.sent += done
            return done

        return send

    def _reading(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        flags_at, wires = _FLAGS_AT[name], self._wires

        def read(sock: socket.socket, *args: Any, **options: Any) -> Any:
            simulation = self._simulation()
            if simulation is None:
                return original(sock, *args, **options)
            if not simulation.state.is_here():
                # A fake's thread reads again after it has handled all earlier bytes.
                wires.progresses()
                return original(sock, *args, **options)
            wire = wires.of(sock)
            if wire is None:
                return original(sock, *args, **options)
            if not simulation.sockets.reads(wire, sock.gettimeout()):
                raise TimeoutError("timed out")
            try:
                found = original(sock, *args, **options)
            except ConnectionError:
                wire.is_at_end = True
                raise
            size = found if isinstance(found, int) else len(found)
            flags = args[flags_at] if len(args) > flags_at else options.get("flags", 0)
            if not flags & socket.MSG_PEEK:
                wire.got += size
            wire.is_at_end = wire.is_at_end or (not size and bool(args and args[0] != 0))
            return found

        return read

    def _closing(self, original: Callable[..., None]) -> Callable[..., None]:
        def close(sock: socket.socket) -> None:
            wire = self._wires.known(sock)
            original(sock)
            if wire is not None and sock.fileno() < 0:
                self._await_end(wire)
            else:
                self._wires.progresses()

        return close

    def _shutting_down(self, original: Callable[..., None]) -> Callable[..., None]:
        def shutdown(sock: socket.socket, how: int, /) -> None:
            wire = self._wires.known(sock)
            original(sock, how)
            if wire is not None and how != socket.SHUT_RD:
                self._await_end(wire)

        return shutdown

    def _await_end(self, wire: Wire) -> None:
        """Wait until the fake has noticed the end of a connection."""
        simulation = self._simulation()
        if simulation is not None and simulation.state.is_here():
            self._wires.wait_while(lambda: wire.is_served() and not wire.is_inside())
