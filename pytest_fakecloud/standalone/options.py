"""The options of ``pytest-fakecloud serve`` and ``run``: the parser, and their values.

The value of an option comes from a flag, else an environment variable, else the configuration file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..cloud.files import read_file
from ..cloud.services import by_part, part_of, services_by_word, settings_class, split_part
from ..core.calls import KEEP_BYTES
from ..core.command_line import Subparsers, Usage
from ..core.errors import ContractError, brief, unknown_name
from ..core.settings import MOST_PORT, Kind, choice, duration, settings_of, text, whole
from ..core.switches import SWITCH_WORDS
from . import commands
from .addresses import CONTROL_PORT, DEVELOPMENT
from .saving import INTERVAL_SECONDS
from .serving import FORMATS, JOURNAL_ENTRIES, Options
from .serving import run as run_program
from .serving import serve as start_server

ELSEWHERE = (
    "Options can also be set in the environment (--kv-port is "
    "PYTEST_FAKECLOUD_KV_PORT, --kv is PYTEST_FAKECLOUD_KV='SETTING=VALUE SETTING=VALUE'), then in "
    "the TOML file (control_port = 8000, and a table [kv] with port, token and settings; the file "
    "itself may be PYTEST_FAKECLOUD_CONFIG)."
)
SETTINGS_PAGE = "https://pytest-fakecloud.github.io/pytest-fakecloud/reference/settings.html"


def add_parsers(subparsers: Subparsers) -> None:
    _add_serve(subparsers)
    _add_run(subparsers)
    commands.add_parsers(subparsers)


def _list_of_settings() -> str:
    paragraphs = []
    for word, service in services_by_word().items():
        names = settings_of(settings_class(service))
        paragraphs.append(textwrap.fill(
            ", ".join(names), initial_indent=f"  --{word} ", subsequent_indent=" " * 11
        ))  # fmt: skip
    return "\n".join([f"settings of each service ({SETTINGS_PAGE}):", *paragraphs])


def _add_serve(subparsers: Subparsers) -> None:
    serve = subparsers.add_parser(
        "serve",
        help="run the fakes until stopped",
        description="Run the fakes until stopped.",
        epilog=ELSEWHERE,
    )
    words_of_services = ", ".join(services_by_word())
    which = f"which fakes: {words_of_services} (default: all); vector:NAME is another one with this name"
    serve.add_argument("services", nargs="*", metavar="SERVICE", help=which)
    _add_options(serve, DEVELOPMENT)
    for name, words, default in (
        ("--journal-entries", "calls and events the journal keeps", JOURNAL_ENTRIES),
        ("--journal-bytes", "bytes of large calls the journal keeps in full", KEEP_BYTES),
    ):
        serve.add_argument(
            name, type=int, metavar="N", help=f"how many {words} (default: {default})"
        )
    serve.add_argument(
        "--log-format",
        choices=FORMATS,
        help="format of the server's log on standard error: lines of text or of JSON",
    )
    _add_switch(serve, "--json", "print the summary as one JSON object, for scripts")
    _add_switch(serve, "--random", "use free ports and random credentials instead of fixed ones")
    serve.add_argument(
        "--state",
        metavar="FILE",
        help="a file that keeps the state: it is loaded at the start if it exists, and saved at the "
        "end and at intervals",
    )
    serve.add_argument(
        "--save-every",
        metavar="DURATION",
        help=f"time between two saves of --state (default: {INTERVAL_SECONDS:g}s)",
    )
    serve.add_argument("--open", action="store_true", help="open the console in the browser")
    serve.details = _list_of_settings
    serve.set_defaults(
        run=lambda arguments: start_server(read_options(arguments), opens=arguments.open)
    )


def _add_run(subparsers: Subparsers) -> None:
    words_of_services = ", ".join(services_by_word())
    run = subparsers.add_parser(
        "run",
        help="run a command with the fakes and their environment variables",
        description="Run a command with the fakes and their environment variables; exit with "
        "its exit code.",
        epilog=ELSEWHERE,
    )
    run.add_argument(
        "--services",
        metavar="NAMES",
        help=f"which fakes, comma-separated: {words_of_services}; vector:NAME is another one with this "
        "name",
    )
    _add_options(run, {})
    run.add_argument("--journal", metavar="FILE", help="write all calls as an HTTP archive (HAR)")
    run.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    run.details = _list_of_settings
    run.set_defaults(run=lambda arguments: run_program(read_options(arguments), arguments.program))


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
    port = f"port of control API and console (default: {control})"
    parser.add_argument("--control-port", type=int, help=port)
    token_origin = "kept in your state folder" if development else "random"
    parser.add_argument(
        "--control-token", help=f"token of the control API (default: {token_origin})"
    )
    for name in services_by_word():
        port = development.get(name, {}).get("port", "any free")
        token = "a public one, on loopback addresses" if name in development else "random"
        parser.add_argument(f"--{name}-port", type=int, help=f"port of {name} (default: {port})")
        parser.add_argument(f"--{name}-token", help=f"token of {name} (default: {token})")
        several(
            f"--{name}",
            metavar="SETTING=VALUE",
            help=f"a setting of {name}, the value as JSON or a plain string; NAME:SETTING=VALUE is one "
            f"of {name}:NAME; may be repeated",
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
    parser.add_argument(
        "--report",
        metavar="DIR",
        help="write a page of HTML for each test that is reported to the control API as failed",
    )
    parser.add_argument("--seed", help="random seed (default: random)")
    parser.add_argument("--now", help="start of the clock, an ISO string with offset; freezes it")
    parser.add_argument("--clock", choices=("running", "frozen"), help="the clock's mode")
    _add_switch(parser, "--tls", "serve HTTPS")


# -- values ----------------------------------------------------------------------------------------

VARIABLE = "PYTEST_FAKECLOUD_"
Reader = Callable[[Any, str], Any]
"""Converts and checks a value; the second argument is the name under which the user gave it."""


def read_options(arguments: argparse.Namespace) -> Options:
    """Return the options of ``serve`` and ``run``; raise ``Usage`` for an invalid value."""
    sources = _Sources(vars(arguments))
    services = _services(sources)
    name, command = ("json", "serve") if arguments.command == "run" else ("journal", "run")
    if (where := sources.where(name)) is not None:
        raise Usage(
            f"{where} is an option of pytest-fakecloud {command} only: leave it out, or use another "
            "configuration file"
        )
    options = {name: sources.read(name, reader) for name, reader in _READERS.items()}
    options |= {
        "load": [Path(path) for path in options["load"]],
        "forward": _forwards(options["forward"], list(services)),
    }
    return Options(
        services, **{name: option for name, option in options.items() if option is not None}
    )


class _Sources:
    """The values that the user gave: flags, environment variables and the configuration file."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self.flags = flags
        self._path = flags["config"] or os.environ.get(f"{VARIABLE}CONFIG")
        self.file = _file(Path(self._path)) if self._path else {}

    def is_flag_given(self, name: str) -> bool:
        return self.flags.get(name) not in (None, [])

    def where(self, name: str) -> str | None:
        """Return the variable or the file that gives an option without a flag; None if none does."""
        variable = VARIABLE + name.upper()
        if variable in os.environ:
            return variable
        return f"{self._path}: {name}" if name in self.file else None

    def read(self, name: str, reader: Reader) -> Any:
        """Return the value of an option, converted and checked by ``reader``."""
        if self.is_flag_given(name):
            return reader(self.flags[name], f"--{name.replace('_', '-')}")
        value = os.environ.get(VARIABLE + name.upper(), self.file.get(name))
        return reader(value, self.where(name) or name)

    def named_in_flags(self, service: str) -> list[str]:
        """Return the fakes of a service whose settings the flags give with their names."""
        names = dict.fromkeys(name for name, _ in map(_name_of, self.flags[service]) if name)
        return [f"{service}:{name}" for name in names]

    def settings(self, part: str) -> dict[str, Any]:
        """Return the settings of a fake; a flag overrides a variable, and that the file."""
        service, _, fake = part.partition(":")
        variable = f"{VARIABLE}{service.upper()}"
        settings = dict(self.file.get(part, {}))
        words = os.environ.get(variable, "").split()
        settings.update(_settings(_words_of(fake, words), variable))
        flags = _settings(_words_of(fake, self.flags[service]), f"--{service}")
        for name in ("port", "token") if not fake else ():
            if name in flags and self.is_flag_given(f"{service}_{name}"):
                raise Usage(f"--{service} {name}=… and --{service}-{name} are the same: pass one")
        settings.update(flags)
        if isinstance(settings.get("token"), str):
            _token(settings["token"], f"the setting token of {part}")
        if "port" in settings:
            settings["port"] = _port(settings["port"], f"the setting port of {part}")
        for name, reader in (("port", _port), ("token", _token)) if not fake else ():
            value = self.read(f"{service}_{name}", reader)
            if value is not None:
                settings[name] = value
        return settings


def _services(sources: _Sources) -> dict[str, dict[str, Any]]:
    """Return the settings of each fake to start; raise ``Usage`` if two fakes share a name."""
    parts: list[str] = sources.read("services", _names)
    for word in services_by_word():
        flags = [f"{word}_port", f"{word}_token"]
        if any(not name for name, _ in map(_name_of, sources.flags[word])):
            flags.insert(0, word)
        given_flags = [(flag, word) for flag in flags if sources.is_flag_given(flag)]
        given_flags += [(word, part) for part in sources.named_in_flags(word)]
        for flag, part in given_flags:
            if part not in parts:
                raise Usage(
                    f"--{flag.replace('_', '-')} is for {part}, which is not among the services "
                    f"to start ({', '.join(parts)}): name it too, or leave the option out"
                )
    try:
        return by_part({part: sources.settings(part) for part in parts})
    except ContractError as error:
        raise Usage(str(error)) from None


def _names(value: Any, where: str) -> list[str]:
    """Return the chosen services from a list or a comma-separated string; all by default."""
    services = services_by_word()
    if value is None:
        return list(services)
    names = list(dict.fromkeys(map(_part, _items("a list of names", value, where))))
    if not names:
        raise Usage(f"{where}={value!r} is empty; pass one or more of {', '.join(services)}")
    for name in names:
        try:
            _, own = split_part(name)
        except ContractError as error:
            raise Usage(str(error)) from None
        if own is not None and not _NAME.fullmatch(own):
            raise Usage(
                f"{brief(own)} is not a name of a fake on the command line: it begins with a letter, "
                "followed by letters, digits, - and _"
            )
    return names


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""A name that options, variables and files can contain."""


def _part(part: str) -> str:
    """Return what the command line calls a fake (``kv``, ``kv:NAME``), also given the name of its
    fixture instead of ``kv``.
    """
    try:
        return part_of(*split_part(part))
    except ContractError:
        return part


def _name_of(word: str) -> tuple[str, str]:
    """Return the name of the fake that ``NAME:SETTING=VALUE`` is for, or none, and the rest."""
    name, _, rest = word.partition(":")
    return (name, rest) if "=" in rest and "=" not in name else ("", word)


def _words_of(fake: str, words: Sequence[str]) -> list[str]:
    return [rest for name, rest in map(_name_of, words) if name == fake]


def _items(expected: str, value: Any, where: str) -> list[str]:
    """Return the strings of a list, or of a string separated by spaces or commas."""
    value = value.replace(",", " ") if isinstance(value, str) else value
    return _strings(value, where, expected)


def _words(name: str, value: Any, where: str) -> list[str]:
    """Return the words of a list, of a string, or of a table (each as ``KEY=VALUE``)."""
    if isinstance(value, dict):
        value = [f"{key}={item}" for key, item in value.items()]
    return _strings(value, where, f"a list of strings, which --{name} needs")


def _strings(value: Any, where: str, expected: str) -> list[str]:
    words = value.split() if isinstance(value, str) else (value or [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Usage(f"{where}={value!r} is not {expected}")
    return words


def _forwards(words: Sequence[str], services: Sequence[str]) -> dict[str, str]:
    if words and not any(split_part(part)[0].delivers for part in services):
        raise Usage("--forward is for the queue, which is not among the services: name it too")
    targets: dict[str, str] = {}
    for word in words:
        url, sign, target = word.partition("=")
        if not sign or not url or not target:
            raise Usage(
                f"--forward {brief(word)} is not URL=TARGET, such as "
                "https://app.example=http://127.0.0.1:3000"
            )
        if url in targets:
            raise Usage(f"--forward {url} is given twice: pass one target")
        targets[url] = target
    return targets


def _of(kind: Kind[Any], *, number: bool = False) -> Reader:
    """Read None and a kind of values; a ``number`` may be given as a string of digits."""

    def read(value: Any, where: str) -> Any:
        if number and isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
            value = int(value)
        return None if value is None else kind.read(where, value)

    return read


_count = _of(whole(0), number=True)
_port = _of(
    whole(0, MOST_PORT)._replace(expected=f"a port number: 0 (any free) to {MOST_PORT}"),
    number=True,
)
_interval = _of(duration("us", 1_000_000))


def _seconds(value: Any, where: str) -> float | None:
    microseconds = _interval(value, where)
    return None if microseconds is None else microseconds / 1e6


_token = _of(
    text(
        "a string of printable ASCII characters; leave it out for a random token",
        lambda value: value and value.isascii() and value.isprintable(),
    )
)
_seed = _of(Kind(int | str, "an integer or a string", lambda value: type(value) in (int, str)))


def _path(value: Any, where: str) -> Path | None:
    return None if value is None else Path(text().read(where, value))


def _flag(value: Any, where: str) -> bool:
    flag = False if value is None else SWITCH_WORDS.get(str(value).lower())
    if flag is None:
        raise Usage(f"{where}={value!r} is not a boolean: pass 1, true, yes, on or 0, ...")
    return flag


def _file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(read_file(path).decode("utf-8"))
    except (ContractError, ValueError, RecursionError) as error:
        raise Usage(f"{path} cannot be used: {error}") from None
    known_options = {"services", *_READERS, *services_by_word()}
    twice = [name for name in content if _part(name) != name and _part(name) in content]
    if twice:
        raise Usage(
            f"{path}: {twice[0]} and {_part(twice[0])} name the same fake: keep one of the tables"
        )
    content = {_part(name): value for name, value in content.items()}
    words = services_by_word()
    parts = {name for name in content if name.partition(":")[0] in words and not name.endswith(":")}
    unknown = sorted(set(content) - known_options - parts)
    if unknown:
        raise Usage(f"{path}: {unknown_name('option', unknown[0], sorted(known_options))}")
    for part in parts:
        if not isinstance(content[part], dict):
            raise Usage(f"{path}: {part} must be a table of settings, not {content[part]!r}")
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
        if name in settings:
            raise Usage(f"{where}: {name} is given twice: pass one value")
        try:
            settings[name] = json.loads(text)
        except RecursionError:
            raise Usage(f"{where}: the value of {name} is nested too deeply") from None
        except ValueError:
            settings[name] = text
    return settings


_READERS: Mapping[str, Reader] = {
    "host": _of(text()),
    "allow_host": partial(_items, "a list of host names"),
    "control_port": _port,
    "control_token": _token,
    "seed": _seed,
    "now": lambda value, _: value,
    "clock": _of(text()),
    "tls": _flag,
    "random": _flag,
    "load": partial(_words, "load"),
    "forward": partial(_words, "forward"),
    "log_format": _of(choice(*FORMATS)),
    "json": _flag,
    "journal": _of(text()),
    "journal_entries": _count,
    "journal_bytes": _count,
    "report": _path,
    "state": _path,
    "save_every": _seconds,
}
"""The options besides the services, each with the function that converts and checks its value."""
