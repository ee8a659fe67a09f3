"""The schedules with one disturbance and with two disturbances, in the order in which to try them."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ...core.accesses import READS_CLOCK
from ..footprint import Footprint
from ..schedule import DELAYS, DUE, EDGE, SLOW, SWITCHES, TRIED, WINDOWS, Disturbance, Schedule
from ..trial import Trial

MOST_LISTED = 100_000
"""Maximum number of pairs to list and shuffle; above it, pairs are sampled at random."""
_LASTING = frozenset({"hold", "rotate_token"})
"""Kinds of disturbances that begin a disturbance that a timer ends."""
_Schedules: TypeAlias = list[Schedule]
_NEXT = 2
"""Number of calls after a slow answer at which the same strand is delayed again."""


def singles(trial: Trial, chance: random.Random | None = None) -> tuple[_Schedules, _Schedules]:
    """Return all schedules with one disturbance at a point of a trial: those to try first, and others.

    The others probably have the same effect as one of the first, such as a lost answer of a call
    that writes nothing. In both lists, kinds of disturbances take turns, so that a bug that needs
    a certain kind is found after a few rounds. Disturbances of one kind come first at the first
    call that each line of the application makes, then at the second call of that line, and so on.
    With ``chance``, disturbances that are equal in this respect are in random order, and otherwise
    in the order of the trial.
    """
    points = (point.disturbances() for point in trial.points)
    disturbances = list(dict.fromkeys(itertools.chain(*points)))
    if chance is not None:
        chance.shuffle(disturbances)
    visits = _visits(trial)
    disturbances.sort(key=lambda disturbance: visits.get(_place_of(disturbance), 0))
    first: list[Disturbance] = []
    others: list[Disturbance] = []
    is_like_another = _likeness(trial)
    for disturbance in disturbances:
        (others if is_like_another(disturbance) else first).append(disturbance)
    return _in_turn(first), _in_turn(others)


def _likeness(trial: Trial) -> Callable[[Disturbance], bool]:
    """Return a function: whether a disturbance of a trial probably has the effect of another one."""
    points = {(point.strand, point.number) for point in trial.points}
    touched: dict[tuple[str, int], Footprint] = {}
    strands: dict[str, Footprint] = {}
    for step in trial.steps:
        if step.place == "switch":
            touched.setdefault((step.strand, step.point), step.footprint)
        whole = strands.setdefault(step.strand, Footprint())
        whole.touches.update(step.footprint.touches)
        whole.is_everything = whole.is_everything or step.footprint.is_everything
    # Whether the code, or a call that it makes, reads the time.
    reads_clock = any(READS_CLOCK in step.footprint.touches for step in trial.steps)

    def is_like_another(disturbance: Disturbance) -> bool:
        kind, here = disturbance.kind, touched.get(_place_of(disturbance))
        before = touched.get((disturbance.strand, disturbance.point - 1))
        if kind in ("jump", "past", "nearly") and disturbance.detail.isdigit():
            return True  # The next known time is the likeliest to matter.
        if kind == "tick" or disturbance.detail == EDGE:
            return not reads_clock
        if kind in ("lose_response", "duplicate"):  # like a lost request, or a single one
            return here is not None and not _writes(here)
        if kind == "crash":  # like a crash at the call before
            return before is not None and not _writes(before)
        if kind == "late":  # like a switch at the next call
            return (disturbance.strand, disturbance.point + 1) in points
        if kind == "switch":  # like a switch at the call before
            other = strands.get(disturbance.detail, Footprint())
            return before is not None and not before.depends_on(other)
        return False

    return is_like_another


def _place_of(disturbance: Disturbance) -> tuple[str, int]:
    return disturbance.strand, disturbance.point


def _visits(trial: Trial) -> dict[tuple[str, int], int]:
    """Return, for each call, how many earlier calls the same line of the application made."""
    visits: dict[tuple[str, int], int] = {}
    counts: dict[object, int] = {}
    for line in trial.lines:
        if (call := line.call) is not None and (step := line.step) is not None:
            command = tuple(call.facts.get("command") or ())
            where = line.lines, call.service, call.route, command
            visits[step.strand, step.point] = counts.get(where, 0)
            counts[where] = counts.get(where, 0) + 1
    return visits


def _writes(footprint: Footprint) -> bool:
    return footprint.is_everything or any(
        touch.writes and touch.fake for touch in footprint.touches
    )


def _in_turn(disturbances: Iterable[Disturbance]) -> list[Schedule]:
    """Return a schedule for each disturbance, so that kinds of disturbances take turns."""
    by_kind: dict[tuple[int, str], list[Disturbance]] = {}
    for disturbance in disturbances:
        detail = "" if disturbance.kind in SWITCHES else disturbance.detail
        by_kind.setdefault((TRIED.index(disturbance.kind), detail), []).append(disturbance)
    rounds = itertools.zip_longest(*(by_kind[kind] for kind in sorted(by_kind)))
    return [
        Schedule([disturbance])
        for disturbance in itertools.chain(*rounds)
        if disturbance is not None
    ]


class Pairs:
    """All schedules that extend the schedule of a given trial by one disturbance, at the last
    disturbance or later.

    A hundred calls have a million such schedules, so each is created only when it is requested.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._later: list[tuple[Trial, int, list[Disturbance]]] = []
        self._ends: list[int] = []
        total = 0
        for trial in trials:
            after = trial.last_disturbance
            if after is None:
                continue
            begins = _point_of(trial, after)
            here = [
                disturbance
                for disturbance in trial.points[begins].disturbances()
                if disturbance.order > after.order
                and not (disturbance.ends_call and after.ends_call)
            ]
            total += len(here) + sum(len(point.choices) for point in trial.points[begins + 1 :])
            self._later.append((trial, begins, here))
            self._ends.append(total)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Schedule:
        which = bisect_right(self._ends, index)
        trial, begins, here = self._later[which]
        offset = index - (self._ends[which - 1] if which else 0)
        if offset < len(here):
            return trial.schedule + here[offset]
        offset -= len(here)
        for point in trial.points[begins + 1 :]:
            if offset < len(point.choices):
                return trial.schedule + Disturbance(
                    point.strand, point.number, *point.choices[offset]
                )
            offset -= len(point.choices)
        raise IndexError(index)

    def in_any_order(self, chance: random.Random) -> Iterator[Schedule]:
        if len(self) <= MOST_LISTED:
            order = list(range(len(self)))
            chance.shuffle(order)
            yield from map(self.__getitem__, order)
            return
        chance, drawn = random.Random(chance.random()), set[int]()
        while len(drawn) < len(self):
            index = chance.randrange(len(self))
            if index not in drawn:
                drawn.add(index)
                yield self[index]


def delayed_again(trial: Trial) -> list[Schedule]:
    """Return schedules that also delay a strand that woke up while a trial's disturbance delayed
    another.

    A strand that was delayed until something is due also runs in the middle of what the others do
    then. After a slow answer, the next calls of the same strand are delayed as well, because the
    strand may have counted a lease from the answer.
    """
    disturbance = trial.last_disturbance
    if disturbance is None or disturbance.kind not in DELAYS:
        return []
    after = trial.points[_point_of(trial, disturbance) + 1 :]
    if disturbance.detail == DUE:
        later = [other for point in after for other in point.disturbances()]
        return [trial.schedule + other for other in later if other.detail == disturbance.strand]
    others = [point for point in after if point.strand != disturbance.strand]
    disturbances = (
        [other for point in others for other in point.disturbances()]
        if "overlap" in trial.flags
        else []
    )
    if disturbance.kind == "slow":
        own = [point for point in after if point.strand == disturbance.strand]
        disturbances += [
            other
            for point in own[:_NEXT]
            for other in point.disturbances()
            if other.kind == "delay"
        ]
    return [trial.schedule + other for other in disturbances if other.kind in DELAYS]


def paused_again(trial: Trial) -> list[Schedule]:
    """Return schedules that pause until a time that the disturbance of a trial makes
    interesting.
    """
    disturbance = trial.last_disturbance
    if disturbance is None or not (disturbance.detail == EDGE or disturbance.kind in _LASTING):
        return []
    after = trial.points[_point_of(trial, disturbance) + 1 :]
    later = [other for point in after for other in point.disturbances()]
    if disturbance.detail == EDGE:
        # Code that truncates times to seconds fails only just before the end of a window.
        return [trial.schedule + other for other in later if other.detail in WINDOWS]
    # A disturbance that ends in between affects only some of the calls.
    return [trial.schedule + other for other in later if other.kind == "jump" and not other.detail]


def likelihood(pair: Schedule) -> int:
    """Return a number that is higher for pairs that are more likely to find something new."""
    first, second = pair.with_series(0)
    # A slow answer mostly acts like a delay of the next call, but a short one ends before a timeout.
    is_long = first.kind == "slow" and first.detail != str(min(SLOW))
    return -(second.kind == "slow") - is_long


def _point_of(trial: Trial, disturbance: Disturbance) -> int:
    """Return the index of a disturbance's point; 0 for a point of the trial that was not
    recorded.
    """
    place = disturbance.strand, disturbance.point
    indexes = (at for at, p in enumerate(trial.points) if (p.strand, p.number) == place)
    return next(indexes, 0)
