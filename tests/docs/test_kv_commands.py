"""The generated page of key-value commands."""

from __future__ import annotations

import re

import pytest

from pytest_fakecloud.kv.table.registry import COMMANDS

kv_commands = pytest.importorskip("docs.generate.kv_commands")  # not in an installed package


@pytest.mark.completeness
def test_every_command_has_a_row_and_a_sentence() -> None:
    rows = dict(
        re.findall(r"^\| ([A-Z._\- 0-9]+) \|.*\| ([^|]*) \|$", kv_commands.page(), re.MULTILINE)
    )
    named = {
        spec.name for spec in COMMANDS.values() if not (spec.subcommands and spec.function is None)
    }
    assert set(rows) == named
    assert [name for name, text in rows.items() if COMMANDS[name].function and len(text) < 10] == []


@pytest.mark.completeness
def test_reasons_are_given() -> None:
    table = kv_commands.page()
    assert "| SHUTDOWN | rejected: there is no process to stop |" in table
    assert "| BLPOP | no |" in table
    assert "| GET | yes |" in table
    assert "| XREAD | yes, without BLOCK |" in table
    assert "| MULTI | yes, within one pipeline |" in table
