"""Play the runs of this folder."""

from __future__ import annotations

import pytest

from ...harness import Run
from ...notations import cases
from . import FOLDER, play


@pytest.mark.parametrize(("settings", "lines"), cases(FOLDER))
def test_a_run(
    run: Run, pytester: pytest.Pytester, settings: dict[str, str], lines: list[str]
) -> None:
    play(run, pytester, settings, lines)
