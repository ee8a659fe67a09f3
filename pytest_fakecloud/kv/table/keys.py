"""The column *keys* of the table of commands: which arguments of a command line are keys."""

from __future__ import annotations

import re

from ..syntax import integer_at_start

_POSITION = re.compile(
    r"unknown|(?:(?P<keyword>[A-Za-z]+)@)?(?P<first>-?[1-9]\d*)(?:\.\.(?P<last>-?\d+))?"
    r"(?:/(?P<step>[1-9]\d*))?(?:%(?P<limit>[1-9]\d*))?"
)
"""For example ``STREAMS@1..-1%2`` or ``1..-1/2``, of which only the first number is required."""
_ACCESSES = ("RO", "RW", "OW", "RM")
KEY_FLAGS = (
    *_ACCESSES, "access", "update", "insert", "delete", "not_key", "incomplete", "variable_flags",
)  # fmt: skip
"""The flags of keys in ``COMMAND INFO``."""


class KeySpec:
    """A position of a command's keys, and how the command accesses them.

    ``reads``: it returns, copies or uses the data of the user in the key. ``writes``: it changes these
    data, and ``only_deletes`` in no other way. ``stores``: it may store the key in another way, also
    without changing the data: PFCOUNT keeps its result in the value. ``is_channel``: it is a channel of
    a shard, which real servers find as they do keys.
    """

    def __init__(self, text: str) -> None:
        *flags, position = text.split() or [""]
        match = _POSITION.fullmatch(position)
        if match is None:
            raise ValueError(
                f"{position!r} is not a position of keys; write e.g. 1, 1..-1/2, numkeys@2 or STORE@5"
            )
        for flag in flags:
            if flag not in KEY_FLAGS:
                raise ValueError(
                    f"{flag!r} is not a flag of keys; use one of {', '.join(KEY_FLAGS)}"
                )
        self.is_channel = "not_key" in flags
        accesses = [flag for flag in flags if flag in _ACCESSES]
        if len(accesses) != 1 and not self.is_channel:
            raise ValueError(
                f"a key has one of the flags {', '.join(_ACCESSES)}, not {len(accesses)} of them"
            )
        keyword = match["keyword"]
        self.flags = tuple(flags)
        self.reads = "access" in flags
        changes = {"update", "insert", "delete"}.intersection(flags)
        self.writes = bool(changes)
        self.only_deletes = changes == {"delete"}
        self.stores = "RO" not in flags
        self.unknown = position == "unknown"
        self.numkeys = keyword == "numkeys"
        self.keyword = keyword.encode() if keyword and not self.numkeys else None
        self.first, self.last = int(match["first"] or 0), int(match["last"] or 0)
        self.step, self.limit = int(match["step"] or 1), int(match["limit"] or 0)

    @property
    def depends_on_arguments(self) -> bool:
        """Whether the positions depend on the arguments, not only on their number."""
        return self.unknown or self.numkeys or self.keyword is not None

    @property
    def only_position(self) -> int:
        """The position of a single key, or 0 if there can be several, or if arguments decide where."""
        return 0 if self.depends_on_arguments or self.last else self.first

    def positions(self, line: list[bytes]) -> range | None:
        """Return the positions of the keys in ``line``, or None if they are unknown."""
        if self.unknown:
            return None
        first = self.first
        if self.keyword is not None:
            backwards = self.first < 0
            searched = range(len(line) + first, 0, -1) if backwards else range(first, len(line))
            places = [at for at in searched if line[at].upper() == self.keyword]
            if not places:
                return range(0)
            first = places[0] + 1
        if self.numkeys:
            count = integer_at_start(line[first]) if first < len(line) else -1
            stop = first + 1 + count * self.step
            return range(first + 1, stop, self.step) if count >= 0 and stop <= len(line) else None
        if self.last >= 0:
            last = first + self.last
        else:
            last = len(line) + self.last
            if self.limit > 1:
                last = first + (len(line) - first) // self.limit - 1
        last = min(last, len(line) - 1)
        return range(first, last + 1, self.step)
