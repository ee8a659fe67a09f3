"""Arguments that are fields, members or indexes, and the commands that access nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_fakecloud.kv.commands.server.introspection import KEYS, TYPES
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.table import exceptions, kinds
from pytest_fakecloud.kv.table.groups import GROUPS
from pytest_fakecloud.kv.table.registry import COMMANDS, EVERYTHING
from pytest_fakecloud.kv.table.synopsis import FIELD_NAMES, Argument
from tests.kv.conftest import argv
from tests.kv.growth import Filled
from tests.kv.lines import LINES
from tests.kv.table import TABLE_FILE
from tests.notations import complete

OTHERS = {
    "hash": "HSET {} other x", "set": "SADD {} other", "sorted-set": "ZADD {} -1 other",
    "geo": "GEOADD {} 5 5 other", "array": "ARSET {} 9990 other",
}  # fmt: skip
"""A command of each group that adds another element: before all others, or beside e5."""

OTHER_NAMES = KEYS | TYPES.keys() | {
    "increment", "regex", "size", "substring", "timeout", "value",
    "end", "max", "min", "start", "stop",
}  # fmt: skip
"""Names of arguments that are neither fields nor members nor indexes."""


@pytest.mark.completeness
def test_names_say_which_arguments_are_fields() -> None:
    """Only in groups whose values have fields. Another name for a member would hide it from reports."""
    names = {
        name: spec.name
        for spec in COMMANDS.values()
        if GROUPS[spec.group].has_fields
        for name in _names(spec.arguments)
    }
    complete(
        TABLE_FILE,
        (
            f"field, member or index instead of {name} in the synopsis of {command}, if it is one"
            for name, command in names.items()
            if not (name in FIELD_NAMES or name in OTHER_NAMES)
        ),
        "OTHER_NAMES of tests/kv/table/test_fields.py, if it is none",
    )


def _names(arguments: Iterable[Argument]) -> Iterator[str]:
    for argument in arguments:
        if argument.kind == "string":
            yield argument.name
        yield from _names(argument.inner)


@pytest.mark.completeness
def test_no_command_of_fields_depends_on_other_members() -> None:
    filled = Filled(30, dialect="vendor")
    state = filled.engine.snapshot()
    dependent: dict[str, str] = {}
    for line in LINES:
        *before, command = line.split(" ; ")
        words = argv((command,))
        spec = EVERYTHING.resolve(words)
        if spec.name not in kinds.FIELDS:
            continue
        other = OTHERS[spec.group].format(words[spec.only_key or 1].decode())
        replies = []
        for lines in (before, [*before, other]):
            with suppress(CommandError):
                for text in lines:
                    filled.run(text)
                replies.append(repr(filled.run(command)))
            filled.engine.restore(state)
        if len(set(replies)) > 1:
            dependent[spec.name] = line
    complete(
        Path(exceptions.__file__),
        (f"to READ_OTHERS: {name} (see {line})" for name, line in dependent.items()),
    )
