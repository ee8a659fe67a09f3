"""Random priorities of strands: probabilistic concurrency testing.

Strands have random priorities, which change a few times during a trial, at random decisions. The
new priorities are below all initial ones, and in random order as well. With n strands and k
decisions, one trial finds a bug that needs d ordered switches with a probability of at least
1 / (n * k^(d-1)) (Burckhardt and others, ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..trial import Place, Step, Trial
from .dpor import decided_places

DEPTHS = (2, 3, 4)
"""The bug depths (numbers of ordered switches) to search for, in turn."""


@dataclass(frozen=True)
class PriorityPlan:
    """All that determines the priorities of a trial.

    ``depth`` is the number of ordered switches to search for, and ``most_decisions`` the number of
    decisions among which the changes of priority are drawn.
    """

    seed: float
    depth: int
    most_decisions: int
    late: bool

    def strategy(self) -> Priorities:
        return Priorities(self)


class Priorities:
    """Runs the strand with the highest priority, and lowers priorities at random decisions."""

    records = False
    moves_time = False

    def __init__(self, plan: PriorityPlan) -> None:
        self.places = decided_places(late=plan.late)
        self.depth = plan.depth
        self.decisions = 0
        """The number of decisions so far."""
        self._chance = random.Random(plan.seed)
        most = max(1, plan.most_decisions)
        changed = self._chance.sample(range(most), min(plan.depth - 1, most))
        self._changes = {decision: priority for priority, decision in enumerate(changed)}
        self.priorities: dict[str, float] = {}
        """The priority of each strand that could run so far."""

    def pick(self, steps: Sequence[Step], options: Sequence[str], place: Place) -> str:
        for name in options:
            if name not in self.priorities:
                # Every changed priority is lower than every initial one.
                self.priorities[name] = self.depth + self._chance.random()
        chosen = max(options, key=self.priorities.__getitem__)
        if self.decisions in self._changes:
            self.priorities[chosen] = self._changes[self.decisions]
            chosen = max(options, key=self.priorities.__getitem__)
        self.decisions += 1
        return chosen

    def lesson(self, trial: Trial) -> tuple[int, int]:
        """Return the numbers of decisions and of strands."""
        return self.decisions, len(self.priorities)


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
