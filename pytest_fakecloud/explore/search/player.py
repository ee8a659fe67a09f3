"""Runs the explored code under one schedule and checks the promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...core.conditions import check_returned
from ...core.errors import broken_promise, ends_the_test
from ...core.journal import recorder_of
from ..promises import Promises
from ..run import History, Plan, Redundant, Run, Strategy, Subject
from ..schedule import Schedule
from ..simulation.loops import awaited
from ..simulation.simulation import Simulation
from ..simulation.state import add_schedule
from .tally import Tally


@dataclass
class Player:
    """Runs the subject under schedules, each run from the baseline of the fakes.

    ``known`` maps each schedule so far to the applied events, or to None if the promise held.
    """

    subject: Subject
    promises: Promises
    setup: Callable[[], object] | None
    tally: Tally = field(default_factory=Tally)
    known: dict[Schedule, Schedule | None] = field(default_factory=dict)

    def play(
        self,
        schedule: Schedule,
        *,
        strategy: Strategy | None = None,
        keep: bool = False,
        stacks: bool = False,
        notes: bool = False,
    ) -> Run:
        """Reset the fakes, run the programs under a schedule, and check the promise.

        ``notes`` makes the run record the points at which events are possible, and ``stacks`` the
        lines of the application that make each call. The journal forgets the calls of the run unless
        ``keep`` is true. Raises ``Redundant`` if the strategy ends the run.
        """
        world = self.subject.world
        recorder = recorder_of(world.cloud.journal)
        number = recorder.reserve()
        world.reset()
        if self.setup is not None:
            awaited(world, self.setup())
        simulation = Simulation(self.subject, Plan(schedule, strategy, stacks, notes))
        try:
            run = simulation.play()
        except Redundant:
            recorder.forget_since(number)
            raise
        for check in self.promises.at_end:
            run.broken = run.broken or self._broken_promise(check, simulation.history, schedule)
        if not keep:
            recorder.forget_since(number)
        if strategy is None:
            self.known[schedule] = Schedule(run.fired) if run.broken is not None else None
        self.tally.coverage.add(run)
        return run

    def _broken_promise(
        self, check: Callable[[History], object], history: History, schedule: Schedule
    ) -> AssertionError | None:
        try:
            check_returned(awaited(self.subject.world, check(history)))
        except BaseException as error:
            outcome = ends_the_test(error)
            if outcome is error:
                raise
            if outcome is not None:
                raise outcome from error
            broken = broken_promise(error)
            if broken is None:
                add_schedule(error, "after", schedule)
                raise
            return broken
        return None
