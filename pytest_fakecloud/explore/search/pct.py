"""Probabilistic concurrency testing: strands have random priorities, which change a few times
during a run.

The changes happen at random decisions. Their new priorities are below all initial ones, and in
random order as well. With n strands and k decisions, one run finds a bug that needs d ordered
switches with a probability of at least 1 / (n * k^(d-1)) (Burckhardt, Kothari, Musuvathi and
Nagarakatte, ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .dpor import decided_places

if TYPE_CHECKING:
    from ..run import Run
    from ..simulation.strands import Place

DEPTHS = (2, 3, 4)
"""The bug depths (numbers of ordered switches) to search for, in turn."""


class Priorities:
    """A strategy that runs the strand with the highest priority, and lowers priorities at randomly
    chosen decisions.
    """

    records = False
    moves_time = False

    def __init__(self, chance: random.Random, depth: int, decisions: int, *, late: bool) -> None:
        self.places = decided_places(late=late)
        self.depth = depth
        self.range = max(1, decisions)
        """The number of decisions among which the changes of priority are drawn."""
        self.strands = 0
        """The number of strands that ran, so far."""
        self.decisions = 0
        """The number of decisions so far."""
        self._chance = chance
        changed = chance.sample(range(self.range), min(depth - 1, self.range))
        self._changes = {decision: priority for priority, decision in enumerate(changed)}
        self._priorities: dict[str, float] = {}

    def pick(self, run: Run, options: Sequence[str], place: Place) -> str:
        """Return the name of the strand to run next."""
        for name in options:
            if name not in self._priorities:
                # Every changed priority is lower than every initial one.
                self._priorities[name] = self.depth + self._chance.random()
        chosen = max(options, key=self._priorities.__getitem__)
        if self.decisions in self._changes:
            self._priorities[chosen] = self._changes[self.decisions]
            chosen = max(options, key=self._priorities.__getitem__)
        self.decisions += 1
        self.strands = len(self._priorities)
        return chosen


@dataclass
class PriorityRuns:
    """The runs with random priorities, and the probability that they have found a bug."""

    range: int = 1
    """The number of decisions among which the next run draws its changes of priority."""
    _runs: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Numbers of the counted runs, by bug depth and range."""
    _strands: int = 1
    _decisions: int = 1

    def add(self, strategy: Priorities, *, is_counted: bool) -> None:
        """Add a run, which counts for the probability if it chose at all places and had no events."""
        self.range = max(self.range, strategy.decisions)
        if is_counted:
            self._runs[strategy.depth, strategy.range] += 1
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
