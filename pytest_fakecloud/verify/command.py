"""The command line of the comparison, ``pytest-fakecloud verify``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..core.command_line import EXIT_USAGE, Subparsers, complain, ended_by_signals
from . import RUN_SECONDS

if TYPE_CHECKING:
    from ..reporting.mask import Mask
    from .sides import Target

EXIT_DIFFERS = 1
EXIT_UNREACHABLE = 3
EXIT_SIGNAL = 128
"""Added to the number of the signal that ended the run."""
CLEANUP_SECONDS = 1.5
"""Real seconds that the clean-up after a signal may take."""

_WORDS = {
    "kv": "sets, reads and deletes keys",
    "vector": "writes, queries and deletes vectors in its own namespaces",
    "queue": "publishes messages with a delay of an hour, and cancels them; creates and deletes a "
    "queue, a schedule and a URL group. Nothing is delivered",
    "broker": "writes a few records to the topic, which keeps them until its retention ends; uses its "
    "own consumer group",
}
_CREDENTIALS = {"kv": "TOKEN", "vector": "TOKEN", "queue": "TOKEN", "broker": "USERNAME:PASSWORD"}


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command ``verify`` to the command line of ``pytest-fakecloud``."""
    parser = subparsers.add_parser(
        "verify",
        help="compare the fakes with your real services, reply by reply",
        description="Send the same requests to one of your real services and to a fake with the same "
        "settings, and show the differences. All names have a random prefix, and everything is deleted "
        "again, except records of a broker.",
        epilog="Exit code: 0 if there are no differences, or only known ones, 1 if something differs, "
        "2 for invalid options, 3 if a service returns no usable response, 130 or 143 if a signal "
        "ended the run. A token can also be set in the environment, e.g. in "
        "PYTEST_FAKECLOUD_VERIFY_KV_TOKEN.",
    )
    for name, words in _CREDENTIALS.items():
        parser.add_argument(f"--{name}", metavar="URL", help=f"URL of a real {name} service")
        parser.add_argument(f"--{name}-token", metavar=words, help=f"its credentials: {words}")
    parser.add_argument(
        "--token", help="the token of --kv, --vector or --queue, if only one is given"
    )
    parser.add_argument("--broker-topic", metavar="TOPIC", help="a topic that the run may write to")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be done, and send nothing"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write all comparisons as JSON ('-': standard output)"
    )
    parser.add_argument("--html", metavar="FILE", help="write all comparisons as an HTML page")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=RUN_SECONDS,
        metavar="SECONDS",
        help=f"time limit of the whole run in seconds (default: {RUN_SECONDS:g})",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="do not show progress on standard error"
    )
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def run(arguments: argparse.Namespace) -> int:
    from ..core.output_files import make_private
    from .sides import mask_of

    try:
        targets = _targets(arguments)
        for where in (arguments.json, arguments.html):
            if where not in (None, "-") and not arguments.dry_run:
                make_private(Path(where))
    except ValueError as error:
        return _fail(str(error), EXIT_USAGE)
    except OSError as error:
        return _fail(f"cannot write {error.filename}: {error.strerror}", EXIT_USAGE)
    mask = mask_of(*targets)
    _announce(targets, mask)
    if arguments.dry_run:
        return 0
    if not arguments.yes and not _agreed():
        return _fail("nothing was sent: answer yes, or pass --yes", EXIT_USAGE)
    return _compare(arguments, targets, mask)


def _compare(arguments: argparse.Namespace, targets: list[Target], mask: Mask) -> int:
    # Imported here, so that the other commands do not load these modules.
    from ..core.characters import printable, visible
    from ..core.output_files import write_private
    from .run import as_html, as_json, as_text, verify
    from .sides import Bounds, Interrupted, ServiceUnreachable

    numbers: list[int] = []
    bounds = Bounds(arguments.timeout)

    def stop(number: int) -> None:
        numbers.append(number)
        bounds.interrupt()

    on_start: Callable[[str], None] = (lambda text: None) if arguments.quiet else _progress
    try:
        with ended_by_signals(stop, lambda number: EXIT_SIGNAL + number, within_s=CLEANUP_SECONDS):
            results = [verify(target, on_start, bounds) for target in targets]
    except (Interrupted, ServiceUnreachable) as error:
        code = EXIT_SIGNAL + numbers[0] if numbers else EXIT_UNREACHABLE
        return _fail(visible(mask.text(str(error))), code)
    if arguments.json != "-":
        sys.stdout.write(visible(as_text(results)))
    for where, formatter in ((arguments.json, as_json), (arguments.html, as_html)):
        if where == "-":
            sys.stdout.write(printable(formatter(results)) + "\n")
        elif where:
            write_private(Path(where), formatter(results))
    return EXIT_DIFFERS if any(result.differing for result in results) else 0


def _targets(arguments: argparse.Namespace) -> list[Target]:
    """Return the services to compare with; raise ``ValueError`` for invalid options."""
    from .sides import Target

    named = [name for name in _CREDENTIALS if getattr(arguments, name)]
    if not named:
        options = ", ".join(f"--{name} URL" for name in _CREDENTIALS)
        raise ValueError(f"there is nothing to compare with: pass at least one of {options}")
    targets = []
    for name in named:
        url = getattr(arguments, name)
        variable = f"PYTEST_FAKECLOUD_VERIFY_{name.upper()}_TOKEN"
        shared = arguments.token if len(named) == 1 else None
        token = getattr(arguments, f"{name}_token") or os.environ.get(variable) or shared or ""
        target = Target(name, url, token, arguments.broker_topic)
        _check(target)
        targets.append(target)
    if arguments.token and len(named) > 1:
        raise ValueError("--token is for one service: pass --kv-token, --vector-token, ... instead")
    return targets


def _check(target: Target) -> None:
    parts = urlsplit(target.url)
    scheme = parts.scheme
    parts.port  # noqa: B018  # Raise ValueError for an invalid port.
    schemes = ("http", "https", *(("redis", "rediss", "unix") if target.service == "kv" else ()))
    if scheme not in schemes:
        raise ValueError(
            f"--{target.service}: the URL has the scheme {scheme or '(none)'}, expected one of "
            f"{', '.join(schemes)}"
        )
    if not target.token and not target.is_redis:
        words = _CREDENTIALS[target.service]
        raise ValueError(f"--{target.service} needs credentials: --{target.service}-token {words}")
    if target.service == "broker" and not target.topic:
        raise ValueError("--broker needs --broker-topic TOPIC, a topic that the run may write to")


def _announce(targets: list[Target], mask: Mask) -> None:
    from .run import plan

    for target in targets:
        scenarios = plan(target)
        count = sum(len(scenario.steps) + len(scenario.cleanup) for scenario in scenarios)
        _progress(
            f"{target.service} at {mask.text(target.url)}: {len(scenarios)} scenarios, about {count} "
            f"requests. It {_WORDS[target.service]}. Every name begins with verify_ and ten random "
            "digits"
        )


def _agreed() -> bool:
    with suppress(EOFError):
        return sys.stdin.isatty() and input("Continue? [y/N] ").strip().lower() in ("y", "yes")
    return False


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _fail(text: str, code: int) -> int:
    complain(text)
    return code
