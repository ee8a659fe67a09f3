"""Schedules: the disturbances of a trial, as a list and as a string."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ...core.errors import ContractError, shown
from .disturbances import CLOCK, RANDOM, SWITCHES, Disturbance, Kind


class Schedule(tuple[Disturbance, ...]):
    """A list of disturbances, written ``"pay.2 lose_response, delivery1.0 crash_after_response"``.

    It leaves out what cannot be applied: a disturbance that is listed twice, except for switches, and
    all but the first, in the order of ``KINDS``, that determine the outcome of the same call.
    Schedules are equal if they have the same disturbances at each point, in the same order for those of
    one kind; the order between points makes no difference.
    """

    _places: dict[tuple[str, int], list[Disturbance]]
    """The disturbances of each point, in the order in which they are applied."""

    def __new__(cls, disturbances: Iterable[Disturbance] = ()) -> Schedule:
        self = super().__new__(cls, _applicable(list(disturbances)))
        self._places = {}
        for disturbance in self:
            self._places.setdefault(disturbance.point_id, []).append(disturbance)
        for at_point in self._places.values():
            at_point.sort(key=lambda disturbance: disturbance.order)
        return self

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
        return next((numbers.point for numbers in self if numbers.kind == "numbers"), 0)

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(disturbance.kind for disturbance in self)

    @property
    def moves_clock(self) -> bool:
        """Whether the clock moves although a strand could run."""
        return any(disturbance.runs_first == CLOCK for disturbance in self)

    @property
    def has_only_orders(self) -> bool:
        """Whether it changes nothing but the order of strands, and the clock moves as it would."""
        return self.kinds <= SWITCHES and not self.moves_clock

    def with_series(self, number: int) -> Schedule:
        """Return the schedule with another series of random numbers, or without one for 0."""
        if number == self.series:
            return self
        numbers = [Disturbance(RANDOM, number, "numbers")] if number else []
        others = (disturbance for disturbance in self if disturbance.kind != "numbers")
        return Schedule([*numbers, *others])

    def at(self, strand: str, point: int) -> Sequence[Disturbance]:
        """Return the disturbances at a point, in the order in which they are applied."""
        return self._places.get((strand, point), ())

    def without(self, removed: Iterable[Disturbance]) -> Schedule:
        """Return the schedule without these disturbances; each one removes one that is equal."""
        left = [*self]
        for disturbance in removed:
            left.remove(disturbance)
        return Schedule(left)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._places == other._places

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __str__(self) -> str:
        return ", ".join(map(str, self))

    def __repr__(self) -> str:
        return f"<Schedule {self or 'without disturbances'}>"


def _applicable(disturbances: Sequence[Disturbance]) -> Iterator[Disturbance]:
    """Yield the disturbances with one outcome for each call, and once each except for switches."""
    outcomes: dict[tuple[str, int], Disturbance] = {}
    for disturbance in sorted(disturbances, key=lambda disturbance: disturbance.order):
        if disturbance.ends_call:
            outcomes.setdefault(disturbance.point_id, disturbance)
    seen: set[Disturbance] = set()
    for disturbance in disturbances:
        is_repeated = disturbance in seen and disturbance.kind not in SWITCHES
        seen.add(disturbance)
        is_overruled = disturbance.ends_call and outcomes[disturbance.point_id] != disturbance
        if not is_repeated and not is_overruled:
            yield disturbance


UNDISTURBED = Schedule()
"""The schedule without disturbances."""


def add_schedule(error: BaseException, when: str, schedule: Schedule) -> None:
    """Add a note to an exception that names the schedule in which a check raised it."""
    where = f"{when} the schedule {str(schedule)!r}" if schedule else "in the undisturbed trial"
    error.add_note(f"raised by check=, {where}")
