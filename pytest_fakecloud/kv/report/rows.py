"""The keys and channels of commands, for the rows of a report."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.calls import Call
from ...reporting.calls import lines_of
from ...reporting.model import Subject
from ..command_fields import keys_of

_SUBSCRIBING = {
    "SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE", "PUNSUBSCRIBE",
}  # fmt: skip
"""Commands whose arguments are channels or patterns of channels."""


def subjects(call: Call) -> Iterator[Subject]:
    """Yield the keys and channels of a call."""
    for line in lines_of(call):
        name, *arguments = line
        if name.upper() in ("PUBLISH", "SPUBLISH"):
            yield from (Subject("channel", one, call.handle) for one in arguments[:1])
        elif name.upper() in _SUBSCRIBING:
            yield from (Subject("channel", one, call.handle) for one in arguments)
        else:
            yield from (Subject("key", one, call.handle) for one in keys_of(line))


def operation(call: Call) -> str:
    """Return the command of a call with a single one; empty for any other call."""
    command = call.facts.get("command")
    return str(command[0]) if isinstance(command, list) and len(command) == 1 else ""
