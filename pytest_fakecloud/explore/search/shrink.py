"""Shrink a failing schedule: fewer events first, then simpler ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator

from ..schedule import DELAYS, EDGE, PAUSES, SWITCHES, TRIED, Event, Kind, Schedule

_AT_CALLS: frozenset[Kind] = frozenset({"crash", "lose_answer", "duplicate", "drop", "answer"})
"""Kinds without a detail that are easy to explain, at a call."""
_AT_DELIVERIES: frozenset[Kind] = frozenset({"crash_after_answer", "duplicate"})
"""Kinds without a detail that are easy to explain, at the start of a delivery."""


def shrink(
    schedule: Schedule,
    breaks: Callable[[Schedule], Schedule | None],
    may_go_on: Callable[[], bool],
    kinds: Collection[Kind],
) -> Schedule:
    """Return the smallest schedule found that still breaks the promise.

    ``breaks`` runs a schedule and returns the events that were applied, or None if the promise
    held. Shrinking stops when ``may_go_on`` returns False. ``kinds`` are the kinds of events that
    may replace others.
    """
    smallest = schedule
    found = True
    while found:
        found = False
        for smaller in _smaller(smallest, kinds):
            if not may_go_on():
                return smallest
            applied = breaks(smaller)
            if applied is not None:
                smallest = applied if len(applied) <= len(smaller) else smaller
                found = True
                break
    return smallest


def _smaller(schedule: Schedule, kinds: Collection[Kind]) -> Iterator[Schedule]:
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
            if simpler.kind in kinds:
                yield Schedule([*events[:index], simpler, *events[index + 1 :]])


def _simpler(event: Event) -> Iterator[Event]:
    """Yield events that could replace an event and are easier to explain."""
    process, point, kind, detail = event.process, event.point, event.kind, event.detail
    if kind in ("past", "nearly") and detail != EDGE:
        yield Event(process, point, "jump", detail)
    if kind in ("jump", "past", "nearly") and detail:
        yield Event(process, point, kind)
    if kind == "slow":
        yield Event(process, point + 1, "delay", detail)
    if kind == "late":
        yield Event(process, point + 1, "switch", detail)
    if kind in ("fail", "unreachable") and detail not in ("", "1"):
        yield Event(process, point, kind, str(int(detail) - 1))
    if kind not in SWITCHES | PAUSES | DELAYS:
        for clearer in TRIED[: TRIED.index(kind)]:
            if clearer in (_AT_DELIVERIES if point == 0 else _AT_CALLS):
                yield Event(process, point, clearer)
