"""Schedules: the disturbances of a trial, as a list and as a string."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..core.errors import ContractError, shown
from .disturbances import RANDOM, SWITCHES, Disturbance

MOST_DISTURBANCES = 6
"""Maximum number of disturbances in a schedule of a search, besides orders of calls."""


class Schedule(Sequence[Disturbance]):
    """A list of disturbances, written ``"pay.2 lose_response, delivery1.0
    crash_after_response"``.
    """

    def __init__(self, disturbances: Iterable[Disturbance] = ()) -> None:
        self._disturbances = tuple(_applicable(list(disturbances)))
        self._places: dict[tuple[str, int], list[Disturbance]] = {}
        for disturbance in self._disturbances:
            self._places.setdefault((disturbance.strand, disturbance.point), []).append(disturbance)
        for disturbances in self._places.values():
            disturbances.sort(key=lambda disturbance: disturbance.order)

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Parse a schedule's string; raise ``ContractError`` for any other string."""
        if not isinstance(text, str):
            raise ContractError(
                f"schedule={shown(text)} is not a string: pass one that a failure has printed"
            )
        disturbances = [Disturbance.parse(part.strip()) for part in text.split(",") if part.strip()]
        schedule = cls(disturbances)
        left_out = Counter(disturbances) - Counter(schedule)
        if left_out:
            raise ContractError(
                f"'{next(iter(left_out))}' cannot be applied: the schedule contains the disturbance "
                "twice, or another one that determines the outcome of the same call. Leave one out"
            )
        return schedule

    @property
    def series(self) -> int:
        """The number of the series of random numbers; 0 is that of the undisturbed trial."""
        return next(
            (
                disturbance.point
                for disturbance in self._disturbances
                if disturbance.kind == "numbers"
            ),
            0,
        )

    def with_series(self, number: int) -> Schedule:
        """Return the schedule with another series of random numbers, or without one for 0."""
        if number == self.series:
            return self
        disturbances = [
            disturbance for disturbance in self._disturbances if disturbance.kind != "numbers"
        ]
        return Schedule(
            [Disturbance(RANDOM, number, "numbers"), *disturbances] if number else disturbances
        )

    def at(self, strand: str, point: int) -> Sequence[Disturbance]:
        """Return the disturbances at a point, in the order in which they are applied."""
        return self._places.get((strand, point), ())

    def __iter__(self) -> Iterator[Disturbance]:
        # The iterator of Sequence calls __getitem__() for each disturbance, which takes longer.
        return iter(self._disturbances)

    def __getitem__(self, index: int) -> Disturbance:  # type: ignore[override]
        return self._disturbances[index]

    def __len__(self) -> int:
        return len(self._disturbances)

    def __add__(self, disturbance: Disturbance) -> Schedule:
        return Schedule((*self._disturbances, disturbance))

    def without(self, removed: Iterable[Disturbance]) -> Schedule:
        gone = set(map(id, removed))
        return Schedule(
            disturbance for disturbance in self._disturbances if id(disturbance) not in gone
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._places == other._places

    def __hash__(self) -> int:
        return hash(frozenset(self._disturbances))

    def __reduce__(self) -> tuple[Any, ...]:
        return Schedule, (self._disturbances,)

    def __str__(self) -> str:
        return ", ".join(map(str, self._disturbances))

    def __repr__(self) -> str:
        return f"<Schedule {self or 'without disturbances'}>"


def _applicable(disturbances: Sequence[Disturbance]) -> Iterator[Disturbance]:
    """Yield the disturbances with one outcome for each call, and once each except for switches."""
    outcomes: dict[tuple[str, int], Disturbance] = {}
    for disturbance in sorted(disturbances, key=lambda disturbance: disturbance.order):
        if disturbance.ends_call:
            outcomes.setdefault((disturbance.strand, disturbance.point), disturbance)
    seen: set[Disturbance] = set()
    for disturbance in disturbances:
        is_repeated = disturbance in seen and disturbance.kind not in SWITCHES
        seen.add(disturbance)
        is_overruled = (
            disturbance.ends_call and outcomes[disturbance.strand, disturbance.point] != disturbance
        )
        if not is_repeated and not is_overruled:
            yield disturbance


UNDISTURBED = Schedule()
"""The schedule without disturbances."""
