"""The columns of the command table that have a notation of their own: keys and effects."""

from __future__ import annotations

import re
from typing import NamedTuple

from .syntax import integer_at_start

_POSITION = re.compile(
    r"unknown|(?:([^@]+)@)?(-?[0-9]+)(?:\.\.(-?[0-9]+))?(?:/([0-9]+))?(?:%([0-9]+))?"
)
"""A keyword, the first position, the last one, the step and the limit."""


class KeySpec:
    """The positions of a command's keys, and how the command accesses them.

    A spec is written as flags and a position:

    - ``RW access update 1``: argument 1.
    - ``RO access 1..-1/2``: every second argument up to the end.
    - ``RO access 1..1``: argument 1 and the next one. A non-negative end counts from the first key.
    - ``RO access numkeys@2``: argument 2 is the number of keys, which follow it.
    - ``OW update STORE@5``: the argument after the word STORE, which is searched for from argument
      5.
    - ``RO access STREAMS@1..-1%2``: the first half of the arguments after the word STREAMS.
    - ``RO access unknown``: the positions cannot be determined.
    """

    def __init__(self, text: str) -> None:
        *flags, position = text.split()
        found = _POSITION.fullmatch(position)
        assert found is not None, text
        keyword, first, last, step, limit = found.groups()
        self.flags = tuple(flags)
        self.unknown = first is None
        self.numkeys = keyword == "numkeys"
        self.keyword = keyword.encode() if keyword and not self.numkeys else None
        self.first, self.last = int(first or 0), int(last or 0)
        self.step, self.limit = int(step or 1), int(limit or 0)

    @property
    def reads(self) -> bool:
        """Whether the command may return the key's data."""
        return "access" in self.flags

    @property
    def writes(self) -> bool:
        """Whether the command may change the key's data."""
        return bool({"update", "insert", "delete"} & set(self.flags))

    @property
    def depends_on_arguments(self) -> bool:
        """Whether the positions depend on the arguments, not only on their number."""
        return self.unknown or self.numkeys or self.keyword is not None

    def positions(self, argv: list[bytes]) -> range | None:
        """Return the positions of the keys in ``argv``, or None if they are unknown."""
        if self.unknown:
            return None
        first = self.first
        if self.keyword is not None:
            found = self._after_keyword(argv)
            if found is None:
                return range(0)
            first = found
        if self.numkeys:
            return self._counted(argv, first)
        if self.last >= 0:
            last = first + self.last
        else:
            last = len(argv) + self.last
            if self.limit > 1:
                last = first + (len(argv) - first) // self.limit - 1
        last = min(last, len(argv) - 1)
        return range(first, last + 1, self.step)

    def _after_keyword(self, argv: list[bytes]) -> int | None:
        step = 1 if self.first > 0 else -1
        at = self.first if self.first > 0 else len(argv) + self.first
        while 0 < at < len(argv):
            if argv[at].upper() == self.keyword:
                return at + 1
            at += step
        return None

    def _counted(self, argv: list[bytes], at: int) -> range | None:
        if at >= len(argv):
            return None
        count = integer_at_start(argv[at])
        stop = at + 1 + count * self.step
        if count < 0 or stop > len(argv):
            return None
        return range(at + 1, stop, self.step)


def sort_destination(argv: list[bytes]) -> int | None:
    """Return the position of the key after the last STORE of SORT, which no key spec locates."""
    destination, at = None, 2
    while at < len(argv) - 1:
        word = argv[at].upper()
        if word == b"STORE":
            destination = at + 1
        at += {b"LIMIT": 3, b"BY": 2, b"GET": 2}.get(word, 1)
    return destination


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
_WORDS = {
    "ttl": ("takes_ttl", True),
    "time": ("reads_clock", True),
    "lookup": ("looks_up", True),
    "no-event": ("event", ""),
    "rest": ("over_rest", True),
    "no-rest": ("over_rest", False),
    "vendor": ("is_vendors", True),
}
"""The words without a value, with the attribute of `Effects` that they set."""


class Effects:
    """The last column of a command's row; the module ``rows`` explains its words.

    ``value_at`` and ``ttl_at`` are positions in the command line, or 0. ``event`` and ``over_rest``
    are None if the row does not declare them.
    """

    def __init__(self, text: str) -> None:
        self.value_at = self.ttl_at = 0
        self.ttl_unit: Unit | None = None
        self.takes_ttl = self.reads_clock = self.looks_up = self.is_vendors = False
        self.event: str | None = None
        self.over_rest: bool | None = None
        for word in text.split():
            name, _, position = word.partition("@")
            if name in UNITS and position.isdigit():
                self.ttl_at, self.ttl_unit = int(position), UNITS[name]
            elif name == "value" and position.isdigit():
                self.value_at = int(position)
            elif word in _WORDS:
                setattr(self, *_WORDS[word])
            elif word.startswith("event="):
                self.event = word.removeprefix("event=")
            else:
                with_position = (f"{name}@POSITION" for name in ("value", *UNITS))
                known = ", ".join([*_WORDS, "event=NAME", *with_position])
                raise ValueError(f"{word!r} is not an effect of a command; the effects are {known}")
