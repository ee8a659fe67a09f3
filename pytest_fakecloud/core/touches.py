"""What requests, commands and deliveries read and write, known when they begin.

Each service has a module ``touches`` that returns a `Touch` for each. ``explore()`` compares them.
Reports know more, from the answers: a `DataAccess` of ``<service>/report/accesses.py``.
"""

from __future__ import annotations

from typing import NamedTuple

ALL = "*"
"""The name of an access to everything of a kind."""


class Touch(NamedTuple):
    """An access to a key, message, group or the like in a fake; ``writes`` tells writes from reads."""

    fake: str
    kind: str
    name: str
    writes: bool

    @property
    def read(self) -> Touch:
        """A read of the same data, which stands for the data itself."""
        return Touch(self.fake, self.kind, self.name, False)

    def conflicts(self, other: Touch) -> bool:
        return (
            (self.writes or other.writes)
            and self.fake == other.fake
            and self.kind == other.kind
            and (self.name == other.name or ALL in (self.name, other.name))
        )

    def __str__(self) -> str:
        kind = self.kind.removesuffix(" of db0")
        return f"{kind} {self.name}" if self.name != ALL else f"all {kind}s"


READS_CLOCK = Touch("", "clock", ALL, False)
"""A read of the clock, for a step whose effect depends on the time."""
