"""What reports look up in several entries of the journal of key-value servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...cloud.base import BaseCloud
from ...core.calls import Call, Entry
from ...core.recorder import ScriptCommand
from ...reporting.calls import calls_in
from ...reporting.lookups import records_of
from ...reporting.mask import Mask
from .calls import KVLookups, hash_of, lines_of
from .connections import gathered


def lookups(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask) -> KVLookups:
    """Return the calls on connections that are one row, the scripts, and what these executed."""
    calls = calls_in(entries, "kv")
    groups, without_row = gathered(calls)
    return KVLookups(
        grouped_calls={number: list(map(mask.call, group)) for number, group in groups.items()},
        without_row=without_row,
        scripts={hash_of(source)[:8]: source for call in calls for source in _scripts_of(call)},
        executed={
            number: [_masked(command, mask) for command in commands]
            for number, commands in records_of(cloud).scripts.items()
        },
    )


def _masked(command: ScriptCommand, mask: Mask) -> ScriptCommand:
    return command._replace(words=mask.value(command.words), answer=mask.value(command.answer))


def _scripts_of(call: Call) -> Iterator[str]:
    for name, *arguments in lines_of(call):
        yield from {"EVAL": arguments[:1], "SCRIPT": arguments[1:2]}.get(name.upper(), ())
