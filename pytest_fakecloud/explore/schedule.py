"""Schedules: the disturbances by which a trial differs from the default, as a list and as a
string.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from ..core.errors import ContractError, shown, unknown_name

Kind: TypeAlias = Literal[
    "jump", "nearly", "past", "tick", "delay", "switch", "rebalance", "redeliver",
    "rotate_token", "hold", "moved", "ask", "partition", "crash", "respond", "drop",
    "lose_response", "failover", "cluster_down", "duplicate",
    "slow", "late", "wake", "crash_after_response", "fail", "unreachable", "numbers",
]  # fmt: skip
"""Kinds of disturbances. Faults have the same names as in ``faults`` and on the fakes.

Before a call: ``jump`` moves the clock to the next known time, ``nearly`` to a millisecond before
it, ``past`` to a second after it, ``tick`` by a short span; ``delay`` pauses one strand; ``switch``
runs another strand first; ``partition`` separates a client from a fake; ``moved`` and ``ask`` move a
slot of a cluster. Around the call: faults,
and ``slow``, which delays its answer. After it: ``late`` runs another strand before the code
receives the answer, ``wake`` before the code continues after a sleep or a lock. At the start of a
delivery: ``duplicate``, ``crash_after_response``, ``fail`` and ``unreachable``. In a whole trial:
``numbers``, other random numbers.
"""
KINDS: tuple[Kind, ...] = get_args(Kind)
"""All kinds, in the order in which disturbances of one point are applied."""
SWITCHES: frozenset[Kind] = frozenset({"switch", "late", "wake"})
"""Kinds that only change the order of steps."""
PAUSES: frozenset[Kind] = frozenset({"jump", "nearly", "past", "tick", "delay"})
"""Kinds that pause a strand before its call."""
TRIED: tuple[Kind, ...] = (
    "crash_after_response", "crash", "lose_response", "switch", "late", "wake", "fail",
    "unreachable", "duplicate", "jump", "past", "drop", "respond", "failover", "moved", "ask",
    "cluster_down", "delay", "slow", "nearly",
    "partition", "tick", "redeliver", "rebalance", "hold", "rotate_token",
    "numbers",
)  # fmt: skip
"""The order in which kinds take turns: first those that give the clearest explanations."""
CLOCK = "@clock"
"""The name of a move of the clock in lists of strands. No client can have this name."""
RANDOM = "@random"
"""The strand of a ``numbers`` disturbance, whose point is the number of the series."""
FAULTS: frozenset[Kind] = frozenset({
    "respond", "drop", "lose_response", "failover", "cluster_down", "duplicate",
})  # fmt: skip
"""Faults that determine a call's outcome. The first in the order of ``KINDS`` wins."""
ENDS: frozenset[Kind] = FAULTS | {"crash"}
"""All kinds that determine a call's outcome."""
AT_DELIVERIES: tuple[Kind, ...] = ("duplicate", "crash_after_response")
"""Faults of one delivery."""
DELAYS: frozenset[Kind] = frozenset({"delay", "slow"})
"""Kinds that delay one strand while the others go on."""
ORDERS = SWITCHES | PAUSES | DELAYS
"""Kinds that only delay a strand while others run."""
MOST_DISTURBANCES = 6
"""Maximum number of disturbances in a schedule of a search, besides orders of calls."""
DELAY = 30
"""Length in seconds of the ``delay`` disturbances that the search tries."""
SLOW = (4, 30)
"""Lengths in seconds of the ``slow`` disturbances to try: below and above usual client timeouts."""
HOLD_US = 60_000_000
"""Microseconds for which vectors remain pending after a ``hold`` disturbance."""
PARTITION = 60
"""Length in seconds of the ``partition`` disturbances that the search tries."""
TICKS = {"1ms": 1_000, "1s": 1_000_000, "9999ms": 9_999_000, "59999ms": 59_999_000}
"""Durations in microseconds of the ``tick`` disturbances to try, keyed by the disturbance's
detail.
"""
WINDOWS = frozenset({"9999ms", "59999ms"})
"""Details of ``tick`` disturbances that end just within a window of ten seconds or a minute."""
DUE = "due"
"""The detail of a ``delay`` that ends at the next time that the application keeps as data."""
EDGE = "edge"
"""The detail of a ``nearly`` disturbance that ends just before the next whole second."""
JUMPS = 3
"""Number of known times to which ``jump`` disturbances move the clock, from each point."""

_DISTURBANCE = re.compile(
    r"(?P<strand>[^\s,]+)\.(?P<point>\d+) (?P<kind>\w+)(?: (?P<detail>[^\s,]+))?"
)


_NO_DETAIL = "", "has a detail, which this kind of disturbance does not take", "pay.2 {}"
_SPAN = r"\d{1,9}", "has no number of seconds", "pay.2 {} 30"
_ORDER = ".+", "does not name what runs first", "pay.2 {} refund"
_ATTEMPTS = r"[1-9]\d{0,3}", "has no number of attempts", "delivery1.0 {} 3"
_TIME = f"has neither a number of up to {JUMPS} nor {EDGE!r} as its time"
_DETAILS: dict[Kind, tuple[str, str, str]] = {
    **dict.fromkeys(SWITCHES, _ORDER),
    **dict.fromkeys(("slow", "partition"), _SPAN),
    "delay": (rf"\d{{1,9}}|{DUE}", f"has neither a number of seconds nor {DUE!r}", "pay.2 {} 30"),
    **dict.fromkeys(("fail", "unreachable"), _ATTEMPTS),
    **dict.fromkeys(("jump", "nearly", "past"), (f"[1-{JUMPS}]|{EDGE}|", _TIME, "pay.2 {} 2")),
    "respond": (r"[45]\d\d|", "has no status of an error", "pay.2 {} 429"),
    "tick": ("|".join(TICKS), f"has none of the spans {', '.join(TICKS)}", "pay.2 {} 1ms"),
}
"""The details that kinds of disturbances take: a regular expression, an error's words, and an
example.
"""


class Disturbance(NamedTuple):
    """A disturbance that a schedule injects: the strand, its point, the kind, and a detail.

    Point 1 of a strand is its first call, point 0 its start. A gap between two commands of a
    pipeline is a point, too. ``detail`` is the strand that a ``switch`` runs first, the seconds of
    a ``delay``, the count of a ``fail``, or the status of a ``respond`` if it is not 503.
    """

    strand: str
    point: int
    kind: Kind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.strand}.{self.point} {self.kind}{f' {self.detail}' * bool(self.detail)}"

    @property
    def ends_call(self) -> bool:
        """Return whether the disturbance determines its call's outcome; a call can have one
        such disturbance.
        """
        return self.point > 0 and self.kind in ENDS

    @property
    def order(self) -> int:
        return KINDS.index(self.kind)


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
        disturbances = [_read(part.strip()) for part in text.split(",") if part.strip()]
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


def _read(text: str) -> Disturbance:
    match = _DISTURBANCE.fullmatch(text)
    if match is None:
        raise ContractError(
            f"{shown(text)} is not a disturbance of a schedule: write a client, the number of one of "
            "its calls, and the kind of disturbance, such as 'pay.2 lose_response'"
        )
    kind, detail = match["kind"], match["detail"] or ""
    if kind not in KINDS:
        raise ContractError(unknown_name("kind of disturbance", kind, KINDS))
    pattern, problem, example = _DETAILS.get(kind, _NO_DETAIL)
    if not re.fullmatch(pattern, detail):
        raise ContractError(f"{shown(text)} {problem}: write e.g. '{example.format(kind)}'")
    return Disturbance(match["strand"], int(match["point"]), kind, detail)


UNDISTURBED = Schedule()
"""The schedule without disturbances."""
