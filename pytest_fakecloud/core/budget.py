"""Bound the work of one command or request by a budget of steps.

Code whose work grows faster than its input calls `spend()` as it runs. A step takes about a tenth
of a microsecond of Python, so a budget lasts a second or two on any machine, and the same request
fails at the same step everywhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STEPS = 10_000_000
"""Steps that one command or request may take (decided here; the services publish no figures)."""

UNBOUNDED = math.inf


class OverBudget(Exception):
    """Raised by `spend()` once a command has taken more than `STEPS`."""

    def __init__(self) -> None:
        super().__init__(f"it takes more than {STEPS:,} steps; request less")


class _Running(threading.local):
    left: float = UNBOUNDED
    """Steps that the command of this thread may still take."""


running = _Running()
"""The budget of this thread; `UNBOUNDED` between commands."""


def spend(steps: float) -> None:
    """Take steps off the budget of the running command; raise `OverBudget` when none are left.

    Does nothing between commands: inspections by a test are not bounded.
    """
    running.left = left = running.left - steps
    if left < 0:
        raise OverBudget


@contextmanager
def budgeted(steps: int | None = None) -> Iterator[None]:
    """Give the block a budget of `STEPS` unless given; a nested block shares the outer budget."""
    begins = running.left == UNBOUNDED
    if begins:
        running.left = STEPS if steps is None else steps
    try:
        yield
    finally:
        if begins:
            running.left = UNBOUNDED
