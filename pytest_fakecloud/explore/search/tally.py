"""Counters of a search: the schedules that it tried, and what its runs covered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..run import Run
from ..schedule import Schedule

if TYPE_CHECKING:
    from ...queue.delivery.url_scopes import Url
    from .drawn import Priorities

MOST_EVENTS = 6
"""Maximum number of events in a random schedule."""


@dataclass
class Coverage:
    """Calls of each strand, points of each strand, and kinds of events in the runs so far."""

    calls: dict[str, int] = field(default_factory=dict)
    """The maximum number of calls in one run."""
    points: dict[str, set[int]] = field(default_factory=dict)
    """The points at which events were possible."""
    possible: set[str] = field(default_factory=set)
    attempted: set[str] = field(default_factory=set)
    """The kinds of events in the schedules; such an event applies only if its point is reached."""
    kinds: Counter[str] = field(default_factory=Counter)
    """The number of events that were applied."""
    succeeded: dict[tuple[str, Url], bool] = field(default_factory=dict)
    """Whether any call succeeded, for each destination handler that was called."""
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, run: Run) -> None:
        for name, calls in run.calls.items():
            self.calls[name] = max(calls, self.calls.get(name, 0))
        for point in run.points:
            if point.choices:
                self.points.setdefault(point.strand, set()).add(point.number)
                self.possible.update(kind for kind, _ in point.choices)
        self.attempted.update(event.kind for event in run.schedule)
        self.kinds.update(event.kind for event in run.fired)
        for handler, outcomes in run.handler_outcomes.items():
            self.succeeded[handler] = self.succeeded.get(handler, False) or any(outcomes)
        self.notes.update(run.notes)


@dataclass
class PriorityRuns:
    """The runs with random priorities, and the probability that they have found a bug."""

    most_decisions: int = 1
    """The number of decisions among which the next run draws its changes of priority."""
    _runs: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Numbers of the counted runs, by bug depth and maximum number of decisions."""
    _strands: int = 1
    _decisions: int = 1

    def add(self, strategy: Priorities, *, is_counted: bool) -> None:
        """Add a run, which counts for the probability if it chose at all places and had no events."""
        self.most_decisions = max(self.most_decisions, strategy.decisions)
        if is_counted:
            self._runs[strategy.depth, strategy.most_decisions] += 1
            self._strands = max(self._strands, strategy.strands)
            self._decisions = max(self._decisions, strategy.decisions)

    @property
    def likely(self) -> dict[int, float]:
        """The minimum probability that the runs have found a bug, for each bug depth.

        A run counts only if its changes of priority could occur at each decision.
        """
        missed: dict[int, float] = {}
        for (depth, decisions), runs in self._runs.items():
            if decisions >= self._decisions:
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

    @property
    def tried(self) -> int:
        """The number of runs, without the undisturbed one."""
        return self.orders + self.singles + self.pairs + self.drawn
