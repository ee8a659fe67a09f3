"""Play the scenarios of this folder."""

from __future__ import annotations

import pytest

from ...notations import cases
from . import FOLDER, play

# `tests/queue/rest/test_table.py` plays `headers.txt`.


@pytest.mark.parametrize(("settings", "lines"), cases(FOLDER, "headers"))
def test_a_scenario(settings: dict[str, object], lines: list[str]) -> None:
    play(settings, lines)
