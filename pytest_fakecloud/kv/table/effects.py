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

    ``words`` are the effects without their values. An attribute has the name of its word: ``ttl``,
    ``time``, ``whole`` and ``lookup`` say whether the row declares it, ``value`` is a position in the
    command line, or 0, and ``event`` and ``rest`` are None if the row declares neither them nor the
    opposite. ``ttl_at`` and ``ttl_unit`` are from the effect with the name of a unit, such as
    ``seconds@2``. ``repetition`` is one of the words about repetitions or, by default, an empty string.
    """

    def __init__(self, text: str) -> None:
        self.value = self.ttl_at = 0
        self.ttl_unit: Unit | None = None
        self.event: str | None = None
        words = set()
        for effect in text.split():
            word, at, position = effect.partition("@")
            word, is_equal, event = word.partition("=")
            if word in UNITS and position.isdigit():
                self.ttl_at, self.ttl_unit = int(position), UNITS[word]
            elif word == "value" and position.isdigit():
                self.value = int(position)
            elif word == "event" and event and not at:
                self.event = event
            elif word not in _WORDS or at or is_equal:
                raise ValueError(
                    f"{effect!r} is not an effect; use one that the head of commands.txt explains"
                )
            words.add(word)
        self.words = frozenset(words)
        self.ttl = "ttl" in words
        self.time = "time" in words
        self.lookup = "lookup" in words
        self.whole = "whole" in words
        self.rest = "rest" in words if words & {"rest", "no-rest"} else None
        repetitions = sorted(words & {"overwrites", "again", "varies"})
        if len(repetitions) > 1:
            raise ValueError(f"{' and '.join(repetitions)} exclude each other; remove one of them")
        self.repetition = "".join(repetitions)
        if "no-event" in words:
            self.event = ""
