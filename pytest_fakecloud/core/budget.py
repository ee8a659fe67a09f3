"""Limit the work of one command or request to a number of steps.

Code whose work grows faster than its input calls `spend()` as it runs. A step is about a tenth of a
microsecond of Python code, so a full budget lasts a second or two on any machine, and the same
request fails at the same step everywhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STEPS = 10_000_000
"""Maximum number of steps of one command or request. Decided here; no service publishes one."""

UNBOUNDED = math.inf


class OverBudget(Exception):
    """Raised by `spend()` when a command has used up its budget of steps."""

    def __init__(self) -> None:
        super().__init__(f"it takes more than {STEPS:,} steps; request less")


class _Running(threading.local):
    left: float = UNBOUNDED
    """Steps that this thread's running command may still take."""


running = _Running()
"""The remaining budget of each thread; `UNBOUNDED` while no command runs."""


def spend(steps: float) -> None:
    """Subtract steps from the running command's budget; raise `OverBudget` if it is used up. Does
    nothing between commands, so inspections by a test are not limited.
    """
    running.left = left = running.left - steps
    if left < 0:
        raise OverBudget


@contextmanager
def budgeted(steps: int | None = None) -> Iterator[None]:
    """Limit a with-block to ``steps``; a nested block uses the outer block's budget."""
    begins = running.left == UNBOUNDED
    if begins:
        running.left = STEPS if steps is None else steps
    try:
        yield
    finally:
        if begins:
            running.left = UNBOUNDED
