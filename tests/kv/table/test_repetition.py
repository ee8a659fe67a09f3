"""What a repetition of each command changes, compared with the command table: the last command of each
line (`tests/kv/lines.py`) is repeated.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.table import kinds
from pytest_fakecloud.kv.table.registry import COMMANDS, EVERYTHING
from tests.kv.conftest import argv
from tests.kv.growth import Filled
from tests.kv.lines import DATA, LINES, LINES_FILE
from tests.kv.table import TABLE_FILE
from tests.notations import complete

CHANGING = ("again", "varies")
"""The effects of commands whose repetition changes data."""
NOT_REPEATED = {"MIGRATE"}
"""Commands with such an effect that no line can repeat: MIGRATE needs another server."""


@pytest.mark.completeness
def test_rows_declare_that_a_repetition_changes_data() -> None:
    filled = Filled(30, dialect="vendor")
    state = filled.engine.snapshot()
    changing: dict[str, str] = {}
    declared = {name for name, spec in DATA.items() if spec.repetition in CHANGING}
    for line in LINES:
        *before, repeated = line.split(" ; ")
        words = argv((repeated,))
        spec = EVERYTHING.resolve(words)
        # Indexes cannot be dumped.
        if spec.name not in kinds.REPEATABLE | declared or spec.group in ("search", "vector"):
            continue
        keys = [words[at] for at, _ in spec.key_positions(words)]
        with suppress(CommandError):  # The repeated command of RENAME has no source any more.
            for command in (*before, repeated):
                filled.run(command)
            first = _dumps(filled, keys)
            filled.run(repeated)
            if _dumps(filled, keys) != first:
                changing[spec.name] = line
        filled.engine.restore(state)
    complete(
        TABLE_FILE,
        (
            f"the effect again or varies to {name} (see {line})"
            for name, line in changing.items()
            if name not in declared
        ),
    )
    complete(
        LINES_FILE,
        (
            f"a line of {name} that changes data again when it is repeated "
            f"(or remove {COMMANDS[name].repetition} from its row in kv/table/commands.txt)"
            for name in sorted(declared - changing.keys() - NOT_REPEATED)
        ),
        "NOT_REPEATED of tests/kv/table/test_repetition.py",
    )


def _dumps(filled: Filled, keys: list[bytes]) -> object:
    execute, tester = filled.engine.execute, filled.tester
    return [(execute(tester, [b"DUMP", key]), execute(tester, [b"PTTL", key])) for key in keys]
