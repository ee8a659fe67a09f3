"""What a repetition of each command changes, compared with the command table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.table.registry import COMMANDS, EVERYTHING
from tests.kv.conftest import argv
from tests.kv.growth import Filled
from tests.kv.lines import DATA, LINES, LINES_FILE, derived_lines
from tests.kv.table import TABLE_FILE
from tests.notations import complete

CHANGING = ("again", "takes", "moves")
"""The effects of commands whose repetition changes data. Without an effect, it can change them."""
NOT_CHANGING = ("idempotent", "if-new", "if-equal")
"""The effects of commands whose repetition changes nothing, and that do not overwrite."""
NOT_REPEATED = {"MIGRATE", "SMOVE"}
"""Commands with such an effect that no line can repeat: MIGRATE needs another server, and SMOVE moves
the member in its argument.
"""
OTHER_VALUES = {
    "string": "SET copy other", "bitmap": "SET copy other", "hyperloglog": "PFADD copy other",
    "hash": "HSET copy e5 other", "generic": "HSET copy e5 other", "array": "ARSET copy 5 other",
    "list": "LSET copy 5 other", "stream": "XADD copy * f other", "sorted-set": "ZADD copy 9 e5",
    "geo": "GEOADD copy 9 9 e5",
}  # fmt: skip
"""For groups of commands, a change by another client of the value that a derived line (`WORDS`)
accesses: of a field, a member or an index, or else of the key. Members of sets have no value.
"""
CONDITION_IN_OPTION = {"DELEX"}
"""Commands whose condition is an option, which derived lines do not have."""


@pytest.mark.completeness
def test_rows_declare_that_a_repetition_changes_data() -> None:
    """The last command of each line (`tests/kv/lines.py`) is repeated."""
    filled = Filled(30, dialect="vendor")
    changing: dict[str, str] = {}
    declared = {
        name
        for name, spec in DATA.items()
        if spec.changes_keys and spec.repetition in ("", *CHANGING)
    }
    for line in LINES:
        lines = line.split(" ; ")
        spec = EVERYTHING.resolve(argv((lines[-1],)))
        # Indexes cannot be dumped.
        if not spec.changes_keys or spec.group in ("search", "vector"):
            continue
        data, repeated_data = _dumps(filled, lines), _dumps(filled, [*lines, lines[-1]])
        if repeated_data is not None and repeated_data != data:
            changing[spec.name] = line
    complete(
        TABLE_FILE,
        (
            f"to the row of {name}: one of {', '.join(CHANGING)} (or none) instead of "
            f"{COMMANDS[name].repetition}, because of `{line}`"
            for name, line in changing.items()
            if name not in declared
        ),
    )
    complete(
        LINES_FILE,
        (
            f"a line of {name} that changes data again when it is repeated (or, to its row in "
            f"kv/table/commands.txt, one of overwrites, derives, {', '.join(NOT_CHANGING)})"
            for name in sorted(declared - changing.keys() - NOT_REPEATED)
        ),
        "NOT_REPEATED of tests/kv/table/test_repetition.py",
    )


@pytest.mark.completeness
def test_rows_declare_that_a_command_overwrites_a_value() -> None:
    """Another client changes the value before it, which is then seen in the data or not."""
    filled = Filled(30, dialect="vendor")
    wrong = []
    for name, spec in DATA.items():
        lines = derived_lines(spec)
        other = OTHER_VALUES.get(spec.group)
        if lines is None or other is None or spec.repetition not in ("overwrites", *NOT_CHANGING):
            continue
        copy, line = lines
        before, data = _dumps(filled, [copy], keys_of=line), _dumps(filled, lines)
        is_overwritten = data not in (None, before) and _dumps(filled, [copy, other, line]) == data
        if is_overwritten != (spec.repetition == "overwrites") and name not in CONDITION_IN_OPTION:
            effect = "overwrites" if is_overwritten else f"one of {', '.join(NOT_CHANGING)}"
            wrong.append(
                f"to the row of {name}: {effect} instead of {spec.repetition}, because of `{line}` "
                f"after `{other}`"
            )
    complete(TABLE_FILE, wrong, "CONDITION_IN_OPTION of tests/kv/table/test_repetition.py")


def _dumps(filled: Filled, lines: Sequence[str], keys_of: str = "") -> object:
    """Return the keys of the line ``keys_of``, or of the last one, after all lines; None if one is
    rejected.
    """
    state = filled.engine.snapshot()
    try:
        for line in lines:
            filled.run(line)
        return filled.dumps(keys_of or lines[-1])
    except CommandError:
        return None
    finally:
        filled.engine.restore(state)
