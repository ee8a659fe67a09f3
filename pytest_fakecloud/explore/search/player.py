"""Trials of the explored code under one schedule, each from the baseline of the fakes."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ...cloud.base import context_of
from ...core.calls import Call
from ...core.errors import breaks_a_check, broken_promise, ends_the_test
from ...core.field_types import check_returned
from ..anomalies import LAST, Allowed, AnomalyError, find_anomalies
from ..evidence import Evidence
from ..inputs import Inputs, with_inputs
from ..observers import mark
from ..programs import check_has_run
from ..schedule import DELAY, DELAYS, DUE, Schedule
from ..simulation.scheduler import Simulation
from ..simulation.state import Subject, add_schedule
from ..simulation.strands import without_library_frames
from ..trial import History, Line, Redundant, Strategy, Trial, TrialPlan
from ..world import World
from .tally import ShownAnomaly, Tally


def _has_overlap(trial: Trial) -> bool:
    """Return whether another strand woke up and made a call while the trial's disturbance
    delayed a strand.
    """
    disturbance = trial.last_disturbance
    if disturbance is None or disturbance.kind not in DELAYS or disturbance.detail == DUE:
        return False
    own = (
        line.at_us
        for line in trial.lines
        if line.is_disturbance and line.strand == disturbance.strand
    )
    began = next(own, trial.start_us)
    ended = began + int(disturbance.detail or DELAY) * 1_000_000
    return any(
        line.call is not None and line.strand != disturbance.strand and began < line.at_us < ended
        for line in trial.lines
    )


@dataclass
class Player:
    """Runs the subject under schedules, each trial from the baseline of the fakes.

    ``outcomes`` maps each schedule so far to the applied disturbances, or to None if the promise
    held.
    """

    world: World
    subject: Subject
    setup: Callable[[], object] | None
    allowed: Allowed
    usual: Evidence | None = None
    """The evidence of the first trial, in which no disturbance happens unless the caller gave a
    schedule.
    """
    is_last: bool = False
    """Whether the patterns that are reported ``LAST`` count, because nothing else was found."""
    tally: Tally = field(default_factory=Tally)
    outcomes: dict[Schedule, Schedule | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.forget_shown: Callable[[], object] = lambda: None
        """Makes pytest forget what it has collected about the undisturbed trial."""

    def with_inputs(self, inputs: Inputs) -> Player:
        """Return a player of the same code with these drawn inputs and a tally of its own."""
        programs = with_inputs(self.subject.programs, inputs)
        tally = Tally(has_promise=self.tally.has_promise, inputs=1 if inputs else 0)
        subject = replace(self.subject, programs=programs, inputs=inputs)
        return Player(self.world, subject, self.setup, self.allowed, tally=tally)

    def play(
        self,
        schedule: Schedule,
        *,
        strategy: Strategy | None = None,
        keep: bool = False,
        stacks: bool = False,
        notes: bool = False,
        left_out: int = -1,
        shows: bool = False,
    ) -> Trial:
        """Reset the fakes, run the programs under a schedule, and check the promise.

        ``notes`` makes the trial record the points at which disturbances are possible, and
        ``stacks`` the lines of the application that make each call. Journal and observers forget
        the trial unless ``keep`` is true; with ``shows``, pytest shows its log, warnings and
        output until then. ``left_out`` is the number of a call whose effect is undone, in a trial
        that does not count. A trial that its strategy ends is not checked.
        """
        world = self.world
        recorder = context_of(world.cloud).recorder
        if keep:
            self.forget_shown()
        number, forget_observations = recorder.reserve(), mark()
        if shows:
            self.forget_shown = forget_observations

        def forget() -> None:
            recorder.forget_since(number)
            if not shows:
                forget_observations()

        world.reset()
        world.randomness.begin(schedule.series)
        if self.setup is not None:
            with world.setting_up():
                check_has_run(world.awaited(self.setup()), "setup=")
            world.randomness.mark()
        simulation = Simulation(
            self.subject, TrialPlan(schedule, strategy, stacks, notes, left_out)
        )
        try:
            trial = world.play(simulation)
        except Redundant:
            trial = simulation.trial
            trial.is_redundant = True
        if strategy is not None:
            trial.lesson = strategy.lesson(trial)
        if trial.is_redundant:
            forget()
            return trial
        if keep:
            trial.state = world.cloud, world.cloud.snapshot()
        if world.randomness.has_drawn():
            simulation.note_series(schedule.series)
        else:
            trial.schedule = schedule.with_series(0)
        self.world.note_remaining(trial)
        applied = schedule if strategy is None else Schedule(trial.fired)
        simulation.history.schedule = str(applied)
        is_examined = stacks and left_out < 0 and not trial.fired
        number_of_check = recorder.reserve()
        with world.reads.recorded() if is_examined else contextlib.nullcontext():
            for check in self.subject.promises.at_end:
                is_disturbed = bool(trial.fired) or left_out >= 0
                trial.broken = trial.broken or self._broken_promise(
                    check, simulation.history, applied, is_disturbed=is_disturbed
                )
        self.subject.promises.reads_order |= simulation.history.shows_order
        if stacks:
            trial.lines_of_check = [
                Line(entry.at_us, "check", call=entry)
                for entry in recorder.entries
                if isinstance(entry, Call) and entry.number > number_of_check
            ]
        if left_out < 0:
            self._note_anomalies(trial)
        if not keep:
            forget()
        if left_out >= 0:
            return trial
        if notes:
            trial.overlaps = _has_overlap(trial)
        if strategy is None:
            self.outcomes[schedule] = Schedule(trial.fired) if trial.broken is not None else None
        self.tally.coverage.add(trial)
        return trial

    def findings(self) -> object:
        """Return a value that changes if a trial shows something that no trial has shown before."""
        promises = self.subject.promises
        return (
            len(self.tally.anomalies),
            len(self.world.unwritten),
            self.allowed.unused(),
            promises.reached(),
            promises.reads_order,
        )

    def after_fork(self) -> None:
        """Prepare a forked process, in which the threads and sockets of its parent are missing."""
        # The child shares the position in a captured file of the parent, which reports the trials.
        sys.stdout = sys.stderr = io.StringIO()
        self.subject.threads.after_fork()
        self.world.after_fork()

    def _note_anomalies(self, trial: Trial) -> None:
        """Look for anomalies by comparison with the first trial, if that had no disturbances."""
        workers = frozenset(program.name for program in self.subject.programs if program.is_worker)
        evidence = Evidence(trial, self.usual, workers)
        self.usual = evidence.usual
        if self.usual.trial.fired:
            return
        trial.anomalies = find_anomalies(evidence, self.allowed)
        for anomaly in trial.anomalies:
            anomalies = self.tally.anomalies
            anomalies.setdefault(
                (anomaly.name, anomaly.subject),
                ShownAnomaly(anomaly, Schedule(trial.fired), self.subject.inputs),
            )
        reported = [
            anomaly for anomaly in trial.anomalies if self.is_last or anomaly.name not in LAST
        ]
        if not self.tally.has_promise and reported and trial.broken is None:
            trial.broken = AnomalyError(reported[0])

    def varied(self, schedule: Schedule) -> Schedule:
        """Return a schedule with random numbers of its own, if the code draws any."""
        if not self.varies_numbers or schedule.series:
            return schedule
        return schedule.with_series(self.tally.tried + 1)

    @property
    def varies_numbers(self) -> bool:
        return "numbers" in self.subject.kinds and self.tally.coverage.draws_numbers

    def _broken_promise(
        self,
        check: Callable[[History], object],
        history: History,
        schedule: Schedule,
        *,
        is_disturbed: bool,
    ) -> BaseException | None:
        """Call a check; return the failed assertion or, after a disturbance, any exception that it
        raised.

        A check that calls the application may get an exception of the application.
        """
        try:
            check_returned(self.world.awaited(check(history)))
        except BaseException as error:
            ending = ends_the_test(error) or error
            broken = broken_promise(ending)
            if broken is not None:
                return broken
            if is_disturbed and breaks_a_check(error):
                return without_library_frames(error)
            add_schedule(ending, "after", schedule)
            if ending is error:
                raise
            raise ending from error
        return None
