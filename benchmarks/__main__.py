"""Run all benchmarks: ``python -m benchmarks [PART…] [--quick] [--json FILE] [--plots DIR]``.

``--site`` runs all parts and rewrites the page *Measured* of the documentation.

``python -m benchmarks compare OLD NEW [PART…]`` compares two commits instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import commits, plots, report, site
from .part import known


def main() -> int:
    """Run the named parts, or all, each in its own process; return 1 if a limit is missed."""
    if sys.argv[1:2] == ["compare"]:
        return commits.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known())}")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="see that everything runs, in under a minute: small sizes side by side, and no limits",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw tables and curves there")
    parser.add_argument(
        "--site",
        action="store_true",
        help="write the page Measured of the documentation anew, its figures and its pictures",
    )
    options = parser.parse_args()
    if options.site and (options.quick or options.parts):
        parser.error("--site shows all parts, and measured in full")
    unknown = [name for name in options.parts if name not in known()]
    if unknown:
        parser.error(f"{', '.join(unknown)} is unknown; known are: {', '.join(known())}")
    machine = report.machine()
    print(report.described(machine), flush=True)
    parts: list[dict[str, Any]] = []
    missed, broken = [], []
    for name, code, results in _run(options.parts or known(), quick=options.quick):
        if results is None:
            broken.append(name)
        else:
            parts.append(results)
            if code:
                missed.append(name)
    print(f"\n== all figures\n{report.figures(parts)}")
    whole = {"machine": machine, "quick": options.quick, "parts": parts}
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    if options.plots is not None:
        for path in plots.draw(parts, options.plots).values():
            print(f"drawn: {path}")
    if options.site and not broken:
        print(f"written: {site.write(whole)}")
    took = ", ".join(f"{part['part']} {part['seconds']:.0f} s" for part in parts)
    print(f"\n{took}")
    if broken:
        print(f"broke off: {', '.join(broken)}")
    if missed:
        print(f"limits missed in: {', '.join(missed)}")
    if not broken and not missed:
        print("everything ran; --quick has no limits" if options.quick else "all limits hold")
    return 1 if missed or broken else 0


def _run(names: Sequence[str], *, quick: bool) -> Iterator[tuple[str, int, dict[str, Any] | None]]:
    """Run the parts one after the other; quick runs at the same time, because their figures do not
    count.
    """
    if not quick:
        for name in names:
            print(f"\n== {name}", flush=True)
            yield name, *report.run_part(name)
        return
    with ExitStack() as stack:
        words = {name: stack.enter_context(tempfile.TemporaryFile("w+")) for name in names}
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)))
        started = {
            name: pool.submit(report.run_part, name, quick=True, into=words[name]) for name in names
        }
        for name, part in started.items():
            code, results = part.result()
            words[name].seek(0)
            print(f"\n== {name}\n{words[name].read()}", end="", flush=True)
            yield name, code, results


if __name__ == "__main__":
    sys.exit(main())
