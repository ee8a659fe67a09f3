"""Shrink a failing schedule to the smallest and plainest one that was found, and replay it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from ...core.timers import monotonic
from ..schedule import AT_DELIVERIES, EDGE, ENDS, ORDERS, TRIED, Disturbance, Kind, Schedule
from ..trial import Point, Trial
from .player import Player

SHRINK_SECONDS = 5.0
"""Wall-clock seconds for shrinking a failing schedule, in addition to the budget."""
MOST_SWITCHES = 40
"""Maximum number of single switches that are tried instead of several disturbances."""
_NEXT_POINTS = 4
"""Number of points of one strand, and of all others, at which a plainer disturbance is tried
instead.
"""
REPLAYS = 5
"""Number of times a failing schedule is replayed before it is reported."""


def smallest(player: Player, trial: Trial, undisturbed: Trial) -> Trial:
    """Shrink a failing trial's schedule; return the trial of the smallest one found.

    No part of its schedule breaks the promise, unless there was no time to try all parts.
    """
    until = monotonic() + SHRINK_SECONDS
    trial = replace(trial, schedule=Schedule(trial.fired))

    def breaks(schedule: Schedule) -> Schedule | None:
        if schedule not in player.outcomes:
            player.play(schedule)
        return player.outcomes[schedule]

    def shrunk(schedule: Schedule) -> Schedule:
        return shrink(schedule, breaks, lambda: monotonic() < until, player.subject.kinds)

    if "stuck" in trial.flags or breaks(trial.schedule) is None:
        return trial
    again = player.play(shrunk(trial.schedule), notes=True)
    if again.broken is None:
        return trial
    for plainer in _plainer(again, undisturbed):
        if monotonic() >= until:
            break
        if (applied := breaks(plainer)) is not None and len(applied) <= len(again.fired):
            # The plainer disturbance may make another one needless.
            again = player.play(shrunk(applied))
            break
    if len(again.fired) > 1:
        for switch in itertools.islice(_single_switches(again, undisturbed), MOST_SWITCHES):
            if (applied := breaks(switch)) is not None and len(applied) == 1:
                return player.play(switch)
    return again


def _plainer(trial: Trial, undisturbed: Trial) -> Iterator[Schedule]:
    """Yield schedules with a disturbance of a plainer kind in the place of another: at the same
    point, or at a later one, because some kinds take effect at a later call, perhaps of another
    strand.
    """
    for disturbance in trial.fired:
        points = _points_from(disturbance, trial)
        # A call that is rejected in the trial is a point of the undisturbed trial only.
        places = {(point.strand, point.number, point.choices) for point in points}
        points += [
            point
            for point in _points_from(disturbance, undisturbed)
            if (point.strand, point.number, point.choices) not in places
        ]
        own = [point for point in points if point.strand == disturbance.strand]
        others = [point for point in points if point.strand != disturbance.strand]
        near = own[:_NEXT_POINTS] + others[:_NEXT_POINTS]
        kinds = () if disturbance.kind in ORDERS else TRIED[: TRIED.index(disturbance.kind)]
        for kind, point in itertools.product([kind for kind in kinds if kind not in ORDERS], near):
            for instead in point.disturbances():
                if instead.kind == kind:
                    yield Schedule(
                        instead if applied == disturbance else applied for applied in trial.fired
                    )


def _points_from(disturbance: Disturbance, trial: Trial) -> list[Point]:
    """Return the points of a trial from that of a disturbance on."""
    places = [(point.strand, point.number) for point in trial.points]
    here = disturbance.strand, disturbance.point
    return [*trial.points[places.index(here) :]] if here in places else []


def _single_switches(trial: Trial, undisturbed: Trial) -> Iterator[Schedule]:
    """Yield schedules with one switch of the undisturbed trial, at strands of the trial's
    disturbances.
    """
    strands = {disturbance.strand for disturbance in trial.fired} | {
        disturbance.detail for disturbance in trial.fired
    }
    for point in undisturbed.points:
        for disturbance in point.disturbances():
            if disturbance.kind == "switch" and {disturbance.strand, disturbance.detail} <= strands:
                yield Schedule([disturbance])


def shrink(
    schedule: Schedule,
    breaks: Callable[[Schedule], Schedule | None],
    may_go_on: Callable[[], bool],
    kinds: Collection[Kind],
) -> Schedule:
    """Return the smallest schedule found that still breaks the promise.

    ``breaks`` runs a schedule and returns the disturbances that were applied, or None if the
    promise held.
    """
    best = schedule
    while True:
        for smaller in _smaller(best, kinds):
            if not may_go_on():
                return best
            applied = breaks(smaller)
            if applied is not None:
                best = applied if len(applied) <= len(smaller) else smaller
                break
        else:
            return best


def _smaller(schedule: Schedule, kinds: Collection[Kind]) -> Iterator[Schedule]:
    """Yield the halves, then all other parts, the largest first, then schedules with a simpler
    disturbance.
    """
    disturbances = list(schedule)
    half = len(disturbances) // 2
    if half > 1:
        yield Schedule(disturbances[:half])
        yield Schedule(disturbances[half:])
    for gone in range(1, len(disturbances)):
        for removed in itertools.combinations(disturbances, gone):
            yield schedule.without(removed)
    for index, disturbance in enumerate(disturbances):
        for simpler in _simpler(disturbance):
            if simpler.kind in kinds:
                yield Schedule([*disturbances[:index], simpler, *disturbances[index + 1 :]])


def _simpler(disturbance: Disturbance) -> Iterator[Disturbance]:
    """Yield disturbances that could replace a disturbance and are easier to explain."""
    strand, point, kind, detail = (
        disturbance.strand,
        disturbance.point,
        disturbance.kind,
        disturbance.detail,
    )
    if kind in ("past", "nearly") and detail != EDGE:
        yield Disturbance(strand, point, "jump", detail)
    if kind in ("jump", "past", "nearly") and detail:
        yield Disturbance(strand, point, kind)
    if kind == "slow":
        yield Disturbance(strand, point + 1, "delay", detail)
    if kind == "late":
        yield Disturbance(strand, point + 1, "switch", detail)
    if kind in ("fail", "unreachable") and detail not in ("", "1"):
        yield Disturbance(strand, point, kind, str(int(detail) - 1))
    if kind not in ORDERS:
        for clearer in TRIED[: TRIED.index(kind)]:
            if clearer in (AT_DELIVERIES if point == 0 else ENDS):
                yield Disturbance(strand, point, clearer)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of replaying a failing schedule; ``trial`` is the last trial that failed, if
    any.
    """

    trial: Trial | None
    failed: int
    total: int


def replay(player: Player, trial: Trial) -> ReplayResult:
    """Run a failing schedule again; the last of these trials keeps its journal and its stacks."""
    # Replay a stuck trial only once, because each replay takes seconds and leaves threads behind.
    total = 1 if "stuck" in trial.flags else REPLAYS
    failing, failed = None, 0
    for number in range(total):
        is_last = number == total - 1
        again = player.play(trial.schedule, keep=is_last, stacks=is_last)
        if again.broken is not None:
            failing, failed = again, failed + 1
    return ReplayResult(failing, failed, total)
