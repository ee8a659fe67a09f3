"""Command lines with the replies of real servers, as data.

Each scenario starts with an empty database. The tests in `tests/kv/commands` play them on the
engine; the comparison plays the same lines on real servers.
"""

from __future__ import annotations

from typing import Any

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import Status, double_text
from tests.kv.conftest import Run

Scenario = list[tuple[str, Any]]
"""Command lines, split like a shell splits them, each with its reply."""


def error(text: str) -> CommandError:
    """Return an error reply."""
    return CommandError(text.encode())


WRONG_TYPE = error("WRONGTYPE Operation against a key holding the wrong kind of value")
SYNTAX_ERROR = error("ERR syntax error")
NOT_AN_INTEGER = error("ERR value is not an integer or out of range")
NOT_A_FLOAT = error("ERR value is not a valid float")
NEGATIVE_TIMEOUT = error("ERR timeout is negative")
NO_NUMKEYS = error("ERR numkeys should be greater than 0")
NO_SUCH_KEY = error("ERR no such key")
"""Errors of several groups of commands."""


def status(text: str) -> Status:
    """Return a simple string other than OK."""
    return Status(text.encode())


def fields(**values: Any) -> list[Any]:
    """Return a reply of alternating names and values, like those of XINFO."""
    return [
        item for name, value in values.items() for item in (name.replace("_", "-").encode(), value)
    ]


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
