"""The budget of steps that bounds one command or request, whatever its arguments are.

Code whose work grows faster than what it is given calls `spend()` as it goes. A step is about a
tenth of a microsecond of Python, so that a budget lasts a second or two on any machine, and the
same request fails at the same step on all of them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["STEPS", "OverBudget", "begin", "budgeted", "end", "spend"]

STEPS = 10_000_000
"""Steps that one command or request may take (decided here; the services publish no figures)."""


class OverBudget(Exception):
    """Raised by `spend()` once a command has taken more than `STEPS`."""

    def __init__(self) -> None:
        super().__init__(f"it takes more than {STEPS:,} steps: ask for less at once")


class _Running(threading.local):
    left: float = math.inf
    """Steps that the command of this thread may still take; infinite between commands."""


_running = _Running()


def spend(steps: float) -> None:
    """Take steps off the budget of the running command; raises `OverBudget` when none are left.

    Does nothing between commands: a test's own look at a fake is not bounded.
    """
    _running.left = left = _running.left - steps
    if left < 0:
        raise OverBudget


def begin() -> float:
    """Begin a budget, or go on with the one that this thread has; returns what `end()` takes."""
    before = _running.left
    if before == math.inf:
        _running.left = STEPS
        return before
    # A command inside a script or a transaction is a part of it.
    return 0.0


def end(begun: float) -> None:
    """End the budget that `begin()` began."""
    if begun:
        _running.left = begun


@contextmanager
def budgeted() -> Iterator[None]:
    """Give the block a budget; raises `OverBudget` from `spend()` inside of it."""
    begun = begin()
    try:
        yield
    finally:
        end(begun)
