"""What the routes of a queue share: the event loop and the sockets with which they make deliveries."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.recorder import Recorder
from ...core.registry import Registry
from .applications import Deadlines
from .event_loops import AsgiRunner

if TYPE_CHECKING:
    from .loopback import LoopbackSender

RunWork: TypeAlias = Callable[[Awaitable[Any]], Any]
"""Runs the work of a destination and returns its result."""
AroundWork: TypeAlias = Callable[[str, RunWork, Awaitable[Any]], Any]
"""Gets the kind of a destination (``call`` or ``asgi``), a function that runs its work in the queue's
own event loop, and the work. Returns the result of the work.
"""


class RouteContext:
    """What the routes of a queue share. ``name`` is that of the queue, whose deliveries ``recorder``
    records.

    ``around_work`` are functions that are called around the asynchronous work of destinations:
    coroutine functions and ASGI applications. The awaitable methods of a queue run them in the test's
    own event loop, and do not call the functions.
    """

    def __init__(self, recorder: Recorder | None, name: str) -> None:
        self.recorder = recorder
        self.name = name
        self.around_work: Registry[AroundWork] = Registry()
        self._lock = threading.Lock()
        self._own_runner: AsgiRunner | None = None
        self._sockets: LoopbackSender | None = None

    @property
    def runner(self) -> AsgiRunner:
        """The event loop of the queue, which starts when it is used."""
        with self._lock:
            # In a forked process, the thread of an earlier one is missing.
            if self._own_runner is None or not self._own_runner.is_alive():
                self._own_runner = AsgiRunner()
            return self._own_runner

    def run(self, where: str, work: Awaitable[Any], deadlines: Deadlines) -> Any:
        """Run the work of a destination in the queue's own event loop, and return its result."""

        def in_own_loop(work: Awaitable[Any]) -> Any:
            # Starts the loop's thread only here, so that interceptors also see its start.
            return self.runner.run(work, deadlines)

        run: RunWork = in_own_loop
        for around in self.around_work:
            run = partial(around, where, run)
        return run(work)

    def loopback(self, deadlines: Deadlines) -> LoopbackSender:
        """Return the sender of deliveries over sockets, which the first call creates."""
        if self._sockets is not None:
            return self._sockets
        with self._lock:
            if self._sockets is None:
                # Imported here, because only tests that deliver over sockets need the HTTP client.
                from .loopback import LoopbackSender

                self._sockets = LoopbackSender(deadlines)
            return self._sockets

    def release(self) -> None:
        """Close idle connections, which would block a single-threaded server."""
        if self._sockets is not None:
            self._sockets.release()

    def close(self) -> None:
        """Close the connections and the event loop."""
        if self._sockets is not None:
            self._sockets.close()
        with self._lock:
            runner, self._own_runner = self._own_runner, None
        if runner is not None:
            runner.close()
