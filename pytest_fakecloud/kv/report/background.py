"""What a key-value server knows about commands beside their answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...core.calls import Entry
from ...core.errors import ContractError
from ...reporting.calls import calls_in
from ...reporting.lookups import Background, Lookups
from ...reporting.strings import parsed
from ..fake import KVServer
from ..table import kinds
from .calls import executed_by
from .watches import WatchedChange, changes_of_watched

Line = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KVBackground(Background):
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
        for call in calls
        for words, answer, _ in executed_by(call, lookups)
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
            before = [entry for entry in added.get(line[2], ()) if _is_before(entry, line[4])]
            if before:
                yield number, line, len(before)
        elif line[0] in ("DEL", "UNLINK", "FLUSHALL", "FLUSHDB", "XTRIM"):
            added.clear()


def _is_before(entry: str, start: str) -> bool:
    return start == "$" or _parts(entry) <= _parts(start)


def _parts(entry_id: str) -> tuple[int, ...]:
    numbers = [int(part) for part in entry_id.split("-") if part.isdecimal()]
    return (*numbers, 0, 0)[:2]
