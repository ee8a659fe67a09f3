"""Failing schedules: stored ones, the smallest one, and its replays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from ..run import Run
from ..schedule import Schedule
from .player import Player
from .shrink import shrink
from .stored import forget, saved

SHRINK_SECONDS = 5.0
"""Wall-clock seconds for shrinking a failing schedule, in addition to the budget."""
MOST_SWITCHES = 40
"""Maximum number of single switches that are tried instead of several events."""
REPLAYS = 5
"""Number of times a failing schedule is replayed before it is reported."""


@dataclass(frozen=True, slots=True)
class Replays:
    """The result of replaying a failing schedule; ``run`` is the last run that failed, if any."""

    run: Run | None
    failed: int
    total: int


def stored_failure(player: Player, key: bytes) -> Run | None:
    """Run the schedules stored under a key; return the first run that fails as it did before."""
    for text in saved(key):
        try:
            schedule = Schedule.parse(text)
        except ContractError:
            schedule = Schedule()
        if schedule and all(event.kind in player.choice.kinds for event in schedule):
            player.tally.drawn += 1
            run = player.play(schedule)
            if run.broken is not None and len(run.fired) == len(schedule):
                return run
        forget(key, text)
    return None


def smallest(player: Player, run: Run, undisturbed: Run) -> Run:
    """Shrink a failing run's schedule; return the run of the smallest one found.

    ``undisturbed`` is the run without events, with its points.
    """
    first = Schedule(run.fired)
    if run.is_stuck:
        run.schedule = first
        return run
    until = monotonic() + SHRINK_SECONDS

    def breaks(schedule: Schedule) -> Schedule | None:
        if schedule not in player.known:
            player.play(schedule)
        return player.known[schedule]

    if breaks(first) is None:
        run.schedule = first
        return run
    found = shrink(first, breaks, lambda: monotonic() < until, player.choice.kinds)
    again = player.play(found)
    if again.broken is None:
        run.schedule = first
        return run
    if len(again.fired) > 1:
        switches = itertools.islice(_single_switches(again, undisturbed), MOST_SWITCHES)
        for switch in switches:
            if (applied := breaks(switch)) is not None and len(applied) == 1:
                return player.play(switch)
    return again


def _single_switches(run: Run, undisturbed: Run) -> Iterator[Schedule]:
    """Yield the schedules with one of the switches that the undisturbed run offers to the strands of
    a run's events.
    """
    strands = {event.process for event in run.fired} | {event.detail for event in run.fired}
    for point in undisturbed.points:
        for event in point.events():
            if event.kind == "switch" and {event.process, event.detail} <= strands:
                yield Schedule([event])


def replay(player: Player, run: Run) -> Replays:
    """Replay a failing schedule."""
    # Replay a stuck run only once, because each replay takes seconds and leaves threads behind.
    total = 1 if run.is_stuck else REPLAYS
    found, failed = None, 0
    for number in range(total):
        # The journal keeps only the last replay.
        is_last = number == total - 1
        again = player.play(run.schedule, keep=is_last, stacks=is_last)
        if again.broken is not None:
            found, failed = again, failed + 1
    return Replays(found, failed, total)


def run_undisturbed(player: Player, run: Run) -> Run | None:
    """Run without events, for comparison with a failing run. Return None if the failing run is
    stuck, or has no events itself.
    """
    if run.is_stuck or not run.fired:
        return None
    return player.play(Schedule(), stacks=True)
