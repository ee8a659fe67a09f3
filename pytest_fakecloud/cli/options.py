"""Values of options: from a flag, else an environment variable, else the configuration file."""

from __future__ import annotations

import argparse
import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.errors import ContractError
from ..core.settings import MOST_PORT
from ..core.wording import brief, unknown_name
from ..files import read_file
from ..services import named, services_by_word
from ..serving import Usage
from ..standalone.log import FORMATS, LogFormat

VARIABLE = "PYTEST_FAKECLOUD_"
YES, NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
MOST_DIGITS = 19


def read_options(given: argparse.Namespace) -> dict[str, Any]:
    """Return the options of ``serve`` and ``run``; raise ``Usage`` for an invalid value."""
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

    known = services_by_word()
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
    services = services_by_word()
    if value is None:
        return list(services)
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Usage(f"{where}={value!r} is not a list of names")
    names = list(dict.fromkeys(_word(word.strip()) for word in words if word.strip()))
    unknown = [name for name in names if name not in services]
    if unknown:
        raise Usage(unknown_name("service", unknown[0], services))
    if not names:
        raise Usage(f"{where}={value!r} is empty; pass one or more of {', '.join(services)}")
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
        raise Usage(f"{where}={value!r} is not a list of strings, which --{name} needs")
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
    """Return a non-negative integer of at most ``most`` (for ports)."""
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
    known |= {"log_format", *services_by_word()}
    twice = [name for name in content if _word(name) != name and _word(name) in content]
    if twice:
        raise Usage(
            f"{path}: {twice[0]} and {_word(twice[0])} name the same fake: keep one of the tables"
        )
    content = {_word(name): value for name, value in content.items()}
    unknown = sorted(set(content) - known)
    if unknown:
        raise Usage(f"{path}: {unknown_name('option', unknown[0], sorted(known))}")
    for name in services_by_word():
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
