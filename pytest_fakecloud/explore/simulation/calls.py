"""Calls made by the code being explored, with points before and after each for other strands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TypeVar

from ...core.errors import ContractError
from ...handle import Handle
from ...http.messages import AnyResponse, Effect, Request, Serve
from ...kv.command_fields import only_prepares
from ...reporting.calls import command_of
from ..schedule import PAUSES
from .call_effects import CallEffects, possible_events, session_of
from .pauses import Pauses
from .state import Part, RunState
from .strands import Crash, Strand
from .stuck import describe_places
from .waits import Waits

MOST_POINTS = 2_000
"""Maximum number of calls of one strand; more calls count as an endless loop."""
T = TypeVar("T")
_TurnsToYield = Generator[None, None, None]
"""A generator that yields wherever the strand must give up its turn."""


class Calls(Part):
    """Lets other strands run at the points of calls, and has the calls served at their turn.

    ``late`` says whether a strand can also give up its turn before it receives an answer.
    """

    def __init__(self, state: RunState, pauses: Pauses, waits: Waits, *, late: bool) -> None:
        super().__init__(state)
        self._pauses = pauses
        self._waits = waits
        self._late = late
        self._effects = CallEffects(state)

    def _strand_of(self, request: Request) -> tuple[Strand | None, bool]:
        """Return the strand that makes a call, and whether its own thread handles the call."""
        strand = self._state.here()
        if strand is not None:
            return strand, True
        if request.client is not None and request.client[1]:
            owner = self._connections.owners.get(request.client[1])
            if owner is not None and owner.state != "ended":
                return owner, False
        # A thread that is not explored works for the running strand, or for one that waits.
        waiting = (s for s in self._state.strands if s.is_waiting_for("lock", "join"))
        return self._turns.current or next(waiting, None), False

    def at_call(self, handle: Handle, request: Request, serve: Serve) -> AnyResponse:
        """Handle a request at its endpoint and return its outcome.

        Runs in the strand's own thread for a request in process, otherwise in the fake's thread.
        """
        if self._record.aside_depth:
            return serve()
        strand, is_own_thread = self._strand_of(request)
        if strand is None and not self._turns.has_ended:
            return serve()
        try:
            if self._turns.has_ended or strand is None or strand.root.crashed:
                raise Crash
            if _is_silent(handle, request):
                if self._record.stacks:
                    self._run.silent_calls.append(request.call)
                return serve()
            return self._serve_in_turn(strand, is_own_thread, handle, request, serve)
        except Crash:
            if is_own_thread:
                raise
            # Another thread runs this strand's code, and ends at the strand's next turn.
            return Effect("drop")

    def _serve_in_turn(
        self, strand: Strand, is_own_thread: bool, handle: Handle, request: Request, serve: Serve
    ) -> AnyResponse:
        """Serve a call between the points before and after it, at which other strands may run."""
        me, serving = threading.get_ident(), self._state.serving
        # Another thread may make this call for a waiting strand, or for one that has another call in
        # progress. The strand then has no turn to yield.
        is_second = not is_own_thread and strand in serving.values()
        has_turn = strand.state == "running" and not is_second
        serving[me] = strand
        try:
            if is_own_thread and strand.turn.is_exchanging:
                return self._effects.serve(strand, handle, request, serve)
            if not has_turn:
                strand.points += 1
                self._note_events(strand, handle, request, may_wait=False)
                return self._effects.serve(strand, handle, request, serve)
            strand.turn.port = request.client[1] if request.client and not is_own_thread else 0
            for _ in self._approach(strand, handle, request):
                self._waits.take_turn(strand, is_own_thread)
            response = self._effects.serve(strand, handle, request, serve)
            if self._late or self._state.schedule.at(strand.name, strand.points):
                for _ in self._receive(strand):
                    self._waits.take_turn(strand, is_own_thread)
            return response
        finally:
            serving.pop(me, None)

    async def exchange(self, handle: Handle, exchange: Callable[[], T]) -> T:
        """Make an asynchronous request; let other tasks and strands run before and after it."""
        strand = self._state.here()
        if strand is None or strand.role != "task":
            return exchange()
        self._state.check_alive(strand)
        for _ in self._approach(strand, handle, None):
            await self._waits.take_turn_async(strand)
        strand.turn.is_exchanging = True
        try:
            response = exchange()
        finally:
            strand.turn.is_exchanging = False
        for _ in self._receive(strand):
            await self._waits.take_turn_async(strand)
        return response

    def _approach(self, strand: Strand, handle: Handle, request: Request | None) -> _TurnsToYield:
        """Process the point before a call; yield wherever the strand must give up its turn."""
        strand.points += 1
        if strand.points > MOST_POINTS:
            self._turns.fail(
                ContractError(
                    f"{describe_places([strand])} has made {MOST_POINTS:,} calls and goes on: "
                    "explore() is for code that ends, so give its loop an end"
                )
            )
        may_wait = not self._world.clock.driving
        self._note_events(strand, handle, request, may_wait=may_wait)
        if not may_wait:
            return
        yield from self._pause(strand)
        is_point = handle.name in self._state.scope.handles
        if is_point or self._state.switches.get((strand.name, strand.points)):
            self._state.park(strand, "switch")
            yield

    def _note_events(
        self, strand: Strand, handle: Handle, request: Request | None, *, may_wait: bool
    ) -> None:
        if self._record.notes_points and handle.name in self._state.scope.handles:
            events = possible_events(handle, request, may_wait=may_wait)
            self._pauses.note_point(strand, events)

    def _pause(self, strand: Strand) -> _TurnsToYield:
        """Apply the pauses that the schedule contains at a point; yield after each."""
        for event in self._state.schedule.at(strand.name, strand.points):
            if event.kind in PAUSES and self._pauses.pause(strand, event):
                self._run.fired.append(event)
                yield

    def _receive(self, strand: Strand) -> _TurnsToYield:
        """Process the point before the code receives an answer; yield like ``_approach()``."""
        if self._world.clock.driving or strand.state == "ended":
            return
        for event in self._state.schedule.at(strand.name, strand.points):
            if event.kind == "slow" and self._pauses.slow_down(strand, event):
                self._run.fired.append(event)
                yield
        if self._late:
            self._state.park(strand, "late")
            yield

    def rejected(self, request: Request) -> None:
        """Add a call without valid credentials to the story; it has no point for events."""
        if not self._record.stacks:
            return
        strand, _ = self._strand_of(request)
        if strand is not None and not self._record.aside_depth and not self._turns.has_ended:
            self._effects.add_line(strand, request)

    def at_gap(self) -> None:
        """Let other strands run between two commands of a pipeline."""
        strand = self._state.serving.get(threading.get_ident()) or self._state.here()
        if strand is None or self._turns.has_ended or self._world.clock.driving:
            return
        is_own_thread = self._turns.here() is not None
        if strand.role == "task" and is_own_thread:
            return
        strand.points += 1
        if self._record.notes_points:
            self._pauses.note_point(strand)
        for _ in self._pause(strand):
            self._waits.take_turn(strand, is_own_thread)
        self._state.park(strand, "switch")
        self._waits.take_turn(strand, is_own_thread)


def _is_silent(handle: Handle, request: Request) -> bool:
    """Return whether a Redis command only sets up its connection, or is queued for EXEC."""
    if request.call.route != "database-port":
        return False
    if only_prepares(request.call):
        return True
    session = session_of(handle, request)
    is_queued = session is not None and session.queue is not None
    return is_queued and command_of(request.call) != "EXEC"
