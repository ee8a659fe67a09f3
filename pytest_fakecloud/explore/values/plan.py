"""What a trial plays: its schedule, and a strategy that decides where the schedule says nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .schedule import UNDISTURBED, Schedule

if TYPE_CHECKING:
    from .trial import Step

Place = Literal["switch", "late", "wake"]
"""Where a strand gave up its turn: before a call, before its answer, or before it wakes up."""


class Redundant(Exception):
    """Raised to end a trial whose order is known, or is not the one that its strategy wants."""


class Strategy(Protocol):
    """Decides which strand runs next where the schedule contains no disturbance.

    ``pick()`` raises ``Redundant`` to end a trial that would repeat a known order. ``lesson()``
    returns what a search learns from the steps of a trial, also of one that has been ended. ``is_cut``
    is the flag ``cut``.
    """

    places: frozenset[Place]
    moves_time: bool

    def must_go_on(self, has_only_written: Callable[[], bool]) -> bool:
        """Return whether the client, worker or delivery that ran last must run until it ends, given
        whether it has written data of fakes and read none.
        """
        ...

    def pick(self, steps: Sequence[Step], options: Sequence[str], place: Place) -> str: ...

    def lesson(self, steps: Sequence[Step], *, is_cut: bool) -> Any: ...


class StrategyFactory(Protocol):
    """A value from which each trial makes its strategy, such as a branch of a tree of interleavings."""

    def strategy(self) -> Strategy: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What one trial plays, and what it records.

    ``strategies`` makes what decides where the schedule says nothing; by default, the first strand that
    can run goes on.
    ``notes``: where disturbances are possible, and the states there. ``explains``: the steps with the
    data that they access, which are also recorded with ``strategies``, the application's lines that make
    each call, silent calls, and the calls of the checks.
    ``keeps``: the data that the trial leaves, and its calls in the journal. ``shows``: its log, warnings
    and output, until the next trial that is kept.
    """

    schedule: Schedule = UNDISTURBED
    strategies: StrategyFactory | None = None
    notes: bool = False
    explains: bool = False
    keeps: bool = False
    shows: bool = False

    @classmethod
    def first(cls) -> Plan:
        """Return the plan of the trial without disturbances with which others are compared."""
        return cls(notes=True, explains=True, shows=True)

    @classmethod
    def reported(cls, schedule: Schedule) -> Plan:
        """Return the plan of a trial that a report shows."""
        return cls(schedule, explains=True, keeps=True)
