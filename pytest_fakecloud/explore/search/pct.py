"""Probabilistic concurrency testing: strands have random priorities, which change a few times
during a run.

With n strands and k decisions, one run finds a bug that needs d ordered switches with a probability
of at least 1 / (n * k^(d-1)) (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .dpor import decided_places

if TYPE_CHECKING:
    from ..run import Run
    from ..runtime.strands import Place

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
        self._chance = chance
        self._changes = {chance.randrange(max(1, decisions)) for _ in range(depth - 1)}
        self._priorities: dict[str, float] = {}
        self._at = 0
        self.strands = 0
        self.decisions = 0

    def pick(self, run: Run, options: Sequence[str], place: Place) -> str:
        """Return the name of the strand to run next."""
        for name in options:
            if name not in self._priorities:
                self._priorities[name] = 1 + self._chance.random()
        chosen = max(options, key=lambda name: self._priorities[name])
        if self._at in self._changes:
            self._priorities[chosen] = -self._at
            chosen = max(options, key=lambda name: self._priorities[name])
        self._at += 1
        self.decisions, self.strands = self._at, len(self._priorities)
        return chosen


@dataclass
class PriorityRuns:
    """Number of runs with random priorities for each bug depth, and the size of the largest run."""

    by_depth: dict[int, int] = field(default_factory=dict)
    strands: int = 1
    decisions: int = 1

    def count(self, depth: int) -> None:
        """Count a run without other events."""
        self.by_depth[depth] = self.by_depth.get(depth, 0) + 1

    def learn(self, strategy: Priorities) -> None:
        """Note the numbers of strands and decisions of a run."""
        self.strands = max(self.strands, strategy.strands)
        self.decisions = max(self.decisions, strategy.decisions)

    @property
    def likely(self) -> dict[int, float]:
        """The minimum probability that the runs have found a bug, for each bug depth."""
        return {
            depth: float(1 - (1 - 1 / (self.strands * self.decisions ** (depth - 1))) ** runs)
            for depth, runs in self.by_depth.items()
        }
