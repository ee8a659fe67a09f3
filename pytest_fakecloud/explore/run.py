"""The data of one run: programs, points, steps, story and result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from .footprint import Footprint
from .schedule import CLOCK, Event, Kind, Schedule

if TYPE_CHECKING:
    from ..core.calls import Call
    from ..queue.delivery.destination_routes import Url
    from .runtime.deliveries import Due
    from .runtime.strands import Place, Strand

PATIENCE_US = 3_600_000_000
"""The default of ``patience``, in microseconds."""
Option: TypeAlias = "Strand | Due | Moment"
"""An option of the scheduler: a strand, a delivery, or a move of the clock."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A move of the clock, as an option of the scheduler."""

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
    """The limits of a search: the fakes whose calls can have events, the kinds of events, patience
    and horizon.
    """

    handles: frozenset[str]
    kinds: frozenset[Kind]
    patience_us: int = PATIENCE_US
    horizon_us: int | None = None
    always: Sequence[Callable[..., object]] = ()
    is_history_read: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A point in a run, such as a call, and the events that are possible there."""

    process: str
    number: int
    choices: Sequence[tuple[Kind, str]]

    def events(self) -> list[Event]:
        """Return the possible events."""
        return [Event(self.process, self.number, kind, detail) for kind, detail in self.choices]


@dataclass(slots=True)
class Line:
    """One line of the story: a call, or a description of an event.

    ``event`` marks events of the schedule, and ``breaks`` marks the step after which a promise no
    longer held. ``lines`` are the application's lines that led to the call, innermost first, if
    stacks were recorded; ``source`` is the line that the story shows. ``step`` is the index of the
    step that the line belongs to.
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
    """The actions of one strand between two decisions of the scheduler.

    ``options`` are the strands that could have run instead; those in ``disabled`` could no longer
    run after this step.
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
    """Decides which strand runs next where the schedule contains no event."""

    places: frozenset[Place]
    records: bool
    moves_time: bool

    def pick(self, run: Run, options: Sequence[str], place: Place) -> str:
        """Return the name of the strand to run next; the first option is the default."""


@dataclass
class Run:
    """The result of one schedule.

    ``broken`` is the assertion that failed. ``fired`` are the events that were applied and the
    decisions of a strategy, so ``Schedule(fired)`` repeats the run without the strategy. ``quiet``
    are calls at which no event is tried, such as the commands that a transaction queues.
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
    handled: dict[tuple[str, Url], list[bool]] = field(default_factory=dict)
    """Whether each call of a destination handler succeeded, by ``(where, prefix)`` of its route."""
    ids: dict[str, str] = field(default_factory=dict)
    looks: set[str] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)
    strands: set[str] = field(default_factory=set)
    is_stuck: bool = False
    overlaps: bool = False
    has_timers: bool = False
    is_cut: bool = False
