"""Schedules with two events."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ..run import Run
from ..schedule import DELAYS, EDGE, WINDOWS, Event, Schedule

MOST_LISTED = 100_000
"""Maximum number of pairs to list and shuffle; above it, pairs are sampled at random."""


class Pairs:
    """All schedules that extend those of some runs by one event, at the point of the last event or
    later.

    Their number is computed, and single ones are created by index: a hundred calls have a million
    of them.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._later: list[tuple[Run, int, list[Event]]] = []
        self._ends: list[int] = []
        total = 0
        for run in runs:
            if not run.fired:
                continue
            after = run.fired[-1]
            places = [(point.process, point.number) for point in run.points]
            place = (after.process, after.point)
            begins = places.index(place) if place in places else 0
            here = [event for event in run.points[begins].events() if _may_follow(event, after)]
            total += len(here) + sum(len(point.choices) for point in run.points[begins + 1 :])
            self._later.append((run, begins, here))
            self._ends.append(total)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Schedule:
        which = bisect_right(self._ends, index)
        run, begins, here = self._later[which]
        left = index - (self._ends[which - 1] if which else 0)
        if left < len(here):
            return run.schedule + here[left]
        left -= len(here)
        for point in run.points[begins + 1 :]:
            if left < len(point.choices):
                return run.schedule + point.events()[left]
            left -= len(point.choices)
        raise IndexError(index)

    def delays(self, chance: random.Random) -> Iterator[Schedule]:
        """Yield schedules that delay a strand past a timer, and later another strand, in random
        order.

        Without the second delay, the code that the timer starts would end before the first strand
        goes on. Schedules with two ``delay`` events come first, because a ``slow`` answer usually
        has the same effect as a delay of the next call.
        """
        found = [
            run.schedule + event
            for run, begins, _ in self._later
            if run.overlaps
            for point in run.points[begins + 1 :]
            if point.process != run.fired[-1].process
            for event in point.events()
            if event.kind in DELAYS
        ]
        chance.shuffle(found)
        found.sort(key=lambda pair: sum(event.kind == "slow" for event in pair))
        yield from found

    def pauses(self) -> Iterator[Schedule]:
        """Yield schedules that pause until just before a whole second, and later until just before
        the end of a window.

        Code that truncates times to seconds fails only at such a distance.
        """
        for run, begins, _ in self._later:
            if run.fired[-1].detail == EDGE:
                for point in run.points[begins + 1 :]:
                    for event in point.events():
                        if event.detail in WINDOWS:
                            yield run.schedule + event

    def in_any_order(self, chance: random.Random) -> Iterator[Schedule]:
        """Yield each schedule once, in random order."""
        if len(self) <= MOST_LISTED:
            order = list(range(len(self)))
            chance.shuffle(order)
            yield from map(self.__getitem__, order)
            return
        drawn: set[int] = set()
        while len(drawn) < len(self):
            index = chance.randrange(len(self))
            if index not in drawn:
                drawn.add(index)
                yield self[index]


def _may_follow(event: Event, after: Event) -> bool:
    """Return whether an event can follow another event of the same point."""
    return event.order > after.order and not (event.ends_call and after.ends_call)
