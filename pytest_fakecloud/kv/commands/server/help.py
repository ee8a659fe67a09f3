"""HELP of all container commands, and the summaries of commands."""

from __future__ import annotations

import os
from functools import cache
from importlib.machinery import SourceFileLoader

from ...engine.session import Session
from ...reply import Reply, Status
from ...table.registry import COMMANDS, Args, CommandSpec, function_of, variant


def summary(spec: CommandSpec) -> str:
    """Return a command's summary, which is the first line of its function's docstring."""
    function = function_of(spec)
    docstring = function.__doc__ if function is not None else None
    return (docstring or "").strip().split("\n")[0]


@cache
def _help_texts() -> dict[str, list[str]]:
    """Return the lines of the help texts of Redis 7.0, keyed by the names of the containers."""
    # Read the file as Python reads modules, because a test may use a fake file system.
    path = os.path.join(os.path.dirname(__file__), "help.txt")
    data = SourceFileLoader("help", path).get_data(path)
    sections = (section.splitlines() for section in data.decode().split("== ")[1:])
    return {container: lines for container, *lines in sections}


def show_help(session: Session, args: Args, *, container: str) -> Reply:
    """Return the lines of HELP as in Redis 7.0, and of the vendor's own subcommands."""
    text = _help_texts().get(container, [])
    lines = [f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    lines += text
    listed = {line.split()[0] for line in lines}
    if session.engine.dialect == "vendor" or not text:
        for spec in (session.engine.table.commands[container].subcommands or {}).values():
            word = spec.name.split()[1]
            if word not in listed and word != "HELP":
                words = " ".join(f"[{option}]" for option in spec.options)
                lines += [f"{word} {words}".strip(), f"    {summary(spec)}"]
    lines += ["HELP", "    Prints this help."]
    return [Status(line.encode()) for line in lines]


for _name, _spec in COMMANDS.items():
    # All commands of the group "cluster" are rejected.
    if _name.endswith(" HELP") and _spec.group != "cluster":
        _container = _name.removesuffix(" HELP")
        _summary = f"Return the subcommands of {_container}."
        variant(_name, _summary, container=_container)(show_help)
