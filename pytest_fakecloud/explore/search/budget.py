"""The budget of a search, and searches that share it by taking turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ...core.errors import ContractError, shown
from ...core.timeparse import Duration, duration_us, monotonic
from ..run import Run


@dataclass(frozen=True)
class RunBudget:
    """A maximum number of runs."""

    runs: int

    def is_left(self, used: int) -> bool:
        return used < self.runs

    def expected(self, used: int) -> float:
        return self.runs - used

    def part(self, used: int, share: float) -> RunBudget:
        return RunBudget(used + round((self.runs - used) * share))


@dataclass(frozen=True)
class TimeBudget:
    """A wall-clock duration. The argument ``used`` is the number of runs that it allowed so far."""

    given: Duration
    began: float
    ends: float

    def is_left(self, used: int) -> bool:
        return monotonic() < self.ends

    def expected(self, used: int) -> float:
        """Return the number of runs left, estimated from the speed of the runs so far."""
        now = monotonic()
        return max(1, used) * (self.ends - now) / max(1e-6, now - self.began)

    def part(self, used: int, share: float) -> TimeBudget:
        """Return a budget that ends after a share of the remaining time."""
        now = monotonic()
        return TimeBudget(self.given, self.began, now + max(0.0, self.ends - now) * share)


Budget: TypeAlias = RunBudget | TimeBudget


def budget_of(given: int | Duration) -> Budget:
    """Parse the ``budget`` argument of ``explore()``. A time budget begins now."""
    if isinstance(given, int | float):
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return RunBudget(given)
    elif (seconds := duration_us(given) / 1e6) > 0:
        now = monotonic()
        return TimeBudget(given, now, now + seconds)
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
        """Run the next schedule and return its run, if there is one."""
        self.turns += 1
        try:
            return next(self.runs)
        except StopIteration:
            self.is_over = True
            return None
