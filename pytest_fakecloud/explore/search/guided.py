"""Schedules that extend trials which reached a new state: guided by what the fakes contain.

A trial that reached a fingerprint that no earlier trial had is kept, and one more disturbance is
added to it at each of its new points: the retry after a failed attempt, the next start of a
worker, the step after a compensation. Coverage-guided fuzzers do the same with branches of code
(AFL, Zalewski).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ..schedule import TRIED, Disturbance, Kind, Schedule
from ..trial import Point, Trial
from .tally import MOST_DISTURBANCES, Tally

_REPEATED = 4
"""Weight of a disturbance that repeats the last one, as failures of a retry do, relative to
another kind.
"""


class Frontier:
    """The schedules that add one disturbance to a trial at a point whose state was new.

    Numbers of disturbances take turns, so that a long chain of failures is tried as early as
    others. Kinds of disturbances have more turns the more often they have led to a new state.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._seen: set[int] = set()
        self._trials: Counter[Kind] = Counter()
        """The trials so far, by the kind of their last disturbance."""
        self._discoveries: Counter[Kind] = Counter()
        """Those of them that reached a new state."""
        self._levels: dict[int, _Level] = {}
        """The schedules to try, by their number of disturbances."""

    def learn(self, trial: Trial) -> None:
        """Note the states of the latest trial, and keep what extends it in new states."""
        new = [point for point in trial.points if point.state not in self._seen]
        last = trial.last_disturbance
        if last is not None:
            self._trials[last.kind] += 1
            self._discoveries[last.kind] += bool(new)
        if not new:
            return
        self._seen.update(point.state for point in trial.points)
        self._tally.states, self._tally.last_new_state = len(self._seen), self._tally.tried
        if last is not None and len(trial.fired) < MOST_DISTURBANCES:
            length = len(trial.fired) + 1
            self._levels.setdefault(length, _Level(length)).add(trial, new)

    def next(self) -> Schedule | None:
        """Return the next schedule, or None if no trial can be extended now."""
        levels = [level for level in self._levels.values() if level]
        if not levels:
            return None
        # A bug of few disturbances is likelier than one of many.
        fewest = min(levels, key=lambda level: level.turns * (level.length - 1))
        return fewest.next(self._likelihood)

    def _likelihood(self, kind: Kind) -> float:
        """Return an estimate of how likely a disturbance of a kind leads to a new state."""
        return (self._discoveries[kind] + 1) / (self._trials[kind] + 2)


_Arm: TypeAlias = tuple[Kind, bool]
"""A kind of disturbance, and whether the trial to extend ended with a disturbance of the same kind."""


class _Extensions(NamedTuple):
    """Schedules that extend another one: most are never tried, so only what each adds is kept."""

    extended: Schedule
    added: deque[Disturbance]


class _Level:
    """Schedules with the same number of disturbances."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._waiting: dict[_Arm, deque[_Extensions]] = {}
        """The schedules of each arm, by the trial that they extend."""
        self._turns: Counter[_Arm] = Counter()

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    @property
    def turns(self) -> int:
        return self._turns.total()

    def add(self, trial: Trial, points: Sequence[Point]) -> None:
        """Add the schedules that extend a trial at some of its points."""
        extended, last = Schedule(trial.fired), trial.fired[-1]
        by_arm: defaultdict[_Arm, deque[Disturbance]] = defaultdict(deque)
        for point in points:
            for disturbance in point.disturbances():
                arm = disturbance.kind, disturbance.kind == last.kind
                by_arm[arm].append(disturbance)
        for arm, added in by_arm.items():
            self._waiting.setdefault(arm, deque()).append(_Extensions(extended, added))

    def next(self, likelihood: Callable[[Kind], float]) -> Schedule:
        """Return the next schedule of the arm with the fewest turns, relative to its likelihood.

        The trials that are extended take turns.
        """

        def rank(arm: _Arm) -> tuple[float, int]:
            kind, is_repeated = arm
            weight = likelihood(kind) * (_REPEATED if is_repeated else 1)
            return (self._turns[arm] + 1) / weight, TRIED.index(kind)

        arm = min((arm for arm, waiting in self._waiting.items() if waiting), key=rank)
        self._turns[arm] += 1
        waiting = self._waiting[arm]
        extensions = waiting.popleft()
        schedule = extensions.extended + extensions.added.popleft()
        if extensions.added:
            waiting.append(extensions)
        return schedule
