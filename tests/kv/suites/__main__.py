"""``python -m tests.kv.suites SUITE SOURCE``: a suite on a real server and on a fake."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path

from tests.kv.suites.servers import Outcome

from . import redis, redis_py
from .servers import SERVERS

SUITES = {"redis": redis, "redis-py": redis_py}
WIDTH = 44
SHOWN = 10
"""The number of missing tests to list per unit."""


def main() -> int:
    """Print the table, and below it each test that only the real server passes."""
    options = argparse.ArgumentParser(prog="python -m tests.kv.suites", description=__doc__)
    options.add_argument("suite", choices=SUITES)
    options.add_argument("source", type=Path, help="its unpacked source")
    options.add_argument("units", nargs="*", help="only these: unit/type/list, tests/test_lock.py")
    options.add_argument("--limit", type=float, default=400, help="seconds a unit may take")
    options.add_argument("--results", type=Path, help="a JSON file that keeps what was measured")
    options.add_argument(
        "--again", choices=SERVERS, action="append", default=[], help="measure this server anew"
    )
    chosen = options.parse_intermixed_args()
    suite, source = SUITES[chosen.suite], chosen.source.resolve()
    known = (
        json.loads(chosen.results.read_text()) if chosen.results and chosen.results.exists() else {}
    )
    print(f"{'unit':{WIDTH}}{'real':>6}{'fake':>6}{'missing':>9}", flush=True)
    missing: dict[str, list[str]] = {}
    total: Counter[str] = Counter()
    for unit in chosen.units or suite.units(source):
        kept = known.setdefault(unit, {})
        for name, server in SERVERS.items():
            if name not in kept or name in chosen.again:
                with server() as port:
                    kept[name] = dataclasses.asdict(suite.run(source, port, unit, chosen.limit))
                if chosen.results:
                    chosen.results.write_text(json.dumps(known))
        real, fake = (Outcome(**kept[name]) for name in SERVERS)
        missing[unit] = real.beyond(fake)
        shared = len(real.passed) - len(missing[unit])
        total.update(real=len(real.passed), fake=shared)
        print(
            _row(unit, len(real.passed), shared), fake.ended and f"ended {fake.ended}", flush=True
        )
    print(_row("all", total["real"], total["fake"]))
    for unit, names in missing.items():
        for name in names[:SHOWN]:
            print(f"  {unit}: {name}")
        if len(names) > SHOWN:
            print(f"  {unit}: and {len(names) - SHOWN} more")
    return 0


def _row(name: str, real: int, fake: int) -> str:
    return f"{name:{WIDTH}}{real:6}{fake:6}{real - fake or '':>9}"


if __name__ == "__main__":
    sys.exit(main())
