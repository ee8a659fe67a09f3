"""Command lines with the replies of real servers, as text: `<line> => <reply>`.

A reply is JSON, or one of RESP: `+OK` (also inside JSON), `-ERR …`, `*-1` for the nil of arrays.
JSON strings hold bytes as Latin-1. Each scenario (`== <name>`) starts with an empty database.
`test_scenarios.py` plays them on the engine; the comparison plays the same lines on real servers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import NIL_ARRAY, Status, double_text
from tests.kv.conftest import Run

FOLDER = Path(__file__).parent
Scenario = list[tuple[str, Any]]
"""Command lines, split like a shell splits them, each with its reply."""


def scenarios(file: str) -> dict[str, Scenario]:
    """Return the scenarios of a file by their names."""
    found: dict[str, Scenario] = {}
    for line in (FOLDER / f"{file}.txt").read_text(encoding="ascii").splitlines()[1:]:
        if line.startswith("== "):
            scenario = found[line[3:]] = []
        elif line:
            command, _, reply = line.partition(" => ")
            scenario.append((command, _reply(reply)))
    return found


def _reply(text: str) -> Any:
    if text[0] == "-" and text[1].isalpha():
        return CommandError(text[1:].encode())
    return _value(text if text.startswith(("+", "*")) else json.loads(text))


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    if not isinstance(value, str):
        return value
    if value == "*-1":
        return NIL_ARRAY
    return Status(value[1:].encode()) if value.startswith("+") else value.encode("latin-1")


def shown(reply: Any) -> Any:
    """Return a reply in the shapes of RESP2: doubles as strings."""
    if isinstance(reply, float):
        return double_text(reply)
    if isinstance(reply, list):
        return [shown(item) for item in reply]
    return reply


def play(run: Run, scenario: Scenario) -> None:
    """Run the lines in order; fail at the first unexpected reply."""
    for line, expected in scenario:
        if isinstance(expected, CommandError):
            assert run.error(line) == str(expected), line
        else:
            assert shown(run(line)) == expected, line
