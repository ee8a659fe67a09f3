"""The whole catalogue is there, and passing cases exercise every word and error text of it.

They exercise every command and option word of the table too, whether the catalogue has it or not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fakecloud.kv.engine import engine  # noqa: F401 - binds the functions
from pytest_fakecloud.kv.table.registry import COMMANDS as TABLE
from pytest_fakecloud.kv.table.registry import CommandSpec
from tests.harness import QUIET, check_each
from tests.kv import catalogue
from tests.kv.conftest import (
    EXERCISED_FILE,
    Exercised,
    case_files,
    session_record,
)

ROWS = [row for rows in catalogue.COMMANDS.values() for row in rows]

ARITY_SINCE_7_2 = {"ZRANK": -3, "ZREVRANK": -3}
"""WITHSCORE came with Redis 7.2, which made the arity a minimum."""


def bound(spec: CommandSpec) -> bool:
    return spec.function is not None or spec.subcommands is not None


class TestTable:
    def test_every_row_agrees(self) -> None:
        check_each(self.row_agrees, ROWS)

    @staticmethod
    def row_agrees(name: str, arity: int | None, words: str, access: str) -> None:
        spec = TABLE[name]
        if arity is not None:
            assert spec.arity == ARITY_SINCE_7_2.get(name, arity)
        assert set(words.split()) <= set(spec.options) | {"=", "~", "*", "$"}
        if access == "w":
            assert spec.write
        if access == "r":
            assert spec.readonly

    def test_every_command_has_a_function(self) -> None:
        assert [spec.name for spec in TABLE.values() if not bound(spec)] == []


@pytest.fixture(scope="module")
def exercised(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Exercised:
    """What passing tests exercised: in this run when it was a whole one, else in one of its own."""
    record = session_record(request.config)
    if record is not None:
        return record
    file = tmp_path_factory.mktemp("catalogue") / "exercised.json"
    here = Path(__file__).parent
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", *QUIET),
            *sorted(map(str, case_files())),
        ],
        env={**os.environ, EXERCISED_FILE: str(file)},
        cwd=here.parents[1],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert file.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    return Exercised.read(file.read_text())


# One test, so that of several workers only one has to run the cases.
@pytest.mark.slow
def test_every_word_and_text_is_exercised(exercised: Exercised) -> None:
    """Names the commands, option words and error texts that no passing case has shown."""
    words = {(name, word) for name, _, words, _ in ROWS for word in words.split()}
    words |= {(spec.name, word) for spec in TABLE.values() for word in spec.options}
    commands = {spec.name for spec in TABLE.values() if spec.subcommands is None}
    texts = catalogue.ERRORS
    missing = {
        "commands": sorted(({row[0] for row in ROWS} | commands) - exercised.commands),
        "option words": sorted(words - exercised.options),
        "error texts": [text for text in texts if not produced(text, exercised.errors)],
    }
    assert missing == {"commands": [], "option words": [], "error texts": []}


# What follows in these texts is only the word the client happened to send.
OPEN_ENDED = ("ERR Unsupported option ", "ERR Unknown argument ", "ERR Unknown option given: ")


def produced(text: str, errors: set[str]) -> bool:
    for start in OPEN_ENDED:
        if text.startswith(start):
            text = start + "<x>"
    text = text.removesuffix(" ...")
    # Names of libraries and functions, and line numbers, are those of whoever wrote the script.
    text = re.sub(r"'lib\d'", "'<x>'", text)
    text = re.sub(r"(?<=script: )f\d(?=, on)", "<x>", text)
    text = re.sub(r"(@user_\w+):\d+", r"\1:<x>", text)
    pattern = "".join(
        ".*" if part.startswith("<") else re.escape(part)
        for part in re.split(r"(<[a-z0-9A-Z]+>)", text)
    )
    return any(re.match(pattern, error, re.DOTALL) for error in errors)
