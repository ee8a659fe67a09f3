"""The options of ``pytest-fakecloud serve`` and ``run``, and their help."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..core.calls import KEEP_BYTES
from ..core.settings import settings_of
from ..services import handle_class, services_by_word
from ..subcommands import Subparsers
from . import commands
from .development import CONTROL_PORT, DEVELOPMENT
from .log import FORMATS
from .options import read_options
from .running import JOURNAL_ENTRIES
from .running import run as run_program
from .running import serve as start_server

ELSEWHERE = (
    "Options can also be set in the environment (--kv-port is "
    "PYTEST_FAKECLOUD_KV_PORT, --kv is PYTEST_FAKECLOUD_KV='SETTING=VALUE SETTING=VALUE'), then in "
    "the TOML file (control_port = 8000, and a table [kv] with port, token and settings; the file "
    "itself may be PYTEST_FAKECLOUD_CONFIG)."
)
SETTINGS_PAGE = "https://pytest-fakecloud.github.io/pytest-fakecloud/reference/settings.html"


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands that start servers, and those that control them."""
    _add_serve(subparsers)
    _add_run(subparsers)
    commands.add_parsers(subparsers)


def _settings() -> str:
    """Return the names of the settings of each service."""
    found = []
    for word, service in services_by_word().items():
        declared: Any = handle_class(service)._settings
        names = settings_of(declared)
        found.append(textwrap.fill(
            ", ".join(names), initial_indent=f"  --{word} ", subsequent_indent=" " * 11
        ))  # fmt: skip
    return "\n".join([f"settings of each service ({SETTINGS_PAGE}):", *found])


def _add_serve(subparsers: Subparsers) -> None:
    serve = subparsers.add_parser(
        "serve",
        help="run the fakes until stopped",
        description="Run the fakes until stopped.",
        epilog=ELSEWHERE,
    )
    known = ", ".join(services_by_word())
    serve.add_argument(
        "services", nargs="*", metavar="SERVICE", help=f"which fakes: {known} (default: all)"
    )
    _add_options(serve, DEVELOPMENT)
    number = partial(serve.add_argument, type=int, metavar="N")
    number(
        "--journal-entries",
        help=f"how many calls and events the journal keeps (default: {JOURNAL_ENTRIES})",
    )
    number(
        "--journal-bytes",
        help=f"how many bytes of large calls the journal keeps in full (default: {KEEP_BYTES})",
    )
    serve.add_argument(
        "--log-format",
        choices=FORMATS,
        help="format of the server's log on standard error: lines of text or of JSON",
    )
    _add_switch(serve, "--json", "print the summary as one JSON object, for scripts")
    _add_switch(serve, "--random", "use free ports and random credentials instead of fixed ones")
    serve.add_argument("--open", action="store_true", help="open the console in the browser")
    serve.details = _settings
    serve.set_defaults(run=lambda given: start_server(read_options(given), opens=given.open))


def _add_run(subparsers: Subparsers) -> None:
    known = ", ".join(services_by_word())
    run = subparsers.add_parser(
        "run",
        help="run a command with the fakes and their environment variables",
        description="Run a command with the fakes and their environment variables; exit with "
        "its exit code.",
        epilog=ELSEWHERE,
    )
    run.add_argument("--services", metavar="NAMES", help=f"which fakes, comma-separated: {known}")
    _add_options(run, {})
    run.add_argument("--journal", metavar="FILE", help="write all calls as an HTTP archive (HAR)")
    run.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    run.details = _settings
    run.set_defaults(run=lambda given: run_program(read_options(given), given.program))


def _add_switch(parser: argparse.ArgumentParser, name: str, words: str) -> None:
    """Add an option that may also be set by a variable or a file, and is None unless it is given."""
    parser.add_argument(name, action="store_true", default=None, help=words)


def _add_options(
    parser: argparse.ArgumentParser, development: Mapping[str, Mapping[str, Any]]
) -> None:
    """Add the options of ``serve`` and ``run``; ``development`` sets default ports and tokens."""
    several = partial(parser.add_argument, action="append", default=[])
    parser.add_argument("--config", metavar="FILE", help="a TOML file with these options")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    several(
        "--allow-host",
        metavar="NAME",
        help="a host name that the control API and the console accept, besides "
        "loopback names and --host; may be repeated",
    )
    control = CONTROL_PORT if development else "any free"
    parser.add_argument(
        "--control-port", type=int, help=f"port of control API and console (default: {control})"
    )
    kept = "kept in your state folder" if development else "random"
    parser.add_argument("--control-token", help=f"token of the control API (default: {kept})")
    for name in services_by_word():
        port = development.get(name, {}).get("port", "any free")
        token = "a public one, on loopback addresses" if name in development else "random"
        parser.add_argument(f"--{name}-port", type=int, help=f"port of {name} (default: {port})")
        parser.add_argument(f"--{name}-token", help=f"token of {name} (default: {token})")
        several(
            f"--{name}",
            metavar="SETTING=VALUE",
            help=f"a setting of {name}, the value as JSON or a plain string; may be repeated",
        )
    several(
        "--load",
        metavar="FILE",
        help="a state file (data and destinations) or an .rdb file of a real server; "
        "may be repeated",
    )
    several(
        "--forward",
        metavar="URL=TARGET",
        help="send deliveries for a URL to a server at another address, such as "
        "https://app.example=http://127.0.0.1:3000, also beyond this machine; may be repeated",
    )
    parser.add_argument("--seed", help="random seed (default: random)")
    parser.add_argument("--now", help="start of the clock, an ISO string with offset; freezes it")
    parser.add_argument("--clock", choices=("running", "frozen"), help="the clock's mode")
    _add_switch(parser, "--tls", "serve HTTPS")
