"""What reports look up in several entries of the journal of key-value servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...cloud.base import BaseCloud
from ...core.calls import Call, Entry, on_connection
from ...core.recorder import ScriptCommand
from ...reporting.calls import calls_in
from ...reporting.contract import ServiceLookups
from ...reporting.lookups import Lookups, records_of
from ...reporting.mask import Mask
from ..table import kinds
from .calls import QUEUED, command_of, commands_of, hash_of, hides_words, lines_of

_GREETINGS = {"HELLO", "AUTH", "SELECT", "CLIENT SETINFO", "CLIENT SETNAME",
              "CLIENT MAINT_NOTIFICATIONS"}  # fmt: skip
"""Commands that set up a connection."""
_REFUSABLE = "CLIENT MAINT_NOTIFICATIONS"
"""A command that redis-py sends to every server, ignoring an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLookups(ServiceLookups):
    """Lookups in the calls to key-value servers."""

    scripts: Mapping[str, str] = field(default_factory=dict)
    """The sources of Lua scripts, by the first eight characters of their hash."""
    script_commands: Mapping[int, Sequence[ScriptCommand]] = field(default_factory=dict)
    """The commands that the scripts of a call executed, by its number; missing if not recorded."""
    cut_numbers: Mapping[int, Mapping[float, int]] = field(default_factory=dict)
    """The numbers that the scripts of a call returned, with the integers to which they were cut."""


def make(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask) -> KVLookups:
    """Return the calls on connections that are one row, the scripts, and what these executed."""
    calls = calls_in(entries, "kv")
    groups, without_row = gathered(calls)
    sent = {
        hash_of(source)[:8]: (source, call.number)
        for call in calls for name, *arguments in lines_of(call)
        for source in {"EVAL": arguments[:1], "SCRIPT": arguments[1:2]}.get(name.upper(), ())
    }  # fmt: skip
    return KVLookups(
        grouped_calls={number: list(map(mask.call, group)) for number, group in groups.items()},
        without_row=without_row,
        expected_errors={call.number for call in calls if _sends_script_after(call, sent)},
        scripts={sha: source for sha, (source, _) in sent.items()},
        script_commands={
            number: [own._replace(words=mask.value(own.words), answer=mask.value(own.answer))
                     for own in commands]
            for number, commands in records_of(cloud).scripts.items()
        },
        cut_numbers=records_of(cloud).cut_numbers,
    )  # fmt: skip


def _sends_script_after(call: Call, sent: Mapping[str, tuple[str, int]]) -> bool:
    """Return whether the server did not know the script of a call, and the client sent it then."""
    if b"NOSCRIPT" not in call.response_body[:40] or not command_of(call).startswith("EVALSHA"):
        return False
    return sent.get(lines_of(call)[0][1][:8].lower(), ("", 0))[1] > call.number


def executed_commands(call: Call, lookups: Lookups) -> Iterator[tuple[list[str], Any]]:
    """Yield each command that a call executed, as `commands_of()` does; in place of its scripts, at the
    end, what these executed, if that was recorded.
    """
    in_scripts = lookups.of(KVLookups).script_commands.get(call.number)
    for words, answer in commands_of(call, lookups):
        if in_scripts is None or words[0] not in kinds.RUNS_SCRIPT:
            yield words, answer
    for _, (name, *arguments), answer in in_scripts or ():
        yield [name.upper(), *arguments], answer


def gathered(calls_of_servers: Iterable[Call]) -> tuple[dict[int, list[Call]], set[int]]:
    """Group the setup of a connection under its first call, and a transaction under its last one.

    Return a mapping from the number of the call that has a row to the calls in this row, and the
    numbers of the calls without a row of their own. The setup of a fake's only connection has no
    row at all if the connection has other commands, because they show that it exists.
    """
    connections: dict[tuple[str, object], list[Call]] = {}
    for call in calls_of_servers:
        if on_connection(call) and call.client is not None:
            connections.setdefault((call.fake, call.client), []).append(call)
    count = Counter(fake for fake, _ in connections)
    groups: dict[int, list[Call]] = {}
    without_row: set[int] = set()
    for (fake, _), calls in connections.items():
        setups = _setups(calls)
        in_setups = {call.number for setup in setups for call in setup}
        others = [call for call in calls if call.number not in in_setups]
        groups |= {setup[0].number: setup for setup in setups}
        is_known = bool(others) and count[fake] == 1
        without_row |= in_setups if is_known else in_setups - groups.keys()
        for end, steps in _transactions(others):
            groups[end.number] = steps[1:]
            without_row.update(step.number for step in steps)
    return groups, without_row


def _setups(calls: Iterable[Call]) -> list[list[Call]]:
    """Return the commands that set up a connection: its first ones, and those from each HELLO."""
    setups: list[list[Call]] = [[]]
    is_open = True  # until another command
    for call in calls:
        name = command_of(call)
        succeeded = call.fault is None and (call.status == 200 or name == _REFUSABLE)
        if name == "HELLO":
            setups.append([])
            is_open = True
        is_open = is_open and name in _GREETINGS and succeeded
        if is_open:
            setups[-1].append(call)
    return list(filter(None, setups))


def _transactions(calls: Iterable[Call]) -> Iterator[tuple[Call, list[Call]]]:
    """Yield the end of each transaction on a connection, and its other commands from its MULTI."""
    steps: list[Call] | None = None
    for call in calls:
        name = command_of(call)
        if name == "MULTI" and call.status == 200 and call.fault is None:
            steps = [call]
        elif name in ("EXEC", "DISCARD"):
            if steps is not None:
                yield call, steps
            steps = None
        elif steps is not None and call.response_body == QUEUED and call.fault is None:
            steps += [] if hides_words(call) else [call]
