"""Waiting strands: how a strand yields its turn, sleeps, or waits for an answer or a condition."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from ..footprint import READS_CLOCK
from ..runtime.strands import Crash, Strand
from .state import nothing
from .workers import Workers

if TYPE_CHECKING:
    import socket

    from ...core.timers import Signal
    from ..runtime.wires import Wire

LOOK = 0.5
"""Wall-clock seconds between two checks of whether a strand has ended."""


class Waits(Workers):
    """Lets other strands run while one of them sleeps, waits for a condition, or reaches a point."""

    def sleep(self, seconds: float) -> bool:
        """Sleep in fake time while other strands run."""
        strand = self._here()
        if strand is None or self._aside:
            return False
        self._check_alive(strand)
        if self._world.clock.driving or seconds <= 0:
            return True
        self.wait_for(strand, None, self._world.now_us() + math.ceil(seconds * 1e6), "sleep")
        return True

    def wait_for(
        self,
        strand: Strand,
        ready: Callable[[], bool] | None,
        until_us: int | None,
        why: str,
        *,
        own: bool = True,
    ) -> None:
        """Let other strands run until ``ready()`` is true, or until the given time."""
        if own:
            self._connections.finish_calls(strand)
        if until_us is not None and self.records:
            self.touch([READS_CLOCK])
        self._park(strand, "wake")
        strand.state, strand.why = "waiting", why
        strand.ready, strand.wake_us = ready, until_us
        self._take_turn(strand, own)
        strand.ready = strand.wake_us = None

    def sends(self, port: int, *, is_blocking: bool) -> None:
        """Called before the code sends to a fake from a local port.

        ``is_blocking`` tells whether the code will block its thread until the answer arrives.
        """
        connections = self._connections
        connections.note_source(port)
        strand = self._here()
        if strand is None:
            return
        if (self._turns.over or strand.is_over) and _is_finalizer(sys._getframe(1)):
            raise ConnectionResetError("the process has ended")
        self._check_alive(strand)
        if strand.host.loop is None:
            connections.finish_calls(strand, but=port)
        else:
            # The fakes handle requests in the order in which the tasks send them.
            if not strand.host.is_settled:
                connections.await_handling(strand.host)
            strand.host.is_settled = False
            strand.is_blocking = is_blocking
        if strand is not strand.host or strand.loop is None:
            connections.owners[port] = strand

    def sends_elsewhere(self, sock: socket.socket) -> None:
        """Called before a thread that is not explored sends, such as the loop of an ASGI application."""
        if self._stacks:
            with contextlib.suppress(OSError, IndexError):
                self._connections.note_source(sock.getsockname()[1])

    def reads(self, wire: Wire, timeout: float | None) -> bool:
        """Wait until a fake has sent something; return False when the timeout expires."""
        strand = self._here()
        if strand is None:
            return True
        # After the last bytes, the end of the connection may follow.
        strand.host.is_settled = False
        if timeout == 0:
            return True
        while not self._wait_for_fake(wire, strand):
            if not self._wait_for_strands(wire, strand, timeout):
                return False
        self._check_alive(strand)
        return True

    def _wait_for_fake(self, wire: Wire, strand: Strand) -> bool:
        """Wait, in wall-clock time, while the fake handles a call; return whether its answer can be
        read. It cannot if the call waits for another strand, or for an event.
        """
        while not wire.is_readable(0):
            self._check_alive(strand)
            # Another strand may share this connection, and its call cannot proceed while this
            # strand has the turn.
            owner = self._connections.owners.get(wire.port, strand)
            if (owner is not strand and owner.state == "parked") or wire.is_quiet():
                return wire.is_readable(0)  # The answer may have arrived after the first check.
            wire.is_readable(0.01)
        return True

    def _wait_for_strands(self, wire: Wire, strand: Strand, timeout: float | None) -> bool:
        """Let other strands run until a fake has sent something; return False when the timeout
        expires.
        """

        def has_arrived() -> bool:
            self._world.wires.settle()
            return wire.is_readable(LOOK if wire.has_unread() else 0)

        until = None if timeout is None else self._world.now_us() + math.ceil(timeout * 1e6)
        self.wait_for(strand, has_arrived, until, "answer")
        return wire.is_readable(0)

    def wait(
        self, signal: Signal, poll: Callable[[], object], until_us: int
    ) -> tuple[bool, object]:
        """Wait until ``poll()`` returns something other than None, as a blocking call does."""
        strand = self._serving.get(threading.get_ident())
        if strand is None or self._world.clock.driving:
            return False, None
        found: list[object] = []

        def ready() -> bool:
            if not found and (got := poll()) is not None:
                found.append(got)
            return bool(found) or signal.closed

        if not ready() and self._world.now_us() < until_us:
            own = self._here() is strand
            try:
                self.wait_for(strand, ready, until_us, "wait", own=own)
            except Crash:
                if own:
                    raise
            ready()
        return True, found[0] if found else None

    def pass_time(self, seconds: float) -> bool:
        """Let fake time pass in an event loop that is not explored."""
        if self._turns.current is None or self._aside:
            return False
        if not self._world.clock.driving and seconds > 0:
            self._world.time.move_to(self._world.now_us() + math.ceil(seconds * 1e6))
        return True

    def new_thread(self, strand: Strand, thread: threading.Thread) -> Strand:
        """Return a new strand for a thread that explored code starts."""
        self._connections.finish_calls(strand)
        target = getattr(thread, "_target", None)
        name = getattr(target, "__name__", "thread").strip("_")
        name = self._new_name(f"{strand.root.title}+{name if name.isidentifier() else 'thread'}")
        child = self._add(Strand(name, "thread", nothing, parent=strand))
        child.thread = -1
        child.is_daemon = thread.daemon
        self._by[name] = len(self.run.steps) - 1
        return child

    def _take_turn(self, strand: Strand, own: bool) -> None:
        if strand.role == "task" and not own and not strand.is_blocking:
            # The event loop of a task chooses the next strand when it is idle.
            self._world.wires.progresses()
            self._check_alive(strand)
            while not strand.go.acquire(LOOK) and strand.state != "ended":
                pass
            if strand.state == "ended":
                raise Crash
            self._check_alive(strand)
            strand.state = "running"
            return
        if strand.role != "task" and self._is_alone(strand):
            strand.state, strand.last = "running", False
            self._turns.progress += 1
            self._check_always()
            self._check_alive(strand)
            return
        strand.inline = strand.role == "task"
        try:
            self._turns.give_way(strand)
        finally:
            strand.inline = False
        self._check_alive(strand)

    def _is_alone(self, strand: Strand) -> bool:
        """Return whether no other strand could run, so that this strand can keep its turn."""
        if self.records or self._may_move or strand.carried or strand.state != "parked":
            return False
        if strand.held_until_us > self._world.now_us() or self._world.deliveries.are_left():
            return False
        return all(one is strand or one.state == "ended" for one in self._strands)

    async def _take_turn_async(self, strand: Strand) -> None:
        assert strand.host.loop is not None
        strand.turn = strand.host.loop.create_future()
        try:
            await strand.turn
        finally:
            strand.turn = None
            if strand.state != "ended":
                strand.state = "running"
        self._check_alive(strand)


def _is_finalizer(frame: FrameType | None) -> bool:
    """Return whether a stack is inside ``__del__``, where exceptions are ignored."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
