"""What is due on a cloud's clock, by time: as numbers of events, and as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ...core.timers import to_datetime
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
