"""Passing cases exercise every command and option word of the table, and every error text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fakecloud.kv.engine import engine  # noqa: F401 - binds the functions
from pytest_fakecloud.kv.settings import VERSION
from pytest_fakecloud.kv.table.registry import COMMANDS as TABLE
from pytest_fakecloud.kv.table.registry import command_table
from tests.harness import QUIET, check_each
from tests.kv import command_checks
from tests.kv.comparison.templates import NOT_COMPARED, TEMPLATES
from tests.kv.conftest import EXERCISED_FILE, Exercised, case_files, session_record
from tests.kv.scenarios import FOLDER
from tests.kv.table.test_layout import MODULES, module_of_group
from tests.notations import complete

IN_REDIS = command_table("redis", VERSION["redis"]).commands
"""The commands of a stock Redis server."""


class TestTable:
    def test_every_row_agrees(self) -> None:
        check_each(self.row_agrees, command_checks.ROWS_WITHOUT_SERVER)

    @staticmethod
    def row_agrees(name: str, arity: int, access: str, words: list[str]) -> None:
        spec = TABLE[name]
        assert (spec.arity, set(spec.options)) == (arity, set(words))
        assert spec.flags & {"readonly", "write"} == {access} - {"-"}


def test_every_data_command_is_compared_with_real_servers() -> None:
    def name(line: str) -> str:
        words = line.split()[:2]
        return " ".join(words) if TABLE[words[0]].subcommands else words[0]

    compared = {name(line) for lines in TEMPLATES.values() for line in lines}
    excluded = {word.replace("|", " ") for words in NOT_COMPARED.values() for word in words.split()}
    commands = {
        spec.name for spec in TABLE.values() if spec.group in TEMPLATES and not spec.subcommands
    }
    missing = commands - compared - excluded - command_checks.WITHOUT_SERVER
    complete(
        command_checks.CHECKS_FILE,
        (
            f"== {name}\ncompared => {name} <template>\n"
            "or, if neither Redis 7.0 nor Valkey 9.1 has the command:\n"
            + command_checks.ROW_WITHOUT_SERVER.format(name).partition("\n")[2]
            for name in sorted(missing)
        ),
        "NOT_COMPARED of tests/kv/comparison/templates.py",
    )
    both = sorted(compared & command_checks.WITHOUT_SERVER)
    assert not both, f"remove the row `compared` or `without server` of {both}"
    assert not compared & excluded


EFFECTS = ("value_at", "ttl_at", "takes_ttl", "reads_clock", "event")
"""The attributes of ``registry.Effects`` that scenarios compare with what a command does."""
NOT_SHOWN = {
    ("RESTORE", "value_at"), ("RESTORE-ASKING", "value_at"),  # the value is that of the payload
    ("DEBUG", "reads_clock"),  # needs a setting
    *((name, "reads_clock") for name in TABLE if name.startswith("SEARCH.")),  # read by the index
}  # fmt: skip
"""Effects that no scenario can show."""


@pytest.fixture(scope="module")
def exercised(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Exercised:
    """What passing tests exercised: in this run if it is complete, else in a run of its own."""
    record = session_record(request.config)
    if record is not None:
        return record
    file = tmp_path_factory.mktemp("exercised") / "exercised.json"
    here = Path(__file__).parent
    done = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-q", *QUIET), *sorted(map(str, case_files()))],
        env={**os.environ, EXERCISED_FILE: str(file)},
        cwd=here.parents[1],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert file.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    return Exercised.read(file.read_text())


# A single test, so that only one of several workers has to run the cases.
@pytest.mark.slow
def test_every_word_and_text_is_exercised(exercised: Exercised) -> None:
    """List the commands, option words, effects and error texts that no passing case exercised."""
    words = {
        (spec.name, word)
        for spec in TABLE.values() if spec.group != "cluster"  # always rejected
        for word in spec.options
    }  # fmt: skip
    commands = {spec.name for spec in TABLE.values() if spec.subcommands is None}
    declared = {
        (spec.name, effect) for spec in TABLE.values() for effect in EFFECTS
        if getattr(spec.effects, effect) not in (None, False, 0)
    }  # fmt: skip
    texts = command_checks.ERRORS
    effects = sorted(declared - exercised.effects - NOT_SHOWN)
    missing = [
        *((name, f"{name} <arguments> => <reply>") for name in commands - exercised.commands),
        *((name, f"{name} ... {word} => <reply>") for name, word in words - exercised.options),
        *((name, f"{name} ... => <reply>  # that shows {effect}") for name, effect in effects),
    ]
    unproduced = [text for text in texts if not produced(text, exercised.errors)]
    complete(
        FOLDER,
        (
            *(f"{file_of(name)}: {line}" for name, line in sorted(missing)),
            *(f"<file>: ... => -{text}" for text in unproduced),
        ),
    )


def file_of(name: str) -> str:
    """Return the file of scenarios of a command: that of its function's module, if this is not shared
    by several groups. Those of commands that Redis 7.0 lacks are in ``vendor/``.
    """
    module = MODULES.get(name, "arguments").replace(".", "/")
    folder = "" if name in IN_REDIS else "vendor/"
    return f"{folder}{module_of_group(TABLE[name].group) if module == 'arguments' else module}.txt"


def produced(text: str, errors: set[str]) -> bool:
    pattern = "".join(
        ".*" if part.startswith("<") else re.escape(part)
        for part in re.split(r"(<[a-z0-9A-Z]+>)", text)
    )
    return any(re.match(pattern, error, re.DOTALL) for error in errors)
