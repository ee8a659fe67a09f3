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
    folders: dict[str, Counter[str]] = {}
    for name, coverage in sorted(files.items()):
        folder = PurePath(name.replace("\\", "/")).parent
        parts = folder.parts[folder.parts.index(PACKAGE) :]
        summary = {
            key: value for key, value in coverage["summary"].items() if isinstance(value, int)
        }
        for place in ("/".join(parts), "all"):
            folders.setdefault(place, Counter()).update(summary)
    return folders


def percent(part: int, whole: int) -> float:
    """Return the percentage; 100 if there is nothing to cover."""
    return 100 * part / whole if whole else 100.0


def table(folders: Mapping[str, Mapping[str, int]]) -> str:
    """Format the branches and lines of each folder."""
    lines = [f"{'':40} {'branches':>9} {'covered':>9} {'lines':>7} {'covered':>9} {'both':>9}"]
    for name, counts in folders.items():
        branches = alone(counts)
        statements = percent(counts["covered_lines"], counts["num_statements"])
        lines.append(
            f"{name:40} {counts['num_branches']:9,} {branches:8.2f}% "
            f"{counts['num_statements']:7,} {statements:8.2f}% {both(counts):8.2f}%"
        )
    return "\n".join(lines)


def both(counts: Mapping[str, int]) -> float:
    """Return the percentage of branches and lines together, as coverage.py computes it."""
    return percent(
        counts["covered_branches"] + counts["covered_lines"],
        counts["num_branches"] + counts["num_statements"],
    )


def alone(counts: Mapping[str, int]) -> float:
    """Return the percentage of branches alone, which are fewer than lines and harder to cover."""
    return percent(counts["covered_branches"], counts["num_branches"])


def too_few(counts: Mapping[str, int], least: float) -> Iterator[str]:
    """Yield what is below ``least`` percent."""
    for reached, what in (
        (alone(counts), "branches"),
        (both(counts), "branches and lines together"),
    ):
        if reached < least:
            yield f"{reached:.2f}% of {what} are covered, fewer than {least:g}%"


def missing(files: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yield each file with its uncovered branches: from and to."""
    for name, coverage in sorted(files.items()):
        ways = [
            f"{start}->{'exit' if end < 0 else end}" for start, end in coverage["missing_branches"]
        ]
        if ways:
            yield f"{name}: {', '.join(ways)}"


def main() -> int:
    """Print the table; return 1 if coverage is too low."""
    parser = argparse.ArgumentParser(prog="python -m tests.branches", description=__doc__)
    parser.add_argument("--least", type=float, default=0.0, metavar="PERCENT")
    parser.add_argument("--missing", action="store_true", help="each branch that no test took")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "coverage.json"
        subprocess.run(
            [sys.executable, "-m", "coverage", "json", "-i", "-q", "-o", str(out)], check=True
        )
        files = json.loads(out.read_text("utf-8"))["files"]
    folders = by_folder(files)
    if options.missing:
        print("\n".join(missing(files)) + "\n")
    print(table(folders))
    complaints = list(too_few(folders["all"], options.least))
    print("\n".join(complaints))
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
