"""The budget of a search, and the numbers of what it has tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from ...core.errors import ContractError, shown
from ...core.journal import Results
from ...core.timers import Duration, duration_us, monotonic
from ...queue.delivery.routes import Url
from ..subject.clients import Inputs
from ..values.disturbances import Kind
from ..values.failures import Failure
from ..values.plan import Plan
from ..values.schedule import Schedule
from ..values.trial import Anomaly, Outline, ReachedPoint
from .interleavings import TriedInterleavings
from .player import Player


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
class Coverage:
    """What the trials so far have covered: calls, points and kinds of disturbances, handlers that were
    called, random numbers, and notes about code that was not explored.
    """

    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the greatest number of calls in one trial, by the name of each strand."""
    points: dict[ReachedPoint, None] = field(default_factory=dict)
    """The distinct points of all trials, some of them without possible disturbances."""
    draws_numbers: bool = False
    attempted: set[str] = field(default_factory=set)
    """The kinds of disturbances in the schedules, whether or not their points were reached."""
    kinds: Counter[str] = field(default_factory=Counter)
    """The number of disturbances that were applied."""
    succeeded: dict[tuple[str, Url], bool] = field(default_factory=dict)
    """Whether any call succeeded, for each destination handler that was called."""
    notes: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, trial: Outline) -> Coverage:
        return cls(
            {name: (strand.calls, strand.calls) for name, strand in trial.strands.items()},
            {ReachedPoint(*reached.without_state): None for reached in trial.points},
            "numbers" in trial.flags,
            {*plan.schedule.kinds},
            Counter(disturbance.kind for disturbance in trial.applied),
            dict(trial.handlers),
            dict.fromkeys(trial.notes),
        )

    def merge(self, other: Coverage) -> None:
        """Add what other trials have covered."""
        for name, calls in other.calls.items():
            least, most = self.calls.get(name, calls)
            self.calls[name] = min(least, calls[0]), max(most, calls[1])
        self.points.update(other.points)
        self.draws_numbers = self.draws_numbers or other.draws_numbers
        self.attempted |= other.attempted
        self.kinds.update(other.kinds)
        for handler, has_succeeded in other.succeeded.items():
            self.succeeded[handler] = self.succeeded.get(handler, False) or has_succeeded
        self.notes.update(other.notes)

    @property
    def possible(self) -> set[str]:
        """The kinds of disturbances that were possible."""
        kinds: set[str] = {kind for reached in self.points for kind, _ in reached.choices}
        return kinds | {"numbers"} if self.draws_numbers else kinds


class ShownAnomaly(NamedTuple):
    """An anomaly, with the schedule and the drawn inputs of the first trial that showed it."""

    anomaly: Anomaly
    schedule: Schedule
    inputs: Inputs


Outcomes: TypeAlias = Mapping[Schedule, Schedule | None]
"""The disturbances that were applied under schedules; None if the promise held."""
CounterName = Literal["orders", "singles", "extended", "drawn", "replayed"]
"""Counters of trials: of a source, or of a schedule that was passed or that failed last time."""


@dataclass
class Tally:
    """What a search was to try, and what it has tried: all that ``Exploration`` tells, and from which
    sources choose.
    """

    # What was to be tried.
    kinds: frozenset[Kind] = frozenset()
    """The kinds of disturbances of the search."""
    inputs: Inputs = field(default_factory=dict)
    """The drawn inputs of the search."""
    input_count: int = 0
    """Number of the drawn inputs that the trials had; 0 if no client has any."""
    anomalies_break: bool = False
    """Whether an anomaly breaks a trial (``Judge``)."""
    seed: int | str = 0
    only_schedule: Schedule | None = None
    """The only schedule to run, if the caller passed one."""
    all_singles: int = 0
    """The number of schedules with one disturbance."""
    one_process_reason: str = ""
    """Why the search could not use the processes that the caller wanted."""

    # What has been tried.
    outcomes: dict[Schedule, Schedule | None] = field(default_factory=dict)
    """The ``Outcomes`` of the trials so far that had no strategy."""
    counts: Counter[CounterName] = field(default_factory=Counter)
    """The trials that count against the budget, without known orders. Not the undisturbed one, those in
    one piece, and those that repeat or shrink.
    """
    interleavings: TriedInterleavings = field(default_factory=TriedInterleavings)
    has_timers: bool = False
    """Whether the clock could have moved while a strand could run, in a trial without a schedule: the
    undisturbed one, or an interleaving.
    """
    states: int = 0
    """Number of distinct states in the trials from which the ``Frontier`` learns."""
    last_new_state: int = 0
    """The number of the trial that reached the last new one."""
    coverage: Coverage = field(default_factory=Coverage)
    seconds: float = 0.0
    """How long the search took, in wall-clock time."""
    anomalies: dict[tuple[str, str], ShownAnomaly] = field(default_factory=dict)
    """The anomalies that trials showed, by name and subject."""
    failures: Results[Failure] = field(default_factory=Results)
    """The trials of ``every_failure()``."""

    @classmethod
    def of(
        cls, player: Player, seed: int | str = 0, only_schedule: Schedule | None = None
    ) -> Tally:
        """Return the tally of a search that begins."""
        subject = player.subject
        return cls(
            kinds=subject.kinds,
            inputs=subject.inputs,
            input_count=1 if subject.inputs else 0,
            anomalies_break=player.judge.anomalies_break,
            seed=seed,
            only_schedule=only_schedule,
        )

    @property
    def tried(self) -> int:
        """The number of trials that count against the budget."""
        return self.counts.total()

    @property
    def remaining_singles(self) -> int:
        """The number of schedules with one disturbance that have not been tried."""
        return self.all_singles - self.counts["singles"]

    @property
    def varies_numbers(self) -> bool:
        """Whether the search tries other random numbers: the code draws some."""
        return "numbers" in self.kinds and self.coverage.draws_numbers

    def record(self, plan: Plan, trial: Outline) -> None:
        """Add what a trial has covered, its anomalies, and its outcome, without counting it."""
        if "redundant" in trial.flags:
            return
        for anomaly in trial.verdict.anomalies:
            shown_anomaly = ShownAnomaly(anomaly, trial.applied, self.inputs)
            self.anomalies.setdefault((anomaly.name, anomaly.subject), shown_anomaly)
        self.coverage.merge(Coverage.of(plan, trial))
        if not plan.schedule:
            self.has_timers = self.has_timers or "timers" in trial.flags
        if plan.strategy_factory is None:
            is_broken = trial.broken is not None
            self.outcomes[plan.schedule] = trial.applied if is_broken else None

    def count(self, counter: CounterName) -> None:
        """Count the latest trial against the budget."""
        self.counts[counter] += 1

    def note_states(self, number: int) -> None:
        """Note the number of distinct states, after a trial that reached a new one."""
        self.states, self.last_new_state = number, self.tried

    def count_orders_once(self, number: int) -> None:
        """Count the interleavings of a search that contains those of all others, and no longer theirs,
        so that the budget has some trials more.
        """
        self.counts["orders"] = number
        self.last_new_state = min(self.last_new_state, self.tried)

    def merge(self, other: Tally) -> None:
        """Add the numbers of a search with other inputs."""
        if other.last_new_state:
            self.last_new_state = self.tried + other.last_new_state
        self.states += other.states
        self.counts.update(other.counts)
        self.interleavings = self.interleavings.merged(other.interleavings)
        self.all_singles += other.all_singles
        self.coverage.merge(other.coverage)
        self.seconds += other.seconds
        self.one_process_reason = self.one_process_reason or other.one_process_reason
        for subject, shown_anomaly in other.anomalies.items():
            self.anomalies.setdefault(subject, shown_anomaly)
        self.input_count += other.input_count


def merged(tallies: Iterable[Tally]) -> Tally:
    """Return the numbers of searches with several inputs, in the tally of the first."""
    first, *others = tallies
    for tally in others:
        first.merge(tally)
    return first
