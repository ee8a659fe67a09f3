"""The TTLs that command lines set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .arguments import UNITS, Unit

if TYPE_CHECKING:
    from .registry import CommandSpec


TTL_OPTIONS = {
    "EX": UNITS["seconds"],
    "PX": UNITS["milliseconds"],
    "EXAT": UNITS["unix-time-seconds"],
    "PXAT": UNITS["unix-time-milliseconds"],
}
"""The option words that set a TTL, in every command that has them, with the units of their numbers."""


class Ttl(NamedTuple):
    """A TTL: the command or option that sets it, the number and the number's unit."""

    word: str
    number: str
    unit: Unit

    def __str__(self) -> str:
        return f"{self.word} {self.number}"

    def deadline_us(self, now_us: int) -> int | None:
        """Return the time of the expiry in microseconds; None if the number is invalid."""
        try:
            number_us = int(self.number) * self.unit.milliseconds * 1000
        except ValueError:
            return None
        return number_us if self.unit.is_absolute else now_us + number_us


def find_ttl(spec: CommandSpec, line: Sequence[str]) -> Ttl | None:
    """Return the TTL that a command line sets for its keys or, in some groups, for their fields."""
    if not spec.sets_ttl:
        return None
    ttl: Ttl | None = None
    bound = spec.bound(line)
    for number, (before, name) in zip(bound.words[1:], pairwise(bound.names), strict=False):
        if before in TTL_OPTIONS:
            ttl = Ttl(before, number, TTL_OPTIONS[before])
        elif name in UNITS and before not in spec.options:
            ttl = Ttl(spec.name, number, UNITS[name])
    return ttl  # the last one, as on the server
