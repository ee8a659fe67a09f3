"""Failing schedules: how they are made smaller, replayed, and stored for later searches."""

from __future__ import annotations

import hashlib
import itertools
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...core.errors import ContractError, importing
from ...core.timeparse import monotonic
from ..run import Run, Scope
from ..schedule import DELAYS, EDGE, PAUSES, SWITCHES, TRIED, Event, Kind, Schedule
from .player import Player

_AT_CALLS: frozenset[Kind] = frozenset({"crash", "lose_response", "duplicate", "drop", "respond"})
"""Kinds without a detail that are easy to explain, at a call."""
_AT_DELIVERIES: frozenset[Kind] = frozenset({"crash_after_response", "duplicate"})
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
        for switch in itertools.islice(_single_switches(again, undisturbed), MOST_SWITCHES):
            if (applied := breaks(switch)) is not None and len(applied) == 1:
                return player.play(switch)
    return again


def _single_switches(run: Run, undisturbed: Run) -> Iterator[Schedule]:
    """Yield schedules with one switch of the undisturbed run, at strands of the run's events."""
    strands = {event.strand for event in run.fired} | {event.detail for event in run.fired}
    for point in undisturbed.points:
        for event in point.events():
            if event.kind == "switch" and {event.strand, event.detail} <= strands:
                yield Schedule([event])


def shrink(
    schedule: Schedule,
    breaks: Callable[[Schedule], Schedule | None],
    may_go_on: Callable[[], bool],
    kinds: Collection[Kind],
) -> Schedule:
    """Return the smallest schedule found that still breaks the promise.

    ``breaks`` runs a schedule and returns the events that were applied, or None if the promise
    held. Shrinking stops when ``may_go_on`` returns False. Only events of ``kinds`` replace others.
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
    strand, point, kind, detail = event.strand, event.point, event.kind, event.detail
    if kind in ("past", "nearly") and detail != EDGE:
        yield Event(strand, point, "jump", detail)
    if kind in ("jump", "past", "nearly") and detail:
        yield Event(strand, point, kind)
    if kind == "slow":
        yield Event(strand, point + 1, "delay", detail)
    if kind == "late":
        yield Event(strand, point + 1, "switch", detail)
    if kind in ("fail", "unreachable") and detail not in ("", "1"):
        yield Event(strand, point, kind, str(int(detail) - 1))
    if kind not in SWITCHES | PAUSES | DELAYS:
        for clearer in TRIED[: TRIED.index(kind)]:
            if clearer in (_AT_DELIVERIES if point == 0 else _AT_CALLS):
                yield Event(strand, point, clearer)


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


# -- the database of Hypothesis --------------------------------------------------------------------


def stored_failure(player: Player, key: bytes) -> Run | None:
    """Run the schedules stored under a key, shortest first; return the first run that still fails.

    Deletes those that no longer fail, and those that cannot be applied.
    """
    examples = database()
    if examples is None:
        return None
    for stored in sorted(examples.fetch(key), key=lambda text: (len(text), text)):
        try:
            schedule = Schedule.parse(stored.decode("utf-8", "replace"))
        except ContractError:
            schedule = Schedule()
        if schedule:
            player.tally.drawn += 1
            run = player.play(schedule)
            if run.broken is not None and len(run.fired) == len(schedule):
                return run
        examples.delete(key, stored)
    return None


def database() -> Any:
    """Return the database of Hypothesis, or None without one."""
    return hypothesis().settings().database


def hypothesis() -> Any:
    """Return the Hypothesis package; raise ``ContractError`` if it is not installed."""
    with importing("explore()", extra="explore"):
        import hypothesis
    return hypothesis


def key_of(functions: Iterable[Callable[..., object]], scope: Scope) -> bytes:
    """Return the key under which failures of this code with these options are stored."""
    parts = sorted(scope.kinds) + sorted(scope.handles)
    for function in functions:
        inner = getattr(function, "func", function)
        code = getattr(inner, "__code__", None)
        name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
        parts += [name, "" if code is None else _code_text(code)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"pytest_fakecloud.explore.{digest}".encode()


def _code_text(code: types.CodeType) -> str:
    return " ".join([code.co_code.hex(), *code.co_names, *map(_constant_text, code.co_consts)])


def _constant_text(constant: object) -> str:
    """Return a constant as text that is the same in every process."""
    if isinstance(constant, types.CodeType):
        return _code_text(constant)
    if isinstance(constant, frozenset):
        return f"{{{' '.join(sorted(map(_constant_text, constant)))}}}"
    if isinstance(constant, tuple):
        return f"({' '.join(map(_constant_text, constant))})"
    return repr(constant)
