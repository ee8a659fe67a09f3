"""The data of one run: programs, points, steps, story and result."""

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
"""The default of ``patience``, in microseconds."""
Option: TypeAlias = "Strand | Due | Moment"
"""A strand, a delivery or a step of time that can run next."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of time: the time that the clock moves to."""

    at_us: int
    name: str = CLOCK


@dataclass(frozen=True, slots=True)
class Program:
    """A function that runs as a client or worker; workers are restarted."""

    name: str
    function: Callable[[], object]
    is_worker: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The limits of a search: fakes whose calls are points, kinds of events, patience, horizon."""

    handles: frozenset[str]
    kinds: frozenset[Kind]
    patience_us: int = PATIENCE_US
    horizon_us: int | None = None
    always: Sequence[Callable[..., object]] = ()
    is_history_read: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a run with the events that are possible at it."""

    process: str
    number: int
    choices: Sequence[tuple[Kind, str]]

    def events(self) -> list[Event]:
        """Return the possible events."""
        return [Event(self.process, self.number, kind, detail) for kind, detail in self.choices]


@dataclass(slots=True)
class Line:
    """One line of the story: a call of a strand, or a description.

    ``event`` marks what the schedule did, ``breaks`` the step at which a promise of every step broke.
    ``lines`` are the application's lines that made the call, innermost first, if stacks were recorded,
    and ``source`` is the one that is shown. ``step`` is the index of the step that the line belongs to.
    """

    at_us: int
    process: str
    words: str = ""
    call: Call | None = None
    event: bool = False
    source: str = ""
    lines: tuple[str, ...] = ()
    step: int = 0
    breaks: bool = False


@dataclass(slots=True)
class Step:
    """What one strand did between two decisions.

    ``options`` are the strands that could have run instead; ``disabled`` are those of them that could
    not run afterwards.
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
    """Chooses the next strand where the schedule does not."""

    places: frozenset[Place]
    records: bool
    moves_time: bool

    def pick(self, run: Run, options: Sequence[str], place: Place) -> str:
        """Return the name of the strand to run next; the first option is the default."""


@dataclass
class Run:
    """The result of one schedule.

    ``broken`` is the assertion that failed. ``fired`` are the events that were applied and the
    decisions of a strategy: ``Schedule(fired)`` repeats the run without the strategy. ``quiet`` are the
    calls
    that are not points, such as the commands that a transaction queues.
    """

    schedule: Schedule
    broken: AssertionError | None = None
    points: list[Point] = field(default_factory=list)
    quiet: list[Call] = field(default_factory=list)
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
