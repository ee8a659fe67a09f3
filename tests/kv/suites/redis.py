"""Redis' own test suite, run unit by unit against an external server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

from tests.kv.suites.servers import Outcome

TITLE = "Redis' own"
"""The beginning of the suite's row on the page."""
LEFT_OUT = ("-needs:repl", "-large-memory", "-slow")
"""Tags of tests that neither server runs."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PASSED = re.compile(r"^\[ok\]: (.*?)(?: \(\d+ ms\))?$", re.M)
_FAILED = re.compile(r"^\[err\]:? ?(.*?)(?: in tests/.*)?$", re.M)
_UNITS = re.compile(r"set ::all_tests \{(.*?)\}", re.S)


def units(source: Path) -> list[str]:
    """Return the units that need no replication, cluster or module."""
    listed = _UNITS.search((source / "tests/test_helper.tcl").read_text())
    assert listed is not None, f"{source} is no unpacked source of Redis 7.0"
    names: list[str] = re.findall(r"^\s+(unit/\S+)$", listed[1], re.M)
    return [name for name in names if "moduleapi" not in name and "cluster/" not in name]


def run(source: Path, port: int, unit: str, limit: float) -> Outcome:
    """Run one unit against the server on `port`, for at most `limit` seconds."""
    process = subprocess.Popen(
        ["./runtest", "--host", "127.0.0.1", "--port", str(port), "--baseport", str(_base_port()),
         "--clients", "1", "--tags", " ".join(LEFT_OUT), "--durable", "--single", unit],
        cwd=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )  # fmt: skip
    ended = ""
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        ended = f"after {limit:g} s"
    output = _COLOUR.sub("", output)
    if not ended and "[exception]" in output:
        ended = "by an exception"
    return Outcome(_PASSED.findall(output), _FAILED.findall(output), ended, output)


def _base_port() -> int:
    """Return a free range for the suite's own ports, below the system's ephemeral ones."""
    return 20_000 + os.getpid() % 100 * 100
