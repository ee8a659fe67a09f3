"""Limit the work of one command or request to a number of steps.

Code whose work can exceed the size of the data times that of the request calls `spend()` as it runs:
a real server would be busy for hours. A step is about a tenth of a
microsecond of Python code, so a full budget lasts a second or two on any machine, and the same
request fails at the same step everywhere.
"""

from __future__ import annotations

import math
import threading

STEPS = 10_000_000
"""Maximum number of steps of one command or request. Decided here; no service publishes one."""

UNBOUNDED = math.inf


class OverBudget(Exception):
    """Raised by `spend()` when a command has used up its budget of steps."""

    def __init__(self) -> None:
        super().__init__(f"it takes more than {STEPS:,} steps; request less")


class Budget:
    """The remaining budget of a thread's running command."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: float = UNBOUNDED
        """Steps that the command may still take; `UNBOUNDED` while no command runs."""


class _Budgets(threading.local):
    def __init__(self) -> None:
        self.own = Budget()


_of_thread = _Budgets()
"""The budget of each thread, in the attribute ``own``."""


def begin() -> Budget:
    """Give the thread's next command a full budget, whatever an interrupted one has left. Return it, so
    that ``left`` is set to ``UNBOUNDED`` when the command has ended.
    """
    budget = _of_thread.own
    budget.left = STEPS
    return budget


def spend(steps: float) -> None:
    """Subtract steps from the running command's budget; raise `OverBudget` if it is used up. Does
    nothing between commands, so inspections by a test are not limited.
    """
    budget = _of_thread.own
    budget.left = left = budget.left - steps
    if left < 0:
        raise OverBudget


class Budgeted:
    """Limits a with-block to ``steps``; a nested block uses the outer block's budget."""

    __slots__ = ("_begins", "_budget", "_steps")

    def __init__(self, steps: int | None = None) -> None:
        self._budget = _of_thread.own
        self._steps = STEPS if steps is None else steps

    def __enter__(self) -> None:
        self._begins = self._budget.left == UNBOUNDED
        if self._begins:
            self._budget.left = self._steps

    def __exit__(self, *error: object) -> None:
        if self._begins:
            self._budget.left = UNBOUNDED
