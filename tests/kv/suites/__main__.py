"""``python -m tests.kv.suites SUITE SOURCE``: a suite on a real server and on a fake."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kv.suites.servers import Outcome

from . import page, redis, redis_py
from .redis_py_cluster import ONE_NODE, SIX_NODES, ClusterSuite
from .servers import SERVERS, Server

SUITES: dict[str, Any] = {
    "redis": redis,
    "redis-py": redis_py,
    "redis-py-one-node": ONE_NODE,
    "redis-py-six-nodes": SIX_NODES,
}
WIDTH = 44
SHOWN = 10
"""The number of missing tests to list per unit."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and below it each test that only the real server passes.

    Returns 1 with ``--check`` if the figures on the page differ, or if no test ran.
    """
    options = argparse.ArgumentParser(prog="python -m tests.kv.suites", description=__doc__)
    options.add_argument("suite", choices=SUITES)
    options.add_argument("source", type=Path, help="its unpacked source")
    options.add_argument("units", nargs="*", help="only these: unit/type/list, tests/test_lock.py")
    options.add_argument("--limit", type=float, default=400, help="seconds a unit may take")
    options.add_argument("--results", type=Path, help="a JSON file that keeps what was measured")
    options.add_argument(
        "--again", choices=SERVERS, action="append", default=[], help="measure this server anew"
    )
    options.add_argument(
        "--attempts", type=int, default=1, help="how often to run a unit with failing tests"
    )
    options.add_argument("--check", type=Path, help="the page whose figures must be those measured")
    chosen = options.parse_intermixed_args(arguments)
    if chosen.check and chosen.units:
        options.error("--check needs all units: leave out their names")
    suite, source = SUITES[chosen.suite], chosen.source.resolve()
    servers = suite.SERVERS if isinstance(suite, ClusterSuite) else SERVERS
    results = (
        json.loads(chosen.results.read_text()) if chosen.results and chosen.results.exists() else {}
    )
    print(f"{'unit':{WIDTH}}{'real':>6}{'fake':>6}{'missing':>9}", flush=True)
    missing: dict[str, list[str]] = {}
    total: Counter[str] = Counter()
    for unit in chosen.units or suite.units(source):
        outcomes = results.setdefault(unit, {})
        for name, server in servers.items():
            if name not in outcomes or name in chosen.again:
                run = functools.partial(suite.run, source, unit=unit, limit=chosen.limit)
                outcomes[name] = dataclasses.asdict(_outcome(server, run, chosen.attempts))
                if chosen.results:
                    chosen.results.write_text(json.dumps(results))
        real, fake = (Outcome(**outcomes[name]) for name in SERVERS)
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
    if not chosen.check:
        return 0
    problem = page.problem(chosen.check, suite.TITLE, total["real"], total["fake"])
    print(problem or f"{chosen.check} has these figures")
    return 1 if problem else 0


def _outcome(server: Server, run: Callable[..., Outcome], attempts: int) -> Outcome:
    """Run a unit, again if tests fail; a test that passes once is one that the server passes.

    Some tests of Redis' suite depend on the order in which a server reads two connections.
    """
    outcome = Outcome()
    for _ in range(attempts):
        with server() as port:
            outcome = outcome.joined(run(port=port))
        if not outcome.failed and not outcome.ended:
            break
    return outcome


def _row(name: str, real: int, fake: int) -> str:
    return f"{name:{WIDTH}}{real:6}{fake:6}{real - fake or '':>9}"


if __name__ == "__main__":
    sys.exit(main())
