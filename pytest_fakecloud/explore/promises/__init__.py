"""The conditions that ``explore()`` checks, such as linearizability and invariants."""

from __future__ import annotations

from ..decorators import observed
from .checks import Check, Promises, always, at_most_one, eventually, never, sometimes
from .invariants import monotonic_reads, nothing_lost, once
from .linearizability import follows, linearizable

__all__ = [
    "Check", "Promises", "always", "at_most_one", "eventually", "follows", "linearizable",
    "monotonic_reads", "never", "nothing_lost", "observed", "once", "sometimes",
]  # fmt: skip
