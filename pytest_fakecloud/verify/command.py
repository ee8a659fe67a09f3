"""``pytest-fakecloud verify``: the command line of the comparison."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from .sides import Target

__all__ = ["add_parser", "run"]

EXIT_DIFFERS = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3

_WORDS = {
    "kv": "sets, reads and deletes keys",
    "vector": "writes, queries and deletes vectors in namespaces of its own",
    "queue": "publishes messages that wait for an hour, and cancels them; makes and deletes a queue, a "
    "schedule and a URL group. Nothing is delivered",
    "broker": "writes a few records to the topic, where they stay for its retention; consumes in a "
    "group of its own",
}
_CREDENTIALS = {"kv": "TOKEN", "vector": "TOKEN", "queue": "TOKEN", "broker": "USERNAME:PASSWORD"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of ``pytest-fakecloud``."""
    parser = commands.add_parser(
        "verify",
        help="compare the fakes with real services of yours, reply by reply",
        description="Send the same requests to a real service of yours and to a fake made like it, and "
        "show what differs. Everything has a name with a random prefix and is taken away again.",
        epilog="Exit code: 0 when nothing differs (or all that does is known), 1 when something "
        "differs, 2 for wrong options, 3 when a service gives no answer. A token may also come from "
        "the environment: PYTEST_FAKECLOUD_VERIFY_KV_TOKEN and the like.",
    )
    for name, words in _CREDENTIALS.items():
        parser.add_argument(f"--{name}", metavar="URL", help=f"address of a real {name} service")
        parser.add_argument(f"--{name}-token", metavar=words, help=f"its credentials: {words}")
    parser.add_argument(
        "--token", help="the token of --kv, --vector or --queue, if only one is given"
    )
    parser.add_argument("--broker-topic", metavar="TOPIC", help="a topic that may be written to")
    parser.add_argument("--yes", action="store_true", help="do not ask before anything is sent")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and do nothing"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write everything as JSON ('-': standard output)"
    )
    parser.add_argument("--html", metavar="FILE", help="write everything as a page")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def run(given: argparse.Namespace) -> int:
    """Carry out the command; returns its exit code."""
    # The other commands of pytest-fakecloud pay nothing for this one.
    from .report import as_html, as_json, as_text
    from .run import verify
    from .sides import Unreachable

    try:
        targets = list(_targets(given))
    except ValueError as error:
        return _tell(str(error), EXIT_USAGE)
    _announce(targets)
    if given.dry_run:
        return 0
    if not given.yes and not _agreed():
        return _tell("nothing was sent: say yes, or give --yes", EXIT_USAGE)
    results = []
    try:
        for target in targets:
            results.append(verify(target, (lambda text: None) if given.quiet else _progress))
    except Unreachable as error:
        return _tell(str(error), EXIT_UNREACHABLE)
    if given.json != "-":
        sys.stdout.write(as_text(results))
    for where, made in ((given.json, as_json), (given.html, as_html)):
        if where == "-":
            sys.stdout.write(made(results) + "\n")
        elif where:
            Path(where).write_text(made(results), encoding="utf-8")
    return EXIT_DIFFERS if any(one.differing for one in results) else 0


def _targets(given: argparse.Namespace) -> Iterator[Target]:
    from .sides import Target

    named = [name for name in _CREDENTIALS if getattr(given, name)]
    if not named:
        options = ", ".join(f"--{name} URL" for name in _CREDENTIALS)
        raise ValueError(f"there is nothing to compare with: give at least one of {options}")
    for name in named:
        url = getattr(given, name)
        variable = f"PYTEST_FAKECLOUD_VERIFY_{name.upper()}_TOKEN"
        shared = given.token if len(named) == 1 else None
        token = getattr(given, f"{name}_token") or os.environ.get(variable) or shared or ""
        target = Target(name, url, token, given.broker_topic)
        _check(target)
        yield target
    if given.token and len(named) > 1:
        raise ValueError("--token is for one service: give --kv-token, --vector-token, ... instead")


def _check(target: Target) -> None:
    scheme = urlsplit(target.url).scheme
    known = ("http", "https", *(("redis", "rediss", "unix") if target.service == "kv" else ()))
    if scheme not in known:
        raise ValueError(
            f"--{target.service} {target.url}: give an address with {', '.join(known)}"
        )
    if not target.token and not target.is_redis:
        words = _CREDENTIALS[target.service]
        raise ValueError(f"--{target.service} needs credentials: --{target.service}-token {words}")
    if target.service == "broker" and not target.topic:
        raise ValueError("--broker needs --broker-topic TOPIC, a topic that may be written to")


def _announce(targets: list[Target]) -> None:
    from .run import plan

    for target in targets:
        scenarios = plan(target)
        count = sum(len(one.steps) + len(one.cleanup) for one in scenarios)
        _progress(
            f"{target.service} at {target.url}: {len(scenarios)} scenarios, about {count} requests. "
            f"It {_WORDS[target.service]}. Every name begins with verify_ and ten random digits"
        )


def _agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tell(text: str, code: int) -> int:
    _progress(f"pytest-fakecloud: {text}")
    return code
