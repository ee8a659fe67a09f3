"""Run one part in its own process: ``python -m benchmarks.part NAME [--quick] [--json FILE]``.

A part is a module of this folder with a ``main()``. ``QUICK`` contains how each part is shortened.
The results are written as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest_fakecloud

from .timing import Results, results

FIRST = ("users", "kernel", "start", "plugin", "kv", "port", "search", "vector", "broker", "queue")
"""The first parts in their order; the others follow."""
LAST = ("load", "week")
TOOLS = frozenset({"commits", "explorers", "part", "raw", "report", "timing"})
"""Modules of this folder that are not parts."""


@dataclass(frozen=True)
class Short:
    """How a part is shortened: arguments of its command line, and other values for its constants."""

    words: tuple[str, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)


QUICK = {
    "start": Short(("--rounds", "1", "--only", "first")),
    "plugin": Short(constants={"SUITE": 5, "TURNS": 20}),
    "kv": Short(constants={"MEMBERS": 10_000, "KEYS": 1_000, "DUMPED": 1_000}),
    "port": Short(constants={"ROUNDS": 2, "CALLS": 5, "RECORDED": 50}),
    "search": Short(constants={"LARGE": 2_000, "DOCUMENTS": 100}),
    "vector": Short(
        ("--quick", "--rounds", "1"), {"ROWS": 1_000, "GROWN": 10_000, "SIZES": ((1_000, 768),)}
    ),
    "curves": Short(constants={"MOST": 1_000, "CALLS": 20}),
    "broker": Short(constants={"MILLION": 10_000, "WAKES": 10}),
    "queue": Short(constants={"MESSAGES": 50, "PENDING": 2_000, "ENDPOINTS": 2_000}),
    "explore": Short(constants={"SCHEDULES": 30, "COMPARED": 1}),
    "users": Short(constants={"ROUNDS": 1, "TESTS": 3, "PUBLISHING_TESTS": 2, "REST_CALLS": 50}),
    "load": Short(
        ("--seconds", "0.3", "--clients", "4", "--processes"), {"BUSY": 0.3, "WARM_UP": 100}
    ),
    "week": Short(("--days", "1", "--hours", "2", "--calls", "8")),
}


def known() -> list[str]:
    """Return the names of all parts, in the order in which they run."""
    names = {path.stem for path in Path(__file__).parent.glob("*.py")} - TOOLS
    rest = sorted(name for name in names - {*FIRST, *LAST} if not name.startswith("_"))
    return [*FIRST, *rest, *LAST]


def main() -> int:
    """Run the part; return 1 if a limit is missed, which a short run does not check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=known())
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    module = importlib.import_module(f"{__package__}.{options.name}")
    sys.argv = [f"{__package__}.{options.name}"]
    if options.quick:
        results.quick = True
        short = QUICK.get(options.name, Short())
        sys.argv += short.words
        for name, value in short.constants.items():
            # An unknown constant would make a short run long.
            getattr(module, name)
            setattr(module, name, value)
    started = perf_counter()
    code = module.main()
    if options.json is not None:
        content = {
            "part": options.name,
            "package": str(Path(pytest_fakecloud.__file__).parent),
            "seconds": round(perf_counter() - started, 2),
            "holds": not code,
            **plain(results),
        }
        options.json.write_text(json.dumps(content), encoding="utf-8")
    return 0 if options.quick else int(code)


def plain(measured: Results) -> dict[str, Any]:
    """Return all results as JSON; times are in microseconds."""
    return {
        "figures": [
            {
                "label": figure.label,
                "value": figure.value,
                "unit": figure.unit,
                "limit": figure.bound,
                "holds": None if measured.quick else figure.holds,
            }
            for figure in measured.figures
        ],
        "tables": [
            {
                "title": table.title,
                "rows": [
                    {
                        "name": row.name,
                        "best_us": row.best,
                        "p50_us": row.p50,
                        "spread": row.spread,
                        "calls": row.calls * len(row.rounds),
                        "ratio": table.ratio(row.name, table.rows[0].name),
                    }
                    for row in table.rows
                ],
                "missing": table.missing,
            }
            for table in measured.tables
        ],
        "curves": [
            {"title": curve.title, "work": curve.work, "series": curve.series}
            for curve in measured.curves
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
