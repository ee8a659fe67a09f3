"""Run the tests of the JavaScript clients with Node, using the packages that `npm ci` installs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "js"
SECONDS = 120


def need(*packages: str) -> None:
    """Skip the calling test if Node or a package is missing."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for package in packages:
        if not (HERE / "node_modules" / package).is_dir():
            pytest.skip(f"{package} is not installed: run `npm ci` in tests/clients/js")


def run(file: str, environment: Mapping[str, str], *, reporter: str = "spec") -> str:
    """Run a test file; return its output. Fails unless all of its tests pass in time."""
    process = subprocess.Popen(
        # The option --test would run the file in another interpreter.
        [str(shutil.which("node")), f"--test-reporter={reporter}", file],
        cwd=HERE,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        pytest.fail(f"{file} did not end in {SECONDS} s:\n{output[-20_000:]}")
    assert process.returncode == 0, output[-20_000:]
    return output
