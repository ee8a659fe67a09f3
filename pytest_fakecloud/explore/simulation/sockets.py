"""Sockets and event loops of explored code: a strand that waits for an answer lets others run."""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import selectors
import socket
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

from ...core.errors import broken_promise
from ...core.recorder import is_library, stack_of
from ..fakes import Fakes
from ..footprint import READS_CLOCK
from .clock import LOOK, RunClock
from .connections import PATIENCE, ClientConnection
from .state import Part, RunState
from .strands import Crash, Strand, Waiting

_Method: TypeAlias = Callable[..., Any]
SOCKET_METHODS = ("connect", "shutdown", "close", "send", "sendall", "sendmsg", "recv", "recv_into")
"""The methods of sockets that ``SocketHooks`` replaces in explored code."""
_SOON = 0.005
"""Wall-clock seconds to wait for other servers to answer."""


class SocketHooks(Part):
    """Called when explored code uses a socket that is connected to a fake, or an event loop."""

    def __init__(self, state: RunState, clock: RunClock) -> None:
        super().__init__(state)
        self._clock = clock

    # -- methods of sockets, which get the original method first

    def connect(self, original: _Method, sock: socket.socket, address: Any, /) -> None:
        mount = self._connections.mount_at(address[1]) if isinstance(address, tuple) else None
        if mount is None or not self._state.is_here():
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
        self._connections.of(sock)

    def _explored_connection(self, sock: socket.socket) -> ClientConnection | None:
        """Return the connection to which explored code is about to send, or None."""
        if not self._state.is_here():
            self._sends_elsewhere(sock)
            return None
        connection = self._connections.of(sock)
        if connection is not None:
            self._sends(connection.port, is_blocking=sock.gettimeout() != 0)
        return connection

    def send(self, original: _Method, sock: socket.socket, *args: Any) -> int:
        connection = self._explored_connection(sock)
        sent: int = original(sock, *args)
        if connection is not None:
            connection.sent += sent
        return sent

    sendmsg = send

    def sendall(self, original: _Method, sock: socket.socket, data: Any, *args: Any) -> None:
        size = memoryview(data).nbytes
        connection = self._explored_connection(sock)
        if connection is not None:
            connection.sent += size
        answering = None if self._state.is_here() else self._connections.answers(sock, size)
        try:
            original(sock, data, *args)
        finally:
            if answering is not None:
                answering.is_answering = False
                self._connections.progresses()

    def recv(self, original: _Method, sock: socket.socket, size: int, flags: int = 0, /) -> Any:
        return self._read(partial(original, sock, size, flags), sock, size, flags)

    def recv_into(
        self, original: _Method, sock: socket.socket, buffer: Any, nbytes: int = 0, flags: int = 0
    ) -> Any:
        size = nbytes or memoryview(buffer).nbytes
        return self._read(partial(original, sock, buffer, nbytes, flags), sock, size, flags)

    def _read(
        self, read: Callable[[], Any], sock: socket.socket, requested: int, flags: int
    ) -> Any:
        if not self._state.is_here():
            # A fake's thread reads again after it has handled all earlier bytes.
            self._connections.progresses()
            return read()
        connection = self._connections.of(sock)
        if connection is None:
            return read()
        if not self._may_read(connection, sock.gettimeout()):
            raise TimeoutError("timed out")
        try:
            found = read()
        except ConnectionError:
            connection.is_at_end = True
            raise
        size = found if isinstance(found, int) else len(found)
        if not flags & socket.MSG_PEEK:
            connection.got += size
        connection.is_at_end = connection.is_at_end or (not size and requested > 0)
        return found

    def close(self, original: _Method, sock: socket.socket) -> None:
        connection = self._connections.by_socket.get(sock)
        original(sock)
        if connection is not None and sock.fileno() < 0:
            self._await_end(connection)
        else:
            self._connections.progresses()

    def shutdown(self, original: _Method, sock: socket.socket, how: int, /) -> None:
        connection = self._connections.by_socket.get(sock)
        original(sock, how)
        if connection is not None and how != socket.SHUT_RD:
            self._await_end(connection)

    def _await_end(self, connection: ClientConnection) -> None:
        def is_open() -> bool:
            end = connection.server_end()
            return connection.is_served() and not (end is not None and end.inside)

        if self._state.is_here():
            self._connections.wait_while(is_open)

    # -- waits for answers

    def _sends(self, port: int, *, is_blocking: bool) -> None:
        """Called before code sends, which may block its thread until the answer arrives."""
        connections = self._connections
        self._state.sources.note(port)
        strand = self._state.here()
        if strand is None:
            return
        if (self._turns.has_ended or strand.root.crashed) and any(
            # Python ignores exceptions in finalizers.
            each.f_code.co_name == "__del__"
            for each in stack_of(sys._getframe(1))
        ):
            raise ConnectionResetError("the process has ended")
        self._state.check_alive(strand)
        if strand.host.loop.running is None:
            connections.finish_calls(strand, but=port)
        else:
            # The fakes handle requests in the order in which the tasks send them.
            if not strand.host.loop.is_settled:
                connections.await_handling(strand.host)
            strand.host.loop.is_settled = False
            strand.turn.is_blocking = is_blocking
        if strand is not strand.host or strand.loop.running is None:
            connections.use(port, strand)

    def _sends_elsewhere(self, sock: socket.socket) -> None:
        """Called before a thread that is not explored sends, such as the loop of an ASGI application."""
        strand, port = self._state.carried(), 0
        with contextlib.suppress(OSError, IndexError):
            port = sock.getsockname()[1]
            if strand is not None:
                self._connections.use(port, strand)
            self._state.sources.note(port)
        self._state.note_outsider(port)

    def _may_read(self, connection: ClientConnection, timeout: float | None) -> bool:
        """Wait until a fake has sent something; return False when the timeout expires."""
        strand = self._state.here()
        if strand is None:
            return True
        # After the last bytes, the end of the connection may follow.
        strand.host.loop.is_settled = False
        if timeout == 0:
            return True
        while not self._wait_for_fake(connection, strand):
            if not self._wait_for_strands(connection, strand, timeout):
                return False
        self._state.check_alive(strand)
        return True

    def _wait_for_fake(self, connection: ClientConnection, strand: Strand) -> bool:
        """Wait while the fake handles a call; return False if the call waits for another strand."""
        while not connection.is_readable(0):
            self._state.check_alive(strand)
            # A strand that shares this connection cannot proceed without the turn.
            owner = self._connections.owners.get(connection.port, strand)
            if (owner is not strand and owner.state == "parked") or connection.is_quiet():
                # The answer may have arrived after the first check.
                return connection.is_readable(0)
            connection.is_readable(0.01)
        return True

    def _wait_for_strands(
        self, connection: ClientConnection, strand: Strand, timeout: float | None
    ) -> bool:
        """Let other strands run until a fake has sent something; return False after the timeout."""

        def has_arrived() -> bool:
            self._connections.settle()
            return connection.is_readable(LOOK if connection.has_unread() else 0)

        until = None if timeout is None else self._fakes.now_us() + math.ceil(timeout * 1e6)
        self._clock.wait_for(strand, has_arrived, until, "answer")
        return connection.is_readable(0)

    # -- event loops

    def on_loop_start(self, loop: OwnLoop) -> None:
        host = self._turns.here()
        if host is None or host.loop.running is loop:
            return
        host.loop.running = loop
        loop.strand = host
        if host.role != "task" and host.loop.main_task is None:
            main = Strand(host.title, "task", parent=host, points=host.points)
            main.state = "running"
            self._state.add(main)
            host.loop.main_task = main
            for task in asyncio.all_tasks(loop):
                self._state.tasks[task] = main

    def on_loop_end(self, loop: OwnLoop) -> None:
        host = self._turns.here()
        if host is None or host.loop.running is not loop:
            return
        host.loop.running = None
        if host.loop.main_task is not None:
            host.points = host.loop.main_task.points
            host.loop.main_task = None
        tasks = [one for one in self._state.strands if one.role == "task" and one.host is host]
        for strand in sorted(tasks, key=lambda one: one.parked_at):
            while strand.state == "parked":
                # A request may still wait for its turn after its task has ended, e.g. because of a
                # timeout. The fake handles it, because it has already been sent.
                strand.state = "running"
                strand.gate.release()
                self._connections.await_handling(host)
            strand.state = "ended"
            strand.gate.release()

    def idle(self, loop: OwnLoop, timeout: float | None) -> bool:
        """Let other strands run while an event loop waits; return False if it is not explored here."""
        host = loop.strand
        if host is None or self._state.aside_depth or self._turns.here() is not host:
            return False
        self._state.check_alive(host)
        if self._fakes.clock.driving:
            return True
        known = {one.fileno() for one in self._connections.of_host(host)}
        known.add(loop._ssock.fileno())  # type: ignore[attr-defined]
        if not loop.selector.get_map().keys() <= known and loop.selector.has_events(_SOON):
            return True
        wake_us = None
        if timeout is not None:
            wake_us = self._fakes.now_us() + math.ceil(timeout * 1e6)
            self._state.touch([READS_CLOCK])

        def arrived() -> bool:
            self._connections.settle()
            self._connections.await_answers(host)
            return loop.selector.has_events()

        host.place = "wake"
        host.points = 0 if host.loop.main_task is None else host.loop.main_task.points
        self._turns.idle(host, Waiting("loop", arrived, wake_us))
        self._state.check_alive(host)
        host.loop.is_settled = False
        return True

    def await_answers(self, loop: OwnLoop) -> None:
        """Wait until the loop can read all answers, whose order of arrival differs from run to run."""
        host = loop.strand
        if host is None or host.loop.is_settled:
            return
        if self._state.aside_depth or self._turns.here() is not host:
            return
        self._connections.await_handling(host)
        self._connections.await_answers(host)
        host.loop.is_settled = True

    def on_task(self, task: asyncio.Task[Any], is_inner: bool) -> None:
        creator = self._state.here()
        if is_inner and creator is not None and creator.role == "task":
            self._state.tasks[task] = creator
        self._state.sources.note_task(task)

    def on_unhandled(self, error: BaseException) -> None:
        broken = broken_promise(error)
        if broken is not None:
            self._run.broken = self._run.broken or broken
        else:
            self._run.notes[f"a task raised {error!r}, which no code awaited"] = None


class _Selector(selectors.DefaultSelector):
    """A selector that lets other strands run when no socket is ready."""

    loop: OwnLoop

    def select(self, timeout: float | None = None) -> Any:
        self.loop.await_answers()
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            if self.loop.idle(timeout):
                timeout = 0
                self.loop.await_answers()
            ready = super().select(timeout)
        # Sort by registration: the order of arrival differs from run to run.
        registered = list(self.get_map())
        return sorted(ready, key=lambda one: registered.index(one[0].fd))

    def has_events(self, seconds: float = 0.0) -> bool:
        """Return whether a socket or another thread has an event for the loop."""
        return bool(super().select(seconds))


class OwnLoop(asyncio.SelectorEventLoop):
    """The event loop of one strand, which runs on fake time."""

    def __init__(
        self, fakes: Fakes, hooks: Callable[[], SocketHooks | None], sleep: Callable[[float], bool]
    ) -> None:
        self._fakes = fakes
        self._hooks = hooks
        self._sleep = sleep
        self.strand: Strand | None = None
        # Measure times from the start: a float of the full time cannot tell microseconds apart.
        self._began_us = fakes.now_us()
        self.selector = _Selector()
        self.selector.loop = self
        super().__init__(self.selector)
        self.set_exception_handler(self._handle)

    def time(self) -> float:
        return (self._fakes.now_us() - self._began_us) / 1e6

    def idle(self, timeout: float | None) -> bool:
        """Called when the loop has nothing to run; return False if nothing else can run."""
        hooks = self._hooks()
        if hooks is not None:
            return hooks.idle(self, timeout)
        return timeout is not None and self._sleep(timeout)

    def await_answers(self) -> None:
        if (hooks := self._hooks()) is not None:
            hooks.await_answers(self)

    def run_forever(self) -> None:
        if (hooks := self._hooks()) is not None:
            hooks.on_loop_start(self)
        try:
            super().run_forever()
        finally:
            if (hooks := self._hooks()) is not None:
                hooks.on_loop_end(self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        task = super().create_task(coro, **options)
        if (hooks := self._hooks()) is not None:
            hooks.on_task(task, _is_inner(coro, sys._getframe(1)))
        return task

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            hooks = self._hooks()
            if not isinstance(error, Crash) and hooks is not None:
                hooks.on_unhandled(error)
        elif "was destroyed" not in str(context.get("message")):
            self.default_exception_handler(context)


def _is_inner(coroutine: Any, frame: FrameType | None) -> bool:
    """Return whether the code in ``frame``, which creates a task, only awaits it, as ``wait_for()``
    and libraries do. The task is then a part of the strand that creates it.
    """
    code = getattr(coroutine, "cr_code", None)
    if code is None:
        return True
    while frame is not None and frame.f_globals.get("__name__", "").startswith("asyncio."):
        if frame.f_code is asyncio.wait_for.__code__:
            return True
        frame = frame.f_back
    # The application may pass coroutines of a library to gather(), which runs them concurrently.
    is_created_by_library = frame is None or is_library(frame.f_code.co_filename)
    return is_library(code.co_filename) and is_created_by_library
