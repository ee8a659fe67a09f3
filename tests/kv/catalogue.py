"""Commands that no real server here reports, and error texts that the service must produce.

The commands in `commands.txt` are a second source that checks `kv/table/commands.txt`: copy them from
the vendor's documentation, not from there. `test_self_description.py` compares the other commands
with real servers, and checks that these have none of the commands in `commands.txt`. A line is
``arity access names: option words``; the access is ``readonly``, ``write`` or ``-``. The error texts
in `errors.txt` were observed on Redis 7.0.15 and Valkey 9.1; ``<x>`` matches anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


def _rows(line: str) -> Iterator[tuple[str, int, str, str]]:
    head, _, words = line.partition(":")
    arity, access, *names = head.split()
    for name in names:
        yield name.replace("|", " "), int(arity), access, words


_LINES = HERE.joinpath("commands.txt").read_text("utf-8").splitlines()
COMMANDS = [row for line in _LINES for row in _rows(line)]
WITHOUT_SERVER = frozenset(name for name, *_ in COMMANDS)
"""The commands that neither Redis 7.0.15 nor Valkey 9.1 has."""
ERRORS = HERE.joinpath("errors.txt").read_text("utf-8").splitlines()
