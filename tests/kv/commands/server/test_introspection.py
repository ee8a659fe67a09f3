"""COMMAND and HELP, apart from the scenarios: all commands, and texts of the real server."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.table.registry import COMMANDS
from tests.kv.comparison.servers import running
from tests.kv.conftest import Run


@pytest.mark.dialect("redis")
def test_stock_shows_all(run: Run) -> None:
    commands = run("COMMAND")
    assert len(commands) == run("COMMAND COUNT")
    names = run("COMMAND LIST")
    assert {name for name in names if b"|" not in name} == {one[0] for one in commands}
    assert {b"acl|cat", b"xinfo|stream", b"object|encoding"} < set(names)
    assert len(commands) == 240


CONTAINERS = [name for name in COMMANDS if f"{name} HELP" in COMMANDS and name != "CLUSTER"]
"""All containers except the one that is rejected as a whole, including HELP."""


def told(run: Run, container: str) -> list[str]:
    port = run.other(transport="port")
    return [line.text.decode() for line in port(f"{container} HELP")]


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_subcommand_is_described(run: Run, container: str) -> None:
    lines = told(run, container)
    assert lines[0] == f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2:] == ["HELP", "    Prints this help."]
    words = {line.split()[0] for line in lines[1:] if line[0].isupper()}
    assert words == {word.decode() for word in COMMANDS[container].subcommands or ()}


@pytest.mark.dialect("redis")
def test_the_stock_dialect_has_the_texts_of_the_real_server(run: Run) -> None:
    with running(version="7.0.") as server:
        for container in CONTAINERS:
            if container != "JSON.DEBUG":
                reply = server.call([container.encode(), b"HELP"])
                assert told(run, container) == [line.text.decode() for line in reply]
