"""Shrink a failing schedule to the smallest and plainest one that is found.

A schedule is smaller if it has fewer disturbances, and plainer if they are easier to explain. First
disturbances are left out; then one is replaced by a plainer one, or several by a single switch, and so
on, until nothing helps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from ..values.disturbances import ONLY_TIMING, RANKS, SIMPLEST_FIRST, Disturbance, Kind
from ..values.plan import Plan
from ..values.schedule import Schedule
from ..values.trial import FailingTrial, ReachedPoint, Trial
from .player import Player
from .tally import Outcomes
from .tuning import MOST_PARTS, MOST_REPLACEMENTS, NEAR_POINTS

_Breaks: TypeAlias = Callable[[Schedule], Schedule | None]
"""Plays a schedule; returns the disturbances that were applied, or None if the promise held."""


def smallest(
    player: Player, failing: FailingTrial, undisturbed: Trial, known: Outcomes
) -> FailingTrial:
    """Shrink the schedule of a failing trial; return the trial of the smallest schedule found."""
    outcomes = {**known}

    def breaks(schedule: Schedule) -> Schedule | None:
        if schedule not in outcomes:
            again = player.play(Plan(schedule))
            outcomes[schedule] = None if again.broken is None else again.applied
        return outcomes[schedule]

    is_stuck = "stuck" in failing.trial.flags
    if not is_stuck and breaks(failing.schedule) is None:
        return failing
    best, replacements = minimal(failing.schedule, breaks), 0
    if is_stuck and best == failing.schedule:
        return failing
    while True:
        repeated = player.play(Plan(best, notes_points=True))
        if repeated.broken is None:
            return failing
        smaller = FailingTrial.of(repeated)
        if is_stuck:
            return smaller  # Each trial that is stuck takes seconds, so no plainer one is tried.
        for replacement in _replacements(repeated, undisturbed, player.subject.kinds):
            replacements += 1
            if replacements > MOST_REPLACEMENTS:
                return smaller
            applied = breaks(replacement)
            if applied is not None and _rank(applied) < _rank(best):
                # The plainer disturbance may make another one needless.
                best = minimal(applied, breaks)
                break
        else:
            return smaller


def minimal(schedule: Schedule, breaks: _Breaks) -> Schedule:
    """Return a part of a failing schedule that breaks the promise, of which no part that is tried does.

    Disturbances are left out one by one. Of what is then needed, the smallest parts are tried first,
    because a part can break the promise although a larger part does not.
    """
    best = schedule
    while True:
        fewer = (best.without([disturbance]) for disturbance in best)
        broken = (applied for applied in map(breaks, fewer) if applied is not None)
        applied = next(broken, None) if len(best) > 1 else None
        if applied is None:
            break
        best = applied
    sizes = range(1, len(best) - 1)
    parts = itertools.chain(*(itertools.combinations(best, size) for size in sizes))
    for part in itertools.islice(parts, MOST_PARTS):
        applied = breaks(Schedule(part))
        if applied is not None:
            return applied
    return best


def _rank(schedule: Schedule) -> tuple[int, list[tuple[int, int, int]]]:
    """Return a value that is lower for a smaller or plainer schedule."""
    return len(schedule), sorted(map(_rank_of, schedule), reverse=True)


def _rank_of(disturbance: Disturbance) -> tuple[int, int, int]:
    is_number = disturbance.detail.isdigit()
    detail = int(disturbance.detail) if is_number else bool(disturbance.detail)
    return RANKS[disturbance.kind], detail, disturbance.point


def _replacements(trial: Trial, undisturbed: Trial, kinds: Collection[Kind]) -> Iterator[Schedule]:
    """Yield schedules in which one disturbance is plainer, or a single switch stands for several."""
    for disturbance in trial.applied:
        for plainer in itertools.chain(
            (simpler for simpler in disturbance.simpler() if simpler.kind in kinds),
            _plainer(disturbance, trial, undisturbed),
        ):
            yield Schedule(
                plainer if applied == disturbance else applied for applied in trial.applied
            )
    if len(trial.applied) > 1:
        yield from _single_switches(trial, undisturbed)


def _plainer(disturbance: Disturbance, trial: Trial, undisturbed: Trial) -> Iterator[Disturbance]:
    """Yield disturbances of plainer kinds at the same point or at a later one, because some kinds take
    effect at a later call, perhaps of another strand.
    """
    if disturbance.kind in ONLY_TIMING:
        return
    points = _points_from(disturbance, trial)
    # A call that is rejected in the trial is a point of the undisturbed trial only.
    known_points = {reached.without_state for reached in points}
    later = _points_from(disturbance, undisturbed)
    points += [reached for reached in later if reached.without_state not in known_points]
    own_points = [reached for reached in points if reached.strand == disturbance.strand]
    other_points = [reached for reached in points if reached.strand != disturbance.strand]
    near_points = own_points[:NEAR_POINTS] + other_points[:NEAR_POINTS]
    kinds = SIMPLEST_FIRST[: RANKS[disturbance.kind]]
    for kind, reached in itertools.product(
        [kind for kind in kinds if kind not in ONLY_TIMING], near_points
    ):
        yield from (instead for instead in reached.disturbances() if instead.kind == kind)


def _points_from(disturbance: Disturbance, trial: Trial) -> list[ReachedPoint]:
    """Return the points of a trial from that of a disturbance on."""
    ids, point_id = [reached.point_id for reached in trial.points], disturbance.point_id
    return [*trial.points[ids.index(point_id) :]] if point_id in ids else []


def _single_switches(trial: Trial, undisturbed: Trial) -> Iterator[Schedule]:
    """Yield schedules with one switch of the undisturbed trial, between strands that were disturbed."""
    strands = {
        name
        for disturbance in trial.applied
        for name in (disturbance.strand, disturbance.runs_first)
    }
    for reached in undisturbed.points:
        for switch in reached.disturbances():
            if switch.kind == "switch" and {switch.strand, switch.runs_first} <= strands:
                yield Schedule([switch])
