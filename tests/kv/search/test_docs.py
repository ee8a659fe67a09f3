"""Every block of Python in ``docs/search.md`` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness import Run, run  # noqa: F401 - a fixture

PAGE = (Path(__file__).parents[3] / "docs" / "search.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python_block(block: str, run: Run) -> None:  # noqa: F811
    outcomes = run(block).parseoutcomes()
    assert not outcomes.keys() & {"failed", "error", "errors"}
    assert outcomes["passed"] >= block.count("def test_") > 0
