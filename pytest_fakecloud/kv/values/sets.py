"""Set values, with random choice in O(1) and scans that are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy as shallow_copy
from typing import ClassVar

from ..table.config import Config
from ..table.syntax import try_int

_MAX_INTSET = 512
"""The default of ``set-max-intset-entries``."""


def _is_integer(member: bytes) -> bool:
    # Only a digit or a sign can begin an integer. Parsing any other string raises a slow exception.
    return member[:1] <= b"9" and try_int(member) is not None


class SetValue:
    """Distinct byte strings, stored as a list of members and a dictionary from member to index.

    Removing a member moves the last member into the gap. A scan runs from the end of the list to
    its start, so members only move out of the part that has been scanned. Therefore a scan returns
    every member that stays in the set.
    """

    type_name: ClassVar[str] = "set"
    __slots__ = ("_cursors", "_indexes", "_integers", "_longest", "_members", "_peak", "size")

    def __init__(self, members: Iterable[bytes] = ()) -> None:
        self._members: list[bytes] = []
        self._indexes: dict[bytes, int] = {}
        self.size = 0
        """Length in bytes of all members."""
        # Redis never converts a set back, so the encoding depends on the largest size so far.
        self._integers = True
        self._peak = self._longest = 0
        self._cursors = 0
        """The highest cursor that a scan could have returned before the peak was last reset."""
        if members:
            self._fill(members)

    def _fill(self, members: Iterable[bytes]) -> None:
        """Add members to the empty set, which is faster than adding each member."""
        self._members = list(dict.fromkeys(members))
        self._indexes = dict(zip(self._members, range(len(self._members)), strict=True))
        self._integers = all(map(_is_integer, self._members))
        self._peak = len(self._members)
        self._longest = max(map(len, self._members), default=0)
        self.size = sum(map(len, self._members))

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member: bytes) -> bool:
        return member in self._indexes

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the members, in ascending order if they are stored as integers."""
        if self._integers and self._peak <= _MAX_INTSET:
            return iter(sorted(self._members, key=int))
        return iter(self._members)

    def encoding(self, config: Config) -> str:
        """Return ``intset``, ``hashtable`` or, in versions that have it, ``listpack``."""
        if self._integers and self._peak <= config.number("set-max-intset-entries"):
            return "intset"
        if (
            config.packs_lists_and_sets
            and self._peak <= config.number("set-max-listpack-entries")
            and self._longest <= config.number("set-max-listpack-value")
        ):
            return "listpack"
        return "hashtable"

    def keep_encoding(self, config: Config) -> None:
        """Keep the present encoding until the next write, before a limit in ``config`` changes."""
        encoding = self.encoding(config)
        self._cursors = max(self._cursors, self._peak)
        self._integers = encoding == "intset"
        self._peak = 0
        if encoding != "intset":
            self._longest = 0 if encoding == "listpack" else 1 << 62  # above every limit

    def copy(self) -> SetValue:
        twin = shallow_copy(self)
        twin._members, twin._indexes = self._members.copy(), self._indexes.copy()
        return twin

    def add(self, member: bytes) -> bool:
        indexes = self._indexes
        if member in indexes:
            return False
        indexes[member] = len(self._members)
        self._members.append(member)
        if len(indexes) > self._peak:
            self._peak = len(indexes)
        length = len(member)
        self.size += length
        if length > self._longest:
            self._longest = length
        self._integers = self._integers and _is_integer(member)
        return True

    def remove(self, member: bytes) -> bool:
        index = self._indexes.pop(member, None)
        if index is None:
            return False
        self.size -= len(member)
        last = self._members.pop()
        if index < len(self._members):
            self._members[index] = last
            self._indexes[last] = index
        return True

    def at(self, index: int) -> bytes:
        """Return the member at an index of the list (0..length-1), for random choice."""
        return self._members[index]

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return a page of a scan: the next cursor (0 at the end), and up to ``count`` members.

        A cursor is the number of members that remain to be scanned, and 0 starts a scan. Members
        that are added during a scan may be missed, but not members that are in the set throughout.
        A cursor that no scan of this set could have returned ends the scan.
        """
        if not 0 <= cursor <= max(self._peak, self._cursors):
            return 0, []
        top = min(cursor, len(self._members)) if cursor else len(self._members)
        bottom = max(0, top - count)
        return bottom, self._members[bottom:top]
