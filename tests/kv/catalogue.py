"""Commands that no real server here reports, and error texts that the service must produce.

The commands in `commands.txt` are a second source that checks `kv/table/commands.txt`: copy them from
the vendor's documentation, not from there. `test_self_description.py` compares the other commands
with real servers, and checks that these have none of the commands in `commands.txt`. A row is ``names =>
arity access option words``; the access is ``readonly``, ``write`` or ``-``. The error texts
in `errors.txt` were observed on Redis 7.0.15 and Valkey 9.1; ``<x>`` matches anything.
"""

from __future__ import annotations

from pathlib import Path

from tests.notations import rows, sections

COMMANDS_FILE = Path(__file__).with_name("commands.txt")
ERRORS_FILE = Path(__file__).with_name("errors.txt")
COMMANDS = [
    (name.replace("|", " "), int(arity), access, words)
    for names, declared in rows(COMMANDS_FILE, "commands")
    for arity, access, *words in [declared.split()]
    for name in names.split()
]
WITHOUT_SERVER = frozenset(name for name, *_ in COMMANDS)
"""The commands that neither Redis 7.0.15 nor Valkey 9.1 has."""
ERRORS = sections(ERRORS_FILE)["errors"]
