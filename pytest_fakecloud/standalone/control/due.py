"""What is due on a cloud's clock, by time: as numbers of events, and as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from ...cloud.base import context_of
from ...cloud.cloud import Cloud
from ...cloud.services import data_module, find
from ...core.calls import Event
from ...core.timers import Fired, Timer, to_datetime
from ...inspect.data import EventKind, PlannedEvent
from . import shapes

_MOST_MOMENTS = 500
_HOUR = 3_600_000_000
_UNITS = (("d", 24 * _HOUR), ("h", _HOUR), ("m", 60_000_000), ("s", 1_000_000))
"""Units of durations, in microseconds."""
_LOSSES: frozenset[EventKind] = frozenset({"expiry", "removal"})
"""Kinds of events by which data is lost."""
_FEWEST_FOLDED = 3
"""Number of expiries next to each other from which they are one line."""


class Due(NamedTuple):
    """An event that is due at a time in microseconds, with the fake that it is about."""

    due_us: int
    fake: str | None
    event: PlannedEvent


def planned_events(cloud: Cloud) -> list[Due]:
    """Return all planned events and expiries of keys, by time."""
    event_of = _events_of_timers(cloud)
    _, timers = context_of(cloud).timekeeper.planned()
    events = [Due(timer.due_us, *event_of.get(timer, _unknown(timer.label))) for timer in timers]
    # Keys and dead letters expire without a timer.
    for fake in cloud.fakes():
        if (expiries := getattr(data_module(fake.fixture), "expiries", None)) is not None:
            events += [Due(due_us, fake.name, event) for due_us, event in expiries(fake)]
    return sorted(events, key=attrgetter("due_us"))


def _events_of_timers(cloud: Cloud) -> dict[Timer, tuple[str | None, PlannedEvent]]:
    """Return what the timers do that fakes know of, with the fake of each."""
    return {
        timer: (fake.name, event)
        for fake in cloud.fakes()
        if (planned := getattr(data_module(fake.fixture), "planned", None)) is not None
        for timer, event in planned(fake).items()
    }


def _unknown(label: str) -> tuple[str | None, PlannedEvent]:
    """Return the event of a timer of which only its label is known."""
    return None, PlannedEvent("other", None, None, label)


def next_event(cloud: Cloud) -> Due | None:
    """Return the first of ``planned_events()``, or None without one."""
    _, timers = context_of(cloud).timekeeper.planned(most=1)
    # The events of all messages take long to read.
    event_of = {} if any(timer.subject for timer in timers) else _events_of_timers(cloud)
    first = [Due(timer.due_us, *event_of.get(timer, _about(cloud, timer)[:2])) for timer in timers]
    for fake in cloud.fakes():
        next_expiry = getattr(data_module(fake.fixture), "next_expiry", None)
        if next_expiry is not None and (expiry := next_expiry(fake)) is not None:
            due_us, event = expiry
            first.append(Due(due_us, fake.name, event))
    return min(first, key=attrgetter("due_us"), default=None)


def moments_of(events: Sequence[Due]) -> list[shapes.Moment]:
    """Return the numbers of events by time and kind. Of more than 500 times, some that follow each
    other are counted as one.
    """
    times = sorted({due.due_us for due in events})
    size = -(-len(times) // _MOST_MOMENTS) or 1
    moment_of = {due_us: times[index - index % size] for index, due_us in enumerate(times)}
    counts = Counter((moment_of[due.due_us], due.event.kind) for due in events)
    return [
        {"at_us": at_us, "kind": kind, "count": count}
        for (at_us, kind), count in sorted(counts.items())
    ]


def kinds_of(events: Sequence[Due]) -> dict[EventKind, int]:
    """Return the number of events of each kind."""
    return dict(sorted(Counter(due.event.kind for due in events).items()))


def lines_of(
    events: Sequence[Due], *, folds: bool, opened_us: Container[int | None] = ()
) -> Iterator[shapes.Planned]:
    """Yield a line for each event, in the order of their times.

    With ``folds``, several expiries of keys between two other events are one line with their number,
    followed by the lines of its events if the time of the last one is in ``opened_us``.
    """
    for is_expiry, group in groupby(events, key=lambda due: due.event.kind == "expiry"):
        run = list(group)
        if not folds or not is_expiry or len(run) < _FEWEST_FOLDED:
            yield from map(_line, run)
            continue
        yield _folded(run)
        if run[-1].due_us in opened_us:
            yield from map(_line, run)


def events_of_move(
    cloud: Cloud,
    fired: Sequence[Fired],
    expired: Sequence[Event],
    removed: Sequence[Due],
    latest: int,
) -> list[shapes.BecameDue]:
    """Return the timers that fired, the keys that expired and the items that were removed by their age
    in a move of the clock, by their times.

    ``latest`` is the number of the last entry of the journal before the move.
    """
    rows = {
        (str(entry.data.get("message_id")), entry.data.get("number")): entry.number
        for entry in cloud.journal.entries
        if entry.number > latest and isinstance(entry, Event) and entry.kind == "attempt"
    }
    events: list[tuple[int, shapes.BecameDue]] = []
    for timer in fired:
        name, event, attempt = _about(cloud, timer)
        row = rows.get(attempt, 0)
        events.append((timer.at_us, _became_due(timer.at_us, name, event, row)))
    for key in expired:
        event = PlannedEvent("expiry", "keys", key.text, f"expired: {key.text}")
        events.append((key.at_us, _became_due(key.at_us, key.fake, event, key.number)))
    for due_us, fake, event in removed:
        events.append((due_us, _became_due(due_us, fake, event, 0)))
    return [event for _, event in sorted(events, key=itemgetter(0))]


def _about(cloud: Cloud, timer: Fired | Timer) -> tuple[str | None, PlannedEvent, tuple[str, int]]:
    """Return the fake of a timer, what it does or did, and the attempt that it makes, as its message and
    its number.
    """
    at_us = timer.at_us if isinstance(timer, Fired) else timer.due_us
    for fake in cloud.fakes():
        if timer.subject and find(fake.fixture).delivers:
            found = data_module(fake.fixture).became_due(fake, timer.subject, at_us)
            if found is not None:
                return fake.name, *found
    return *_unknown(timer.label), ("", 0)


def _became_due(at_us: int, fake: str | None, event: PlannedEvent, row: int) -> shapes.BecameDue:
    return {
        "at": to_datetime(at_us).isoformat(), "kind": event.kind, "what": event.what,
        "fake": fake, "list": event.list, "item": event.item, "row": row,
    }  # fmt: skip


def _line(due: Due) -> shapes.Planned:
    at = to_datetime(due.due_us).isoformat()
    event = due.event
    return {
        "at": at, "until": at, "count": 1, "kind": event.kind, "what": event.what,
        "fake": due.fake, "list": event.list, "item": event.item,
    }  # fmt: skip


def _folded(run: Sequence[Due]) -> shapes.Planned:
    """Return the line of several expiries, which names what the names of their keys have in common."""
    common = _common_start([due.event.item or "" for due in run]).rstrip("0123456789")
    fakes = {due.fake for due in run}
    return {
        "at": to_datetime(run[0].due_us).isoformat(),
        "until": to_datetime(run[-1].due_us).isoformat(),
        "count": len(run),
        "kind": "expiry",
        "what": f"{len(run):,} keys expire" + (f": {common}…" if common else ""),
        "fake": fakes.pop() if len(fakes) == 1 else None,
        "list": "keys",
        "item": None,
    }


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((index for index, (one, other) in pairs if one != other), len(first))]
