"""Lookups of a report: what depends on several entries of the journal, or on the fakes' data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from ..cloud.base import BaseCloud, context_of
from ..core.calls import Call, Entry
from ..core.errors import report_hook_failure
from ..core.recorder import ScriptCommand, SharedRecords
from .contract import functions_of
from .mask import Mask

LONG = 16
"""Maximum length of the name of a consumer or a workflow run that is shown in full."""
_WORD = re.compile(r"\b\w{20,}")
"""A word that is as long as an id."""


class Exchanged(NamedTuple):
    """The request and the response of a delivery attempt."""

    headers: Iterable[tuple[str, str]]
    body: bytes
    response_headers: Iterable[tuple[str, str]]
    response_body: bytes


@dataclass(frozen=True, slots=True)
class Lookups:
    """Lookups of one cloud and its journal, which each service contributes (`ReportFunctions`)."""

    ids: Mapping[str, str] = field(default_factory=dict)
    """The short forms of the ids that fakes made, which applications may store."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The short forms of other long names, such as those of consumers."""
    bodies: Mapping[str, str] = field(default_factory=dict)
    """The beginning of the body of each message."""
    end_offsets: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    """The end offsets of the partitions, by fake and topic."""
    attempts: Mapping[int, Exchanged] = field(default_factory=dict)
    """The request and the outcome of each delivery attempt, by the number at which it began."""
    created_by_lost_call: Mapping[int, str] = field(default_factory=dict)
    """The message that a request created whose answer was lost, by the request's number."""
    grouped_calls: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    """The calls in the row of another one, by that one's number, such as those of a transaction."""
    without_row: Set[int] = frozenset()
    """The numbers of these calls."""
    steps: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The steps of a workflow run that the deliveries of a message execute, by the message's ID."""
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The step whose result a message has, by the message's ID."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """The sources of Lua scripts, by the first eight characters of their hash."""
    executed: Mapping[int, Sequence[ScriptCommand]] = field(default_factory=dict)
    """The commands that the scripts of a call executed, by its number; missing if not recorded."""
    background: Mapping[int, Mapping[Any, Any]] = field(default_factory=dict)
    """What fakes know about calls beside their answers, by the call's number; only in reports."""
    mask: Mask = field(default_factory=Mask)
    """Masks credentials that become visible when values are decoded."""

    def short(self, name: object) -> str:
        """Return the short form of an id or name; the name itself if it has none."""
        text = str(name)
        return self.ids.get(text) or self.names.get(text, text)

    def with_short_ids(self, text: str) -> str:
        """Return a text with the ids of fakes in their short form."""
        return _WORD.sub(lambda match: self.ids.get(match[0], match[0]), text)

    def combined_with(self, other: Lookups) -> Lookups:
        """Return these lookups with those of another service."""
        names = [item.name for item in fields(self) if item.name != "mask"]
        return replace(self, **{name: getattr(self, name) | getattr(other, name) for name in names})


def lookups_of(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask | None = None) -> Lookups:
    """Return the lookups of a cloud and its journal, with credentials in grouped calls masked."""
    mask = mask or Mask(cloud)
    lookups = Lookups(attempts=exchanges_of(cloud), mask=mask)
    of_fakes = (fake.service for fake in cloud.fakes())
    for service in dict.fromkeys((*of_fakes, *(entry.service for entry in entries))):
        if (contributed := functions_of(service).lookups) is not None:
            lookups = lookups.combined_with(contributed(cloud, entries, mask))
    return lookups


def exchanges_of(cloud: BaseCloud) -> dict[int, Exchanged]:
    """Return what recent delivery attempts sent and received, by the number at which each began."""
    return {
        number: exchanged
        for fake in cloud.fakes()
        for number, exchanged in functions_of(fake.service).attempts(fake)
    }


def records_of(cloud: BaseCloud) -> SharedRecords:
    """Return the actions and call sites of a cloud."""
    return context_of(cloud).recorder.shared


def tried(read: Callable[..., Iterable[Any]], *arguments: Any) -> list[Any]:
    """Return the values that a function of a fake returns; none if it raises an exception."""
    with report_hook_failure("", lambda line: None):
        return list(read(*arguments))
    return []


def abbreviated(ids: Iterable[str]) -> dict[str, str]:
    """Return the IDs shortened to a common length at which they still differ."""
    whole = set(ids)
    length = 8  # of a message ID, "msg_" and four characters
    while len({whole_id[:length] for whole_id in whole}) < len(whole):
        length += 2
    return {whole_id: whole_id[:length] for whole_id in whole}


def abbreviated_names(names: Iterable[str]) -> dict[str, str]:
    """Return long names shortened to their two ends, with a length at which they still differ."""
    whole = {name for name in names if len(name) > LONG}
    length = 6  # the ends of generated names differ, such as "worker-7f9c5d-x2kqp"
    while len({name[-length:] for name in whole}) < len(whole):
        length += 2
    return {name: f"{name[:3]}…{name[-length:]}" for name in whole if length + 4 < len(name)}
