"""What is due on a cloud's clock, by time: as numbers of events, and as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from ...cloud.cloud import Cloud
from ...cloud.services import data_module, find
from ...core.calls import Event
from ...core.timers import Fired, to_datetime
from ...inspect.data import EventKind, PlannedEvent
from . import shapes

_MOST_MOMENTS = 500
_FEWEST_FOLDED = 3
"""Number of expiries next to each other from which they are one line."""


class Due(NamedTuple):
    """An event that is due at a time in microseconds, with the fake that it is about."""

    due_us: int
    fake: str | None
    event: PlannedEvent


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
    cloud: Cloud, fired: Sequence[Fired], expired: Sequence[Event], latest: int
) -> list[shapes.BecameDue]:
    """Return the timers that fired and the keys that expired in a move of the clock, by their times.

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
    return [event for _, event in sorted(events, key=itemgetter(0))]


def _about(cloud: Cloud, timer: Fired) -> tuple[str | None, PlannedEvent, tuple[str, int]]:
    """Return the fake of a timer that fired, what it did, and the attempt that it made, as its message
    and its number.
    """
    for fake in cloud.fakes():
        if timer.subject and find(fake.fixture).delivers:
            found = data_module(fake.fixture).became_due(fake, timer.subject, timer.at_us)
            if found is not None:
                return fake.name, *found
    return None, PlannedEvent("other", None, None, timer.label), ("", 0)


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
