"""Play the scenarios of this folder."""

from __future__ import annotations

import pytest

from . import FOLDER, play, scenarios

ALL = [
    pytest.param(*scenario, id=f"{file.stem}-{name}")
    for file in sorted(FOLDER.glob("*.txt"))
    if file.stem != "headers"  # tests/queue/rest/test_table.py plays these scenarios.
    for name, scenario in scenarios(file.stem).items()
]


@pytest.mark.parametrize(("settings", "lines"), ALL)
def test_a_scenario(settings: dict[str, object], lines: list[str]) -> None:
    play(settings, lines)
