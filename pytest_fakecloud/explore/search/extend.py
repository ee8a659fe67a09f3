"""Schedules that extend that of a trial by one disturbance, or by two that only matter together.

A disturbance is added where the trial is the first to reach a state, or where it probably meets what the
last one has begun.

A trial that reached a fingerprint that no earlier trial had is extended at each of its new points: the
retry after a failed attempt, the next start of a worker, the step after a compensation.
Coverage-guided fuzzers do the same with branches of code (AFL, Zalewski).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from ..values.disturbances import DELAY, DELAYS, RANKS, Disturbance, Kind, with_trait
from ..values.names import StrandName
from ..values.schedule import Schedule
from ..values.trial import Outline, ReachedPoint
from .tally import Tally
from .tuning import CALLS_AFTER_SLOW_ANSWER, LIKELY_WEIGHT, MOST_DISTURBANCES, REPEATED_WEIGHT

_LASTING = with_trait("lasting")
"""Kinds that begin a state that a timer ends, such as a rotated token."""
_Why = Literal["new", "repeated", "likely", "aligned"]
"""Why a disturbance is added: its point is new, and it may also repeat the last one, as failures of a
retry do; ``_likely_disturbances()`` names it, or ``_around_redeliveries()``.
"""


class Frontier:
    """The schedules that extend those of trials.

    The fewer disturbances, the more often schedules with so many are tried, but a long chain of failures
    does not wait until all shorter ones have been. Kinds of disturbances are tried more often the more
    often they have led to a new state.

    For example, the trial of ``run.1 drop`` reaches a new point, run.2. On the level of 1 disturbance,
    its extension by ``run.2 drop`` waits in the arm (drop, repeated), by ``crash`` in (crash, new).
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._seen: set[int] = set()
        self._trials: Counter[Kind] = Counter()
        """The trials so far, by the kind of their last disturbance."""
        self._discoveries: Counter[Kind] = Counter()
        """Those of them that reached a new state."""
        self._levels: dict[int, _Level] = {}
        """The schedules to try, by the number of disturbances of the trials that they extend."""

    def learn(self, trial: Outline) -> None:
        """Note the states of the latest trial, and keep what extends it."""
        new = [reached for reached in trial.points if reached.state not in self._seen]
        last = trial.last_disturbance
        if new:
            self._seen.update(reached.state for reached in trial.points)
            self._tally.note_states(len(self._seen))
        if last is None:
            return
        self._trials[last.kind] += 1
        self._discoveries[last.kind] += bool(new)
        if len(trial.applied) < MOST_DISTURBANCES:
            level = self._levels.setdefault(len(trial.applied), _Level(len(trial.applied)))
            level.add(trial, _extensions(new, last))
            level.add(trial, (("likely", (added,)) for added in _likely_disturbances(trial, last)))
            level.add(trial, (("aligned", added) for added in _around_redeliveries(trial)))

    def next(self) -> Schedule | None:
        """Return the next schedule, or None if no trial can be extended now."""
        levels = [level for level in self._levels.values() if level]
        if not levels:
            return None
        # A bug of few disturbances is likelier than one of many.
        cheapest = min(levels, key=lambda level: level.tried * level.extended)
        return cheapest.next(self._likelihood)

    def _likelihood(self, kind: Kind) -> float:
        """Return an estimate of how likely a disturbance of a kind leads to a new state."""
        return (self._discoveries[kind] + 1) / (self._trials[kind] + 2)


def _extensions(points: Iterable[ReachedPoint], last: Disturbance) -> Iterator[tuple[_Why, _Added]]:
    for reached in points:
        for disturbance in reached.disturbances():
            yield "repeated" if disturbance.kind == last.kind else "new", (disturbance,)


_Added: TypeAlias = tuple[Disturbance, ...]
"""The disturbances that a schedule adds to another: one, or two that only matter together."""
_Arm: TypeAlias = tuple[Kind, _Why]
"""The kind of the last disturbance that is added, and why."""


class _Extensions(NamedTuple):
    """Schedules that extend another one: most are never tried, so only what each adds is kept."""

    extended: Schedule
    added: deque[_Added]


class _Level:
    """Schedules that extend trials with the same number of disturbances, ``extended``."""

    def __init__(self, extended: int) -> None:
        self.extended = extended
        self._waiting: dict[_Arm, deque[_Extensions]] = {}
        """The schedules of each arm, by the trial that they extend."""
        self._tried: Counter[_Arm] = Counter()

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    @property
    def tried(self) -> int:
        return self._tried.total()

    def add(self, trial: Outline, extensions: Iterable[tuple[_Why, _Added]]) -> None:
        """Add the schedules that extend a trial."""
        extended = trial.applied
        by_arm: defaultdict[_Arm, deque[_Added]] = defaultdict(deque)
        for why, disturbances in extensions:
            by_arm[disturbances[-1].kind, why].append(disturbances)
        for arm, added in by_arm.items():
            self._waiting.setdefault(arm, deque()).append(_Extensions(extended, added))

    def next(self, likelihood: Callable[[Kind], float]) -> Schedule:
        """Return the next schedule of the arm that was tried least, relative to its likelihood."""

        def cost(arm: _Arm) -> tuple[float, int]:
            kind, why = arm
            # A likely disturbance is meant to meet another one, not to reach a state by itself.
            weight = LIKELY_WEIGHT if why in ("likely", "aligned") else likelihood(kind)
            weight *= REPEATED_WEIGHT if why == "repeated" else 1
            return (self._tried[arm] + 1) / weight, RANKS[kind]

        arm = min((arm for arm, waiting in self._waiting.items() if waiting), key=cost)
        self._tried[arm] += 1
        waiting = self._waiting[arm]
        extensions = waiting.popleft()
        schedule = Schedule((*extensions.extended, *extensions.added.popleft()))
        if extensions.added:
            waiting.append(extensions)
        return schedule


# -- likely disturbances ---------------------------------------------------------------------------


def _likely_disturbances(trial: Outline, last: Disturbance) -> Iterator[Disturbance]:
    """Yield the disturbances that probably meet what the last one of a trial has begun."""
    ids = [reached.point_id for reached in trial.points]
    after = (
        trial.points[ids.index(last.point_id) + 1 :] if last.point_id in ids else trial.points[1:]
    )
    yield from _further_delays(trial, last, after)
    yield from _ends_of_spans(last, after)


def _further_delays(
    trial: Outline, last: Disturbance, after: Iterable[ReachedPoint]
) -> Iterator[Disturbance]:
    """Delay a strand that woke up while the last disturbance delayed another one.

    A strand that was delayed until something is due also runs in the middle of what the others do
    then. After a slow answer, the next calls of the same strand are delayed as well, because the
    strand may have counted a lease from the answer.
    """
    if last.kind not in DELAYS:
        return
    if last.is_until_due:
        for reached in after:
            yield from (
                other for other in reached.disturbances() if other.runs_first == last.strand
            )
        return
    if "overlap" in trial.flags:
        for reached in after:
            if reached.strand != last.strand:
                yield from (other for other in reached.disturbances() if other.kind in DELAYS)
    if last.kind == "slow":
        own = (reached for reached in after if reached.strand == last.strand)
        for reached in itertools.islice(own, CALLS_AFTER_SLOW_ANSWER):
            yield from (other for other in reached.disturbances() if other.kind == "delay")


def _ends_of_spans(last: Disturbance, after: Iterable[ReachedPoint]) -> Iterator[Disturbance]:
    """Pause until a time that the last disturbance makes interesting."""
    for reached in after:
        for other in reached.disturbances():
            # Code that truncates times to seconds fails only just before the end of a window. A
            # disturbance that ends in between affects only some of the calls.
            is_window = last.is_at_edge and other.is_window
            is_end = last.kind in _LASTING and other.kind == "jump" and not other.detail
            if is_window or is_end:
                yield other


def _around_redeliveries(trial: Outline) -> Iterator[_Added]:
    """Align a message that is delivered again with the work of others: a call in the middle of the
    retry is delayed, and in the meantime another message, which was unreachable before, is delivered
    again as well, or a client starts.
    """
    if any(disturbance.kind == "delay" and disturbance.point for disturbance in trial.applied):
        return
    has_late_start = any(map(_is_late_start, trial.applied))
    if len(trial.applied) > 1 + has_late_start:
        return
    begins: dict[str, int] = {}
    for reached in trial.points:
        if _is_redelivery(reached.strand):
            begins.setdefault(reached.strand, reached.at_us)
    lates = {name: [*_late_starts(trial, name, at_us)] for name, at_us in begins.items()}
    for reached in trial.points:
        if reached.strand in begins and reached.point > 1:
            for other in reached.disturbances():
                if other.kind == "delay" and not other.is_until_due:
                    if has_late_start:
                        yield (other,)
                    else:
                        yield from ((late, other) for late in lates[reached.strand])
    if not has_late_start:
        # A retry may go further if a client has not started yet.
        for late in itertools.chain(*lates.values()):
            if late.kind == "delay":
                yield (late,)


def _is_redelivery(strand: str) -> bool:
    """Return whether a strand is the second attempt to deliver a message."""
    name = StrandName.of(strand)
    return name.is_delivery and name.attempt == 2 and not name.part


def _is_late_start(disturbance: Disturbance) -> bool:
    """Return whether a disturbance lets a client or a message begin its work later."""
    is_lost_once = disturbance.kind == "unreachable" and disturbance.attempts == 1
    return not disturbance.point and (is_lost_once or disturbance.kind == "delay")


def _late_starts(trial: Outline, again: str, at_us: int) -> Iterator[Disturbance]:
    """Yield disturbances by which others begin their work while a message is delivered again."""
    for reached in trial.points:
        name = StrandName.of(reached.strand)
        if reached.point or name.program == StrandName.of(again).program or name.attempt > 1:
            continue
        for other in reached.disturbances():
            if other.kind == "unreachable" and other.attempts == 1:
                yield other
            elif other.kind == "delay" and not other.is_until_due:
                seconds = math.ceil((at_us - reached.at_us) / 1e6) + DELAY // 2
                yield other._replace(detail=str(seconds))
