"""Arguments that are fields, members or indexes, and the commands that access nothing else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.table import exceptions, kinds
from pytest_fakecloud.kv.table.registry import EVERYTHING
from tests.kv.conftest import argv
from tests.kv.growth import Filled
from tests.kv.lines import LINES
from tests.notations import complete

OTHERS = {
    "hash": "HSET {} other x", "set": "SADD {} other", "sorted-set": "ZADD {} -1 other",
    "geo": "GEOADD {} 5 5 other", "array": "ARSET {} 9990 other",
}  # fmt: skip
"""A command of each group that adds another element: before all others, or beside e5."""


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
