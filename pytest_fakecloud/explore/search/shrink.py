"""Shrink a failing schedule: fewer events first, then simpler ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from ..schedule import Event, Schedule


def shrink(
    schedule: Schedule, breaks: Callable[[Schedule], Schedule | None], may_go_on: Callable[[], bool]
) -> Schedule:
    """Return the smallest schedule found that still breaks the promise.

    ``breaks`` runs a schedule and returns the events that were applied, or None if the promise
    held. Shrinking stops when ``may_go_on`` returns False.
    """
    smallest = schedule
    found = True
    while found:
        found = False
        for smaller in _smaller(smallest):
            if not may_go_on():
                return smallest
            applied = breaks(smaller)
            if applied is not None:
                smallest = applied if len(applied) <= len(smaller) else smaller
                found = True
                break
    return smallest


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    events = list(schedule)
    half = len(events) // 2
    if half > 1:
        yield Schedule(events[:half])
        yield Schedule(events[half:])
    for gone in range(1, 3):
        if len(events) > gone:
            for removed in itertools.combinations(events, gone):
                yield schedule.without(removed)
    for index, event in enumerate(events):
        for simpler in _simpler(event):
            yield Schedule([*events[:index], simpler, *events[index + 1 :]])


def _simpler(event: Event) -> Iterator[Event]:
    """Yield simpler events that could replace an event."""
    if event.kind in ("past", "nearly"):
        yield Event(event.process, event.point, "jump", event.detail)
    if event.kind in ("jump", "past", "nearly") and event.detail:
        yield Event(event.process, event.point, event.kind)
    if event.kind == "fail":
        yield Event(event.process, event.point, "crash_after_answer")
    if event.kind in ("fail", "unreachable") and event.detail not in ("", "1"):
        yield Event(event.process, event.point, event.kind, str(int(event.detail) - 1))
