"""Runs of pytest with their outcomes, as text.

A run (`== <name>`) is a test file, and its outcome: `=> passed=2, failed=1`, `=> <pattern>` for a line
of the output, with `.. <pattern>` for a later line and `++ <pattern>` for the next one, `no <pattern>`
for none, and `has <text>` and `lacks <text>` for parts of the output. Before the test file (`--- test`)
there may be `--- ini` with settings, `--- options <words>`, and other files, e.g. `--- conftest.py`.

The lines before the first run begin the test file of each, except those that begin with `# `.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from ...harness import Run

FOLDER = Path(__file__).parent
_EXPECTED = re.compile(r"(=>|\.\.|\+\+|no|has|lacks) (.*)")


def cases() -> list[ParameterSet]:
    """Return the runs of all files, each with what begins its test file."""
    found = []
    for file in sorted(FOLDER.glob("*.txt")):
        head, *runs = file.read_text("utf-8").split("\n== ")
        shared = "\n".join(line for line in head.split("\n") if line[:2] != "# ")
        for name, _, text in (run.partition("\n") for run in runs):
            found.append(pytest.param(shared, text, id=f"{file.stem}-{name}"))
    return found


def play(run: Run, pytester: pytest.Pytester, shared: str, text: str) -> None:
    """Run pytest on the files of a run, and compare its outcome."""
    lines = text.rstrip().split("\n")
    expected: list[tuple[str, str]] = []
    while found := _EXPECTED.fullmatch(lines[-1]):
        expected.insert(0, (found[1], found[2]))
        lines.pop()
    assert expected, "the run has no outcome"
    head, *parts = ("\n".join(["", *lines])).split("\n--- ")
    files = dict(part.partition("\n")[::2] for part in parts)
    options = [name for name in files if name.startswith("options ")]
    source = files.pop("test", head if not parts else "")
    for name, content in files.items():
        if name == "ini":
            pytester.makeini(f"[pytest]\n{content}")
        elif name.endswith(".py"):
            pytester.makepyfile(**{name.removesuffix(".py"): content})
    result = run(f"{shared}\n{source}", *(word for one in options for word in shlex.split(one[8:])))
    _compare(result, expected)


def _compare(result: pytest.RunResult, expected: list[tuple[str, str]]) -> None:
    output = result.stdout.str()
    group: list[str] = []
    for at, (word, pattern) in enumerate(expected):
        if word == "has":
            assert pattern in output
        elif word == "lacks":
            assert pattern not in output
        elif word == "no":
            result.stdout.no_fnmatch_line(pattern)
        elif re.fullmatch(r"\w+=\d+(, \w+=\d+)*", pattern):
            counts = (one.split("=") for one in pattern.split(", "))
            result.assert_outcomes(**{name: int(count) for name, count in counts})
        else:
            group = [*group, pattern] if word != "=>" else [pattern]
            following = expected[at + 1][0] if at + 1 < len(expected) else ""
            if following not in ("..", "++"):
                result.stdout.fnmatch_lines(group, consecutive=word == "++")
