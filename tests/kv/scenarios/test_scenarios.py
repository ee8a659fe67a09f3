"""The replies in this folder, compared with those of the engine."""

from __future__ import annotations

import re

import pytest
from _pytest.mark import ParameterSet

from tests.kv.conftest import Run
from tests.kv.scenarios import FOLDER, Scenario, play, scenarios


def cases(files: str, dialect: str) -> list[ParameterSet]:
    """Return the scenarios of some files, each marked with its dialect."""
    found = []
    for file in sorted(FOLDER.glob(files)):
        stem = file.relative_to(FOLDER).with_suffix("").as_posix()
        for title, scenario in scenarios(stem).items():
            own = re.search(r" \[(\w+) ?(\S*)\]$", title)
            settings = (own[1], own[2] or None) if own else (dialect, None)
            mark = pytest.mark.dialect(settings[0], version=settings[1])
            found.append(pytest.param(scenario, marks=mark, id=f"{stem}: {title}"))
    return found


@pytest.mark.parametrize(
    "scenario", [*cases("*.txt", "redis"), *cases("vendor/**/*.txt", "vendor")]
)
def test_scenario(run: Run, scenario: Scenario) -> None:
    play(run, scenario)
