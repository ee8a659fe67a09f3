"""The changes of watched keys, because of which EXEC executed nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...core.calls import Call
from ...reporting.calls import has_full_answer
from ...reporting.lookups import Lookups
from .accesses import of_command
from .calls import command_of, commands_of, lines_of, result_of


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
                if access.writes and access.succeeded is not False:
                    key = access.subject.name
                    changes[key] = WatchedChange(key, call.number, tuple(words))
    return undone
