"""Runs of the explored code under one schedule, with their budget, and counters of all runs."""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...core.errors import ContractError, breaks_a_check, broken_promise, ends_the_test, shown
from ...core.field_types import check_returned
from ...core.timers import Duration, duration_us, monotonic
from ...queue.delivery.routes import Url
from ..anomalies import LAST, Allowed, Anomaly, AnomalyError, Record, find_anomalies
from ..observers import mark
from ..programs import check_has_run
from ..run import History, Plan, Point, Redundant, Run, Strategy
from ..schedule import DELAY, DELAYS, DUE, Schedule
from ..simulation.scheduler import Simulation
from ..simulation.state import Subject, add_schedule
from ..simulation.strands import without_library_frames
from ..trust import Trust
from ..world import World
from .ahead import Ahead

if TYPE_CHECKING:
    from .events import Priorities


@dataclass(frozen=True)
class Budget:
    """A number of runs, or a wall-clock duration. ``used`` is the number of runs so far."""

    given: int | Duration
    end: float
    """The number of runs, or the time on the monotonic clock, at which the budget is used up."""
    began: float | None = None
    """The start of a duration."""

    def left(self, used: int) -> float:
        """Return the number of runs, or of seconds, that are left."""
        return self.end - (used if self.began is None else monotonic())

    def expected(self, used: int) -> float:
        """Return the number of runs left, which the speed so far determines for a duration."""
        if self.began is None:
            return self.left(used)
        return max(1, used) * self.left(used) / max(1e-6, monotonic() - self.began)

    def part(self, used: int, share: float) -> Budget:
        if self.began is None:
            return replace(self, end=used + round(self.left(used) * share))
        return replace(self, end=monotonic() + max(0.0, self.left(used)) * share)


def budget_of(given: int | Duration) -> Budget:
    """Parse the ``budget`` argument of ``explore()``. A time budget begins now."""
    if isinstance(given, int | float):
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return Budget(given, given)
    elif (seconds := duration_us(given) / 1e6) > 0:
        now = monotonic()
        return Budget(given, now + seconds, now)
    raise ContractError(
        f"budget={shown(given)} is not a budget: pass a number of runs (500), or a span such as '10s'"
    )


@dataclass
class Search:
    """A part of the search: an iterator that runs a schedule at each turn.

    The iterator yields None if it has nothing to run at the moment. Searches share a budget in
    rounds, in which each has ``weight`` turns; the first comes after ``head_start`` rounds of others.
    """

    runs: Iterator[Run | None]
    weight: float = 1.0
    head_start: float = 0.0
    turns: int = 0
    is_over: bool = False

    @property
    def rounds(self) -> float:
        """The rounds so far, with the head start of the others; the search with the fewest is next."""
        return self.head_start + self.turns / self.weight

    def next(self) -> Run | None:
        self.turns += 1
        try:
            return next(self.runs)
        except StopIteration:
            self.is_over = True
            return None


MOST_EVENTS = 6
"""Maximum number of events in a random schedule."""


@dataclass
class Coverage:
    """Calls of each strand, points of each strand, and kinds of events in the runs so far."""

    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the greatest number of calls in one run, by the title of each strand."""
    points: dict[Point, None] = field(default_factory=dict)
    """The distinct points of all runs, some of them without possible events."""
    draws_numbers: bool = False
    attempted: set[str] = field(default_factory=set)
    """The kinds of events in the schedules; such an event applies only if its point is reached."""
    kinds: Counter[str] = field(default_factory=Counter)
    """The number of events that were applied."""
    succeeded: dict[tuple[str, Url], bool] = field(default_factory=dict)
    """Whether any call succeeded, for each destination handler that was called."""
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, run: Run) -> None:
        for name in dict.fromkeys((*run.calls, *sorted(run.strands))):
            calls = run.calls.get(name, 0)
            least, most = self.calls.get(name, (calls, calls))
            self.calls[name] = min(least, calls), max(most, calls)
        self.points.update(dict.fromkeys(run.points))
        self.attempted.update(event.kind for event in run.schedule)
        self.kinds.update(event.kind for event in run.fired)
        for handler, outcomes in run.handler_outcomes.items():
            self.succeeded[handler] = self.succeeded.get(handler, False) or any(outcomes)
        self.notes.update(run.notes)
        self.draws_numbers = self.draws_numbers or run.draws_numbers

    @property
    def possible(self) -> set[str]:
        """The kinds of events that were possible."""
        kinds: set[str] = {kind for point in self.points for kind, _ in point.choices}
        return kinds | {"numbers"} if self.draws_numbers else kinds


@dataclass
class PriorityRuns:
    """The runs with random priorities, and the probability that they have found a bug."""

    most_decisions: int = 1
    """The number of decisions among which the next run draws its changes of priority."""
    _runs: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Numbers of the counted runs, by bug depth and maximum number of decisions."""
    _strands: int = 1
    _decisions: int = 1

    def add(self, run: Priorities, *, is_counted: bool) -> None:
        """Add a run, which counts for the probability if it chose at all places and had no events."""
        self.most_decisions = max(self.most_decisions, run.decisions)
        if is_counted:
            self._runs[run.depth, run.most_decisions] += 1
            self._strands = max(self._strands, len(run.priorities))
            self._decisions = max(self._decisions, run.decisions)

    @property
    def likely(self) -> dict[int, float]:
        """The minimum probability that the runs have found a bug, for each bug depth."""
        missed: dict[int, float] = {}
        for (depth, decisions), runs in self._runs.items():
            if decisions >= self._decisions:  # Each decision could change a priority.
                chance = 1 / (self._strands * decisions ** (depth - 1))
                missed[depth] = missed.get(depth, 1.0) * (1 - chance) ** runs
        return {depth: 1 - probability for depth, probability in missed.items()}


@dataclass
class Tally:
    """Numbers of the schedules that a search has tried; ``all_...`` are the numbers that exist."""

    orders: int = 0
    """Distinct interleavings without other events."""
    unfinished_order_searches: int = 0
    """Number of searches for interleavings that have not ended."""
    has_all_orders: bool = False
    """Whether the last finished search for interleavings ran all that could differ."""
    is_complete: bool = False
    """Whether the kinds of events in use can lead to no further interleavings."""
    is_exhaustive: bool = False
    """Whether there are no interleavings except the counted ones, also of late answers and timers."""
    singles: int = 0
    all_singles: int = 0
    pairs: int = 0
    all_pairs: int | None = None
    drawn: int = 0
    """Random schedules and stored failures, including runs with random priorities."""
    priority_runs: PriorityRuns = field(default_factory=PriorityRuns)
    coverage: Coverage = field(default_factory=Coverage)
    given: Schedule | None = None
    """The only schedule to run, if the caller passed one."""
    seconds: float = 0.0
    seed: int | str = 0
    trust: Trust = field(default_factory=Trust)
    has_promise: bool = True
    """Whether anything is asserted; without a promise, an anomaly breaks a run."""
    alone: str = ""
    """Why the search could not use the processes that the caller wanted."""
    anomalies: dict[tuple[str, str], tuple[Anomaly, str]] = field(default_factory=dict)
    """The anomalies that runs showed, by name and subject, with the schedule of the first."""

    @property
    def tried(self) -> int:
        """The number of runs, without the undisturbed one."""
        return self.orders + self.singles + self.pairs + self.drawn


def _has_overlap(run: Run) -> bool:
    """Return whether another strand woke up and made a call while the run's event delayed a strand."""
    event = run.last_event
    if event is None or event.kind not in DELAYS or event.detail == DUE:
        return False
    own = (line.at_us for line in run.lines if line.event and line.strand == event.strand)
    began = next(own, run.start_us)
    ended = began + int(event.detail or DELAY) * 1_000_000
    return any(
        line.call is not None and line.strand != event.strand and began < line.at_us < ended
        for line in run.lines
    )


@dataclass
class Player:
    """Runs the subject under schedules, each run from the baseline of the fakes.

    ``known`` maps each schedule so far to the applied events, or to None if the promise held.
    """

    world: World
    subject: Subject
    setup: Callable[[], object] | None
    allowed: Allowed
    usual: Record | None = None
    """The record of the first run, in which no event happens unless the caller gave a schedule."""
    is_last: bool = False
    """Whether the patterns that are reported ``LAST`` count, because nothing else was found."""
    tally: Tally = field(default_factory=Tally)
    known: dict[Schedule, Schedule | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.forget_shown: Callable[[], object] = lambda: None
        """Makes pytest forget what it has collected about the undisturbed run."""
        self.ahead = Ahead(self, 1)

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
    ) -> Run:
        """Reset the fakes, run the programs under a schedule, and check the promise.

        ``notes`` makes the run record the points at which events are possible, and ``stacks`` the
        lines of the application that make each call. Journal and observers forget the run unless
        ``keep`` is true; with ``shows``, pytest shows its log, warnings and output until then.
        ``left_out`` is the number of a call whose effect is undone, in a run that does not count.
        Raises ``Redundant`` if the strategy ends the run.
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
        simulation = Simulation(self.subject, Plan(schedule, strategy, stacks, notes, left_out))
        try:
            run = world.play(simulation)
        except Redundant:
            forget()
            raise
        if keep:
            run.state = world.cloud, world.cloud.snapshot()
        if world.randomness.has_drawn():
            simulation.note_series(schedule.series)
        else:
            run.schedule = schedule.with_series(0)
        self.world.note_left(run)
        applied = schedule if strategy is None else Schedule(run.fired)
        simulation.history.schedule = str(applied)
        is_examined = stacks and left_out < 0 and not run.fired
        with world.reads.recorded() if is_examined else contextlib.nullcontext():
            for check in self.subject.promises.at_end:
                is_disturbed = bool(run.fired) or left_out >= 0
                run.broken = run.broken or self._broken_promise(
                    check, simulation.history, applied, is_disturbed=is_disturbed
                )
        if left_out < 0:
            self._note_anomalies(run)
        if not keep:
            forget()
        if left_out >= 0:
            return run
        if notes:
            run.overlaps = _has_overlap(run)
        if strategy is None:
            self.known[schedule] = Schedule(run.fired) if run.broken is not None else None
        self.tally.coverage.add(run)
        return run

    def play_planned(self, schedule: Schedule, *, notes: bool = False) -> Run:
        """Return the run of a schedule, which another process may have played already."""
        run = self.ahead.take(schedule, notes=notes)
        if run is None:
            return self.play(schedule, notes=notes)
        self.known[schedule] = None
        self.tally.coverage.add(run)
        return run

    def findings(self) -> object:
        """Return a value that changes if a run shows something that no run has shown before."""
        promises = self.subject.promises
        return (
            len(self.tally.anomalies),
            len(self.world.unwritten),
            self.allowed.unused(),
            promises.reached(),
        )

    def after_fork(self) -> None:
        """Prepare a forked process, in which the threads and sockets of its parent are missing."""
        self.ahead = Ahead(self, 1)
        # The child shares the position in a captured file of the parent, which reports the runs.
        sys.stdout = sys.stderr = io.StringIO()
        self.subject.threads.after_fork()
        self.world.after_fork()

    def _note_anomalies(self, run: Run) -> None:
        """Look for anomalies by comparison with the first run, if that had no events."""
        workers = frozenset(one.name for one in self.subject.programs if one.is_worker)
        record = Record(run, self.usual, workers)
        self.usual = record.usual
        if self.usual.run.fired:
            return
        run.anomalies = find_anomalies(record, self.allowed)
        for anomaly in run.anomalies:
            found = self.tally.anomalies
            found.setdefault((anomaly.name, anomaly.subject), (anomaly, str(Schedule(run.fired))))
        reported = [one for one in run.anomalies if self.is_last or one.name not in LAST]
        if not self.tally.has_promise and reported and run.broken is None:
            run.broken = AnomalyError(reported[0])

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
        """Call a check; return the failed assertion or, after an event, any exception that it raised.

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
