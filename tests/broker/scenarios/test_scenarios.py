"""Play the scenarios of this folder."""

from __future__ import annotations

import pytest

from ...stories import scenarios
from . import FOLDER, play

ALL = [
    pytest.param(*scenario, id=f"{file.stem}-{name}")
    for file in sorted(FOLDER.glob("*.txt"))
    for name, scenario in scenarios(file).items()
]


@pytest.mark.parametrize(("settings", "lines"), ALL)
def test_a_scenario(settings: dict[str, object], lines: list[str]) -> None:
    play(settings, lines)
