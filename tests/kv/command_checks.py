"""What tests check of each command beside its replies, and error texts that must be produced.

The head of `command_checks.txt` explains its columns. Its rows of commands that no real server here has
are a second source that checks `kv/table/commands.txt`. `test_self_description.py` compares the other
commands with real servers. The error texts in `errors.txt` were observed on Redis 7.0.15 and Valkey 9.1;
``<x>`` matches anything.
"""

from __future__ import annotations

from pathlib import Path

from tests.notations import sections, tables

CHECKS_FILE = Path(__file__).with_name("command_checks.txt")
ERRORS_FILE = Path(__file__).with_name("errors.txt")
ROWS = [
    (command, column, text)
    for command, columns in tables(CHECKS_FILE, raw=True).items()
    for column, text in columns
]
"""Commands with the names and the texts of their columns."""
ROWS_WITHOUT_SERVER = [
    (command, int(arity), access, words)
    for command, column, text in ROWS
    if column == "without server"
    for arity, access, *words in [text.split()]
]
WITHOUT_SERVER = frozenset(name for name, *_ in ROWS_WITHOUT_SERVER)
"""The commands that neither Redis 7.0.15 nor Valkey 9.1 has."""
ROW_WITHOUT_SERVER = "== {}\nwithout server => <arity> <readonly, write or -> <option words>"
"""The row of a command that no real server here has."""
ERRORS = sections(ERRORS_FILE)["errors"]
