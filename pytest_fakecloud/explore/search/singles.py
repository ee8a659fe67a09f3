"""The schedules with one disturbance, in the order in which to try them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

from ...core.touches import READS_CLOCK
from ..values.disturbances import KINDS, RANKS, SWITCHES, Disturbance
from ..values.footprint import Footprint
from ..values.schedule import Schedule
from ..values.trial import Trial


def singles(
    trial: Trial, chance: random.Random | None = None
) -> tuple[list[Schedule], list[Schedule]]:
    """Return all schedules with one disturbance at a point of a trial: those to try first, and others.

    The trial must have been played with ``notes_points`` and ``has_details``. The others probably have
    the effect of one of the first, such as a lost answer of a call that writes nothing. In both lists,
    kinds of disturbances alternate, so that a bug that needs one kind is found after a few rounds. Those
    of one kind come first at the first call that each line of the application makes, then at the second,
    and so on. With ``chance``, those that are equal in this respect are in random order, otherwise in
    the trial's.
    """
    points = (reached.disturbances() for reached in trial.points)
    disturbances = list(dict.fromkeys(itertools.chain(*points)))
    if chance is not None:
        chance.shuffle(disturbances)
    visits = _visits(trial)
    disturbances.sort(key=lambda disturbance: visits.get(disturbance.point_id, 0))
    first: list[Disturbance] = []
    others: list[Disturbance] = []
    is_like_another = _likeness(trial)
    for disturbance in disturbances:
        (others if is_like_another(disturbance) else first).append(disturbance)
    return _alternating(first), _alternating(others)


def _likeness(trial: Trial) -> Callable[[Disturbance], bool]:
    """Return a function: whether a disturbance of a trial probably has the effect of another one."""
    points = {reached.point_id for reached in trial.points}
    touched: dict[tuple[str, int], Footprint] = {}
    strands: dict[str, Footprint] = {}
    for step in trial.steps:
        if step.switch_kind == "switch":
            touched.setdefault((step.strand, step.point), step.footprint)
        whole = strands.setdefault(step.strand, Footprint())
        whole.touches.update(step.footprint.touches)
        whole.is_everything = whole.is_everything or step.footprint.is_everything
    # Whether the code, or a call that it makes, reads the time.
    reads_clock = any(READS_CLOCK in step.footprint.touches for step in trial.steps)

    def is_like_another(disturbance: Disturbance) -> bool:
        footprint = touched.get(disturbance.point_id)
        before = touched.get((disturbance.strand, disturbance.point - 1))
        tried_first = KINDS[disturbance.kind].tried_first
        if tried_first == "in readers of the clock" or disturbance.is_at_edge:
            return not reads_clock
        if tried_first == "at the first known time":
            return disturbance.known_time > 1
        if tried_first == "at a write":
            return footprint is not None and not _writes(footprint)
        if tried_first == "after a write":
            return before is not None and not _writes(before)
        if tried_first == "at the last call":
            return (disturbance.strand, disturbance.point + 1) in points
        if tried_first == "after a dependent call":
            other = strands.get(disturbance.runs_first, Footprint())
            return before is not None and not before.depends_on(other)
        return False

    return is_like_another


def _visits(trial: Trial) -> dict[tuple[str, int], int]:
    """Return, for each call, how many earlier calls the same line of the application made."""
    visits: dict[tuple[str, int], int] = {}
    counts: dict[object, int] = {}
    for line in trial.lines:
        if (call := line.call) is not None and (step := line.step) is not None:
            command = tuple(call.facts.get("command") or ())
            where = line.call_site, call.service, call.route, command
            visits[step.strand, step.point] = counts.get(where, 0)
            counts[where] = counts.get(where, 0) + 1
    return visits


def _writes(footprint: Footprint) -> bool:
    return footprint.is_everything or any(
        touch.writes and touch.fake for touch in footprint.touches
    )


def _alternating(disturbances: Iterable[Disturbance]) -> list[Schedule]:
    """Return a schedule for each disturbance, so that kinds of disturbances alternate."""
    by_kind: dict[tuple[int, str], list[Disturbance]] = {}
    for disturbance in disturbances:
        detail = "" if disturbance.kind in SWITCHES else disturbance.detail
        by_kind.setdefault((RANKS[disturbance.kind], detail), []).append(disturbance)
    rounds = itertools.zip_longest(*(by_kind[kind] for kind in sorted(by_kind)))
    return [Schedule([disturbance]) for disturbance in itertools.chain(*rounds) if disturbance]
