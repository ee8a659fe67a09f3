"""The column *effects* of the table of commands."""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """The unit of a TTL: its length, and whether numbers are Unix times and not durations."""

    milliseconds: int
    is_absolute: bool = False


UNITS = {
    "milliseconds": Unit(1),
    "seconds": Unit(1_000),
    "minutes": Unit(60_000),
    "unix-milliseconds": Unit(1, is_absolute=True),
    "unix-seconds": Unit(1_000, is_absolute=True),
}
TTL_OPTIONS = {
    "EX": UNITS["seconds"],
    "PX": UNITS["milliseconds"],
    "EXAT": UNITS["unix-seconds"],
    "PXAT": UNITS["unix-milliseconds"],
}
"""The option words that set a TTL, in every command that has them, with the units of their numbers."""
_WORDS = frozenset(
    {"ttl", "no-event", "overwrites", "again", "varies", "time", "whole"}
    | {"count", "names", "if-new", "removes", "claims", "finishes", "lookup", "no-rest", "rest"}
)
"""The effects without a value."""


class Effects:
    """The last column of a command's row, whose words ``commands.txt`` explains.

    ``words`` are the effects without a value. ``value_at`` and ``ttl_at`` are positions in the command
    line, or 0. ``event`` and ``over_rest`` are None if the row does not declare them. ``repetition`` is
    one of the words about repetitions or, by default, an empty string.
    """

    def __init__(self, text: str) -> None:
        self.value_at = self.ttl_at = 0
        self.ttl_unit: Unit | None = None
        self.words = _WORDS.intersection(text.split())
        self.takes_ttl = "ttl" in self.words
        self.reads_clock = "time" in self.words
        self.looks_up = "lookup" in self.words
        self.whole = "whole" in self.words
        self.event: str | None = "" if "no-event" in self.words else None
        self.over_rest: bool | None = None
        if not self.words.isdisjoint({"rest", "no-rest"}):
            self.over_rest = "rest" in self.words
        self.repetition = "".join(self.words & {"overwrites", "again", "varies"})
        for word in text.split():
            name, _, position = word.partition("@")
            if name in UNITS and position.isdigit():
                self.ttl_at, self.ttl_unit = int(position), UNITS[name]
            elif name == "value" and position.isdigit():
                self.value_at = int(position)
            elif word.startswith("event="):
                self.event = word.removeprefix("event=")
            elif word not in _WORDS:
                raise ValueError(
                    f"{word!r} is not an effect; use one that the head of commands.txt explains"
                )
