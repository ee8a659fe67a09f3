"""The data of one run: its programs, the points and steps it had, what it did, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from .footprint import Footprint
from .schedule import CLOCK, Event, Kind, Schedule

if TYPE_CHECKING:
    from ..core.calls import Call
    from .runtime.deliveries import Due
    from .runtime.strands import Place, Strand

PATIENCE_US = 3_600_000_000
"""How long a client may be slow in all, where ``patience`` is not given."""
Option: TypeAlias = "Strand | Due | Moment"
"""What can have the next turn."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The next step of time: the time that the clock can move to."""

    at_us: int
    name: str = CLOCK


@dataclass(frozen=True, slots=True)
class Program:
    """A function of the tester's that runs as a strand; a worker is started again."""

    name: str
    function: Callable[[], object]
    is_worker: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs may consist of: the fakes whose calls are points, the kinds, how slow code can be."""

    handles: frozenset[str]
    kinds: frozenset[Kind]
    patience_us: int = PATIENCE_US
    horizon_us: int | None = None
    always: Sequence[Callable[..., object]] = ()
    is_history_read: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a run, and the deviations that are possible there."""

    process: str
    number: int
    choices: Sequence[tuple[Kind, str]]

    def events(self) -> list[Event]:
        """The deviations as events."""
        return [Event(self.process, self.number, kind, detail) for kind, detail in self.choices]


@dataclass(slots=True)
class Line:
    """One line of the story: a call of a strand, or words; ``event`` marks what the schedule did.

    ``source`` is the line of the application that made the call, where stacks were recorded, and
    ``step`` the number of the step it belongs to. ``breaks`` marks the step at which a promise of
    every step broke.
    """

    at_us: int
    process: str
    words: str = ""
    call: Call | None = None
    event: bool = False
    source: str = ""
    step: int = 0
    breaks: bool = False


@dataclass(slots=True)
class Step:
    """What one strand did between two decisions, and which strands could have run instead.

    ``disabled`` are those of them that could no longer run afterwards.
    """

    strand: str
    place: Place
    point: int
    options: tuple[str, ...]
    footprint: Footprint
    enabled_by: int = -1
    barrier: int = -1
    disabled: set[str] = field(default_factory=set)


class Strategy(Protocol):
    """Decides between strands where a schedule does not."""

    places: frozenset[Place]
    records: bool
    moves_time: bool

    def pick(self, run: Run, options: Sequence[str], place: Place) -> str:
        """The name of the strand to run, out of the options; the first is the default."""


@dataclass
class Run:
    """The result of one schedule.

    ``broken`` is the promise that did not hold; ``fired`` are the events that were applied, and the
    decisions of a strategy, so that ``Schedule(fired)`` repeats the run without it.
    """

    schedule: Schedule
    broken: AssertionError | None = None
    points: list[Point] = field(default_factory=list)
    fired: list[Event] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    start_us: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    handled: dict[str, list[bool]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    looks: set[str] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)
    strands: set[str] = field(default_factory=set)
    is_stuck: bool = False
    has_timers: bool = False
    is_cut: bool = False
