"""Hostile scripts end within their time limit, and stay within their memory limit."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.budget import cases
from tests.kv.scripting.hostile import LIMITS

pytest.importorskip("resource")


@pytest.mark.slow
def test_no_hostile_script_gets_past_the_limits() -> None:
    count = cases(20)
    # In a process of its own: a script that escaped its limits would block this one for ever.
    command = [sys.executable, "-m", "tests.kv.scripting.hostile", "1", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * count)
    assert done.returncode == 0, done.stderr[-2000:]
    summary, slowest, *_ = done.stdout.splitlines()
    match = re.fullmatch(rf"{count} scripts, (\d+) stopped, (\d+) MB at most", summary)
    assert match is not None, summary
    assert int(match[1]) > count / 4
    assert int(match[2]) < 250
    assert float(slowest.split()[0]) < LIMITS.seconds + 1
