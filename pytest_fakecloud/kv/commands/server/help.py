"""The replies of HELP, which list the subcommands of a command with their summaries."""

from __future__ import annotations

from ...engine.engine import Session
from ...reply import Reply, Status
from ...table.registry import COMMANDS, Args, CommandSpec, command, function_of
from .help_texts import HELP_TEXTS


def summary(spec: CommandSpec) -> str:
    """Return a command's summary, which is the first line of its function's docstring."""
    function = function_of(spec)
    return ((function and function.__doc__) or "").strip().split("\n")[0]


def _help_reply(session: Session, container: str) -> Reply:
    """Return the lines of HELP as in Redis 7.0, and of the vendor's own subcommands."""
    text = HELP_TEXTS.get(container, "")
    lines = [f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    lines += text.splitlines()
    listed = {line.split()[0] for line in lines}
    if session.engine.dialect == "vendor" or not text:
        for spec in (session.engine.table.commands[container].subcommands or {}).values():
            word = spec.name.split()[1]
            if word not in listed and word != "HELP":
                words = " ".join(f"[{option}]" for option in spec.options)
                lines += [f"{word} {words}".strip(), f"    {summary(spec)}"]
    lines += ["HELP", "    Prints this help."]
    return [Status(line.encode()) for line in lines]


def _bind(container: str) -> None:
    @command(f"{container} HELP")
    def show_help(session: Session, args: Args) -> Reply:
        return _help_reply(session, container)

    show_help.__doc__ = f"Return the subcommands of {container}."


for _name, _spec in COMMANDS.items():
    # All commands of the group "cluster" are rejected.
    if _name.endswith(" HELP") and _spec.group != "cluster":
        _bind(_name.removesuffix(" HELP"))
