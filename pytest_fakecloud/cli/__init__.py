"""The command ``pytest-fakecloud``: serve fakes, run a command with them, control a server, verify."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..core.errors import ContractError
from ..core.wording import one_line
from ..serving import Usage
from ..standalone import commands
from ..verify import command as verify
from .options import read_options
from .parser import make_parser
from .running import EXIT_CANNOT_START, EXIT_INTERRUPTED, EXIT_USAGE, run, serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 after a normal stop, 2 for invalid options, 3 if a server cannot start, 130 after Ctrl+C at
    any other time. ``run`` returns its command's exit code, or 127 if the command does not exist.
    """
    parser = make_parser()
    given = parser.parse_args(arguments)
    try:
        if given.command == "completion":
            print(_completion(parser, given.shell))
            return 0
        if given.command == "verify":
            return verify.run(given)
        if given.command in commands.COMMANDS:
            return commands.run(given)
        options = read_options(given)
        if given.command == "serve":
            return serve(options, opens=given.open)
        return run(options, given.program)
    except (Usage, ContractError, OSError) as error:
        # A ContractError with a cause reports a failure of the system, others an invalid setting.
        wrong = isinstance(error, Usage) or (
            isinstance(error, ContractError) and error.__cause__ is None
        )
        commands.complain(f"{'' if wrong else 'cannot start: '}{one_line(str(error))}")
        return EXIT_USAGE if wrong else EXIT_CANNOT_START
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _completion(parser: argparse.ArgumentParser, shell: str) -> str:
    try:
        import shtab
    except ImportError:
        raise Usage(
            "completions need shtab: install it with pip install 'pytest-fakecloud[completion]'"
        ) from None
    script: str = shtab.complete(parser, shell)
    return script
