"""Sockets and event loops of explored code: a strand that waits for an answer lets others run."""

from __future__ import annotations

import asyncio
import contextlib
import math
import selectors
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

from ...core.accesses import READS_CLOCK
from ...core.errors import broken_promise, is_crash
from ...core.frames import stack_of
from ...core.libraries import is_library
from ..fakes import Fakes
from .clock import TrialClock
from .connections import Connections, MemoryLink, wait_for_news
from .pool import is_of_a_strand
from .state import TrialState
from .strands import Strand, Waiting

_Method: TypeAlias = Callable[..., Any]
_Wait: TypeAlias = Callable[[Callable[[], bool], float | None], bool]
"""Waits in fake time until a condition is true or seconds have passed; returns False if it cannot."""
SOCKET_METHODS = (
    "connect", "connect_ex", "shutdown", "close", "send", "sendall", "sendmsg", "recv", "recv_into",
    "getpeername", "getsockname",
)  # fmt: skip
"""The methods of sockets that ``Sockets`` replaces in explored code."""
_SOON = 0.005
"""Wall-clock seconds to wait for other servers to answer."""


class Sockets:
    """The methods of sockets in explored code. Those that are connected to a fake are in memory.

    Each method gets the original one first. ``hooks`` returns the part of the current trial that lets
    other strands run, ``is_explored`` whether this thread runs explored code or its checks.
    ``wait_in_check`` waits in fake time in a check.
    """

    def __init__(
        self,
        connections: Connections,
        hooks: Callable[[], SocketHooks | None],
        is_explored: Callable[[], bool],
        wait_in_check: _Wait,
    ) -> None:
        self._connections = connections
        self._hooks = hooks
        self._is_explored = is_explored
        self._wait_in_check = wait_in_check

    def connect(self, original: _Method, sock: socket.socket, address: Any, /) -> None:
        if not (self._is_explored() and self._connections.connect(sock, address)):
            original(sock, self._connections.actual(address))

    def connect_ex(self, original: _Method, sock: socket.socket, address: Any, /) -> int:
        is_connected = self._is_explored() and self._connections.connect(sock, address)
        return 0 if is_connected else int(original(sock, self._connections.actual(address)))

    def getpeername(self, original: _Method, sock: socket.socket) -> Any:
        link = self._connections.of(sock)
        return original(sock) if link is None else link.mount.address

    def getsockname(self, original: _Method, sock: socket.socket) -> Any:
        link = self._connections.of(sock)
        return original(sock) if link is None else link.address

    def send(self, original: _Method, sock: socket.socket, data: Any, *args: Any) -> int:
        link = self._sending(sock)
        if link is None:
            return int(original(sock, data, *args))
        return self._send(link, bytes(data), sock)

    def sendall(self, original: _Method, sock: socket.socket, data: Any, *args: Any) -> None:
        link = self._sending(sock)
        if link is None:
            original(sock, data, *args)
        else:
            self._send(link, bytes(data), sock)

    def sendmsg(self, original: _Method, sock: socket.socket, parts: Any, *args: Any) -> int:
        link = self._sending(sock)
        if link is None:
            return int(original(sock, parts, *args))
        return self._send(link, b"".join(parts), sock)

    def recv(self, original: _Method, sock: socket.socket, size: int, flags: int = 0, /) -> Any:
        link = self._connections.of(sock)
        if link is None:
            return original(sock, size, flags)
        self.await_news(link.has_news, sock.gettimeout() if size else 0)
        return link.take(size, flags)

    def recv_into(
        self, original: _Method, sock: socket.socket, buffer: Any, nbytes: int = 0, flags: int = 0
    ) -> Any:
        link = self._connections.of(sock)
        if link is None:
            return original(sock, buffer, nbytes, flags)
        view = memoryview(buffer).cast("B")
        size = nbytes or view.nbytes
        self.await_news(link.has_news, sock.gettimeout() if size else 0)
        data = link.take(size, flags)
        view[: len(data)] = data
        return len(data)

    def close(self, original: _Method, sock: socket.socket) -> None:
        link = self._connections.of(sock)
        original(sock)
        if link is not None and sock.fileno() < 0:
            self._connections.closed(link)

    def shutdown(self, original: _Method, sock: socket.socket, how: int, /) -> None:
        link = self._connections.of(sock)
        if link is None:
            original(sock, how)
        elif how != socket.SHUT_RD:
            link.hang_up()

    def _sending(self, sock: socket.socket) -> MemoryLink | None:
        """Return the connection on which this thread is about to send, unless it is a real one."""
        link, hooks = self._connections.of(sock), self._hooks()
        if hooks is not None:
            hooks.sends(sock, link)
        return link

    def _send(self, link: MemoryLink, data: bytes, sock: socket.socket) -> int:
        link.send(data)
        loop = asyncio._get_running_loop() if sock.gettimeout() == 0 else None
        if isinstance(loop, OwnLoop):
            link.serve_aside(loop.wake)
        else:
            link.serve()
        self._connections.sweep()
        hooks = self._hooks()
        if hooks is not None:
            hooks.has_sent()
        return len(data)

    def await_news(self, has_news: Callable[[], bool], timeout: float | None) -> None:
        """Wait until the client can read, unless the timeout is 0. Raises ``TimeoutError``."""
        hooks = self._hooks()
        if hooks is not None and hooks.await_news(has_news, timeout):
            return
        if timeout != 0 and not has_news():
            if self._wait_in_check(has_news, timeout):
                if not has_news():
                    raise TimeoutError("timed out")
            else:
                wait_for_news(has_news, timeout)


class SocketHooks:
    """Called when code of a trial uses a socket that is connected to a fake, or an event loop."""

    def __init__(self, state: TrialState, clock: TrialClock) -> None:
        self._state = state
        self._fakes = state.fakes
        self._log = state.log
        self._turns = state.turns
        self._current_thread = state.current_thread
        self._clock = clock

    # -- sockets

    def sends(self, sock: socket.socket, link: MemoryLink | None) -> None:
        """Called before a thread sends: note on whose behalf."""
        strand = None if link is None else self._current_thread.strand()
        if link is None or strand is None:
            self._sends_elsewhere(sock)
            return
        self._state.sources.note(link.port)
        if (self._turns.has_ended or strand.root.crashed) and any(
            # Python ignores exceptions in finalizers.
            frame.f_code.co_name == "__del__"
            for frame in stack_of(sys._getframe(1))
        ):
            raise ConnectionResetError("the process has ended")
        self._turns.check_alive(strand)
        if strand is not strand.host or strand.loop.running is None:
            self._state.owners[link.port] = strand
            self._state.outside_calls.note_explored(link.port)

    def _sends_elsewhere(self, sock: socket.socket) -> None:
        """Called before a thread sends that is not explored, such as the loop of an ASGI application,
        or one on a connection that does not lead to a fake, or that began before the exploration.
        """
        strand, port = self._current_thread.strand() or self._current_thread.carried(), 0
        with contextlib.suppress(OSError, IndexError):
            port = sock.getsockname()[1]
            if strand is not None:
                self._state.owners[port] = strand
            self._state.sources.note(port)
        # The thread of a strand that has just ended wakes loops whose sleeps end by a socket pair, which
        # has no port.
        if port or not is_of_a_strand(threading.current_thread()):
            self._state.outside_calls.note_connection(port)

    def has_sent(self) -> None:
        """Called after a request was handled in this thread: end a strand that has crashed in it."""
        strand = self._current_thread.strand()
        if strand is not None:
            self._turns.check_alive(strand)

    def await_news(self, has_news: Callable[[], bool], timeout: float | None) -> bool:
        """Let other strands run until the client can read; return False for other threads."""
        strand = self._current_thread.strand()
        if strand is None:
            return False
        if timeout != 0 and not has_news():
            until = None if timeout is None else self._fakes.now_us() + math.ceil(timeout * 1e6)
            self._clock.wait_for(strand, has_news, until, "answer")
            if not has_news():
                raise TimeoutError("timed out")
        self._turns.check_alive(strand)
        return True

    # -- event loops

    def on_loop_start(self, loop: OwnLoop) -> None:
        host = self._current_thread.host()
        if host is None or host.loop.running is loop:
            return
        host.loop.running = loop
        loop.strand = host
        if host.role != "task" and host.loop.main_task is None:
            main = Strand(host.title, "task", parent=host, points=host.points)
            main.state = "running"
            self._state.add(main)
            host.loop.main_task, host.name = main, f"{host.title}:loop"
            for task in asyncio.all_tasks(loop):
                self._state.tasks[task] = main

    def on_loop_end(self, loop: OwnLoop) -> None:
        host = self._current_thread.host()
        if host is None or host.loop.running is not loop:
            return
        host.loop.running = None
        if host.loop.main_task is not None:
            host.points = host.loop.main_task.points
            host.loop.main_task, host.name = None, host.title
        tasks = [
            strand
            for strand in self._state.strands
            if strand.role == "task" and strand.host is host
        ]
        for strand in sorted(tasks, key=lambda strand: strand.parked_at):
            while strand.state == "parked":
                # A request may still wait for its turn after its task has ended, e.g. because of a
                # timeout. The fake handles it, because it has already been sent.
                strand.state = "running"
                strand.release()
            strand.state = "ended"
            strand.release()

    def idle(self, loop: OwnLoop, timeout: float | None) -> bool:
        """Let other strands run while an event loop waits; return False if it is not explored here."""
        host = loop.strand
        if (
            host is None
            or self._current_thread.is_aside()
            or self._current_thread.host() is not host
        ):
            return False
        self._turns.check_alive(host)
        if self._fakes.clock.driving:
            return True
        if loop.selector.has_strangers() and loop.selector.has_events(_SOON):
            return True
        wake_us = None
        if timeout is not None:
            wake_us = self._fakes.now_us() + math.ceil(timeout * 1e6)
            self._state.touch([READS_CLOCK])
        host.place = "wake"
        host.points = 0 if host.loop.main_task is None else host.loop.main_task.points
        self._turns.idle(host, Waiting("loop", loop.selector.has_events, wake_us))
        self._turns.check_alive(host)
        return True

    def on_task(self, task: asyncio.Task[Any], is_inner: bool) -> None:
        creator = self._current_thread.strand()
        if is_inner and creator is not None and creator.role == "task":
            self._state.tasks[task] = creator

    def on_unhandled(self, error: BaseException) -> None:
        broken = broken_promise(error)
        if broken is not None:
            self._log.breaks(broken)
        else:
            self._log.note(f"a task raised {error!r}, which no code awaited")


class _Selector(selectors.DefaultSelector):
    """A selector with connections in memory, which lets other strands run when nothing is ready."""

    loop: OwnLoop

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        self._links: dict[int, tuple[MemoryLink, selectors.SelectorKey]] = {}
        self.has_threads = False
        """Whether a thread has ever woken the loop, which it does through a socket of the system."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        link = self._connections.at(fileobj)
        if link is None:
            return super().register(fileobj, events, data)
        key = selectors._BaseSelectorImpl.register(self, fileobj, events, data)
        self._links[key.fd] = link, key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self.get_map()[fileobj]
        if self._links.pop(key.fd, None) is None:
            return super().unregister(fileobj)
        return selectors._BaseSelectorImpl.unregister(self, fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map()[fileobj].fd not in self._links:
            return super().modify(fileobj, events, data)
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> Any:
        ready = self._find_ready(0)
        if not ready and (timeout is None or timeout > 0):
            if self.loop.idle(timeout):
                timeout = 0
            ready = self._find_ready(timeout)
        if len(ready) > 1:
            # Sort by registration: the order of arrival differs from trial to trial.
            registered = list(self.get_map())
            ready.sort(key=lambda entry: registered.index(entry[0].fd))
        return ready

    def _find_ready(self, timeout: float | None) -> Any:
        """Wait, in wall-clock time, for events; do not wait if a connection in memory has one."""
        ready = []
        for link, key in self._links.values():
            events = key.events & (selectors.EVENT_WRITE | link.has_news() * selectors.EVENT_READ)
            if events:
                ready.append((key, events))
        if (ready or timeout == 0) and not (self.has_threads or self.has_strangers()):
            return ready
        return super().select(0 if ready else timeout) + ready

    def has_events(self, seconds: float = 0.0) -> bool:
        """Return whether a connection or another thread has an event for the loop."""
        return bool(self._find_ready(seconds))

    def has_strangers(self) -> bool:
        """Return whether the loop waits for a socket of the system, apart from its own."""
        return len(self.get_map()) > len(self._links) + 1


class OwnLoop(asyncio.SelectorEventLoop):
    """The event loop of one strand, which runs on fake time."""

    def __init__(
        self, fakes: Fakes, hooks: Callable[[], SocketHooks | None], wait_in_check: _Wait
    ) -> None:
        self._fakes = fakes
        self._hooks = hooks
        self._wait_in_check = wait_in_check
        self._in_threads: set[asyncio.Future[Any]] = set()
        """The calls that threads of executors have not ended."""
        self.strand: Strand | None = None
        # Measure times from the start: a float of the full time cannot tell microseconds apart.
        self._began_us = fakes.now_us()
        self.selector = _Selector(fakes.connections)
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
        # The time of a check waits for a thread that works for the loop.
        return not self._in_threads and self._wait_in_check(self.selector.has_events, timeout)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._in_threads.add(future)
        future.add_done_callback(self._in_threads.discard)
        return future

    def wake(self) -> None:
        """Wake the loop, called in another thread; a loop that is explored waits differently."""
        if self.strand is None and not self.is_closed():
            self.call_soon_threadsafe(lambda: None)

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        self.selector.has_threads = True
        return super().call_soon_threadsafe(*args, **options)

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
            if not is_crash(error) and hooks is not None:
                hooks.on_unhandled(error)
        elif "was destroyed" not in str(context.get("message")):
            self.default_exception_handler(context)


_RUNNERS = ("asyncio.", "anyio.")
"""Packages that create tasks for their callers."""


def _is_inner(coroutine: Any, frame: FrameType | None) -> bool:
    """Return whether the code in ``frame``, which creates a task, only awaits it, as ``wait_for()``
    and libraries do. The task is then a part of the strand that creates it.
    """
    code = getattr(coroutine, "cr_code", None)
    if code is None:
        return True
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_RUNNERS):
        if frame.f_code is asyncio.wait_for.__code__:
            return True
        frame = frame.f_back
    # The application may pass coroutines of a library to gather(), which runs them concurrently.
    is_created_by_library = frame is None or is_library(frame.f_code.co_filename)
    return is_library(code.co_filename) and is_created_by_library
