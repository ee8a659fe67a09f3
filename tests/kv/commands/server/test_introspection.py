"""HELP of every container, and the synopsis of every command against the command table.

`test_self_description.py` compares HELP with a real server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_fakecloud.kv.commands.server import introspection
from pytest_fakecloud.kv.table import arguments
from pytest_fakecloud.kv.table.arguments import ARGUMENTS
from pytest_fakecloud.kv.table.registry import COMMANDS, CommandSpec
from pytest_fakecloud.kv.table.rows import ROWS
from pytest_fakecloud.kv.table.synopsis import Argument
from tests.harness import together
from tests.kv.conftest import Run
from tests.notations import complete

CONTAINERS = [name for name in COMMANDS if f"{name} HELP" in COMMANDS and name != "CLUSTER"]
"""All containers except the one that is rejected as a whole, including HELP."""


@pytest.mark.completeness
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_subcommand_is_described(run: Run, container: str) -> None:
    port = run.other(interface="port")
    lines = [line.text.decode() for line in port(f"{container} HELP")]
    assert lines[0] == f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2:] == ["HELP", "    Prints this help."]
    words = {line.split()[0] for line in lines[1:] if line[0].isupper()}
    subcommands = {word.decode() for word in COMMANDS[container].subcommands or ()}
    complete(
        Path(introspection.__file__).with_name("help.txt"),
        (f"below `== {container}`: {word} <arguments>" for word in sorted(subcommands - words)),
    )
    assert words == subcommands


def least(sequence: Sequence[Argument]) -> list[str]:
    """Return the names of the words of the shortest command line, without the command's name."""
    words: list[str] = []
    for argument in sequence:
        if argument.optional:
            continue
        if argument.token:
            words.append(argument.token)
        if argument.kind == "oneof":
            words += min((least([inner]) for inner in argument.inner), key=len)
        elif argument.kind == "block":
            words += least(argument.inner)
        elif argument.kind == "string":
            words.append(argument.name)
    return words


@pytest.mark.completeness
@together
@pytest.mark.parametrize("spec", COMMANDS.values())
def test_keys_in_a_synopsis_are_known_as_keys(spec: CommandSpec) -> None:
    words = [*spec.name.split(), *least(spec.arguments)]
    for key in spec.keys:
        if key.unknown or (key.keyword and key.keyword.decode() not in words):
            continue
        line = [word.encode() for word in words]
        if key.numkeys:
            line[key.first] = b"%d" % words[key.first + 1 :].count("key")
        names = [words[at] for at in key.positions(line) or ()]
        complete(
            Path(arguments.__file__),
            (
                f"{name} with the type key, because of {spec.name}"
                for name in names
                if ARGUMENTS[name].type != "key"
            ),
        )


def test_a_container_and_its_help_have_no_synopsis() -> None:
    for name, spec in COMMANDS.items():
        if spec.subcommands is not None or name.endswith(" HELP"):
            assert not ROWS[name].arguments


def test_the_notation_is_read_as_it_is_written() -> None:
    """Write the arguments of each command in the notation again."""

    def written(argument: Argument) -> str:
        alternatives = [written(inner) for inner in argument.inner]
        inner = {"oneof": "|".join(alternatives), "block": " ".join(alternatives)}
        text = inner.get(argument.kind, argument.name if argument.kind == "string" else "")
        if argument.kind == "oneof" and (argument.multiple or not argument.optional):
            text = f"({text})"
        text = f"{argument.token} {text}".strip() + (" ..." if argument.multiple else "")
        return f"[{text}]" if argument.optional else text

    for spec in COMMANDS.values():
        again = " ".join(written(argument) for argument in spec.arguments)
        assert re.sub(r"\s*([|()\[\]])\s*", r"\1", again) == re.sub(
            r"\s*([|()\[\]])\s*", r"\1", spec.synopsis
        )
