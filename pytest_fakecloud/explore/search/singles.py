"""Schedules with one event, in the order in which the search tries them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

from ..footprint import READS_CLOCK, Footprint
from ..run import Run
from ..schedule import EDGE, SWITCHES, TRIED, Event, Schedule


class Singles:
    """All schedules with one event at a point of a run.

    ``first`` are the schedules that are likely to have different effects. ``others`` probably have
    the same effect as one of them, such as a lost answer of a call that writes nothing, which the
    code can hardly tell from a lost request.

    In both lists, kinds of events take turns, so that a bug that needs a certain kind is found after
    a few rounds. Events of one kind come first at the first call that each line of the application
    makes, then at the second call of that line, and so on. With ``chance``, events that are equal in
    this respect are in random order, and otherwise in the order of the run.
    """

    def __init__(self, run: Run, chance: random.Random | None = None) -> None:
        self._points = {(point.process, point.number) for point in run.points}
        self._touched: dict[tuple[str, int], Footprint] = {}
        self._strands: dict[str, Footprint] = {}
        for step in run.steps:
            if step.place == "switch":
                self._touched.setdefault((step.strand, step.point), step.footprint)
            whole = self._strands.setdefault(step.strand, Footprint())
            whole.touches.update(step.footprint.touches)
            whole.is_everything = whole.is_everything or step.footprint.is_everything
        self._reads_clock = _reads_clock(run)
        events = [event for point in run.points for event in point.events()]
        events = list(dict.fromkeys(events))
        if chance is not None:
            chance.shuffle(events)
        visits = _visits(run)
        events.sort(key=lambda event: visits.get((event.process, event.point), 0))
        self.first = _in_turn(event for event in events if not self._is_like_another(event))
        self.others = _in_turn(event for event in events if self._is_like_another(event))

    def _is_like_another(self, event: Event) -> bool:
        kind, here = event.kind, (event.process, event.point)
        before = self._touched.get((event.process, event.point - 1))
        if kind in ("jump", "past", "nearly") and event.detail.isdigit():
            return True
        if kind == "tick" or event.detail == EDGE:
            return not self._reads_clock
        if kind in ("lose_answer", "duplicate"):
            return here in self._touched and not _writes(self._touched[here])
        if kind == "crash":
            return before is not None and not _writes(before)
        if kind == "late":
            return (event.process, event.point + 1) in self._points
        if kind == "switch":
            other = self._strands.get(event.detail, Footprint())
            return before is not None and not before.depends_on(other)
        return False


def _visits(run: Run) -> dict[tuple[str, int], int]:
    """Return, for each call, how many earlier calls the same line of the application made."""
    visits: dict[tuple[str, int], int] = {}
    made: dict[object, int] = {}
    for line in run.lines:
        if line.call is not None and 0 <= line.step < len(run.steps):
            step, call = run.steps[line.step], line.call
            command = tuple(call.facts.get("command") or ())
            where = line.lines, call.service, call.route, command
            visits[step.strand, step.point] = made.get(where, 0)
            made[where] = made.get(where, 0) + 1
    return visits


def _reads_clock(run: Run) -> bool:
    """Return whether the code, or a call that it makes, reads the time."""
    return any(READS_CLOCK in step.footprint.touches for step in run.steps)


def _writes(footprint: Footprint) -> bool:
    return footprint.is_everything or any(t.writes and t.fake for t in footprint.touches)


def _in_turn(events: Iterable[Event]) -> list[Schedule]:
    """Return a schedule for each event, so that kinds of events take turns."""
    by_kind: dict[tuple[int, str], list[Event]] = {}
    for event in events:
        detail = "" if event.kind in SWITCHES else event.detail
        by_kind.setdefault((TRIED.index(event.kind), detail), []).append(event)
    rounds = itertools.zip_longest(*(by_kind[kind] for kind in sorted(by_kind)))
    return [Schedule([event]) for event in itertools.chain(*rounds) if event is not None]
