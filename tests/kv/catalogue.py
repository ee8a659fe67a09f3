"""Commands that no real server here reports, and error texts that the service must produce.

The commands in `commands.txt` are a second source that checks `kv/table/rows.py`: copy them from
the vendor's documentation, not from there. `test_self_description.py` compares the other commands
with real servers, and checks that these have none of the commands in `commands.txt`. A line is
``name arity access words``: the access is ``r``, ``w`` or ``-``, the words are options, and an
arity of ``-`` means that the line only adds words to a command that a real server has. The error
texts in `errors.txt` were observed on Redis 7.0.15 and Valkey 9.1; ``<x>`` matches anything.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def _row(line: str) -> tuple[str, int | None, str, str]:
    name, arity, access, *words = line.split()
    number = None if arity == "-" else int(arity)
    return name.replace("|", " "), number, " ".join(words), access.strip("-")


COMMANDS = [*map(_row, HERE.joinpath("commands.txt").read_text("utf-8").splitlines())]
WITHOUT_SERVER = frozenset(name for name, arity, *_ in COMMANDS if arity is not None)
"""The commands that neither Redis 7.0.15 nor Valkey 9.1 has."""
ERRORS = HERE.joinpath("errors.txt").read_text("utf-8").splitlines()
