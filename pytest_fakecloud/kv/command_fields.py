"""The journal's fields for commands, which REST requests and connections share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import orjson

from ..core.calls import Call, field_of
from ..core.errors import ContractError, did_you_mean
from ..core.field_types import TEXT, FieldType, is_text_pattern
from ..core.matching import Field, Question
from .model import HANDSHAKE
from .table.registry import COMMANDS, spec_of

_NAMES = "a command's name ('SET', 'XGROUP', 'xgroup create', 'H*')"


class _Command(FieldType):
    """Matches command names in any case; one without a subcommand matches all subcommands."""

    expected = f"{_NAMES}, a pattern"

    def accepts(self, expected: Any) -> bool:
        return TEXT.accepts(expected)

    def check(self, name: str, expected: Any) -> None:
        super().check(name, expected)
        if not isinstance(expected, str) or expected.upper() in COMMANDS:
            return
        if not any(self.equals(command, expected) for command in COMMANDS):
            raise ContractError(
                f"{name}={expected!r} is not a command{did_you_mean(expected, COMMANDS) or '.'} "
                f"Pass {_NAMES}, or a compiled pattern, which also matches unknown commands"
            )

    def equals(self, actual: Any, expected: Any) -> bool:
        if not (isinstance(actual, str) and isinstance(expected, str)):
            return super().equals(actual, expected)
        expected = expected.upper()
        return super().equals(actual, expected) or super().equals(
            actual.partition(" ")[0], expected
        )


class _Lines(FieldType):
    """Matches a request with a command line (a list), or with exactly these (a list of lists)."""

    expected = "a command line as the list of its words, such as ['SET', 'key', '*']"

    def accepts(self, expected: Any) -> bool:
        return isinstance(expected, list | tuple)

    def check(self, name: str, expected: Any) -> None:
        super().check(name, expected)
        if isinstance(expected, list | tuple):
            for line_or_word in expected:
                (self if self.accepts(line_or_word) else TEXT).check(name, line_or_word)

    def equals(self, actual: Any, expected: Any) -> bool:
        if expected and all(map(self.accepts, expected)):
            return len(actual) == len(expected) and all(map(_matches_line, actual, expected))
        return any(_matches_line(line, expected) for line in actual)


def _matches_line(line: Sequence[str], expected: Sequence[Any]) -> bool:
    questions = (Question("word", word, TEXT) for word in expected)
    return len(line) == len(expected) and all(map(Question.agrees, questions, line))


COMMAND, LINES = _Command(), _Lines()


def facts_of(lines: list[list[str]]) -> dict[str, Any]:
    """Return the fields of commands, with the values of all lines in one list."""
    return {
        "command": [command_name(line) for line in lines],
        "key": [key for line in lines for key in keys_of(line)],
        "words": lines,
        "index": [index for line in lines for index in _indexes_of(line)],
    }


def _each_line(read: Callable[[list[str]], Any]) -> Callable[[Call], list[Any] | None]:
    """Return a function that reads a value from each command of a call with several."""

    def values(call: Call) -> list[Any] | None:
        if call.service != "kv" or len(call.facts.get("command", ())) < 2:
            return None
        lines: Any = field_of(call, "words")
        return [read(line) for line in lines]

    return values


def _indexes_of(line: list[str]) -> list[str]:
    return [line[1]] if line[1:] and re.match(r"(?i)SEARCH\.(?!LIST)", line[0]) else []


def command_name(words: Sequence[str]) -> str:
    """Return the name of the command in upper case, including the subcommand if there is one."""
    name = words[0].upper()
    spec = COMMANDS.get(name)
    has_child = spec is not None and spec.subcommands is not None and len(words) > 1
    return f"{name} {words[1].upper()}" if has_child else name


def keys_of(line: Sequence[str]) -> list[str]:
    """Return the keys in a command line, in order; none if the command is unknown."""
    spec = spec_of(line)
    return [] if spec is None else [key for key, _ in spec.keys_of(line)]


def names_handshake(conditions: Mapping[str, Any]) -> bool:
    """Return whether conditions on calls name one of the commands in ``HANDSHAKE``."""
    lines = _listed(conditions.get("words"))
    if not any(map(LINES.accepts, lines)):
        lines = [lines]
    names = [name for line in lines for name in _listed(line)[:1]]
    names += [*_listed(conditions.get("command")), conditions.get("what")]
    return any(map(_is_of_handshake, names))


def _listed(value: Any) -> list[Any]:
    return [*value] if isinstance(value, list | tuple) else [value]


def _is_of_handshake(name: Any) -> bool:
    """Return whether a name, which may contain ``*``, or a pattern matches one of ``HANDSHAKE``."""
    if is_text_pattern(name):
        return any(map(name.search, HANDSHAKE))
    pattern = name.upper().partition(" ")[0] if isinstance(name, str) else ""
    return any(fnmatchcase(command, pattern) for command in HANDSHAKE)


COMMAND_FIELDS: Mapping[str, Field] = {
    "command": Field(COMMAND, several=True, optional=False, parts=_each_line(command_name)),
    "key": Field(TEXT, several=True, optional=False, parts=_each_line(keys_of)),
    "words": Field(LINES, optional=False),
    "index": Field(TEXT, several=True, optional=False, parts=_each_line(_indexes_of)),
}
"""The fields that commands can be filtered by, in calls, faults and interruptions."""
_PREPARING = HANDSHAKE | {"MULTI", "DISCARD", "UNWATCH"}


def only_prepares(call: Call) -> bool:
    """Return whether a call is a command of the Redis protocol that affects only its connection.

    ``every_failure()`` and ``explore()`` do not disturb these commands. When clients send them
    depends on their connections, which last longer than a run.
    """
    # Read the body, not the facts, which take longer and which few runs of explore() need.
    is_of_port = call.route == "database-port"
    return is_of_port and orjson.loads(call.request_body)[0].upper() in _PREPARING
