"""``pytest-fakecloud run``: run a command with the fakes, and pass its exit code on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..reporting.private_files import make_private
from ..services import named
from ..serving import Log, Usage, serve_cloud
from .exits import EXIT_CANNOT_START, EXIT_NO_COMMAND
from .summary import warn_of_other_addresses

if TYPE_CHECKING:
    from ..cloud import Cloud


def run(options: Mapping[str, Any], program: list[str]) -> int:
    """Run a program with the fakes and their variables; return its exit code."""
    command = program[1:] if program[:1] == ["--"] else program
    if not command or not command[0]:
        raise Usage("run needs a command: pytest-fakecloud run -- npm test")
    journal = Path(options["journal"]) if options["journal"] else None
    if journal is not None:
        _make_writable(journal)
    log = Log()
    with serve_cloud(options, log) as served:
        cloud = served.cloud
        warn_of_other_addresses(options, log)
        environment = {**os.environ, **served.app.environment()}
        try:
            process = subprocess.Popen(command, env=environment)
        except OSError as error:
            hint = " (--services chooses the fakes)" if named(command[0]) else ""
            print(
                f"pytest-fakecloud: cannot run {command[0]}: {error.strerror}{hint}",
                file=sys.stderr,
            )
            return EXIT_NO_COMMAND
        code = _wait_for(process)
        if journal is not None:
            written = _write_journal(cloud, journal)
            # The exit code of the command takes precedence over the code for a journal that cannot
            # be written.
            code = code or (0 if written else EXIT_CANNOT_START)
        if code:
            from ..reporting.text import section

            print(section(cloud), file=sys.stderr)
        return code


def _make_writable(journal: Path) -> None:
    """Check that the journal file can be written before the command runs, because it may run for an
    hour.
    """
    try:
        make_private(journal)
    except OSError as error:
        raise Usage(f"cannot write the journal to {journal}: {error.strerror}") from error


def _write_journal(cloud: Cloud, journal: Path) -> bool:
    from ..recordings import write

    try:
        write(cloud, journal)
    except OSError as error:
        print(
            f"pytest-fakecloud: cannot write the journal to {journal}: {error.strerror}",
            file=sys.stderr,
        )
        return False
    return True


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    """Return the command's exit code. Pass signals on to the command."""

    def pass_on(number: int, _: object) -> None:
        # Do not pass on Ctrl+C: the terminal sends it to the command as well, and many programs
        # exit immediately at a second one.
        if number != signal.SIGINT or not _has_terminal():
            process.send_signal(signal.Signals(number))

    for name in ("SIGTERM", "SIGINT"):
        signal.signal(getattr(signal, name), pass_on)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _has_terminal() -> bool:
    """Return whether keys pressed in a terminal send signals to this process and its command."""
    if sys.platform == "win32":
        return True
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
