"""What HELP answers: the sub-commands of a command, with their summaries."""

from __future__ import annotations

from ..registry import COMMANDS, CommandSpec
from ..reply import Reply, Status

__all__ = ["help_reply", "summary"]


def summary(spec: CommandSpec) -> str:
    """What a command does, in one sentence: the first line of its function's docstring."""
    text = (spec.function.__doc__ or "") if spec.function is not None else ""
    return text.strip().split("\n")[0]


def help_reply(container: str) -> Reply:
    """The lines of ``<container> HELP``, in the server's layout."""
    lines = [f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for spec in (COMMANDS[container].subcommands or {}).values():
        if not spec.name.endswith(" HELP"):
            words = " ".join(f"[{option}]" for option in spec.options)
            lines += [f"{spec.name.split()[1]} {words}".strip(), f"    {summary(spec)}"]
    lines += ["HELP", "    Print this help."]
    return [Status(line.encode()) for line in lines]
