"""What a simulation plays: the code, with its fakes, promises and options, and the plan of a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..subject.promises import Promises
from ..values.disturbances import CLOCK, Kind
from ..values.trial import Plan, Program
from .outsiders import Outsiders

if TYPE_CHECKING:
    from ..world.world import World


@dataclass(frozen=True, slots=True)
class Subject:
    """What all trials of a search have in common: the fakes, the code, its promises, and the options.
    ``disturbed`` are the names of the fakes whose calls can have disturbances.
    """

    world: World
    programs: Sequence[Program]
    promises: Promises
    disturbed: frozenset[str]
    kinds: frozenset[Kind]
    patience_us: int
    horizon_us: int | None = None
    outsiders: Outsiders = field(default_factory=Outsiders)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The drawn inputs that the programs run with, by name."""
    setup: Callable[[], object] | None = None
    """What the caller wants to be called before each trial."""


class Script:
    """Subject and plan of one trial, and what follows from them. Only the strategy has a state."""

    def __init__(self, subject: Subject, plan: Plan) -> None:
        self.subject = subject
        self.plan = plan
        self.schedule = plan.schedule
        self.strategy = strategy = None if plan.orders is None else plan.orders.strategy()
        places = subject.kinds if strategy is None else strategy.places
        self.is_late = "late" in places or any(d.kind == "late" for d in plan.schedule)
        """Whether strands can give up their turns before they receive their answers."""
        self.moves_time = strategy is not None and strategy.moves_time
        """Whether the search orders the moves of the clock."""
        self.may_move_time = self.moves_time or any(d.detail == CLOCK for d in plan.schedule)
        """Whether the clock may move although a strand could run."""
        self.has_steps = plan.stacks or strategy is not None
