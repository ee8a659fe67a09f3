"""HELP of every container command; `test_self_description.py` compares it with a real server."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.table.registry import COMMANDS
from tests.kv.conftest import Run

CONTAINERS = [name for name in COMMANDS if f"{name} HELP" in COMMANDS and name != "CLUSTER"]
"""All containers except the one that is rejected as a whole, including HELP."""


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_subcommand_is_described(run: Run, container: str) -> None:
    port = run.other(transport="port")
    lines = [line.text.decode() for line in port(f"{container} HELP")]
    assert lines[0] == f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2:] == ["HELP", "    Prints this help."]
    words = {line.split()[0] for line in lines[1:] if line[0].isupper()}
    assert words == {word.decode() for word in COMMANDS[container].subcommands or ()}
