"""Footprints: the data that a step reads and writes, by fake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ALL = "*"
"""The name of an access to everything of a kind."""


@dataclass(frozen=True, slots=True)
class Touch:
    """An access to a key, message, group or the like in a fake; ``writes`` tells writes from reads."""

    fake: str
    kind: str
    name: str
    writes: bool

    def conflicts(self, other: Touch) -> bool:
        return (
            (self.writes or other.writes)
            and self.fake == other.fake
            and self.kind == other.kind
            and (self.name == other.name or ALL in (self.name, other.name))
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name != ALL else f"all {self.kind}s"


MEMORY = Touch("", "memory", ALL, True)
"""An access to the process's memory, which code between two calls may read and write."""
READS_CLOCK = Touch("", "clock", ALL, False)
"""A read of the clock, for a step whose effect depends on the time."""
MOVES_CLOCK = Touch("", "clock", ALL, True)
"""A move of the clock."""
CHECKS_PROMISE = Touch("", "promise", ALL, True)
"""A check after a step, whose result depends on the order of all writes."""


class Footprint:
    """All accesses of one step. If ``is_everything`` is set, the step conflicts with every step."""

    __slots__ = ("is_everything", "touches")

    def __init__(self, touches: Iterable[Touch] = ()) -> None:
        self.touches: dict[Touch, None] = dict.fromkeys(touches)
        self.is_everything = False

    def add(self, touch: Touch) -> None:
        self.touches[touch] = None

    def conflict(self, other: Footprint) -> tuple[Touch, Touch] | None:
        """Return two accesses whose order matters, or None."""
        for one in self.touches:
            for another in other.touches:
                if one.conflicts(another):
                    return one, another
        return None

    def depends_on(self, other: Footprint) -> bool:
        return self.is_everything or other.is_everything or self.conflict(other) is not None
