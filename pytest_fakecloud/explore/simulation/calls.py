"""Calls made by the code being explored, and the scheduled events that occur at them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError
from ...http.messages import Effect, Request, Response, Serve
from ..event_effects import (
    FAULT_WORDS,
    HOLD_US,
    ROTATED_US,
    command_of,
    disturb_group,
    faulted,
    lost_records,
    seconds,
    session_of,
)
from ..footprint import touches_of_request
from ..run import Line
from ..schedule import DELAY, FAULTS, PARTITION, PAUSES, SLOW, Event, Kind
from .clock import ClockMoves
from .frames import Source, carried_source, source_of
from .state import Part, RunState
from .strands import Crash, Strand
from .stuck import describe_places
from .waits import Waits

if TYPE_CHECKING:
    from ...handle import Handle

MOST_POINTS = 2_000
"""Maximum number of calls of one strand; more calls count as an endless loop."""
_AT_CALLS: tuple[Kind, ...] = ("answer", "drop", "lose_answer", "crash")
_PREPARING = frozenset(
    ("HELLO", "AUTH", "CLIENT", "SELECT", "QUIT", "RESET", "MULTI", "DISCARD", "UNWATCH")
)
"""Redis-protocol commands at which no event is tried, because they affect only their connection."""
_TurnsToYield = Generator[None, None, None]
"""A generator that yields wherever the strand must give up its turn."""


class Calls(Part):
    """Handles calls, and applies the events of the schedule before, around and after each call.

    ``late`` says whether a strand can also give up its turn before it receives an answer.
    """

    def __init__(self, state: RunState, clock: ClockMoves, waits: Waits, *, late: bool) -> None:
        super().__init__(state)
        self._clock = clock
        self._waits = waits
        self._late = late
        self._cut: dict[tuple[str, str], int] = {}
        """The time until which calls of a root strand do not reach a fake, by title and name."""
        self._served = 0

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

    def at_call(self, handle: Handle, request: Request, serve: Serve) -> Response:
        """Handle a request at its endpoint and return its outcome.

        Runs in the strand's own thread if the request reaches the fake in process, and otherwise in
        a thread of the fake.
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
    ) -> Response:
        """Serve a call between the points before and after it, at which other strands may run."""
        me, serving = threading.get_ident(), self._state.serving
        is_second = not is_own_thread and strand in serving.values()
        serving[me] = strand
        try:
            if strand.turn.is_granted:
                strand.turn.is_granted = False
            elif strand.state != "running" or is_second:
                # Another thread makes this call for a waiting strand, or for one that has another
                # call in progress, so there is no turn to give.
                strand.points += 1
                if self._record.notes_points and handle.name in self._state.scope.handles:
                    self._note_call(strand, handle, request, may_wait=False)
                return self._serve(strand, handle, request, serve)
            else:
                strand.turn.port = request.client[1] if request.client and not is_own_thread else 0
                for _ in self._approach(strand, handle, request):
                    self._waits.take_turn(strand, is_own_thread)
            response = self._serve(strand, handle, request, serve)
            may_yield = self._late or self._state.schedule.at(strand.name, strand.points)
            if may_yield and not (strand.role == "task" and is_own_thread and strand.turn.is_async):
                for _ in self._receive(strand):
                    self._waits.take_turn(strand, is_own_thread)
            return response
        finally:
            serving.pop(me, None)

    async def leaves(self, handle: Handle) -> None:
        """Let other tasks and strands run before an asynchronous request is sent."""
        strand = self._state.here()
        if strand is None or strand.role != "task":
            return
        self._state.check_alive(strand)
        for _ in self._approach(strand, handle, None):
            await self._waits.take_turn_async(strand)
        strand.turn.is_granted = strand.turn.is_async = True

    async def arrives(self, handle: Handle) -> None:
        """Let other strands run before the response to an asynchronous request is received."""
        strand = self._state.here()
        if strand is None or strand.role != "task":
            return
        strand.turn.is_async = False
        for _ in self._receive(strand):
            await self._waits.take_turn_async(strand)

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
        is_point = handle.name in self._state.scope.handles
        may_wait = not self._world.clock.driving
        if is_point and self._record.notes_points:
            self._note_call(strand, handle, request, may_wait=may_wait)
        if not may_wait:
            return
        yield from self._pauses(strand)
        if is_point or self._state.switches.get((strand.name, strand.points)):
            self._state.park(strand, "switch")
            yield

    def _pauses(self, strand: Strand) -> _TurnsToYield:
        """Apply the pauses that the schedule contains at a point; yield after each."""
        for event in self._state.schedule.at(strand.name, strand.points):
            if event.kind in PAUSES and self._clock.pause(strand, event):
                self._run.fired.append(event)
                yield

    def _receive(self, strand: Strand) -> _TurnsToYield:
        """Process the point before the code receives an answer; yield like ``_approach()``."""
        if self._world.clock.driving or strand.state == "ended":
            return
        for event in self._state.schedule.at(strand.name, strand.points):
            if event.kind == "slow" and self._clock.slow_down(strand, event):
                self._run.fired.append(event)
                yield
        if self._late:
            self._state.park(strand, "late")
            yield

    def _serve(self, strand: Strand, handle: Handle, request: Request, serve: Serve) -> Response:
        """Apply the events of a call, add the call to the story, and return its outcome."""
        now, root, title = self._world.now_us(), strand.root, strand.title
        self._served += 1
        root.work.last_call = self._served
        root.work.first_call = root.work.first_call or self._served
        self._run.calls[title] = self._run.calls.get(title, 0) + 1
        if handle.fixture == "broker":
            _note_consumer(root, handle, request)
        events = self._state.schedule.at(strand.name, strand.points)
        fault = self._apply(events, strand, handle, request) if events else ""
        app: Any = handle._app
        app.recorder.renumber(request.call, now)
        line = self._add_line(strand, request)
        self._record.touch(touches_of_request(handle, request))
        if self._cut and self._cut.get((root.title, handle.name), 0) > now:
            line.event, line.words = True, f"does not reach {handle.name}"
            return Effect("drop")
        return self._serve_faulted(fault, handle, request, serve, line) if fault else serve()

    def rejected(self, request: Request) -> None:
        """Add a call without valid credentials to the story; it has no point for events."""
        if not self._record.stacks:
            return
        strand, _ = self._strand_of(request)
        if strand is not None and not self._record.aside_depth and not self._turns.has_ended:
            self._add_line(strand, request)

    def _add_line(self, strand: Strand, request: Request) -> Line:
        line = self._record.add_line(strand.name, call=request.call)
        if self._record.stacks:
            line.lines = self._source(strand, request)
        return line

    def _apply(
        self, events: Sequence[Event], strand: Strand, handle: Handle, request: Request
    ) -> str:
        """Apply the events before a call, and return the fault of the call or an empty string."""
        fault = ""
        for event in events:
            if event.kind in FAULTS:
                if event.kind not in _faults_of(request.call.route):
                    continue
                fault = event.kind
            elif not self._apply_before(strand, event, handle, request):
                continue
            self._run.fired.append(event)
            if strand.root.crashed:
                raise Crash
        return fault

    def _source(self, strand: Strand, request: Request) -> Source:
        """Return the application's lines that make a call."""
        port = request.client[1] if request.client else 0
        lines = (
            carried_source.get()
            or self._state.sources.here()
            or self._state.sources.by_port.get(port, ())
        )
        if not lines and strand.host.loop.running is None:
            lines = source_of(sys._current_frames().get(strand.host.thread))
        return lines

    def _serve_faulted(
        self, fault: str, handle: Handle, request: Request, serve: Serve, line: Line
    ) -> Response:
        line.event, line.words = True, FAULT_WORDS[fault]
        request.call.fault = fault
        answers: list[Response] = []

        def served() -> Response:
            answers.append(serve())
            return answers[-1]

        response = faulted(fault, handle, session_of(handle, request), served)
        if fault == "duplicate" and request.call.route == "consume":
            line.words += lost_records(answers[0])
        return response

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
            self._clock.note_moves(strand, [])
        for _ in self._pauses(strand):
            self._waits.take_turn(strand, is_own_thread)
        self._state.park(strand, "switch")
        self._waits.take_turn(strand, is_own_thread)

    def _note_call(
        self, strand: Strand, handle: Handle, request: Request | None, *, may_wait: bool
    ) -> None:
        """Record the events that are possible at a call; ``request`` is None before it is sent."""
        choices: list[tuple[Kind, str]] = []
        route = "" if request is None else request.call.route
        if handle.fixture == "broker":
            choices += [("rebalance", ""), ("redeliver", "")]
        if handle.fixture == "vector_index":
            choices.append(("hold_pending", ""))
        choices += [(kind, "") for kind in _faults_of(route)]
        if may_wait:
            choices += [("delay", str(DELAY)), *(("slow", str(span)) for span in SLOW)]
        choices += [("rotate_token", ""), ("partition", str(PARTITION))]
        self._clock.note_moves(strand, choices)

    def _apply_before(self, strand: Strand, event: Event, handle: Any, request: Request) -> bool:
        """Apply an event that precedes a call; return whether it was possible."""
        disturbances = self._world.disturbances
        text = ""
        if event.kind == "crash":
            strand.root.crashed = strand.crashed = True
            text = "crashes"
        elif event.kind == "rotate_token":
            disturbances.rotate(handle)
            after = seconds(ROTATED_US)
            text = f"the token of {handle.name} is rotated; the code has the new one after {after}"
        elif event.kind == "hold_pending" and handle.fixture == "vector_index":
            disturbances.hold(handle)
            text = f"changes of {handle.name} stay pending for {HOLD_US // 1_000_000} s"
        elif event.kind == "partition":
            span = int(event.detail or PARTITION)
            self._cut[strand.root.title, handle.name] = self._world.now_us() + span * 1_000_000
            text = f"is cut off from {handle.name} for {span} s"
        elif event.kind in ("rebalance", "redeliver"):
            text = disturb_group(event.kind, handle, request.params.get("group"))
        if text:
            self._record.add_line(strand.name, text, event=True)
        return bool(text)


def _is_silent(handle: Handle, request: Request) -> bool:
    """Return whether a Redis command only sets up its connection, or is queued for EXEC."""
    if request.call.route != "database-port":
        return False
    command = command_of(request)
    if command.partition(" ")[0] in _PREPARING:
        return True
    session = session_of(handle, request)
    return command != "EXEC" and session is not None and session.queue is not None


def _faults_of(route: str) -> tuple[Kind, ...]:
    """Return the faults of a call that are possible on its transport."""
    return _AT_CALLS if route == "database-port" else (*_AT_CALLS, "duplicate")


def _note_consumer(root: Strand, broker: Handle, request: Request) -> None:
    if request.route in ("consume", "commit"):
        group, instance = request.params.get("group"), request.params.get("instance")
        if group and instance:
            root.work.consumers.add((broker, group, instance))
