"""The benchmarks: all of them run, their figures on the page, and the comparison of two commits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import commits
from benchmarks.part import known

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"


def benchmarks(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, **more,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="some parts read /proc")
@pytest.mark.parametrize("name", known())
def test_every_part_runs(name: str, tmp_path: Path) -> None:
    """Small sizes without limits: this only detects broken benchmarks."""
    out = tmp_path / "out.json"
    done = benchmarks(name, "--quick", "--json", str(out))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    whole = json.loads(out.read_text("utf-8"))
    assert whole["machine"]["python"]
    (part,) = whole["parts"]
    assert part["part"] == name
    assert part["figures"] or part["curves"]
    assert all(figure["holds"] is None for figure in part["figures"])


@pytest.mark.skipif(not REFERENCE.exists(), reason="an installed package has no docs folder")
def test_figures_of_the_page_are_those_measured() -> None:
    measured = {
        f"{part['part']}: {figure['label']}": f"{figure['value']:.2f}"
        for part in json.loads((REFERENCE / "measured.json").read_text("utf-8"))["parts"]
        for figure in part["figures"]
    }
    page = (REFERENCE / "benchmarks.md").read_text("utf-8")
    rows = re.findall(r"^\| .+ \| ([\d.]+) \| (.+) \|$", page, re.M)
    assert len(rows) == 12
    assert [row for row in rows if measured.get(row[1]) != row[0]] == []


# -- two commits -----------------------------------------------------------------------------------


def test_ratios_are_medians_of_pairs() -> None:
    pairs = [
        ({"a": 1.0, "gone": 1.0}, {"a": 2.0}),
        ({"a": 10.0, "gone": 1.0}, {"a": 10.0}),
        ({"a": 4.0, "gone": 1.0}, {"a": 6.0}),
    ]
    assert commits.ratios(pairs) == {"a": (4.0, 6.0, 1.5)}


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the source distribution has no commits")
def test_two_commits_are_measured_and_leave_nothing() -> None:
    def folders() -> set[str]:
        words = ["git", "worktree", "list", "--porcelain"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        return {line for line in done.stdout.splitlines() if line.startswith("worktree ")}

    before = folders()
    done = benchmarks("compare", "HEAD", "HEAD", "curves", "--quick", "--rounds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        line for line in done.stdout.splitlines() if "key-value commands: GET at 1,000 keys" in line
    ]
    assert len(rows) == 1
    assert 0.1 < float(rows[0].split("x")[0]) < 10
    assert folders() <= before
