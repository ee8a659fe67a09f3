"""Finds the code that makes a call, in a small part of the time that `call_sites` takes.

The first failure of a test has no exact call sites, because finding them takes longer than the call.
So each call keeps references to the code on the stack of its client that is probably the
application's, and the report of a failing test decides which of it is.

A call that skips the socket has its client on its own stack. The client of any other call is in
another thread, and to walk the stack of a running thread has crashed CPython 3.11. So its stack is
read earlier, in its own thread, when it sends on a socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal
from weakref import ref

from ..core.calls import Call
from ..core.exits import Exits
from ..core.frames import CodePlace, frames_of_coroutine
from ..core.recorder import CallStack, SharedRecords
from .replace import Function, swap

_MOST = 6
"""Maximum number of places to keep for a call."""
_TASK_RUNNER = os.path.join("asyncio", "events.py")
"""The end of the name of the file in which an event loop calls a task."""
_RUNNERS = (os.path.join("_pytest", "python.py"), _TASK_RUNNER)
"""The same, and that of the file in which pytest calls a test."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_LIBRARIES = (
    "<",
    *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)


@dataclass
class _Sent:
    """The stack that has sent on a socket, and whether a call has taken it.

    ``is_mixed``: another stack sent before a call had taken the one before. As the client does not
    wait for its responses, the stacks of its calls are not known.
    """

    sock: ref[socket.socket]
    stack: CallStack | None
    is_taken: bool = False
    is_mixed: bool = False


class Stacks:
    """Finds and notes the stack that makes the current call.

    All clouds of a test share it: of two that watch the sockets, one would see only the other send.
    For clients that send in other processes, over TLS or on the sockets of gevent, none is known.
    """

    def __init__(self) -> None:
        self._sent: dict[int, _Sent] = {}
        """What was sent last from each port."""
        self._sent_on: dict[int, _Sent] = {}
        """The same by the descriptor of the socket, because asking for its port is a system call."""

    def note(self, records: SharedRecords, call: Call) -> None:
        """Note the stack that makes a call, if it is known."""
        if (stack := self.of(call.client)) is not None:
            records.stacks[call.number] = stack

    def of(self, client: tuple[str, int] | None) -> CallStack | None:
        """Return the stack that makes the current call, given its client's address, if it has one."""
        if client is None:  # The call skips the socket.
            return stack_above(sys._getframe(1))
        sent = self._sent.get(client[1])
        if sent is None or sent.is_mixed or (sock := sent.sock()) is None or sock.fileno() < 0:
            return None
        sent.is_taken = True
        return sent.stack

    def watch_sockets(self, exits: Exits) -> None:
        """Note the stacks that send on sockets until the exits are closed."""
        for name in ("send", "sendall"):
            swap(exits, socket.socket, name, self._noting(getattr(socket.socket, name)))

    def _noting(self, original: Function) -> Function:
        def send(sock: socket.socket, *arguments: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            if not frame.f_code.co_filename.startswith(_PACKAGE):  # No fake sends a response.
                last = self._sent_on.get(sock.fileno())
                if last is None or last.sock() is not sock:
                    self._begin(sock, stack_above(frame))
                elif last.is_taken:
                    last.stack, last.is_taken = stack_above(frame), False
                elif last.stack != stack_above(frame):
                    last.is_mixed = True
            return original(sock, *arguments, **options)  # gevent's sockets have options.

        return send

    def _begin(self, sock: socket.socket, stack: CallStack | None) -> None:
        """Note the first stack that sends on a socket."""
        with suppress(OSError, IndexError):
            port = sock.getsockname()[1]
            self._sent[port] = self._sent_on[sock.fileno()] = _Sent(ref(sock), stack)


def stack_above(frame: FrameType | None) -> CallStack | None:
    """Return the code on the stack above a frame that may be the application's, if there is any."""
    kinds, called = _KINDS, frame
    while frame is not None and kinds[frame.f_code.co_filename] is None:
        called, frame = frame, frame.f_back
    places: list[CodePlace] = []
    while frame is not None and (kind := kinds[frame.f_code.co_filename]) != "runner":
        if kind is not None:
            places.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    if frame is not None and frame.f_code.co_filename.endswith(_TASK_RUNNER):
        for caller in _awaiting_frames():
            if kinds[caller.f_code.co_filename] == "application":
                places.append((caller.f_code, caller.f_lasti))
            elif not places:
                called = caller
    if not places or called is None:
        return None
    library = called.f_code.co_filename
    return CallStack(tuple(places[:_MOST]), library if kinds[library] is None else "")


def _awaiting_frames() -> Iterator[FrameType]:
    """Yield the frames, innermost first, of the tasks that await the current task. Before Python 3.12,
    ``asyncio.wait_for()`` runs its coroutine in a task.
    """
    loop = asyncio._get_running_loop()
    task = None if loop is None else asyncio.current_task(loop)
    while task is not None and (task := _awaiting(task)) is not None:
        yield from reversed([*frames_of_coroutine(task.get_coro())])


def _awaiting(task: asyncio.Task[object]) -> asyncio.Task[object] | None:
    """Return the task that awaits a task, directly or by a future that ends with it."""
    futures: list[asyncio.Future[object]] = [task]
    for future in futures:  # which grows meanwhile
        for callback, _ in getattr(future, "_callbacks", None) or ():
            owner = getattr(callback, "__self__", None)
            if isinstance(owner, asyncio.Task) and getattr(owner, "_fut_waiter", None) is future:
                return owner
            arguments = getattr(callback, "args", ())
            futures += [value for value in arguments if isinstance(value, asyncio.Future)]
    return None


class _Kinds(dict[str, Literal["application", "runner"] | None]):
    """What the code in each file is; None for that of libraries, and of the fakes."""

    def __missing__(self, filename: str) -> Literal["application", "runner"] | None:
        kind: Literal["application", "runner"] | None = None
        if filename.endswith(_RUNNERS):
            kind = "runner"
        elif not filename.startswith((_PACKAGE, *_LIBRARIES)):
            kind = "application"
        self[filename] = kind
        return kind


_KINDS = _Kinds()
