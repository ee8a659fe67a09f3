"""Findings about transactions that were not executed, searches that came too early, and `keys`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from ...core.bodies import parsed
from ...core.calls import Call
from ...core.errors import ContractError
from ...reporting.accesses import ReportSubject
from ...reporting.calls import has_full_answer
from ...reporting.model import Finding
from ...reporting.observed import ObservedTest
from ..command_fields import keys_of
from ..fake import KVServer
from ..table import kinds
from . import keys
from .accesses import KEY
from .background import changes_of_watched
from .calls import QUEUED, command_of, lines_of, result_of
from .history import databases_of, history


def never_executed(test: ObservedTest, fake: KVServer) -> Iterator[Finding]:
    """Find commands that a transaction queued and did not execute, and that no later one repeated."""
    queued: dict[object, list[Call]] = {}
    missed: dict[tuple[tuple[str, ...], ...], tuple[Call, str]] = {}  # with the command at the end
    for call in test.calls_of(fake):
        name = command_of(call)
        if call.response_body == QUEUED and call.fault is None:
            queued.setdefault(call.client, []).append(call)
        elif name in ("EXEC", "DISCARD") and (steps := queued.pop(call.client, None)):
            sent = _names_and_keys(steps)
            is_null = call.status == 200 and has_full_answer(call) and result_of(call) is None
            if name == "DISCARD" or is_null:
                missed[sent] = call, name
            else:
                missed.pop(sent, None)
    missed |= {_names_and_keys(steps): (steps[-1], "") for steps in queued.values()}
    watched = changes_of_watched(test.calls_of(fake), test.lookups)
    for sent, (call, end) in missed.items():
        change = watched.get(call.number)
        rows = (call.number,) if change is None else (call.number, change.number)
        values = {"commands": list(map(" ".join, sent)), "ended": bool(end)}
        values["discarded"] = end == "DISCARD"
        values |= {} if change is None else {"watched": change._asdict()}
        sent_keys = dict.fromkeys(key for _, *keys_of_one in sent for key in keys_of_one)
        subjects = tuple(ReportSubject(KEY, key, call.fake) for key in sent_keys)
        yield Finding("never_executed", call.fake, rows, subjects, values)


def _names_and_keys(calls: Iterable[Call]) -> tuple[tuple[str, ...], ...]:
    return tuple((command_of(call), *keys_of(lines_of(call)[0])) for call in calls)


def searched_before_ready(test: ObservedTest, fake: KVServer) -> Iterator[Finding]:
    """Find searches without a hit while changes were not searchable yet that match by now."""
    searching = [command for command in history(test, fake) if command.name in kinds.SEARCHES]
    searches = fake.searches() if searching else []
    for command, search in zip(reversed(searching), reversed(searches), strict=False):
        is_same = parsed(command.words[2]) == search.filter
        if search.total or not search.pending or not is_same:
            continue
        with suppress(ContractError):
            index, matching = fake.search_index(search.index), []
            for key in {*index.documents, *index.pending}:
                why = index.explain(key, search.filter)
                # A key that would match has no other reason.
                matching += [key] if all("not indexed yet" in reason for reason in why) else []
            if matching:
                yield command.finding("searched_before_ready", keys=sorted(matching))


def of_keys(test: ObservedTest, fake: KVServer) -> Iterator[Finding]:
    """Find facts about the keys of each database of a server that clients have used."""
    for database in databases_of(test, fake):
        for detector in keys.DETECTORS:
            yield from detector(database)


DETECTORS = (of_keys, never_executed, searched_before_ready)
