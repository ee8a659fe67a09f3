"""All figures in one command: ``python -m benchmarks [PART…] [--quick] [--json FILE] [--plots DIR]``.

``--page FILE`` writes a page of the documentation; its plots go where ``--plots`` says.

``python -m benchmarks compare OLD NEW [PART…]`` measures two commits in turns instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import commits, plots, report
from .part import known


def main() -> int:
    """Run the named parts, or all, each in a process of its own; 1 when a limit is missed."""
    if sys.argv[1:2] == ["compare"]:
        return commits.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known())}")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="see that everything runs, in about a minute: small sizes, and no limits",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw tables and curves there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write it all as Markdown there")
    given = parser.parse_args()
    unknown = [name for name in given.parts if name not in known()]
    if unknown:
        parser.error(f"{', '.join(unknown)} is unknown; known are: {', '.join(known())}")
    machine = report.machine()
    print(report.described(machine), flush=True)
    parts: list[dict[str, Any]] = []
    missed, broken = [], []
    for name in given.parts or known():
        print(f"\n== {name}", flush=True)
        code, told = report.run_part(name, quick=given.quick)
        if told is None:
            broken.append(name)
        else:
            parts.append(told)
            if code:
                missed.append(name)
    print(f"\n== all figures\n{report.figures(parts)}")
    whole = {"machine": machine, "quick": given.quick, "parts": parts}
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    drawn = {} if given.plots is None else plots.draw(parts, given.plots)
    for path in drawn.values():
        print(f"drawn: {path}")
    if given.page is not None:
        near = {
            title: Path(os.path.relpath(path, given.page.parent)).as_posix()
            for title, path in drawn.items()
        }
        given.page.write_text(report.page(whole, near), encoding="utf-8")
    took = ", ".join(f"{part['part']} {part['seconds']:.0f} s" for part in parts)
    print(f"\n{took}")
    if broken:
        print(f"broke off: {', '.join(broken)}")
    if missed:
        print(f"limits missed in: {', '.join(missed)}")
    if not broken and not missed:
        print("everything ran; --quick has no limits" if given.quick else "all limits hold")
    return 1 if missed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
