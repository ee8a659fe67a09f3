"""Compare two commits: ``python -m benchmarks compare OLD NEW [PART…] [--rounds N]``.

Both commits are checked out temporarily and measured by the benchmarks of this checkout, so that
differences come from the package. A part that needs something that a commit does not have is
reported. The commits take turns, and a figure is the median of the ratios of adjacent runs.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from .part import known
from .report import described, machine, run_part

DEFAULT = ("users",)
ROOT = Path(__file__).resolve().parents[1]


def main(words: Sequence[str]) -> int:
    """Measure both commits and print the ratios; return 1 if a part did not run on both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=__doc__)
    parser.add_argument("old", help="a commit, branch or tag")
    parser.add_argument("new", help="likewise")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"left out: {' '.join(DEFAULT)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    options = parser.parse_args(words)
    parts = options.parts or list(DEFAULT)
    unknown = [name for name in parts if name not in known()]
    if unknown:
        parser.error(f"{', '.join(unknown)} is unknown; known are: {', '.join(known())}")
    print(described(machine()))
    whole = True
    with measuring() as folder, checked_out(options.old) as old, checked_out(options.new) as new:
        for name in parts:
            pairs = []
            for number in range(options.rounds):
                results_by_side = {}
                sides = [("old", old), ("new", new)]
                # Take turns in going first, because the machine is colder then.
                for side, path in sides[:: -1 if number % 2 else 1]:
                    _, results = run_part(
                        name, quick=options.quick, folder=folder, path=path, quiet=True
                    )
                    if results is None:
                        print(f"{name} does not run on {getattr(options, side)}")
                        break
                    if Path(results["package"]) != path / "pytest_fakecloud":
                        raise RuntimeError(
                            f"measured {results['package']}, not the checkout of {side}"
                        )
                    results_by_side[side] = results
                if len(results_by_side) < 2:
                    break
                pairs.append((times(results_by_side["old"]), times(results_by_side["new"])))
            whole = whole and len(pairs) == options.rounds
            if pairs:
                print(f"\n== {name}: {options.new} / {options.old}, {len(pairs)} rounds in turns")
                for row, (before, after, ratio) in ratios(pairs).items():
                    print(
                        f"{ratio:8.2f}x  {before:12,.1f} us -> {after:12,.1f} us  {row}", flush=True
                    )
    return 0 if whole else 1


def times(results: Mapping[str, Any]) -> dict[str, float]:
    """Return the best time in microseconds of each row of each table and each point of each curve,
    by name.
    """
    best_times = {}
    for number, table in enumerate(results["tables"]):
        for row in table["rows"]:
            best_times[f"{table['title'] or number + 1}: {row['name']}"] = row["best_us"]
    for curve in results["curves"]:
        for name, points in curve["series"].items():
            for x, y in points:
                best_times[f"{curve['title']}: {name} at {x:,.0f} {curve['work']}"] = y
    return best_times


def ratios(
    pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]],
) -> dict[str, tuple[float, float, float]]:
    """Return the median before, the median after and the median ratio of every figure that all
    rounds have.
    """
    first = pairs[0][0]
    names = [name for name in first if all(name in side for pair in pairs for side in pair)]
    return {
        name: (
            median(old[name] for old, _ in pairs),
            median(new[name] for _, new in pairs),
            median(new[name] / old[name] for old, new in pairs),
        )
        for name in names
    }


@contextmanager
def measuring() -> Iterator[Path]:
    """Create a folder that contains only these benchmarks: beside them, Python would find this
    checkout's package.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copied = Path(scratch) / "benchmarks"
        shutil.copytree(Path(__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(scratch)


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check out a commit in a temporary folder."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    name = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch).resolve() / "tree"
        git("worktree", "add", "--detach", str(path), name)
        try:
            yield path
        finally:
            git("worktree", "remove", "--force", str(path))
