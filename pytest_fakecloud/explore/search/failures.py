"""Failing schedules: how they are made smaller, and replayed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from ...core.timeparse import monotonic
from ..run import Run
from ..schedule import DELAYS, EDGE, PAUSES, SWITCHES, TRIED, Event, Kind, Schedule
from .player import Player

_AT_CALLS: frozenset[Kind] = frozenset({"crash", "lose_answer", "duplicate", "drop", "answer"})
"""Kinds without a detail that are easy to explain, at a call."""
_AT_DELIVERIES: frozenset[Kind] = frozenset({"crash_after_answer", "duplicate"})
"""Kinds without a detail that are easy to explain, at the start of a delivery."""
SHRINK_SECONDS = 5.0
"""Wall-clock seconds for shrinking a failing schedule, in addition to the budget."""
MOST_SWITCHES = 40
"""Maximum number of single switches that are tried instead of several events."""
REPLAYS = 5
"""Number of times a failing schedule is replayed before it is reported."""


def smallest(player: Player, run: Run, undisturbed: Run) -> Run:
    """Shrink a failing run's schedule; return the run of the smallest one found.

    ``undisturbed`` is the run without events, with its points.
    """
    until = monotonic() + SHRINK_SECONDS
    run.schedule = Schedule(run.fired)

    def breaks(schedule: Schedule) -> Schedule | None:
        if schedule not in player.known:
            player.play(schedule)
        return player.known[schedule]

    if run.is_stuck or breaks(run.schedule) is None:
        return run
    found = shrink(run.schedule, breaks, lambda: monotonic() < until, player.subject.scope.kinds)
    again = player.play(found)
    if again.broken is None:
        return run
    if len(again.fired) > 1:
        switches = _single_switches(again, undisturbed)
        for switch in itertools.islice(switches, MOST_SWITCHES):
            if (applied := breaks(switch)) is not None and len(applied) == 1:
                return player.play(switch)
    return again


def _single_switches(run: Run, undisturbed: Run) -> Iterator[Schedule]:
    """Yield schedules with one switch of the undisturbed run, at strands of the run's events."""
    strands = {event.process for event in run.fired} | {event.detail for event in run.fired}
    for point in undisturbed.points:
        for event in point.events():
            if event.kind == "switch" and {event.process, event.detail} <= strands:
                yield Schedule([event])


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
    """Yield one half, then schedules without one or two events, then those with a simpler event."""
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


@dataclass(frozen=True, slots=True)
class Replays:
    """The result of replaying a failing schedule; ``run`` is the last run that failed, if any."""

    run: Run | None
    failed: int
    total: int


def replay(player: Player, run: Run) -> Replays:
    """Run a failing schedule again; the last of these runs keeps its journal and its stacks."""
    # Replay a stuck run only once, because each replay takes seconds and leaves threads behind.
    total = 1 if run.is_stuck else REPLAYS
    found, failed = None, 0
    for number in range(total):
        is_last = number == total - 1
        again = player.play(run.schedule, keep=is_last, stacks=is_last)
        if again.broken is not None:
            found, failed = again, failed + 1
    return Replays(found, failed, total)


def run_undisturbed(player: Player, run: Run) -> Run | None:
    """Run without events, for comparison. Return None if the failing run is stuck or has none."""
    if run.is_stuck or not run.fired:
        return None
    return player.play(Schedule(), stacks=True)
