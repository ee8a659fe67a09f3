"""Waiting strands: how a strand yields its turn, sleeps, or waits for an answer or a condition."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from ...core.timers import Signal
from ..footprint import READS_CLOCK
from .clock import ClockMoves
from .state import Part, RunState
from .strands import Crash, Strand, Waiting, Why

LOOK = 0.5
"""Wall-clock seconds between two checks of whether a strand has ended."""
_Wait: TypeAlias = Callable[[Signal, Callable[[], Any], int], Any]


class Waits(Part):
    """Lets other strands run while one of them sleeps, waits for a condition, or reaches a point."""

    def __init__(self, state: RunState, clock: ClockMoves) -> None:
        super().__init__(state)
        self._clock = clock

    def sleep(self, seconds: float) -> bool:
        strand = self._state.here()
        if strand is None or self._record.aside_depth:
            return False
        self._state.check_alive(strand)
        if self._world.clock.driving or seconds <= 0:
            return True
        self.wait_for(strand, None, self._world.now_us() + math.ceil(seconds * 1e6), "sleep")
        return True

    def wait_for(
        self,
        strand: Strand,
        ready: Callable[[], bool] | None,
        until_us: int | None,
        why: Why,
        *,
        is_own_thread: bool = True,
    ) -> None:
        """Let other strands run until ``ready()`` is true, or until the given time."""
        if is_own_thread:
            self._connections.finish_calls(strand)
        if until_us is not None:
            self._record.touch([READS_CLOCK])
        self._state.park(strand, "wake")
        strand.wait(Waiting(why, ready, until_us))
        self.take_turn(strand, is_own_thread)
        strand.waiting = Waiting()

    def wait(
        self, real: _Wait, signal: Signal, poll: Callable[[], object], until_us: int
    ) -> object:
        """Wait until ``poll()`` returns something other than None, as a blocking call does.

        A thread that does not serve a strand waits with the clock's real method.
        """
        strand = self._state.serving.get(threading.get_ident())
        if strand is None or self._world.clock.driving:
            return real(signal, poll, until_us)
        result: object = None

        def ready() -> bool:
            nonlocal result
            if result is None:  # A poll that succeeds takes its result, so it must not be repeated.
                result = poll()
            return result is not None or signal.closed

        if not ready() and self._world.now_us() < until_us:
            is_own_thread = self._state.here() is strand
            try:
                self.wait_for(strand, ready, until_us, "wait", is_own_thread=is_own_thread)
            except Crash:
                if is_own_thread:
                    raise
            ready()
        return result

    def pass_time(self, seconds: float) -> bool:
        """Let fake time pass in an event loop that is not explored."""
        if self._turns.current is None or self._record.aside_depth:
            return False
        if not self._world.clock.driving and seconds > 0:
            self._world.time.move_to(self._world.now_us() + math.ceil(seconds * 1e6))
        return True

    def take_turn(self, strand: Strand, is_own_thread: bool) -> None:
        """Let other strands run; return at the next turn of a strand that is parked or waits.

        Called by the strand's own thread, or by the thread of a fake that handles its call. In a
        fake's thread, a task that does not block its event loop waits until the loop chooses it.
        A strand that is alone keeps its turn. Any other strand passes the turn on.
        """
        is_task = strand.role == "task"
        if is_task and not is_own_thread and not strand.turn.is_blocking:
            self._await_loop(strand)
        elif not is_task and self._is_alone(strand):
            strand.state, strand.yields_to_others = "running", False
            self._turns.progress += 1
            self._state.check_promises()
        else:
            strand.turn.is_inline = is_task
            try:
                self._turns.yield_turn(strand)
            finally:
                strand.turn.is_inline = False
        self._state.check_alive(strand)

    def _await_loop(self, strand: Strand) -> None:
        """Wait for the turn of a task, whose event loop chooses the next strand when it is idle."""
        self._world.connections.progresses()
        self._state.check_alive(strand)
        has_turn = False
        while not has_turn and strand.state != "ended":
            has_turn = strand.gate.acquire(LOOK)
        self._state.check_alive(strand)
        if strand.state == "ended":
            raise Crash
        strand.state = "running"

    def _is_alone(self, strand: Strand) -> bool:
        """Return whether no other strand could run, so that this strand can keep its turn."""
        if (
            self._record.has_steps
            or self._clock.may_move
            or strand.is_stepped_over
            or strand.state != "parked"
        ):
            return False
        if strand.held_until_us > self._world.now_us() or self._world.deliveries.are_left():
            return False
        return all(one is strand or one.state == "ended" for one in self._state.strands)

    async def take_turn_async(self, strand: Strand) -> None:
        """Like ``take_turn()``, for a task whose event loop must not be blocked."""
        loop = strand.host.loop.running
        assert loop is not None
        strand.turn.future = loop.create_future()
        try:
            await strand.turn.future
        finally:
            strand.turn.future = None
            if strand.state != "ended":
                strand.state = "running"
        self._state.check_alive(strand)
