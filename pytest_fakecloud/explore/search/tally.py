"""Limits and counters of a search: its budget, and what its runs covered."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.errors import ContractError, shown
from ...core.timeparse import Duration, duration_us, monotonic
from ...core.wording import counted
from ..run import Run
from .pct import bound

MOST_EVENTS = 6
"""Maximum number of events in a random schedule."""


class Budget:
    """The limit of a search: a number of runs, or a wall-clock duration."""

    def __init__(self, given: int | Duration) -> None:
        self.given = given
        self.runs: int | None = None
        self._began = 0.0
        self._until: float | None = None
        if isinstance(given, bool | float):
            raise _no_budget(given)
        if isinstance(given, int):
            if given < 1:
                raise _no_budget(given)
            self.runs = given
        else:
            span = duration_us(given) / 1e6
            if span <= 0:
                raise _no_budget(given)
            self._began = monotonic()
            self._until = self._began + span

    def left(self, used: int) -> bool:
        """Return whether the budget allows another schedule after ``used`` ones."""
        if self.runs is not None:
            return used < self.runs
        assert self._until is not None
        return monotonic() < self._until

    def expected(self, used: int) -> float:
        """Return the number of runs left, estimated from ``used`` runs if the limit is a duration."""
        if self.runs is not None:
            return self.runs - used
        assert self._until is not None
        now = monotonic()
        return max(1, used) * (self._until - now) / max(1e-6, now - self._began)

    def part(self, used: int, share: float) -> Budget:
        """Return a share of the remaining budget."""
        made = Budget.__new__(Budget)
        made.given = self.given
        made.runs = made._until = None
        if self.runs is not None:
            made.runs = used + round((self.runs - used) * share)
        else:
            assert self._until is not None
            now = monotonic()
            made._began, made._until = self._began, now + max(0.0, self._until - now) * share
        return made


def _no_budget(given: object) -> ContractError:
    return ContractError(
        f"budget={shown(given)} is not a budget: pass a number of runs (500), or a span such as '10s'"
    )


@dataclass
class Tally:
    """Counters of a search: the schedules tried, and the calls, points and kinds of events they
    covered.
    """

    orders: int = 0
    all_orders: bool = False
    unfinished_orders: int = 0
    is_exhaustive: bool = False
    singles: int = 0
    all_singles: int = 0
    pairs: int = 0
    all_pairs: int | None = None
    drawn: int = 0
    prioritised: dict[int, int] = field(default_factory=dict)
    strands: int = 1
    decisions: int = 1
    has_timers: bool = False
    is_given: bool = False
    seconds: float = 0.0
    seed: int | str = 0
    calls: dict[str, int] = field(default_factory=dict)
    points: dict[str, set[int]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    possible: set[str] = field(default_factory=set)
    attempted: set[str] = field(default_factory=set)
    succeeded: dict[str, bool] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def tried(self) -> int:
        """The number of runs, without the undisturbed one."""
        return self.orders + self.singles + self.pairs + self.drawn

    def note(self, run: Run) -> None:
        """Add what a run covered to the counters."""
        for name, calls in run.calls.items():
            self.calls[name] = max(calls, self.calls.get(name, 0))
        for point in run.points:
            if point.choices:
                self.points.setdefault(point.process, set()).add(point.number)
                self.possible.update(kind for kind, _ in point.choices)
        self.attempted.update(event.kind for event in run.schedule)
        for event in run.fired:
            self.kinds[event.kind] = self.kinds.get(event.kind, 0) + 1
        for where, outcomes in run.handled.items():
            self.succeeded[where] = self.succeeded.get(where, False) or any(outcomes)
        self.notes.update(run.notes)

    @property
    def _interleavings(self) -> str:
        return counted(self.orders, "distinct interleaving")

    @property
    def likely(self) -> dict[int, float]:
        """Return, for each bug depth, a lower bound of the probability that the search found such a
        bug.
        """
        return {
            depth: bound(self.strands, self.decisions, depth, runs)
            for depth, runs in self.prioritised.items()
        }

    def __str__(self) -> str:
        many = f"{counted(self.tried, 'schedule')} in {self.seconds:.1f} s"
        if self.is_given:
            return "the given schedule"
        if self.is_exhaustive and not self.singles:
            if self.orders == 1:
                return f"the only possible interleaving (exhaustive) in {self.seconds:.1f} s"
            return f"all {self._interleavings} (exhaustive) in {self.seconds:.1f} s"
        parts = []
        if self.orders > 1:
            of = "all " if self.all_orders and not self.unfinished_orders else ""
            end = " (exhaustive)" if self.is_exhaustive else ""
            parts.append(f"{of}{self._interleavings}{end}")
        if self.all_singles:
            parts.append(_of(self.singles, self.all_singles, "of one event"))
        if self.pairs:
            parts.append(_of(self.pairs, self.all_pairs, "of two"))
        if self.drawn:
            parts.append(f"{self.drawn:,} drawn, of up to {MOST_EVENTS}")
        text = f"{many} ({', '.join(parts)}; seed {self.seed!r})"
        if self.prioritised and not self.is_exhaustive:
            depth, least = next(
                ((d, p) for d, p in sorted(self.likely.items(), reverse=True) if p >= 0.05),
                min(self.likely.items()),
            )
            text += (
                f"; a bug that needs {depth} ordered switches is found with a probability of at "
                f"least {least:.0%}"
            )
        return text


def _of(done: int, there_are: int | None, what: str) -> str:
    if done == there_are:
        return f"all {done:,} {what}"
    return f"{done:,} {what}" if there_are is None else f"{done:,} of {there_are:,} {what}"
