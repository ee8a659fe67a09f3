"""What one trial plays of its subject: a schedule, a strategy that decides where that says nothing, and
what the trial records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .schedule import UNDISTURBED, Schedule

if TYPE_CHECKING:
    from .accesses import Access
    from .trial import Step

SwitchKind = Literal["switch", "late", "wake"]
"""The kind of a disturbance that lets another strand run first: before a call of the strand, before the
answer of the call, or before the strand wakes up.
"""


class Redundant(Exception):
    """Raised to end a trial whose order is known, or is not the one that its strategy wants. The trial
    has the flag ``redundant``: it is neither judged nor counted.
    """


class Strategy(ABC):
    """Decides in one trial which strand runs next where the schedule contains no disturbance.

    The same steps and options must lead to the same answers. A ``pick()`` other than the first option
    that is allowed becomes a switch in ``Trial.applied``. If ``allowed()`` leaves out no option, these
    switches repeat the trial without the strategy.
    """

    switch_kinds: frozenset[SwitchKind]
    """Those for which ``pick()`` is called; otherwise the first option runs."""
    moves_clock: bool
    """Whether a move of the clock, ``CLOCK``, can be an option although a strand could run."""

    def allowed(
        self, options: Sequence[str], last_root: str, accesses: Sequence[Access]
    ) -> Sequence[str]:
        """Return the options that exist for this strategy, by default all; raise ``Redundant`` to end
        the trial. ``last_root`` is the client, worker or delivery that ran last, unless it has ended.
        """
        return options

    @abstractmethod
    def pick(self, steps: Sequence[Step], options: Sequence[str], kind: SwitchKind) -> str:
        """Return one of the options; raise ``Redundant`` to end the trial."""

    @abstractmethod
    def lesson(self, steps: Sequence[Step]) -> Any:
        """Return what a search learns from the steps, also of a redundant trial. Processes pickle it."""


class StrategyFactory(Protocol):
    """A value from which each trial makes a new strategy. Equal ones have one hash, and lead to the same
    trial in any process, to which they can be pickled.
    """

    def strategy(self) -> Strategy: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What one trial plays, and what it records."""

    schedule: Schedule = UNDISTURBED
    strategy_factory: StrategyFactory | None = None
    """Makes what decides where the schedule says nothing; else the first strand that can run goes on."""
    notes_points: bool = False
    """Record the calls, gaps of pipelines and late starts where disturbances are possible (those of
    deliveries and orders are always recorded), and the states at all points.
    """
    has_details: bool = False
    """Record what explains the trial: its steps and their data, which a strategy records, too, the lines
    of the application that make each call, silent calls, and the calls of the checks.
    """
    keeps: Literal["nothing", "output", "everything"] = "nothing"
    """What is kept of the trial: ``output`` is its log, warnings and output, until a trial keeps
    everything; ``everything`` is also its calls in the journal, and the data that it leaves
    (``Trial.state``).
    """

    @classmethod
    def first(cls) -> Plan:
        """Return the plan of the trial without disturbances with which a search begins."""
        return cls(notes_points=True, has_details=True, keeps="output")

    @classmethod
    def reported(cls, schedule: Schedule) -> Plan:
        """Return the plan of a trial that a report shows."""
        return cls(schedule, has_details=True, keeps="everything")
