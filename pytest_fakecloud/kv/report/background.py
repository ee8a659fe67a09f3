"""What a key-value server knows about commands beside their answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.bodies import parsed
from ...core.calls import Call, Entry
from ...core.errors import ContractError
from ...reporting.calls import calls_in, has_full_answer
from ...reporting.lookups import Lookups
from ..fake import KVServer
from ..table import kinds
from .accesses import of_command
from .calls import command_of, commands_of, lines_of, result_of
from .lookups import executed_commands

Line = tuple[str, ...]


class WatchedChange(NamedTuple):
    """A change of a ``key`` that a connection watched, by the last such command in a call."""

    key: str
    number: int
    """The number of the call."""
    words: tuple[str, ...]


def changes_of_watched(calls: Iterable[Call], lookups: Lookups) -> Mapping[int, WatchedChange]:
    """Return the last change of a watched key before each EXEC without a result, by the number of the
    EXEC, given the calls of one server.
    """
    watched: dict[object, dict[str, int]] = {}
    changes: dict[str, WatchedChange] = {}
    undone: dict[int, WatchedChange] = {}
    for call in calls:
        name = command_of(call)
        if name == "WATCH":
            for key in lines_of(call)[0][1:]:
                watched.setdefault(call.client, {}).setdefault(key, call.number)
        elif name in ("UNWATCH", "DISCARD", "EXEC"):
            keys = watched.pop(call.client, {})
            if name == "EXEC" and has_full_answer(call) and keys and result_of(call) is None:
                since = [changes[key] for key in keys
                         if key in changes and changes[key].number > keys[key]]  # fmt: skip
                if since:
                    undone[call.number] = max(since, key=lambda change: change.number)
        for words, answer in commands_of(call, lookups) if watched or name == "EXEC" else ():
            for access in of_command(call.fake, words, answer):
                if access.is_effective_write:
                    key = access.subject.name
                    changes[key] = WatchedChange(key, call.number, tuple(words))
    return undone


@dataclass(frozen=True, slots=True)
class KVBackground:
    """What a server knows about the commands of a call, by their lines."""

    totals: Mapping[Line, int] = field(default_factory=dict)
    """The number of documents that a search found."""
    before_start: Mapping[Line, int] = field(default_factory=dict)
    """The number of entries before the start of a consumer group."""
    watched: WatchedChange | None = None
    """The change of a watched key because of which EXEC executed nothing."""


NOTHING_KNOWN = KVBackground()


def background(
    fake: KVServer, entries: Iterable[Entry], lookups: Lookups
) -> dict[int, KVBackground]:
    """Return what a server knows about calls, by their numbers."""
    calls = [call for call in calls_in(entries) if call.fake == fake.name]
    commands = [
        (call.number, tuple(words), answer.get("result") if isinstance(answer, dict) else None)
        for call in calls for words, answer in executed_commands(call, lookups)
    ]  # fmt: skip
    facts: defaultdict[int, tuple[dict[Line, int], dict[Line, int]]] = defaultdict(lambda: ({}, {}))
    for number, line, total in _totals(fake, commands):
        facts[number][0][line] = total
    for number, line, count in _before_start(commands):
        facts[number][1][line] = count
    watched = changes_of_watched(calls, lookups)
    return {number: KVBackground(*facts[number], watched.get(number))
            for number in {*facts, *watched}}  # fmt: skip


def _totals(
    fake: KVServer, commands: Iterable[tuple[int, Line, Any]]
) -> Iterator[tuple[int, Line, int]]:
    """Yield the number of documents that each query found. A server keeps the newest searches."""
    searching = [command for command in commands if command[1][0] in kinds.SEARCHES]
    searches: list[Any] = []
    with suppress(ContractError):  # of a real server
        searches = list(fake.searches()) if searching else []
    for (number, line, _), search in zip(reversed(searching), reversed(searches), strict=False):
        if line[0] == "SEARCH.QUERY" and parsed(line[2]) == search.filter:
            yield number, line, search.total


def _before_start(commands: Iterable[tuple[int, Line, Any]]) -> Iterator[tuple[int, Line, int]]:
    """Yield how many of the entries that were added to a stream are before the start of a group."""
    added: dict[str, list[str]] = {}
    for number, line, result in commands:
        if line[0] == "XADD" and isinstance(result, str):
            added.setdefault(line[1], []).append(result)
        elif line[0] == "XGROUP" and line[1].upper() == "CREATE" and result == "OK":
            before = [entry for entry in added.get(line[2], ())
                      if line[4] == "$" or _parts(entry) <= _parts(line[4])]  # fmt: skip
            if before:
                yield number, line, len(before)
        elif line[0] in ("DEL", "UNLINK", "FLUSHALL", "FLUSHDB", "XTRIM"):
            added.clear()


def _parts(entry_id: str) -> tuple[int, ...]:
    numbers = [int(part) for part in entry_id.split("-") if part.isdecimal()]
    return (*numbers, 0, 0)[:2]
