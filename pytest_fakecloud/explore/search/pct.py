"""Probabilistic concurrency testing: strands have random priorities, which change a few times
during a run.

With n strands and k decisions, one run finds a bug that needs d ordered switches with a probability
of at least 1 / (n * k^(d-1)) (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
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


def bound(strands: int, decisions: int, depth: int, runs: int) -> float:
    """Return the minimum probability that this number of runs finds a bug of this depth."""
    once = 1 / (max(1, strands) * max(1, decisions) ** (depth - 1))
    return float(1 - (1 - once) ** runs)
