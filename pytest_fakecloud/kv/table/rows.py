"""The rows of the table of commands.

``commands.txt`` explains the notation of the columns. ``keys.py`` reads the column *keys*,
``synopsis.py`` the column *arguments* and ``effects.py`` the column *effects*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...core.assets import asset


class Row(NamedTuple):
    """A row of the table. ``documented`` says whether the vendor documents the command. ``only_in`` is
    ``redis``, ``valkey`` or ``vendor`` if the others lack the command, or empty. ``flags``, ``keys``,
    ``arguments`` and ``effects`` are unparsed. ``later`` are option words that a server of an earlier
    version lacks.
    """

    name: str
    documented: bool
    arity: int
    group: str
    only_in: str
    since: str
    flags: str
    keys: str
    arguments: str
    effects: str
    later: frozenset[str] = frozenset()


def _lines(table: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each command, the heading of its group and its line. The commands of a group are
    in the order of their names.
    """
    for section in f"\n{table}".split("\n[")[1:]:
        heading, *lines = section.strip().split("\n")
        yield from sorted(
            (word.removeprefix("*").replace("|", " "), heading, line)
            for line in lines
            for word in line.partition(" | ")[0].split()[:-2]
        )


_, _SHARED, _TABLE = asset(__file__, "commands.txt").replace("\n  ", " ").split("\n\n", 2)
_PARTS = dict(line[1:].split(" = ", 1) for line in _SHARED.split("\n"))
"""The parts that synopses share, by name."""


def _row(name: str, heading: str, line: str) -> Row:
    group, _, of_group = heading.partition("]")
    head, *columns = line.split(" | ")
    *words, arity, added = head.split()
    only_in, _, since = added.rpartition("-")
    columns = ["" if column == "-" else column for column in columns]
    flags, keys, arguments, effects = [*columns, "", "", "", ""][:4]
    if of_group:
        effects = f"{of_group} {effects}"
    arguments = _written_out(arguments)
    documented = f"*{name.replace(' ', '|')}" in words
    return Row(name, documented, int(arity), group, only_in, since, flags, keys, arguments, effects)


def _written_out(arguments: str) -> str:
    """Return the column *arguments* with the shared parts written out."""
    return re.sub(r"\$(\w+)", lambda part: _written_out(_PARTS[part[1]]), arguments)


ROWS = {name: _row(name, heading, line) for name, heading, line in _lines(_TABLE)}
"""All rows, by the names of their commands."""
