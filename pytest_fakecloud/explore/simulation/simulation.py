"""One run of explored code under one schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...core.errors import broken_promise
from ..run import Line, Plan, Run
from ..schedule import CLOCK, RANDOM, Event
from .calls import Calls, DeliveryStrands
from .clock import RunClock
from .scheduler import Scheduler
from .sockets import SocketHooks
from .state import RunState, Subject
from .strands import distinct_places


class Simulation:
    """Runs clients, workers, deliveries and the clock under one schedule, one strand at a time.

    The code that patches sockets, locks, event loops and the fakes calls the public parts.
    """

    def __init__(self, subject: Subject, plan: Plan) -> None:
        self.state = state = RunState(subject, plan)
        self.run = state.run
        self.history = state.history
        self.turns = state.turns
        places = plan.strategy.places if plan.strategy is not None else subject.scope.kinds
        is_late = "late" in places or any(event.kind == "late" for event in plan.schedule)
        moves_time = plan.strategy is not None and plan.strategy.moves_time
        self._fakes = subject.fakes
        self.clock = RunClock(state, moves_time=moves_time)
        self.deliveries = DeliveryStrands(state)
        self.sockets = SocketHooks(state, self.clock)
        self.calls = Calls(state, self.clock, late=is_late)
        self.scheduler = Scheduler(state, subject, plan, self.clock, self.deliveries)

    def play(self) -> Run:
        """Run all strands to their end, and check the promises that apply to every step."""
        try:
            self.clock.delay_starts()
            self.turns.run(self.scheduler)
        finally:
            self.state.connections.cut(
                lambda one: one.crashed or one.host.crashed or one.root.crashed
            )
        self._fakes.disturbances.end()
        self._fakes.deliveries.resume_schedules()
        return self._finished_run()

    def note_series(self, number: int) -> None:
        """Record that the code drew random numbers, of a series other than the usual one if not 0."""
        run = self.run
        run.draws_numbers = True
        if number:
            run.fired.insert(0, Event(RANDOM, number, "numbers"))
            words = f"draws other random numbers, of series {number}"
            run.lines.insert(0, Line(run.start_us, "the code", words, event=True, step=-1))

    def _finished_run(self) -> Run:
        run = self.run
        if self.state.has_steps and run.broken is None:
            self.scheduler.end_step((CLOCK,))
        if self.clock.moves_time and run.broken is None:
            self.clock.foresee()
        if self.state.stacks:
            sources = distinct_places([line.lines for line in run.lines])
            for line, source in zip(run.lines, sources, strict=True):
                line.source = source
        run.results = {name: repr(result) for name, result in self.history.results.items()}
        run.ids = self._fakes.deliveries.names()
        for strand in self.state.strands:
            if strand.error is not None:
                run.errors[strand.name] = strand.error
                run.broken = run.broken or broken_promise(strand.error)
        return run

    @contextmanager
    def observing(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Callable[[object], None]]:
        """Record a call of an observed function."""
        strand = self.state.here() or self.turns.current
        client = strand.root.title if strand is not None else ""
        operation = self.state.begin(client, name, args, kwargs)
        self.history.operations.append(operation)
        try:
            yield partial(self.state.end, operation)
        except BaseException as error:
            operation.error = error
            raise
