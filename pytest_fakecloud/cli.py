"""The command ``pytest-fakecloud``, whose subcommands are in ``standalone`` and ``verify``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from .core.command_line import EXIT_CANNOT_START, EXIT_USAGE, Parser, Subparsers, Usage, complain
from .core.errors import ContractError, importing, one_line

EXIT_INTERRUPTED = 130
SHELLS = ("bash", "zsh", "fish")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 after a normal stop, 2 for invalid options, 3 if a server cannot start, 130 after Ctrl+C at
    any other time. ``run`` returns its command's exit code, or 127 if the command does not exist.
    """
    given = make_parser().parse_args(arguments)
    try:
        code: int = given.run(given)
        return code
    except (Usage, ContractError, OSError) as error:
        # A ContractError with a cause reports a failure of the system, others an invalid setting.
        wrong = isinstance(error, Usage) or (
            isinstance(error, ContractError) and error.__cause__ is None
        )
        complain(f"{'' if wrong else 'cannot start: '}{one_line(str(error))}")
        return EXIT_USAGE if wrong else EXIT_CANNOT_START
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def make_parser() -> Parser:
    """Return the parser of the command line, without subcommands that are not installed. Each
    subcommand sets ``run``, a function that takes the parsed arguments and returns the exit code.
    """
    parser = Parser(
        prog="pytest-fakecloud",
        description="Real HTTP fakes of a key-value store, a vector index, a log broker and a "
        "message queue.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    subparsers = parser.add_subparsers(dest="command", required=True)
    for add in (_add_standalone, _add_completion, _add_verify):
        try:
            add(subparsers)
        except ContractError as error:
            parser.missing += (str(error),)
    return parser


def _add_standalone(subparsers: Subparsers) -> None:
    with importing("each command for servers"):
        from .standalone.options import add_parsers
    add_parsers(subparsers)


def _add_verify(subparsers: Subparsers) -> None:
    with importing("verify"):
        from .verify.command import add_parsers
    add_parsers(subparsers)


def _version() -> str:
    try:
        return version("pytest-fakecloud")
    except PackageNotFoundError:
        return "(not installed)"


def _add_completion(subparsers: Subparsers) -> None:
    completion = subparsers.add_parser(
        "completion",
        help="print completions for a shell",
        description="Print completions for a shell, such as: "
        'eval "$(pytest-fakecloud completion bash)".',
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell: bash, zsh or fish")
    completion.set_defaults(run=_complete)


def _complete(given: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise Usage(
            "completions need shtab: install it with pip install 'pytest-fakecloud[completion]'"
        ) from None
    print(shtab.complete(make_parser(), given.shell))
    return 0
