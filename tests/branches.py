"""Print coverage by folder after ``coverage combine``: ``python -m tests.branches [--least
PERCENT]``.

A branch is one of the ways to continue after a decision. The table shows branches, lines, and both
together as in ``coverage report``. ``--least`` applies to branches alone and to both.
pyproject.toml lists the exclusions with their reasons.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

PACKAGE = "pytest_fakecloud"


def by_folder(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Return the sums of each folder, without its subfolders, and of ``all``, keyed as in the
    report.
    """
    found: dict[str, Counter[str]] = {}
    for name, told in sorted(files.items()):
        folder = PurePath(name.replace("\\", "/")).parent
        parts = folder.parts[folder.parts.index(PACKAGE) :]
        summary = {key: value for key, value in told["summary"].items() if isinstance(value, int)}
        for one in ("/".join(parts), "all"):
            found.setdefault(one, Counter()).update(summary)
    return found


def percent(part: int, whole: int) -> float:
    """Return the percentage; 100 if there is nothing to cover."""
    return 100 * part / whole if whole else 100.0


def table(folders: Mapping[str, Mapping[str, int]]) -> str:
    """Format the branches and lines of each folder."""
    lines = [f"{'':40} {'branches':>9} {'covered':>9} {'lines':>7} {'covered':>9} {'both':>9}"]
    for name, told in folders.items():
        branches = alone(told)
        statements = percent(told["covered_lines"], told["num_statements"])
        lines.append(
            f"{name:40} {told['num_branches']:9,} {branches:8.2f}% "
            f"{told['num_statements']:7,} {statements:8.2f}% {both(told):8.2f}%"
        )
    return "\n".join(lines)


def both(told: Mapping[str, int]) -> float:
    """Return the percentage of branches and lines together, as coverage.py computes it."""
    return percent(
        told["covered_branches"] + told["covered_lines"],
        told["num_branches"] + told["num_statements"],
    )


def alone(told: Mapping[str, int]) -> float:
    """Return the percentage of branches alone, which are fewer than lines and harder to cover."""
    return percent(told["covered_branches"], told["num_branches"])


def too_few(told: Mapping[str, int], least: float) -> Iterator[str]:
    """Yield what is below ``least`` percent."""
    for reached, what in ((alone(told), "branches"), (both(told), "branches and lines together")):
        if reached < least:
            yield f"{reached:.2f}% of {what} are covered, fewer than {least:g}%"


def missing(files: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yield each file with its uncovered branches: from and to."""
    for name, told in sorted(files.items()):
        ways = [f"{start}->{'exit' if end < 0 else end}" for start, end in told["missing_branches"]]
        if ways:
            yield f"{name}: {', '.join(ways)}"


def main() -> int:
    """Print the table; return 1 if coverage is too low."""
    parser = argparse.ArgumentParser(prog="python -m tests.branches", description=__doc__)
    parser.add_argument("--least", type=float, default=0.0, metavar="PERCENT")
    parser.add_argument("--missing", action="store_true", help="each branch that no test took")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "coverage.json"
        subprocess.run(
            [sys.executable, "-m", "coverage", "json", "-i", "-q", "-o", str(out)], check=True
        )
        files = json.loads(out.read_text("utf-8"))["files"]
    folders = by_folder(files)
    if given.missing:
        print("\n".join(missing(files)) + "\n")
    print(table(folders))
    complaints = list(too_few(folders["all"], given.least))
    print("\n".join(complaints))
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
