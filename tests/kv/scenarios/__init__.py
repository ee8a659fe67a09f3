"""Command lines with the replies real servers gave, as data.

Each scenario starts from an empty database. The tests of `tests/kv/commands` play them on the engine;
the comparison plays the same lines on real servers.
"""

from __future__ import annotations

from typing import Any

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import Status, double_text
from tests.kv.conftest import Run

Scenario = list[tuple[str, Any]]
"""Command lines, split as a shell splits them, each with its reply."""


def error(text: str) -> CommandError:
    """An error reply."""
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
    """A simple string other than OK."""
    return Status(text.encode())


def fields(**values: Any) -> list[Any]:
    """A reply that alternates names and values, as those of XINFO do."""
    return [
        item for name, value in values.items() for item in (name.replace("_", "-").encode(), value)
    ]


def shown(reply: Any) -> Any:
    """The reply as RESP2 shows it: doubles as the texts they are printed as."""
    if isinstance(reply, float):
        return double_text(reply)
    if isinstance(reply, list):
        return [shown(item) for item in reply]
    return reply


def play(run: Run, scenario: Scenario) -> None:
    """Run the lines in order; the first reply that is another than told fails."""
    for line, expected in scenario:
        if isinstance(expected, CommandError):
            assert run.error(line) == str(expected), line
        else:
            assert shown(run(line)) == expected, line
