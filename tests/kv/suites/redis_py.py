"""The test suite of redis-py, run file by file against a server without modules.

It runs with this interpreter, or with ``REDIS_PY_PYTHON``, because the suite needs packages that
this project does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.kv.suites.servers import Outcome

TITLE = "redis-py"
"""The beginning of the suite's row on the page."""
LEFT_OUT = ("redismod", "onlycluster", "ssl", "replica", "cp_integration", "multidb_integration")
"""Markers of tests that need another kind of server."""
_OTHER_SERVERS = ("test_cluster", "test_multidb", "test_scenario", "test_sentinel", "test_ssl")
_PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout")
_NO_TESTS = 5


def units(source: Path) -> list[str]:
    """Return the test files that need no cluster, no sentinel and no TLS."""
    files = sorted((source / "tests").rglob("test_*.py"))
    names = [file.relative_to(source).as_posix() for file in files]
    return [name for name in names if not any(f"/{other}" in name for other in _OTHER_SERVERS)]


def run(
    source: Path,
    port: int,
    unit: str,
    limit: float,
    *,
    left_out: Sequence[str] = LEFT_OUT,
    options: Sequence[str] = (),
) -> Outcome:
    """Run one file against the server on `port`, for at most `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [os.environ.get("REDIS_PY_PYTHON", sys.executable), "-m", "pytest", unit, "-q"]
        command += ["--redis-url", f"redis://localhost:{port}/0", "--junitxml", str(report)]
        command += options
        command += ["-m", " and ".join(f"not {marker}" for marker in left_out)]
        for plugin in _PLUGINS:
            command += ["-p", plugin]
        ended = ""
        try:
            done = subprocess.run(
                command,
                cwd=source,
                env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
                check=False,
            )
            output = done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            ended = f"after {limit:g} s"
            output = str(late.stdout)
        if not report.exists():
            return Outcome([], [], ended or "without a report", output)
        cases = list(_cases(report))
    return Outcome(
        [name for name, failed in cases if not failed],
        [name for name, failed in cases if failed],
        ended,
        output,
    )


def _cases(report: Path) -> Iterator[tuple[str, bool]]:
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        tags = {element.tag for element in case}
        if "skipped" not in tags:
            yield f"{case.get('classname')}::{case.get('name')}", bool(tags & {"failure", "error"})
