"""The parts of a simulation, and what all of them get: what is played, and the world around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..fakes.fakes import Fakes
from ..subject.options import Subject
from ..values.learned import Learned
from ..values.plan import Plan
from .current_thread import ThreadInTrial
from .log import TrialLog
from .pool import Threads
from .strand import Strands
from .turns import Turns

if TYPE_CHECKING:
    from .loops import AsyncLibrary
    from .real_waits import Outsiders


class Surroundings(ABC):
    """All that a simulation needs of the world, which outlives it."""

    fakes: Fakes
    threads: Threads
    """Threads for strands."""
    outsiders: Outsiders
    """The threads that began before the exploration."""

    @abstractmethod
    def awaited(self, value: Any) -> Any:
        """Return a value or, if it is a coroutine, its result in a loop that runs on fake time."""

    @abstractmethod
    def async_library(self) -> AsyncLibrary | None:
        """Return the library whose event loop this thread runs, if any; the loop may be unexplored."""


class Script:
    """Subject and plan of a trial, and what follows from them. Only the strategy, the promises, and what
    the search has learned, have a state.
    """

    def __init__(self, subject: Subject, plan: Plan, learned: Learned) -> None:
        self.subject = subject
        self.plan = plan
        self.learned = learned
        self.schedule = plan.schedule
        factory = plan.strategy_factory
        self.strategy = strategy = None if factory is None else factory.strategy()
        kinds = subject.kinds if strategy is None else strategy.switch_kinds
        self.is_late = "late" in kinds or "late" in plan.schedule.kinds
        """Whether strands can give up their turns before they receive their answers."""
        self.moves_clock = strategy is not None and strategy.moves_clock
        """Whether the search orders the moves of the clock."""
        self.may_move_clock = self.moves_clock or plan.schedule.moves_clock
        """Whether the clock may move although a strand could run."""
        self.has_steps = plan.has_details or strategy is not None


@dataclass(eq=False)
class Part:
    """A part of a simulation, with those that all later parts may call, in this order."""

    _world: Surroundings
    _fakes: Fakes
    _script: Script
    _strands: Strands
    _turns: Turns
    _current_thread: ThreadInTrial
    _log: TrialLog
