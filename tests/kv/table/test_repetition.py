"""What a repetition of each command changes, compared with the command table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.table.registry import COMMANDS, EVERYTHING
from tests.kv.conftest import argv
from tests.kv.growth import Filled
from tests.kv.lines import DATA, LINES, LINES_FILE, WORDS, derived_lines
from tests.kv.table import TABLE_FILE
from tests.notations import complete

CHANGING = ("again", "varies", "takes", "moves")
"""The effects of commands whose repetition changes data."""
NOT_REPEATED = {"MIGRATE", "SMOVE"}
"""Commands with such an effect that no line can repeat: MIGRATE needs another server, and SMOVE moves
the member in its argument.
"""
OTHER_WORDS = {**WORDS, "value": "y", "element": "y"}
"""The words of derived lines that store another value."""
NOT_OVERWRITING = {"HSETEX", "LSET", "SETRANGE"}
"""Commands that replace a value, which reports do not count as overwriting: a part of a list or of a
string, and the fields of HSETEX, which can have conditions of their own.
"""


@pytest.mark.completeness
def test_rows_declare_that_a_repetition_changes_data() -> None:
    """The last command of each line (`tests/kv/lines.py`) is repeated."""
    filled = Filled(30, dialect="vendor")
    changing: dict[str, str] = {}
    declared = {name for name, spec in DATA.items() if spec.repetition in CHANGING}
    for line in LINES:
        lines = line.split(" ; ")
        spec = EVERYTHING.resolve(argv((lines[-1],)))
        # Indexes cannot be dumped.
        if not spec.repetition or spec.group in ("search", "vector"):
            continue
        data, repeated_data = _dumps(filled, lines), _dumps(filled, [*lines, lines[-1]])
        if repeated_data is not None and repeated_data != data:
            changing[spec.name] = line
    complete(
        TABLE_FILE,
        (
            f"to the row of {name}: one of {', '.join(CHANGING)} instead of "
            f"{COMMANDS[name].repetition}, because of `{line}`"
            for name, line in changing.items()
            if name not in declared
        ),
    )
    complete(
        LINES_FILE,
        (
            f"a line of {name} that changes data again when it is repeated (or, to its row in "
            f"kv/table/commands.txt, another effect than {COMMANDS[name].repetition})"
            for name in sorted(declared - changing.keys() - NOT_REPEATED)
        ),
        "NOT_REPEATED of tests/kv/table/test_repetition.py",
    )


@pytest.mark.completeness
def test_rows_declare_that_a_command_overwrites_a_value() -> None:
    """The same line with another value comes before it, and is then seen in the data or not."""
    filled = Filled(30, dialect="vendor")
    wrong = []
    for name, spec in DATA.items():
        lines, other_lines = derived_lines(spec), derived_lines(spec, OTHER_WORDS)
        if lines is None or other_lines is None or lines == other_lines:
            continue
        copy, line = lines
        data, other_data = _dumps(filled, lines), _dumps(filled, other_lines)
        is_replaced = data != other_data
        is_overwritten = is_replaced and _dumps(filled, [copy, other_lines[1], line]) == data
        if is_overwritten != (spec.repetition == "overwrites") and name not in NOT_OVERWRITING:
            effect = "overwrites" if is_overwritten else "another effect"
            wrong.append(
                f"to the row of {name}: {effect} instead of {spec.repetition}, because of `{line}`"
            )
    complete(TABLE_FILE, wrong, "NOT_OVERWRITING of tests/kv/table/test_repetition.py")


def _dumps(filled: Filled, lines: Sequence[str]) -> object:
    """Return the keys of the last line after all lines; None if one is rejected."""
    execute, tester = filled.engine.execute, filled.tester
    words = argv((lines[-1],))
    state = filled.engine.snapshot()
    try:
        for line in lines:
            filled.run(line)
        keys = [words[at] for at, _ in EVERYTHING.resolve(words).key_positions(words)]
        return [(execute(tester, [b"DUMP", key]), execute(tester, [b"PTTL", key])) for key in keys]
    except CommandError:
        return None
    finally:
        filled.engine.restore(state)
