"""Play the runs of this folder."""

from __future__ import annotations

import pytest

from ...harness import Run
from . import cases, play


@pytest.mark.parametrize(("shared", "text"), cases())
def test_a_run(run: Run, pytester: pytest.Pytester, shared: str, text: str) -> None:
    play(run, pytester, shared, text)
