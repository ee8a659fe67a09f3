"""The command ``pytest-fakecloud``: serve fakes, run a command with them, control a server, verify."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from .core.calls import KEEP_BYTES
from .core.errors import ContractError
from .core.settings import MOST_PORT, settings_of
from .core.wording import brief, one_line
from .files import read_file
from .http.ports import release
from .reporting.private_files import make_private
from .services import by_word, handle_class, named
from .serving import Served, Usage, serve_cloud, with_defaults
from .standalone import commands
from .standalone.development import CONTROL_PORT, CONTROL_URL, DEVELOPMENT
from .standalone.hosts import is_loopback
from .standalone.log import FORMATS, Log, LogFormat
from .standalone.signals import ended_by_signals
from .verify import command as verify

if TYPE_CHECKING:
    from .cloud import Cloud

VARIABLE = "PYTEST_FAKECLOUD_"
JOURNAL_ENTRIES = 10_000
"""Default maximum of entries in a server's journal, which is limited because a server may run for
weeks.
"""
ELSEWHERE = (
    "Options can also be set in the environment (--kv-port is "
    "PYTEST_FAKECLOUD_KV_PORT, --kv is PYTEST_FAKECLOUD_KV='SETTING=VALUE SETTING=VALUE'), then in "
    "the TOML file (control_port = 8000, and a table [kv] with port, token and settings; the file "
    "itself may be PYTEST_FAKECLOUD_CONFIG)."
)
SETTINGS_PAGE = "https://pytest-fakecloud.github.io/pytest-fakecloud/reference/settings.html"
OPEN_FILES = 10_240
SHELLS = ("bash", "zsh", "fish")
NAP_SECONDS = 0.5
"""Longest sleep of a server in seconds: on Windows, signals are only delivered between two waits."""
YES, NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
MOST_DIGITS = 19
EXIT_USAGE = 2
EXIT_CANNOT_START = 3
EXIT_NO_COMMAND = 127
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 after a normal stop, 2 for invalid options, 3 if a server cannot start, 130 after Ctrl+C at
    any other time. ``run`` returns the exit code of its command, or 127 if the command does not
    exist.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        if given.command == "completion":
            print(_completion(parser, given.shell))
            return 0
        if given.command == "verify":
            return verify.run(given)
        if given.command in commands.COMMANDS:
            return commands.run(given)
        options = _options(given)
        if given.command == "serve":
            return _serve(options, opens=given.open)
        return _run(options, given.program)
    except (Usage, ContractError, OSError) as error:
        # A ContractError with a cause reports a failure of the system; without one, an invalid
        # setting.
        wrong = isinstance(error, Usage) or (
            isinstance(error, ContractError) and error.__cause__ is None
        )
        said = "" if wrong else "cannot start: "
        print(f"pytest-fakecloud: {said}{one_line(str(error))}", file=sys.stderr)
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


class _Parser(argparse.ArgumentParser):
    """A parser whose help also lists the settings of each service."""

    def format_help(self) -> str:
        """Return the help; for ``serve`` and ``run``, followed by the settings."""
        if self.prog.split()[-1] not in ("serve", "run"):
            return super().format_help()
        found = []
        for word, service in by_word().items():
            declared: Any = handle_class(service)._settings
            names = settings_of(declared)
            found.append(textwrap.fill(
                ", ".join(names), initial_indent=f"  --{word} ", subsequent_indent=" " * 11
            ))  # fmt: skip
        settings = "\n".join(found)
        return f"{super().format_help()}\nsettings of each service ({SETTINGS_PAGE}):\n{settings}\n"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pytest-fakecloud")
    except PackageNotFoundError:
        return "(not installed)"


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="pytest-fakecloud",
        description="Real HTTP fakes of a key-value store, a vector index, a log broker and a "
        "message queue.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    subparsers = parser.add_subparsers(dest="command", required=True)
    serve = subparsers.add_parser(
        "serve",
        help="run the fakes until stopped",
        description="Run the fakes until stopped.",
        epilog=ELSEWHERE,
    )
    run = subparsers.add_parser(
        "run",
        help="run a command with the fakes and their environment variables",
        description="Run a command with the fakes and their environment variables; exit with "
        "its exit code.",
        epilog=ELSEWHERE,
    )
    _add_options(serve, DEVELOPMENT)
    _add_options(run, {})
    commands.add_parsers(subparsers)
    completion = subparsers.add_parser(
        "completion",
        help="print completions for a shell",
        description="Print completions for a shell, such as: "
        'eval "$(pytest-fakecloud completion bash)".',
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell: bash, zsh or fish")
    verify.add_parser(subparsers)
    serve.add_argument(
        "--journal-entries",
        type=int,
        metavar="N",
        help=f"how many calls and events the journal keeps (default: {JOURNAL_ENTRIES})",
    )
    serve.add_argument(
        "--journal-bytes",
        type=int,
        metavar="N",
        help=f"how many bytes of large calls the journal keeps in full (default: {KEEP_BYTES})",
    )
    serve.add_argument(
        "--log-format",
        choices=FORMATS,
        help="format of the server's log on standard error: lines of text or of JSON",
    )
    serve.add_argument(
        "--json",
        action="store_true",
        default=None,
        help="print the summary as one JSON object, for scripts",
    )
    serve.add_argument(
        "--random",
        action="store_true",
        default=None,
        help="use free ports and random credentials instead of fixed ones",
    )
    serve.add_argument("--open", action="store_true", help="open the console in the browser")
    run.add_argument("--journal", metavar="FILE", help="write all calls as an HTTP archive (HAR)")
    run.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    return parser


def _add_options(
    parser: argparse.ArgumentParser, development: Mapping[str, Mapping[str, Any]]
) -> None:
    """Add the options of ``serve`` and ``run``; ``development`` sets default ports and tokens."""
    known = ", ".join(by_word())
    parser.add_argument(
        "services",
        nargs="*",
        metavar="SERVICE",
        help=f"which fakes: {known} (default: all)",
    ) if parser.prog.endswith("serve") else parser.add_argument(
        "--services", metavar="NAMES", help=f"which fakes, comma-separated: {known}"
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file with these options")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        default=[],
        help="a host name that the control API and the console accept, besides "
        "loopback names and --host; may be repeated",
    )
    control = f" (default: {CONTROL_PORT})" if development else " (default: any free)"
    parser.add_argument(
        "--control-port", type=int, help=f"port of control API and console{control}"
    )
    kept = "kept in your state folder" if development else "random"
    parser.add_argument("--control-token", help=f"token of the control API (default: {kept})")
    for name in by_word():
        port = development.get(name, {}).get("port", "any free")
        token = "a public one, on loopback addresses" if name in development else "random"
        parser.add_argument(f"--{name}-port", type=int, help=f"port of {name} (default: {port})")
        parser.add_argument(f"--{name}-token", help=f"token of {name} (default: {token})")
        parser.add_argument(
            f"--{name}",
            action="append",
            metavar="SETTING=VALUE",
            default=[],
            help=f"a setting of {name}, the value as JSON or a plain string; may be repeated",
        )
    parser.add_argument(
        "--load",
        action="append",
        metavar="FILE",
        default=[],
        help="a state file (data and destinations) or an .rdb file of a real server; "
        "may be repeated",
    )
    parser.add_argument(
        "--forward",
        action="append",
        metavar="URL=TARGET",
        default=[],
        help="send deliveries for a URL to a server at another address, such as "
        "https://app.example=http://127.0.0.1:3000, also beyond this machine; may be repeated",
    )
    parser.add_argument("--seed", help="random seed (default: random)")
    parser.add_argument("--now", help="start of the clock, an ISO string with offset; freezes it")
    parser.add_argument("--clock", choices=("running", "frozen"), help="the clock's mode")
    parser.add_argument("--tls", action="store_true", default=None, help="serve HTTPS")


# -- options: flag, then environment, then file ----------------------------------------------------


def _options(given: argparse.Namespace) -> dict[str, Any]:
    file = given.config or os.environ.get(f"{VARIABLE}CONFIG")
    from_file = _file(Path(file)) if file else {}
    flags = vars(given)

    def found(name: str) -> tuple[Any, str]:
        """Return the value of an option and the name under which the user gave it."""
        if flags.get(name) not in (None, []):
            return flags[name], f"--{name.replace('_', '-')}"
        text = os.environ.get(VARIABLE + name.upper())
        if text is not None:
            return text, VARIABLE + name.upper()
        return from_file.get(name), f"{file}: {name}"

    def text(name: str) -> Any:
        value, where = found(name)
        if value is not None and not isinstance(value, str):
            raise Usage(f"{where}={value!r} is not a string")
        if name.endswith("token"):
            _check_token(value, where)
        return value

    def number(name: str, most: int | None = None) -> int | None:
        return _number(*found(name), most)

    known = by_word()
    services: dict[str, dict[str, Any]] = {}
    names = _names(*found("services"))
    for name in known:
        for flag in (name, f"{name}_port", f"{name}_token"):
            if name not in names and flags[flag] not in (None, []):
                raise Usage(
                    f"--{flag.replace('_', '-')} is for {name}, which is not among the services "
                    f"to start ({', '.join(names)}): name it too, or leave the option out"
                )
    for name in names:
        variable = f"{VARIABLE}{name.upper()}"
        settings = dict(from_file.get(name, {}))
        settings.update(_settings(os.environ.get(variable, "").split(), variable))
        settings.update(_settings(flags[name], f"--{name}"))
        if isinstance(settings.get("token"), str):
            _check_token(settings["token"], f"the setting token of {name}")
        if "port" in settings:
            settings["port"] = _number(settings["port"], f"the setting port of {name}", MOST_PORT)
        for key, chosen in (
            ("port", number(f"{name}_port", MOST_PORT)),
            ("token", text(f"{name}_token")),
        ):
            if chosen is not None:
                settings[key] = chosen
        services[name] = settings
        called = settings.get("name", known[name].fixture)
        if any(
            called == one.get("name", known[other].fixture)
            for other, one in services.items()
            if other != name
        ):
            raise Usage(f"two fakes have the name {called!r}: give each its own name")
    return {
        "services": services,
        "host": text("host") or "127.0.0.1",
        "allow_host": _hosts(*found("allow_host")),
        "control_port": number("control_port", MOST_PORT),
        "control_token": text("control_token"),
        "seed": _seed(*found("seed")),
        "now": found("now")[0],
        "clock": text("clock"),
        "tls": _flag(*found("tls")),
        "guarded": frozenset(),
        "random": _flag(*found("random")),
        "load": [Path(one) for one in _words("load", *found("load"))],
        "forward": _forwards(_words("forward", *found("forward")), names),
        "log_format": _log_format(*found("log_format")),
        "json": _flag(*found("json")),
        "journal": text("journal"),
        "journal_entries": number("journal_entries"),
        "journal_bytes": number("journal_bytes"),
    }


def _names(value: Any, where: str) -> list[str]:
    """Return the chosen services from a list or a comma-separated string; all by default."""
    services = by_word()
    if value is None:
        return list(services)
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Usage(f"{where}={value!r} is not a list of names")
    names = list(dict.fromkeys(_word(word.strip()) for word in words if word.strip()))
    unknown = [name for name in names if name not in services]
    known = ", ".join(services)
    if unknown:
        raise Usage(f"{', '.join(unknown)} is not a service; the services are: {known}")
    if not names:
        raise Usage(f"{where}={value!r} names no service; the services are: {known}")
    return names


def _word(name: str) -> str:
    """Return the command line's name for a service (``kv``), given its fixture's name or that name."""
    service = named(name)
    return name if service is None or service.word is None else service.word


def _hosts(value: Any, where: str) -> list[str]:
    """Return host names from a list, or from a string separated by spaces or commas."""
    words = value.replace(",", " ").split() if isinstance(value, str) else (value or [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Usage(f"{where}={value!r} is not a list of host names")
    return words


def _words(name: str, value: Any, where: str) -> list[str]:
    """Return the words of a list, of a space-separated string, or of a table in a configuration
    file (as ``KEY=VALUE``).
    """
    if isinstance(value, dict):
        value = [f"{key}={one}" for key, one in value.items()]
    words = value.split() if isinstance(value, str) else (value or [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Usage(f"{where}={value!r} is not a list for --{name}")
    return words


def _forwards(words: Sequence[str], services: Sequence[str]) -> dict[str, str]:
    """Return forwarding targets by URL; raise ``Usage`` without a queue, or for a malformed word."""
    if words and "queue" not in services:
        raise Usage("--forward is for the queue, which is not among the services: name it too")
    found: dict[str, str] = {}
    for word in words:
        url, sign, target = word.partition("=")
        if not sign or not url or not target:
            raise Usage(
                f"--forward {brief(word)} is not URL=TARGET, such as "
                "https://app.example=http://127.0.0.1:3000"
            )
        if url in found:
            raise Usage(f"--forward {url} is given twice: pass one target")
        found[url] = target
    return found


def _log_format(value: Any, where: str) -> LogFormat:
    if value is None:
        return "text"
    if value not in FORMATS:
        raise Usage(f"{where}={value!r} is unknown: pass {' or '.join(FORMATS)}")
    chosen: LogFormat = value
    return chosen


def _check_token(value: str | None, where: str) -> None:
    if value == "":
        raise Usage(f"{where} is empty: leave it out for a random token")
    if value is not None and not (value.isascii() and value.isprintable()):
        raise Usage(
            f"{where}={value!r} cannot be a token, because headers allow only printable ASCII"
        )


def _number(value: Any, where: str, most: int | None = None) -> int | None:
    """Return an integer of 0 or more; at most ``most``, which is given for ports."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < MOST_DIGITS:
        value = int(value)
    if value is None or (type(value) is int and 0 <= value <= (value if most is None else most)):
        return value
    wanted = "an integer" if most is None else f"a port number: pass 0 (any free) to {most}"
    raise Usage(f"{where}={brief(value)} is not {wanted}")


def _seed(value: Any, where: str) -> int | str | None:
    if value is None or type(value) in (int, str):
        found: int | str | None = value
        return found
    raise Usage(f"{where}={value!r} is not a seed: pass an integer or a string")


def _flag(value: Any, where: str) -> bool:
    word = str(value).lower()
    if value is None or word in NO:
        return False
    if word in YES:
        return True
    raise Usage(f"{where}={value!r} is not a boolean: pass {', '.join(YES)} or {NO[1]}, ...")


def _file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(read_file(path).decode("utf-8"))
    except (ContractError, ValueError, RecursionError) as error:
        raise Usage(f"{path} cannot be used: {error}") from None
    known = {
        "services",
        "host",
        "allow_host",
        "control_port",
        "control_token",
        "seed",
        "now",
        "clock",
        "tls",
        "random",
    }
    known |= {"journal", "journal_bytes", "journal_entries", "json", "load", "forward"}
    known |= {"log_format", *by_word()}
    twice = [name for name in content if _word(name) != name and _word(name) in content]
    if twice:
        raise Usage(f"{path}: {twice[0]} and {_word(twice[0])} name the same fake: pass one table")
    content = {_word(name): value for name, value in content.items()}
    unknown = sorted(set(content) - known)
    if unknown:
        raise Usage(
            f"{path}: {', '.join(unknown)} is unknown; known are: {', '.join(sorted(known))}"
        )
    for name in by_word():
        if not isinstance(content.get(name, {}), dict):
            raise Usage(f"{path}: {name} must be a table of settings, not {content[name]!r}")
    return content


def _settings(words: Sequence[str], where: str) -> dict[str, Any]:
    settings = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not name:
            hint = (
                "" if where.startswith("--") else " (a value in a variable cannot contain spaces)"
            )
            raise Usage(f"{where}: {brief(word)} is not a SETTING=VALUE{hint}")
        try:
            settings[name] = json.loads(text)
        except RecursionError:
            raise Usage(f"{where}: the value of {name} is nested too deeply") from None
        except ValueError:
            settings[name] = text
    return settings


# -- running ---------------------------------------------------------------------------------------


def _allow_more_files() -> None:
    """Raise the soft limit of open files, because a hundred clouds need more than most systems
    allow.
    """
    if sys.platform != "win32":
        import resource

        least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
        if least != resource.RLIM_INFINITY and least < wanted:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _serve(options: Mapping[str, Any], *, opens: bool) -> int:
    log = Log(options["log_format"])
    stop: SimpleQueue[int] = SimpleQueue()
    options = dict(options)
    _allow_more_files()
    if options["journal_entries"] is None:
        options["journal_entries"] = JOURNAL_ENTRIES
    with contextlib.ExitStack() as stack:
        stack.callback(release)
        if not options["random"]:
            options = with_defaults(options, log)
        stack.enter_context(ended_by_signals(stop.put, lambda number: 0))
        served = stack.enter_context(serve_cloud(options, log))
        _warn_of_other_addresses(options, log)
        print(_summary(served, options), flush=True)
        addresses = {handle.name: handle.url for handle in served.cloud.handles}
        log.say("ready", f"ready at {served.url}", control=served.url, fakes=addresses)
        if opens:
            import webbrowser

            webbrowser.open(_console(served))
        while True:
            with contextlib.suppress(Empty):
                stop.get(timeout=NAP_SECONDS)
                break
        log.say("stopping", "stopping")
    # Exempt all objects from garbage collection: with much data, the last one at exit would take
    # seconds.
    gc.freeze()
    return 0


def _run(options: Mapping[str, Any], program: list[str]) -> int:
    command = program[1:] if program[:1] == ["--"] else program
    if not command or not command[0]:
        raise Usage("run needs a command: pytest-fakecloud run -- npm test")
    journal = Path(options["journal"]) if options["journal"] else None
    if journal is not None:
        _make_writable(journal)
    log = Log()
    with serve_cloud(options, log) as served:
        cloud = served.cloud
        _warn_of_other_addresses(options, log)
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
            from .reporting.text import section

            print(section(cloud), file=sys.stderr)
        return code


def _make_writable(journal: Path) -> None:
    """Check that the journal file can be written before running the command, which may take an
    hour.
    """
    try:
        make_private(journal)
    except OSError as error:
        raise Usage(f"cannot write the journal to {journal}: {error.strerror}") from error


def _write_journal(cloud: Cloud, journal: Path) -> bool:
    from .recordings import write

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


def _warn_of_other_addresses(options: Mapping[str, Any], log: Log) -> None:
    places = [options["host"], *(one.get("host") for one in options["services"].values())]
    for host in dict.fromkeys(str(place) for place in places if place):
        if not is_loopback(host):
            log.say(
                "address",
                f"{host} is reachable from other machines; the fakes are for tests and must not "
                "be exposed to a network you do not trust",
                level="warning",
                host=host,
            )


def _summary(served: Served, options: Mapping[str, Any]) -> str:
    cloud, app = served.cloud, served.app
    variables = app.environment()
    if options["json"]:
        from .standalone.views import describe

        return json.dumps(
            {
                "control": {"url": served.url, "token": app.token},
                "console": _console(served),
                "seed": cloud.seed,
                "handles": [describe(handle) for handle in cloud.handles],
                "env": variables,
            }
        )
    lines = [f"pytest-fakecloud is ready: seed {cloud.seed!r}, clock {cloud.clock.mode}", ""]
    for handle in cloud.handles:
        database = handle.env.get("REDIS_URL", "")
        lines.append(f"  {handle.name:<14} {handle.url:<26} {database}".rstrip())
    # Show only what differs from the defaults: commands use this address and the stored token.
    place = "" if served.url == CONTROL_URL else f" --url {shlex.quote(served.url)}"
    secret = "" if options.get("token_is_kept") else f" --token {shlex.quote(app.token)}"
    command = f"pytest-fakecloud env{place}{secret}"
    lines += [
        f"  {'console':<14} {_console(served)}",
        "",
        f'Next: eval "$({command})" in the shell of your application,',
        f"or {command} --dotenv .env. Stop with Ctrl+C.",
    ]
    return "\n".join(lines)


def _console(served: Served) -> str:
    return served.app.console_url()
