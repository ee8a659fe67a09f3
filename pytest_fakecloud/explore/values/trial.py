"""The values of one trial: its points, steps and lines, and the trial itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from ...cloud.base import BaseCloud
from ...cloud.fake import Snapshot
from ...core.calls import Call
from ...core.touches import Touch
from ...queue.delivery.routes import Url
from .accesses import Access
from .disturbances import Disturbance, Kind
from .footprint import Footprint
from .plan import SwitchKind
from .schedule import Schedule

Choices: TypeAlias = tuple[tuple[Kind, str], ...]
"""The disturbances that are possible at a point, each as its kind and its detail."""


class ReachedPoint(NamedTuple):
    """A point that a trial has reached, such as a call, with the disturbances that are possible there.

    ``state`` is the fingerprint of the state in which the trial reaches it, if the trial records the
    possible disturbances, and ``at_us`` the time.
    """

    strand: str
    point: int
    choices: Choices
    state: int = 0
    at_us: int = 0

    @property
    def point_id(self) -> tuple[str, int]:
        """The strand and the number of the point, by which a schedule names it."""
        return self.strand, self.point

    @property
    def without_state(self) -> tuple[str, int, Choices]:
        """The point without what differs from trial to trial."""
        return self.strand, self.point, self.choices

    def disturbances(self) -> list[Disturbance]:
        return [Disturbance(self.strand, self.point, kind, detail) for kind, detail in self.choices]


@dataclass(slots=True, eq=False)
class Line:
    """One line of the story: a call, or words about what happened.

    ``disturbances`` are those that the line is about, and ``breaks`` marks the step after which a
    promise no longer held. ``call_site`` are the application's lines that led to the call, innermost
    first, if the plan ``has_details``; ``source`` is the one that the story shows. ``step`` is the
    step that the line belongs to, if steps were recorded, ``point`` the number of the point of a call.
    """

    at_us: int
    strand: str
    words: str = ""
    call: Call | None = None
    disturbances: tuple[Disturbance, ...] = ()
    source: str = ""
    call_site: tuple[str, ...] = ()
    step: Step | None = None
    breaks: bool = False
    point: int = 0

    @property
    def is_disturbance(self) -> bool:
        return bool(self.disturbances)

    @property
    def has_own_data(self) -> bool:
        """Whether it is a call whose data matter; those of a queue follow from the order of others."""
        return self.call is not None and self.call.service != "queue"

    @property
    def data(self) -> list[Touch]:
        """The accesses to data of the fakes by the line's step."""
        touches = self.step.footprint.touches if self.step is not None else ()
        return [touch for touch in touches if touch.fake]

    @property
    def writes(self) -> bool:
        return any(touch.writes for touch in self.data)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A pattern that a trial shows: its name, the key or call that it is about, and what happened."""

    name: str
    subject: str
    words: str

    def __str__(self) -> str:
        return f"{self.name} ({self.subject}): {self.words}"


@dataclass(slots=True)
class Step:
    """The actions of one strand, or a move of the clock, between two decisions of the simulation. The
    last ones may be moves that were due after the end of the trial (``TrialClock.foresee()``).

    ``switch_kind`` and ``point`` say where the strand had given up its turn, by which a switch names the
    decision. ``options`` are the strands that could run, with this one; those in ``disabled`` could no
    longer run after this step. ``enabled_by`` is the index of the step that created or woke the strand,
    and ``barrier`` the index of the last step before the clock had to move; -1 without one.
    """

    strand: str
    switch_kind: SwitchKind
    point: int
    options: tuple[str, ...]
    footprint: Footprint
    enabled_by: int = -1
    barrier: int = -1
    disabled: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class StrandRecord:
    """What a strand did in a trial: its number of calls, and what it returned."""

    calls: int
    result: str | None
    """The value that it returned, as text."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What a trial did to the data of the fakes, for patterns of anomalies."""

    accesses: Sequence[Access] = ()
    """The commands of key-value engines, also within scripts, and the calls of other services."""
    remaining: Mapping[Touch, bool] = field(default_factory=dict)
    """Those of the accessed keys that exist at the end, and whether each lives forever."""
    left: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """The data without a TTL that differ from the beginning, as text without random names and times, if
    only the order of calls was disturbed; of a fake other than a key-value server, all of its records.
    """
    left_with_ttl: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """The same of keys that had or have a TTL."""
    pending: Set[Touch] = frozenset()
    """The streams with entries at the end that a consumer has read and nobody has acknowledged."""
    acknowledged: Set[str] = frozenset()
    """The deliveries that their destinations answered with a success."""


@dataclass(frozen=True, slots=True)
class Wording:
    """What only the story of a trial needs."""

    ids: Mapping[str, str]
    """The names that the story uses for messages, by message ID."""
    silent_calls: Sequence[Call]
    """Calls at which no disturbance is tried, such as the commands that a transaction queues."""
    idle_restarts: Set[str]
    """The workers that started again without a failure, to look for new work."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a trial: whether it broke the promise, and the anomalies that it shows."""

    broken: BaseException | None = None
    """The failed assertion, or the exception that a check raised after a disturbance."""
    anomalies: Sequence[Anomaly] = ()
    """Those that ``allow=`` does not contain."""
    lines: Sequence[Line] = ()
    """The calls that the checks at the end made, if the plan ``has_details``."""
    reads_order: bool = False
    """Whether a check has read in which order operations or clients began and ended."""
    used_allowances: Set[str] = frozenset()
    """The entries of ``allow=`` that contain anomalies of the trial."""


NOT_JUDGED = Verdict()
"""The verdict of a trial that has no result, or that is not judged yet."""


Flag = Literal["redundant", "stuck", "limited", "timers", "numbers", "overlap"]
"""A fact about a trial.

``redundant``: ``Redundant`` ended it, so it has no result. ``stuck``: a strand waited forever.
``limited``: the limit of clock moves kept an order from being tried. ``timers``: the clock could have
moved while a strand could run, here or in another order. ``numbers``: the code drew random numbers.
``overlap``: another strand made a call while the last disturbance delayed a strand.
"""
Handler: TypeAlias = tuple[str, Url]
"""A destination handler: the kind and the prefix of its route."""
CloudState: TypeAlias = tuple[BaseCloud, Snapshot]
"""A cloud, with the data of its fakes."""


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """What a search learns from a trial, and counts: a value that another process can send.

    ``strands`` are those that have begun. ``handlers`` are the destination handlers that were called,
    and whether any call succeeded. ``notes`` describe code that was not explored. ``lesson`` is that of
    the strategy.
    """

    verdict: Verdict
    """``NOT_JUDGED`` until the ``Judge`` has judged the trial."""
    applied: Schedule
    """The disturbances that were applied, also faults of calls that a partition cuts off, and each
    decision of a strategy that is not the default, as a switch. It alone repeats the trial, unless the
    strategy left out options.
    """
    points: tuple[ReachedPoint, ...]
    strands: Mapping[str, StrandRecord]
    handlers: Mapping[Handler, bool]
    notes: tuple[str, ...]
    flags: Set[Flag]
    lesson: Any

    @property
    def broken(self) -> BaseException | None:
        """The error of the broken promise, or None."""
        return self.verdict.broken

    @property
    def last_disturbance(self) -> Disturbance | None:
        """The last disturbance that happened at a point of the trial."""
        at_points = (applied for applied in reversed(self.applied) if applied.kind != "numbers")
        return next(at_points, None)


@dataclass(frozen=True, slots=True, eq=False)
class Trial(Outline):
    """One trial of the explored code under a schedule: what ran, what it left, and its flags.

    ``errors`` are the exceptions that ended strands, by name. ``state`` is the cloud with the data of
    its fakes at the end, if the plan asks for it.
    """

    broken_in_run: BaseException | None
    """The first error that broke the promise while the trial ran (``TrialLog.broken``)."""
    start_us: int
    lines: tuple[Line, ...]
    steps: tuple[Step, ...]
    errors: Mapping[str, BaseException]
    effects: Effects
    state: CloudState | None
    wording: Wording

    @property
    def calls(self) -> int:
        """The number of calls of all strands."""
        return sum(strand.calls for strand in self.strands.values())

    @property
    def call_lines(self) -> list[Line]:
        return [line for line in self.lines if line.call is not None]


class FailingTrial(NamedTuple):
    """A trial to report for a broken promise, with its error. It can hold itself if an earlier one with
    its schedule broke the promise.
    """

    trial: Trial
    error: BaseException
    """The error of the trial. That of an earlier one if this trial, which repeats it, holds."""

    @classmethod
    def of(cls, trial: Trial) -> FailingTrial:
        assert trial.broken is not None
        return cls(trial, trial.broken)

    @property
    def schedule(self) -> Schedule:
        """The schedule that repeats the trial."""
        return self.trial.applied
