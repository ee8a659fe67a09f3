"""Play the scenarios of this folder."""

from __future__ import annotations

import pytest

from ...notations import cases
from . import FOLDER, play


@pytest.mark.parametrize(("settings", "lines"), cases(FOLDER))
def test_a_scenario(settings: dict[str, object], lines: list[str]) -> None:
    play(settings, lines)
