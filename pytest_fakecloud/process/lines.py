"""Finds the lines that make a call, in a small part of the time that `call_sites` takes.

The first failure of a test has no exact call sites, because finding them takes longer than the call.
So each call keeps references to the code on the stack of its client that is probably the
application's, and the report of a failing test decides which of it is.

A call that skips the socket has its client on its own stack. The client of any other call is in
another thread, and to walk the stack of a running thread has crashed CPython 3.11. So its lines are
found earlier, in its own thread, when it sends on a socket.
"""

from __future__ import annotations

import os
import socket
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any, Literal
from weakref import ref

from ..core.exits import Exits
from ..core.frames import CodePlace
from ..core.recorder import CallLines
from .replace import Function, swap

_MOST = 6
"""Maximum number of lines to keep for a call."""
_RUNNERS = (os.path.join("_pytest", "python.py"), os.path.join("asyncio", "base_events.py"))
"""The ends of the names of the files in which pytest calls a test, and an event loop a task."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_LIBRARIES = (
    "<",
    *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)


@dataclass
class _Sent:
    """The lines that have sent on a socket, and whether a call has taken them.

    ``is_mixed``: other lines sent before a call had taken those before. As the client does not wait
    for its responses, the lines of its calls are not known.
    """

    sock: ref[socket.socket]
    lines: CallLines | None
    is_taken: bool = False
    is_mixed: bool = False


class Lines:
    """Returns the lines that make the current call, given the address of its client, if it has one.

    Clients that send in other processes, over TLS or on the sockets of gevent have none.
    """

    def __init__(self) -> None:
        self._sent: dict[int, _Sent] = {}
        """What was sent last from each port."""
        self._sent_on: dict[int, _Sent] = {}
        """The same by the descriptor of the socket, because asking for its port is a system call."""

    def __call__(self, client: tuple[str, int] | None) -> CallLines | None:
        if client is None:  # The call skips the socket.
            return lines_above(sys._getframe(1))
        sent = self._sent.get(client[1])
        sock = None if sent is None else sent.sock()
        if sent is None or sock is None or sock.fileno() < 0 or sent.is_mixed:
            return None
        sent.is_taken = True
        return sent.lines

    def watch_sockets(self, exits: Exits) -> None:
        """Note the lines that send on sockets until the exits are closed."""
        for name in ("send", "sendall"):
            swap(exits, socket.socket, name, self._noting(getattr(socket.socket, name)))

    def _noting(self, original: Function) -> Function:
        def send(sock: socket.socket, *arguments: Any, **options: Any) -> Any:
            self._note(sock, sys._getframe(1))
            return original(sock, *arguments, **options)  # gevent's sockets have options.

        return send

    def _note(self, sock: socket.socket, frame: FrameType) -> None:
        if _kind_of(frame.f_code.co_filename) == "own":
            return  # A fake sends a response.
        lines = lines_above(frame)
        last = self._sent_on.get(sock.fileno())
        if last is None or last.sock() is not sock:
            with suppress(OSError, IndexError):
                port = sock.getsockname()[1]
                self._sent[port] = self._sent_on[sock.fileno()] = _Sent(ref(sock), lines)
        elif last.is_taken:
            last.lines, last.is_taken = lines, False
        elif last.lines != lines:
            last.is_mixed = True


def lines_above(frame: FrameType | None) -> CallLines | None:
    """Return the lines on the stack above a frame that may be the application's, if there are any."""
    places: list[CodePlace] = []
    library = ""
    while frame is not None:
        code = frame.f_code
        kind = _kind_of(code.co_filename)
        if kind == "application":
            if len(places) < _MOST:
                places.append((code, frame.f_lasti))
        elif kind == "runner":
            break
        elif not places:
            library = code.co_filename
        frame = frame.f_back
    return CallLines(tuple(places), library) if places else None


@cache
def _kind_of(filename: str) -> Literal["application", "library", "own", "runner"]:
    if filename.endswith(_RUNNERS):
        return "runner"
    if filename.startswith(_PACKAGE):
        return "own"
    return "library" if filename.startswith(_LIBRARIES) else "application"
