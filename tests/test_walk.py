"""The modules that a request passes through, as described in CONTRIBUTING."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
MOST_STEPS_BACK = {
    "A GET over REST": 9,
    "ZADD over REST": 10,
    "A publish until its callback is delivered": 93,
    "A failing test until its report": 560,
}
"""What was reached, plus a few steps in which runs differ. Do not raise them."""


@pytest.mark.slow
def test_a_request_goes_the_way_that_is_told_and_back_no_more_often() -> None:
    # In its own process, because threads that are already running cannot be traced.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(re.findall(r"^(\w.*): .*, (\d+) steps back$", done.stdout, re.MULTILINE))
    assert found.keys() == MOST_STEPS_BACK.keys()
    told = " ".join(CONTRIBUTING.read_text(encoding="utf-8").split())
    assert re.search(r"^ZADD.*\n  (.*)", done.stdout, re.MULTILINE)[1] in told  # type: ignore[index]
    longer = {name: int(n) for name, n in found.items() if int(n) > MOST_STEPS_BACK[name]}
    assert not longer, done.stdout
