"""Schedules: what goes otherwise than by default in one run, as a list of events and as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ..core.errors import ContractError, shown
from ..core.matching import nearest

__all__ = ["DELAY", "KINDS", "TRIED", "Event", "Kind", "Schedule"]

Kind: TypeAlias = Literal[
    "jump",
    "nearly",
    "switch",
    "rebalance",
    "redeliver",
    "rotate_token",
    "hold_pending",
    "delay",
    "crash",
    "answer",
    "drop",
    "lose_answer",
    "duplicate",
    "crash_after_answer",
]
"""What may happen at a point; faults have the names they have in ``faults`` and on the handles.

``jump`` moves the clock to what falls due next, ``nearly`` to a millisecond before it; ``switch``
lets another process go on first; ``crash`` ends the process there. At the beginning of a delivery,
``duplicate`` makes it twice and ``crash_after_answer`` brings the message again.
"""
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order in which events of one point happen."""
TRIED: tuple[Kind, ...] = (
    "crash_after_answer",
    "crash",
    "lose_answer",
    "switch",
    "duplicate",
    "jump",
    "drop",
    "answer",
    "nearly",
    "delay",
    "redeliver",
    "rebalance",
    "hold_pending",
    "rotate_token",
)
"""In the order in which they are tried: of several that break a promise, the first tells most."""
ENDS = frozenset({"crash", "answer", "drop", "lose_answer", "duplicate"})
"""What decides about a call: of several the first does."""
DELAY = 30
"""Seconds of a delay that nobody has chosen."""

_EVENT = re.compile(r"(?P<process>[^\s,]+)\.(?P<point>\d+) (?P<kind>\w+)(?: (?P<detail>[^\s,]+))?")


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """One deviation: at which point of which process, what, and its detail.

    Point 1 of a process is its first call, 0 its beginning; a place between two commands of a
    pipeline is a point of its own. ``detail`` is the process a ``switch`` lets go first, or the
    seconds of a ``delay``.
    """

    process: str
    point: int
    kind: Kind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.process}.{self.point} {self.kind}{f' {self.detail}' * bool(self.detail)}"

    @property
    def ends_call(self) -> bool:
        """Whether it decides what becomes of its call, so that there can be one such event."""
        return self.point > 0 and self.kind in ENDS

    @property
    def order(self) -> int:
        """Its place among the events of one point."""
        return KINDS.index(self.kind)


class Schedule(Sequence[Event]):
    """Some events; written ``"pay.2 lose_answer, delivery1.0 crash_after_answer"``."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._events = tuple(_sensible(dict.fromkeys(events)))
        self._places: dict[tuple[str, int], list[Event]] = {}
        for event in self._events:
            self._places.setdefault((event.process, event.point), []).append(event)
        for events in self._places.values():
            events.sort(key=lambda event: event.order)

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read what ``str()`` wrote; raises ``ContractError`` for what is not a schedule."""
        if not isinstance(text, str):
            raise ContractError(
                f"schedule={shown(text)} is not text: give one that a failure has shown"
            )
        return cls(_read(part.strip()) for part in text.split(",") if part.strip())

    def at(self, process: str, point: int) -> Sequence[Event]:
        """What happens at a point, in order."""
        return self._places.get((process, point), ())

    def __getitem__(self, index: int) -> Event:  # type: ignore[override]
        return self._events[index]

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __add__(self, event: Event) -> Schedule:
        return Schedule((*self._events, event))

    def __eq__(self, other: object) -> bool:
        # What happens is told by the points, in whatever order the events are written.
        return isinstance(other, Schedule) and set(self._events) == set(other._events)

    def __hash__(self) -> int:
        return hash(frozenset(self._events))

    def __str__(self) -> str:
        return ", ".join(map(str, self._events))

    def __repr__(self) -> str:
        return f"<Schedule {self or 'without events'}>"


def _sensible(events: Iterable[Event]) -> Iterator[Event]:
    """The events without those of a call about which another one has decided."""
    decided: dict[tuple[str, int], Event] = {}
    events = list(events)
    for event in sorted(events, key=lambda event: event.order):
        if event.ends_call:
            decided.setdefault((event.process, event.point), event)
    for event in events:
        if not event.ends_call or decided[event.process, event.point] is event:
            yield event


def _read(text: str) -> Event:
    found = _EVENT.fullmatch(text)
    if found is None:
        raise ContractError(
            f"{shown(text)} is not an event of a schedule: write 'process.point kind', such as "
            "'pay.2 lose_answer'"
        )
    kind, detail = found["kind"], found["detail"] or ""
    if kind not in KINDS:
        raise ContractError(
            f"{shown(kind)} is not a kind of event{nearest(kind, KINDS)}; there are: {', '.join(KINDS)}"
        )
    if kind == "switch" and not detail:
        raise ContractError(f"{shown(text)}: say which process goes first, 'pay.2 switch refund'")
    if kind == "delay" and not re.fullmatch(r"\d{1,9}", detail):
        raise ContractError(f"{shown(text)}: say how many seconds, 'pay.2 delay {DELAY}'")
    return Event(found["process"], int(found["point"]), kind, detail)
