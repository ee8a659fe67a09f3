"""Trials of the explored code under one schedule, with their budget, and counters of all trials."""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ...core.calls import Call
from ...core.errors import ContractError, breaks_a_check, broken_promise, ends_the_test, shown
from ...core.field_types import check_returned
from ...core.timers import Duration, duration_us, monotonic
from ...queue.delivery.routes import Url
from ..anomalies import LAST, Allowed, AnomalyError, find_anomalies
from ..evidence import Evidence
from ..inputs import Inputs, with_inputs
from ..observers import mark
from ..programs import check_has_run
from ..schedule import DELAY, DELAYS, DUE, Schedule
from ..simulation.scheduler import Simulation
from ..simulation.state import Subject, add_schedule
from ..simulation.strands import without_library_frames
from ..trial import Anomaly, History, Line, Point, Redundant, Strategy, Trial, TrialPlan
from ..trust import Trust
from ..world import World

_LEAST_RUNS = 10
"""Minimum number of trials with each of several inputs."""


@dataclass(frozen=True)
class SearchBudget:
    """A number of trials, or a wall-clock duration. ``used`` is the number of trials so far."""

    argument: int | Duration
    end: float
    """The number of trials, or the time on the monotonic clock, at which the budget is used up."""
    began: float | None = None
    """The start of a duration."""

    def remaining(self, used: int) -> float:
        """Return the number of trials, or of seconds, that are left."""
        return self.end - (used if self.began is None else monotonic())

    def expected(self, used: int) -> float:
        """Return the number of trials left, which the speed so far determines for a duration."""
        if self.began is None:
            return self.remaining(used)
        return max(1, used) * self.remaining(used) / max(1e-6, monotonic() - self.began)

    def part(self, used: int, share: float) -> SearchBudget:
        if self.began is None:
            return replace(self, end=used + round(self.remaining(used) * share))
        return replace(self, end=monotonic() + max(0.0, self.remaining(used)) * share)

    def for_inputs(self, used: int, count: int) -> SearchBudget:
        """Return the part for one of ``count`` inputs, after ``used`` runs with other inputs."""
        left = self.remaining(used)
        if self.began is None:
            return replace(self, end=min(left, max(_LEAST_RUNS, self.end / count)))
        now = monotonic()
        return replace(self, end=now + min(left, (self.end - self.began) / count), began=now)


def budget_of(argument: int | Duration) -> SearchBudget:
    """Parse the ``budget`` argument of ``explore()``. A time budget begins now."""
    if isinstance(argument, int | float):
        if isinstance(argument, int) and not isinstance(argument, bool) and argument > 0:
            return SearchBudget(argument, argument)
    elif (seconds := duration_us(argument) / 1e6) > 0:
        now = monotonic()
        return SearchBudget(argument, now + seconds, now)
    raise ContractError(
        f"budget={shown(argument)} is not a budget: pass a number of trials (500), or a span such as "
        "'10s'"
    )


@dataclass
class PartialSearch:
    """A part of the search: an iterator that runs a schedule at each turn.

    The iterator yields None if it has nothing to run at the moment. Searches share a budget in
    rounds, in which each has ``weight`` turns; the first comes after ``head_start`` rounds of others.
    """

    trials: Iterator[Trial | None]
    weight: float = 1.0
    head_start: float = 0.0
    turns: int = 0
    is_over: bool = False

    @property
    def rounds(self) -> float:
        """The rounds so far, with the head start of the others; the search with the fewest is next."""
        return self.head_start + self.turns / self.weight

    def next(self) -> Trial | None:
        self.turns += 1
        try:
            return next(self.trials)
        except StopIteration:
            self.is_over = True
            return None


MOST_DISTURBANCES = 6
"""Maximum number of disturbances in a random schedule."""


@dataclass
class Coverage:
    """Calls of each strand, points of each strand, and kinds of disturbances in the trials so
    far.
    """

    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the greatest number of calls in one trial, by the title of each strand."""
    points: dict[Point, None] = field(default_factory=dict)
    """The distinct points of all trials, some of them without possible disturbances."""
    draws_numbers: bool = False
    attempted: set[str] = field(default_factory=set)
    """The kinds of disturbances in the schedules; such a disturbance applies only if its point
    is reached.
    """
    kinds: Counter[str] = field(default_factory=Counter)
    """The number of disturbances that were applied."""
    succeeded: dict[tuple[str, Url], bool] = field(default_factory=dict)
    """Whether any call succeeded, for each destination handler that was called."""
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, trial: Trial) -> None:
        for name in dict.fromkeys((*trial.calls, *sorted(trial.strands))):
            calls = trial.calls.get(name, 0)
            least, most = self.calls.get(name, (calls, calls))
            self.calls[name] = min(least, calls), max(most, calls)
        self.points.update(dict.fromkeys(trial.points))
        self.attempted.update(disturbance.kind for disturbance in trial.schedule)
        self.kinds.update(disturbance.kind for disturbance in trial.fired)
        for handler, outcomes in trial.handler_outcomes.items():
            self.succeeded[handler] = self.succeeded.get(handler, False) or any(outcomes)
        self.notes.update(trial.notes)
        self.draws_numbers = self.draws_numbers or trial.draws_numbers

    def merge(self, other: Coverage) -> None:
        """Add the trials of another search."""
        for name, calls in other.calls.items():
            least, most = self.calls.get(name, calls)
            self.calls[name] = min(least, calls[0]), max(most, calls[1])
        self.points.update(other.points)
        self.attempted |= other.attempted
        self.kinds.update(other.kinds)
        for handler, has_succeeded in other.succeeded.items():
            self.succeeded[handler] = self.succeeded.get(handler, False) or has_succeeded
        self.notes.update(other.notes)
        self.draws_numbers = self.draws_numbers or other.draws_numbers

    @property
    def possible(self) -> set[str]:
        """The kinds of disturbances that were possible."""
        kinds: set[str] = {kind for point in self.points for kind, _ in point.choices}
        return kinds | {"numbers"} if self.draws_numbers else kinds


@dataclass
class PriorityTrials:
    """The trials with random priorities, and the probability that they have found a bug."""

    most_decisions: int = 1
    """The number of decisions among which the next trial draws its changes of priority."""
    _trials: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Numbers of the counted trials, by bug depth and maximum number of decisions."""
    _strands: int = 1
    _decisions: int = 1

    def add(
        self, depth: int, most_decisions: int, decisions: int, strands: int, *, is_counted: bool
    ) -> None:
        """Add a trial with its numbers of decisions and of strands. It counts for the probability
        if it chose at all places and had no disturbances.
        """
        self.most_decisions = max(self.most_decisions, decisions)
        if is_counted:
            self._trials[depth, most_decisions] += 1
            self._strands = max(self._strands, strands)
            self._decisions = max(self._decisions, decisions)

    @property
    def likely(self) -> dict[int, float]:
        """The minimum probability that the trials have found a bug, for each bug depth."""
        missed: dict[int, float] = {}
        for (depth, decisions), trials in self._trials.items():
            if decisions >= self._decisions:  # Each decision could change a priority.
                chance = 1 / (self._strands * decisions ** (depth - 1))
                missed[depth] = missed.get(depth, 1.0) * (1 - chance) ** trials
        return {depth: 1 - probability for depth, probability in missed.items()}


class ShownAnomaly(NamedTuple):
    """An anomaly, with the schedule and the drawn inputs of the first trial that showed it."""

    anomaly: Anomaly
    schedule: Schedule
    inputs: Mapping[str, Any]


@dataclass
class Tally:
    """Numbers of the schedules that a search has tried; ``all_...`` are the numbers that exist."""

    orders: int = 0
    """Distinct interleavings without other disturbances."""
    unfinished_order_searches: int = 0
    """Number of searches for interleavings that have not ended."""
    has_all_orders: bool = False
    """Whether the last finished search for interleavings ran all that could differ."""
    is_complete: bool = False
    """Whether the kinds of disturbances in use can lead to no further interleavings."""
    is_exhaustive: bool = False
    """Whether there are no interleavings except the counted ones, also of late answers and timers."""
    singles: int = 0
    all_singles: int = 0
    pairs: int = 0
    all_pairs: int | None = None
    drawn: int = 0
    """Random schedules and stored failures, including trials with random priorities."""
    priority_trials: PriorityTrials = field(default_factory=PriorityTrials)
    guided: int = 0
    """Schedules that add a disturbance to a trial that reached a new state."""
    states: int = 0
    """Number of distinct states that trials have reached."""
    last_new_state: int = 0
    """The number of the trial that reached the last new one."""
    coverage: Coverage = field(default_factory=Coverage)
    only_schedule: Schedule | None = None
    """The only schedule to run, if the caller passed one."""
    seconds: float = 0.0
    seed: int | str = 0
    trust: Trust = field(default_factory=Trust)
    has_promise: bool = True
    """Whether anything is asserted; without a promise, an anomaly breaks a trial."""
    alone: str = ""
    """Why the search could not use the processes that the caller wanted."""
    anomalies: dict[tuple[str, str], ShownAnomaly] = field(default_factory=dict)
    """The anomalies that trials showed, by name and subject."""
    inputs: int = 0
    """Number of the drawn inputs that the trials had; 0 if no client has any."""

    @property
    def tried(self) -> int:
        """The number of trials, without the undisturbed one."""
        return self.orders + self.singles + self.pairs + self.guided + self.drawn

    def merge(self, other: Tally) -> None:
        """Add the numbers of a search with other inputs."""
        if other.last_new_state:
            self.last_new_state = self.tried + other.last_new_state
        self.states += other.states
        self.orders += other.orders
        self.unfinished_order_searches += other.unfinished_order_searches
        self.has_all_orders = self.has_all_orders and other.has_all_orders
        self.is_complete = self.is_complete and other.is_complete
        self.is_exhaustive = self.is_exhaustive and other.is_exhaustive
        self.singles += other.singles
        self.all_singles += other.all_singles
        self.pairs += other.pairs
        both = (self.all_pairs, other.all_pairs)
        self.all_pairs = None if both[0] is None or both[1] is None else both[0] + both[1]
        self.drawn += other.drawn
        self.guided += other.guided
        # The probability holds for the input of one search only.
        self.priority_trials = PriorityTrials()
        self.coverage.merge(other.coverage)
        self.seconds += other.seconds
        self.alone = self.alone or other.alone
        for subject, shown_anomaly in other.anomalies.items():
            self.anomalies.setdefault(subject, shown_anomaly)
        self.inputs += other.inputs


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
        recorder = world.cloud.journal._recorder
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
