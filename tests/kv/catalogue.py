"""The table of commands for tests, and error texts that the service must produce.

The head of `commands.txt` explains its columns. The documented commands are a second source that checks
`kv/table/commands.txt`. `test_self_description.py` compares the other commands with real servers, and
checks that these have none of the documented ones. The error texts in `errors.txt` were observed on
Redis 7.0.15 and Valkey 9.1; ``<x>`` matches anything.
"""

from __future__ import annotations

from pathlib import Path

from tests.notations import sections, tables

COMMANDS_FILE = Path(__file__).with_name("commands.txt")
ERRORS_FILE = Path(__file__).with_name("errors.txt")
ROWS = [
    (command, column, text)
    for command, columns in tables(COMMANDS_FILE, raw=True).items()
    for column, text in columns
]
"""Commands with the names and the texts of their columns."""
DOCUMENTED = [
    (command, int(arity), access, words)
    for command, column, text in ROWS
    if column == "documented"
    for arity, access, *words in [text.split()]
]
WITHOUT_SERVER = frozenset(name for name, *_ in DOCUMENTED)
"""The commands that neither Redis 7.0.15 nor Valkey 9.1 has."""
ERRORS = sections(ERRORS_FILE)["errors"]
