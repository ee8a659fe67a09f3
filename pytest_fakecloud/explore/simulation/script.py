"""The subject and the plan of a trial, and what follows from them."""

from __future__ import annotations

from ..subject.options import Subject
from ..values.learned import Learned
from ..values.plan import Plan


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
