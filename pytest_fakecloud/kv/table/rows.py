"""The rows of the table of commands.

``commands.txt`` explains the notation of the columns. This module splits the rows. ``flags.py`` reads
the column *flags*, ``keys.py`` the column *keys*, ``synopsis.py`` the column *arguments* and
``effects.py`` the column *effects*. Each of them raises a ``ValueError`` for a wrong column, to which
``error_in_row()`` adds the name of the row.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...core.assets import asset
from .groups import GROUPS


class Row(NamedTuple):
    """A row of the table. ``documented`` says whether the vendor documents the command. ``only_in`` is
    ``redis``, ``stock``, ``valkey`` or ``vendor`` if some servers lack the command, as the head of
    ``commands.txt`` explains, or empty. ``flags``, ``keys``, ``arguments`` and ``effects`` are unparsed.
    ``later`` are option words that the server lacks.
    """

    name: str
    documented: bool
    group: str
    only_in: str
    since: str
    flags: str
    keys: str
    arguments: str
    effects: str
    later: frozenset[str] = frozenset()


_HEAD = re.compile(
    r"(?P<names>\*?[A-Z][\w.|-]*(?: \*?[A-Z][\w.|-]*)*) "
    r"(?:(?P<only_in>redis|stock|valkey|vendor)-)?(?P<since>\d+\.\d+\.\d+)",
    re.ASCII,
)
_COLUMNS = ("flags", "keys", "arguments", "effects")
"""The columns after the first one."""
_, _SHARED, _TABLE = asset(__file__, "commands.txt").replace("\n  ", " ").split("\n\n", 2)
_PARTS = dict(line[1:].split(" = ", 1) for line in _SHARED.split("\n"))
"""The parts that synopses share, by name."""


def error_in_row(name: str, error: ValueError | str) -> ValueError:
    """Return an error about the columns of a row, with the name of the row."""
    return ValueError(f"commands.txt, row {name}: {error}")


def read(table: str) -> dict[str, Row]:
    """Return the rows of a table by the names of their commands. The commands of a group are in the
    order of their names.
    """
    rows: dict[str, Row] = {}
    for section in f"\n{table}".split("\n[")[1:]:
        heading, *lines = section.strip().split("\n")
        group = heading.removesuffix("]")
        for row in sorted(row for line in filter(None, lines) for row in _rows(group, line)):
            if row.name in rows:
                raise error_in_row(
                    row.name, "it is the second row of this command; remove one of them"
                )
            rows[row.name] = row
    return rows


def _rows(group: str, line: str) -> list[Row]:
    """Return the row of each command of a line."""
    head, *columns = line.split(" | ")
    try:
        if group not in GROUPS:
            raise ValueError(
                f"[{group}] above it is not a group; use one of {', '.join(GROUPS)}, or add it to "
                "GROUPS in kv/table/groups.py"
            )
        match = _HEAD.fullmatch(head)
        if match is None:
            raise ValueError(
                f"{head!r} is not a name and a version; write e.g. `*GET 1.0.0` or `*GET vendor-1.0.0`"
            )
        if len(columns) > len(_COLUMNS):
            raise ValueError(
                f"{columns[-1]!r} is column {len(columns) + 1}, but the last one is column "
                f"{len(_COLUMNS) + 1}, the effects; write `-` for an empty column, and join the others"
            )
        columns = ["" if column == "-" else column for column in columns]
        flags, keys, arguments, effects = [*columns, "", "", "", ""][: len(_COLUMNS)]
        arguments = _written_out(arguments)
    except ValueError as error:
        raise error_in_row(head.split()[0].removeprefix("*"), error) from None
    return [
        Row(name.removeprefix("*").replace("|", " "), name.startswith("*"), group,
            match["only_in"] or "", match["since"], flags, keys, arguments, effects)
        for name in match["names"].split()
    ]  # fmt: skip


def _written_out(arguments: str) -> str:
    """Return the column *arguments* with the shared parts written out."""

    def part(name: re.Match[str]) -> str:
        if name[1] not in _PARTS:
            raise ValueError(f"{name[0]} is not a shared part; use one of ${', $'.join(_PARTS)}")
        return _written_out(_PARTS[name[1]])

    return re.sub(r"\$(\w+)", part, arguments)


ROWS = read(_TABLE)
"""All rows, by the names of their commands."""
