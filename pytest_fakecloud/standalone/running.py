"""The commands ``pytest-fakecloud serve`` and ``pytest-fakecloud run``."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from ..http.ports import release
from ..reporting.masking import make_private
from ..services import named
from ..subcommands import EXIT_CANNOT_START, Usage, complain, ended_by_signals
from .development import CONTROL_URL
from .hosts import is_loopback
from .log import Log
from .serving import Options, Served, serve_cloud, with_defaults

EXIT_NO_COMMAND = 127
JOURNAL_ENTRIES = 10_000
"""Default maximum number of entries in the journal of a server, which may run for weeks."""
OPEN_FILES = 10_240
"""Number of files that a server may have open, which suffices for a hundred clouds."""
NAP_SECONDS = 0.5
"""Longest sleep of a server in seconds: on Windows, signals are only delivered between two waits."""


def serve(options: Options, *, opens: bool) -> int:
    """Serve the fakes until a signal arrives; ``opens`` opens the console in the browser."""
    log = Log(options.log_format)
    stop: SimpleQueue[int] = SimpleQueue()
    _allow_more_files()
    if options.journal_entries is None:
        options = replace(options, journal_entries=JOURNAL_ENTRIES)
    with contextlib.ExitStack() as stack:
        stack.callback(release)
        if not options.random:
            options = with_defaults(options, log)
        stack.enter_context(ended_by_signals(stop.put, lambda number: 0))
        served = stack.enter_context(serve_cloud(options, log))
        _warn_of_other_addresses(options, log)
        print(_summary(served, options), flush=True)
        addresses = {handle.name: handle.url for handle in served.cloud.fakes()}
        log.say("ready", f"ready at {served.url}", control=served.url, fakes=addresses)
        if opens:
            webbrowser.open(served.app.console_url())
        while True:
            with contextlib.suppress(Empty):
                stop.get(timeout=NAP_SECONDS)
                break
        log.say("stopping", "stopping")
    # Exempt all objects from garbage collection, which could take seconds at exit.
    gc.freeze()
    return 0


def _allow_more_files() -> None:
    if sys.platform != "win32":
        import resource

        least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
        if least != resource.RLIM_INFINITY and least < wanted:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _warn_of_other_addresses(options: Options, log: Log) -> None:
    places = [options.host, *(one.get("host") for one in options.services.values())]
    for host in dict.fromkeys(str(place) for place in places if place):
        if not is_loopback(host):
            log.say(
                "address",
                f"{host} is reachable from other machines; the fakes are for tests and must not "
                "be exposed to a network you do not trust",
                level="warning",
                host=host,
            )


def _summary(served: Served, options: Options) -> str:
    cloud, app = served.cloud, served.app
    if options.json:
        from .control.handles import describe

        variables = app.environment()
        return json.dumps(
            {
                "control": {"url": served.url, "token": app.token},
                "console": app.console_url(),
                "seed": cloud.seed,
                "handles": [describe(handle) for handle in cloud.fakes()],
                "env": variables,
            }
        )
    lines = [f"pytest-fakecloud is ready: seed {cloud.seed!r}, clock {cloud.clock.mode}", ""]
    for handle in cloud.fakes():
        database = handle.env.get("REDIS_URL", "")
        lines.append(f"  {handle.name:<14} {handle.url:<26} {database}".rstrip())
    # Show only what differs from the defaults: commands use this address and the stored token.
    place = "" if served.url == CONTROL_URL else f" --url {shlex.quote(served.url)}"
    secret = "" if options.token_is_kept else f" --token {shlex.quote(app.token)}"
    command = f"pytest-fakecloud env{place}{secret}"
    lines += [
        f"  {'console':<14} {app.console_url()}",
        "",
        f'Next: eval "$({command})" in the shell of your application,',
        f"or {command} --dotenv .env. Stop with Ctrl+C.",
    ]
    return "\n".join(lines)


# -- run --------------------------------------------------------------------------------------------


def run(options: Options, program: list[str]) -> int:
    """Run a program with the fakes and their variables; return its exit code."""
    command = program[1:] if program[:1] == ["--"] else program
    if not command or not command[0]:
        raise Usage("run needs a command: pytest-fakecloud run -- npm test")
    journal = Path(options.journal) if options.journal else None
    if journal is not None:
        from ..cloud import archive_writer

        # Check this before the command runs, because it may run for an hour.
        write = archive_writer("--journal")
        try:
            make_private(journal)
        except OSError as error:
            raise Usage(f"cannot write the journal to {journal}: {error.strerror}") from error
    log = Log(options.log_format)
    with serve_cloud(options, log) as served:
        _warn_of_other_addresses(options, log)
        environment = {**os.environ, **served.app.environment()}
        try:
            code = _exit_code_of(command, environment)
        except OSError as error:
            hint = " (--services chooses the fakes)" if named(command[0]) else ""
            complain(f"cannot run {command[0]}: {error.strerror}{hint}")
            return EXIT_NO_COMMAND
        if journal is not None:
            try:
                write(served.cloud, journal)
            except OSError as error:
                complain(f"cannot write the journal to {journal}: {error.strerror}")
                # The exit code of the command takes precedence.
                code = code or EXIT_CANNOT_START
        if code:
            from ..reporting.text import section

            print(section(served.cloud), file=sys.stderr)
        return code


def _exit_code_of(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command, pass signals on to it, and return its exit code."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if process is None:
            early.append(number)
        # Do not pass on Ctrl+C, which the terminal sends to the command too: two may kill it.
        elif number != signal.SIGINT or not _has_terminal():
            process.send_signal(number)

    # Install the handlers before the command starts, so that no signal ends only this process.
    before = {each: signal.signal(each, pass_on) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        process = subprocess.Popen(command, env=environment)
        for number in early:
            pass_on(number, None)
        code = process.wait()
    finally:
        for each, handler in before.items():
            if handler is not None:  # None is a handler that was not installed from Python.
                signal.signal(each, handler)
    return code if code >= 0 else 128 - code


def _has_terminal() -> bool:
    """Return whether keys pressed in a terminal send signals to this process and its command."""
    if sys.platform == "win32":
        return True
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False
