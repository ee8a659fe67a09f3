"""The support table in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fakecloud.kv.support import support_table
from pytest_fakecloud.kv.table.registry import COMMANDS, function_of

FILE = Path(__file__).parents[2] / "docs" / "reference" / "kv-commands.md"


@pytest.mark.skipif(not FILE.exists(), reason="an installed package has no docs folder")
def test_the_file_is_current() -> None:
    current = FILE.read_text(encoding="utf-8")
    assert current == support_table(), "the table has changed: python -m docs.generate"


def test_every_command_has_a_row_and_a_sentence() -> None:
    rows = dict(
        re.findall(r"^\| ([A-Z._\- 0-9]+) \|.*\| ([^|]*) \|$", support_table(), re.MULTILINE)
    )
    named = {
        spec.name
        for spec in COMMANDS.values()
        if not (spec.subcommands and function_of(spec) is None)
    }
    assert set(rows) == named
    assert [
        name for name, text in rows.items() if function_of(COMMANDS[name]) and len(text) < 10
    ] == []


def test_reasons_are_given() -> None:
    table = support_table()
    assert "| SHUTDOWN | rejected: there is no process to stop |" in table
    assert "| BLPOP | no |" in table
    assert "| GET | yes |" in table
    assert "| XREAD | yes, without BLOCK |" in table
    assert "| MULTI | yes, within one pipeline |" in table
