"""Trials of the explored code under one schedule, each from the baseline of the fakes."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from ...cloud.base import context_of
from ...core.calls import Call
from ...core.errors import ContractError, breaks_a_check, broken_promise, ends_the_test
from ...core.field_types import check_returned
from ..anomalies import LAST, Allowed, AnomalyError, find_anomalies
from ..clients import Inputs, with_inputs
from ..evidence import Evidence
from ..observers import mark
from ..promises import Promises
from ..schedule import Schedule
from ..serial import InOnePiece, Serial
from ..simulation.operations import TrialHistory
from ..simulation.stacks import without_library_frames
from ..simulation.state import Subject, add_schedule
from ..trial import Anomaly, History, Line, Strategy, Trial, TrialPlan, Verdict
from ..world import World
from .tally import ShownAnomaly, Tally


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
    compares_orders: bool = True
    """Whether to play trials in one piece, with which those of other orders are compared."""
    examines_promise: bool = False
    """Whether to record what the promise reads in undisturbed trials."""
    tally: Tally = field(default_factory=Tally)
    outcomes: dict[Schedule, Schedule | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._serial = Serial(self._play_in_one_piece, self.subject.programs)
        self.forget_shown: Callable[[], object] = lambda: None
        """Makes pytest forget what it has collected about the undisturbed trial."""

    def with_inputs(self, inputs: Inputs) -> Player:
        """Return a player of the same code with these drawn inputs and a tally of its own."""
        programs = with_inputs(self.subject.programs, inputs)
        tally = Tally(has_promise=self.tally.has_promise, inputs=1 if inputs else 0)
        subject = replace(self.subject, programs=programs, inputs=inputs)
        player = Player(self.world, subject, self.setup, self.allowed, tally=tally)
        player.examines_promise = self.examines_promise
        return player

    def play(
        self,
        schedule: Schedule,
        *,
        strategy: Strategy | None = None,
        keep: bool = False,
        stacks: bool = False,
        notes: bool = False,
        left_out: tuple[str, int] | None = None,
        shows: bool = False,
    ) -> Trial:
        """Reset the fakes, run the programs under a schedule, and check the promise.

        ``notes`` makes the trial record the points at which disturbances are possible, and
        ``stacks`` the lines of the application that make each call. Journal and observers forget
        the trial unless ``keep`` is true; with ``shows``, pytest shows its log, warnings and
        output until then. ``left_out`` is a call whose effect is undone, by its strand and
        point, in a trial that does not count. A trial that its strategy ends is not checked.
        """
        plan = TrialPlan(schedule, strategy, stacks, notes, keep, left_out)
        with self._collected(keep=keep, shows=shows):
            trial, history = self.world.play(self.subject, plan, self.setup)
            if "redundant" in trial.flags:
                return trial
            trial = replace(trial, verdict=self._judge(trial, history, plan))
        if left_out is None:
            self._count(trial, plan)
        return trial

    @contextlib.contextmanager
    def _collected(self, *, keep: bool, shows: bool) -> Iterator[None]:
        """Forget the calls, and what pytest has collected, of the trial in the block, as ``play()``
        says.
        """
        recorder = context_of(self.world.cloud).recorder
        if keep:
            self.forget_shown()
        number, forget_observations = recorder.reserve(), mark()
        if shows:
            self.forget_shown = forget_observations
        yield
        if not keep:
            recorder.forget_since(number)
            if not shows:
                forget_observations()

    def _judge(self, trial: Trial, history: TrialHistory, plan: TrialPlan) -> Verdict:
        """Call the checks at the end of a trial, and look for anomalies."""
        recorder = context_of(self.world.cloud).recorder
        promises, broken, number = self.subject.promises, trial.broken, recorder.reserve()
        applied = plan.schedule if plan.strategy is None else Schedule(trial.fired)
        history.schedule = str(applied)
        is_examined = (
            self.examines_promise and plan.stacks and plan.left_out is None and not trial.fired
        )
        is_disturbed = bool(trial.fired) or plan.left_out is not None
        with self.world.reads.recorded() if is_examined else contextlib.nullcontext():
            for check in promises.at_end:
                broken = broken or self._broken_promise(
                    check, history, applied, is_disturbed=is_disturbed
                )
        promises.reads_order |= history.shows_order
        lines = [
            Line(entry.at_us, "check", call=entry)
            for entry in (recorder.entries if plan.stacks else ())
            if isinstance(entry, Call) and entry.number > number
        ]
        anomalies = self._anomalies(trial) if plan.left_out is None else []
        reported = [anomaly for anomaly in anomalies if self.is_last or anomaly.name not in LAST]
        if broken is None and reported and not self.tally.has_promise:
            broken = AnomalyError(reported[0])
        return Verdict(broken, anomalies, lines)

    def _anomalies(self, trial: Trial) -> list[Anomaly]:
        """Return the anomalies that a comparison with the first trial shows, if that had no
        disturbances.
        """
        workers = frozenset(program.name for program in self.subject.programs if program.is_worker)
        serial = self._serial if self.compares_orders else None
        evidence = Evidence(trial, self.usual, workers, serial)
        self.usual = evidence.usual
        if self.usual.trial.fired:
            return []
        return find_anomalies(evidence, self.allowed)

    def _play_in_one_piece(self, strategy: InOnePiece, absent: Collection[str]) -> Trial | None:
        """Play a trial in one piece without some of the programs; return None if that is an error."""
        programs = [program for program in self.subject.programs if program.name not in absent]
        subject = replace(self.subject, programs=programs, promises=Promises(None))
        plan = TrialPlan(Schedule(), strategy, notes=False)
        # What looks for the cause of a failure reads the data that the judged trial has left.
        left = self.world.cloud.snapshot()
        with self._collected(keep=False, shows=False):
            try:
                return self.world.play(subject, plan, self.setup)[0]
            except ContractError:
                return None
            finally:
                self.world.cloud.restore(left)

    def _count(self, trial: Trial, plan: TrialPlan) -> None:
        """Add a trial to the tally, and remember what its schedule led to."""
        for anomaly in trial.verdict.anomalies:
            shown = ShownAnomaly(anomaly, Schedule(trial.fired), self.subject.inputs)
            self.tally.anomalies.setdefault((anomaly.name, anomaly.subject), shown)
        if plan.strategy is None:
            is_broken = trial.broken is not None
            self.outcomes[plan.schedule] = Schedule(trial.fired) if is_broken else None
        self.tally.coverage.add(trial)

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
        self.world.after_fork()

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
