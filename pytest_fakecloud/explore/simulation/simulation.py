"""One run of explored code under one schedule."""

from __future__ import annotations

from typing import Any

from ...core.errors import broken_promise
from ..run import Operation, Plan, Run, Subject
from ..schedule import CLOCK, current_simulation
from .calls import Calls
from .clock import ClockMoves, Pauses, Waits
from .deliveries import DeliveryStrands
from .loops import EventLoops
from .scheduler import Lifecycle, Scheduler, WorkerRestarts
from .sockets import SocketHooks
from .state import Record, RunState
from .strands import distinct_places


class Simulation:
    """Runs clients, workers, deliveries and the clock under one schedule, one strand at a time.

    A strand is a client, worker, delivery, task or thread. The code that patches sockets, locks,
    event loops and the fakes calls the public parts: ``calls``, ``deliveries``, ``lifecycle``,
    ``loops``, ``sockets`` and ``waits``.
    """

    def __init__(self, subject: Subject, plan: Plan) -> None:
        self.record = Record(subject, plan)
        self.run = self.record.run
        self.history = self.record.history
        self.state = state = RunState(subject, plan, self.record)
        self.turns = state.turns
        places = plan.strategy.places if plan.strategy is not None else subject.scope.kinds
        is_late = "late" in places or any(event.kind == "late" for event in plan.schedule)
        moves_time = plan.strategy is not None and plan.strategy.moves_time
        restarts = WorkerRestarts(state)
        self._world = subject.world
        self._pauses = Pauses(state)
        self._clock = ClockMoves(state, self._pauses, moves_time=moves_time)
        self.deliveries = DeliveryStrands(state)
        self.waits = Waits(state, self._clock)
        self.sockets = SocketHooks(state, self.waits)
        self.loops = EventLoops(state)
        self.calls = Calls(state, self._pauses, self.waits, late=is_late)
        self.lifecycle = Lifecycle(state, restarts)
        self._scheduler = Scheduler(state, plan, self._clock, self.deliveries, restarts)

    def play(self) -> Run:
        """Run all strands to their end, and check the promises that apply to every step."""
        token = current_simulation.set(self)
        self._world.simulation = self
        try:
            self._pauses.delay_starts()
            self.turns.run(self._scheduler, self.lifecycle)
        finally:
            self._world.simulation = None
            current_simulation.reset(token)
            self.state.connections.cut(
                lambda one: one.crashed or one.host.crashed or one.root.crashed
            )
        self._world.disturbances.end()
        self._world.deliveries.resume_schedules()
        return self._finished_run()

    def _finished_run(self) -> Run:
        run = self.run
        if self.record.has_steps and run.broken is None:
            self._scheduler.steps.end((CLOCK,))
        if self._clock.moves_time and run.broken is None:
            self._clock.foresee()
        if self.record.stacks:
            sources = distinct_places([line.lines for line in run.lines])
            for line, source in zip(run.lines, sources, strict=True):
                line.source = source
        run.ids = self._world.deliveries.names()
        for strand in self.state.strands:
            if strand.error is not None:
                run.errors[strand.name] = strand.error
                run.broken = run.broken or broken_promise(strand.error)
        return run

    def began(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation:
        """Record the start of a call of an observed function."""
        strand = self.state.here() or self.turns.current
        client = strand.root.title if strand is not None else ""
        operation = self.record.begin(client, name, args, kwargs)
        self.history.operations.append(operation)
        return operation
