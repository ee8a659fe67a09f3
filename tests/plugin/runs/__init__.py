"""Runs of pytest with their outcomes, as scenarios (`tests/notations.py`).

The settings of a scenario are those of an ini file. Its lines are the test file, then other files
(`--- conftest.py`), then the outcome: `=> passed=2, failed=1`, `=> <pattern>` for each of some lines of
the output, in their order, and `=> has <text>` and `=> lacks <text>` for parts of the output.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ...harness import Run

FOLDER = Path(__file__).parent


def play(run: Run, pytester: pytest.Pytester, settings: dict[str, str], lines: list[str]) -> None:
    """Run pytest on the files of a run, and compare its outcome."""
    outcome = [line[3:] for line in lines if line.startswith("=> ")]
    assert outcome, "the run has no outcome"
    source, *files = "\n".join(line for line in lines if line[:3] != "=> ").split("\n--- ")
    if settings:
        pytester.makeini(
            "\n".join(["[pytest]", *(f"{name} = {settings[name]}" for name in settings)])
        )
    for name, _, content in (file.partition("\n") for file in files):
        pytester.makepyfile(**{name.removesuffix(".py"): content})
    _compare(run(source), outcome)


def _compare(result: pytest.RunResult, outcome: list[str]) -> None:
    output = result.stdout.str()
    patterns = []
    for line in outcome:
        word, _, part = line.partition(" ")
        if word == "has":
            assert part in output
        elif word == "lacks":
            assert part not in output
        elif re.fullmatch(r"\w+=\d+(, \w+=\d+)*", line):
            counts = (count.split("=") for count in line.split(", "))
            result.assert_outcomes(**{name: int(count) for name, count in counts})
        else:
            patterns.append(line)
    result.stdout.fnmatch_lines(patterns)
