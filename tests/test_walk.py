"""The way of a request through the package stays short: what ``python -m benchmarks.walk`` prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_STEPS_BACK = {"ZADD over REST": 20, "A publish until its callback is delivered": 175}
"""Some above what they are, since threads may come in another order. Raise none without a reason."""


def test_a_request_goes_back_no_more_often_than_it_has_to() -> None:
    # In a process of its own: threads that run already cannot be watched.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(re.findall(r"^(\w.*): .*, (\d+) steps back$", done.stdout, re.MULTILINE))
    assert found.keys() == MOST_STEPS_BACK.keys()
    longer = {name: int(n) for name, n in found.items() if int(n) > MOST_STEPS_BACK[name]}
    assert not longer, done.stdout
