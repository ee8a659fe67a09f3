"""The topics and groups of requests, and the calls that cause events, for the rows of a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.calls import Call, Event
from ...reporting.model import Row, Subject

_FOLLOWING = {
    "consume": (("join", ""), ("rebalance", "join")),
    "commit": (("commit", ""),),
    "delete-consumer": (("leave", ""), ("rebalance", "leave")),
}
"""The events that each kind of call to a broker causes. Those of a rebalance include its cause."""


def subjects(call: Call) -> Iterator[Subject]:
    """Yield the topics and the group of a request."""
    for topic in call.facts.get("topic") or ():
        yield Subject("topic", str(topic), call.handle)
    if call.facts.get("group"):
        yield Subject("group", str(call.facts["group"]), call.handle)


def callers(found: Iterable[Row]) -> dict[int, Row]:
    """Return the calls that caused the events of consumer groups, by the events' numbers.

    An event is caused by the instance's last call of a suitable kind. A rebalance that waits for
    other members to join has no such call.
    """
    latest: dict[tuple[object, ...], Row] = {}
    callers = {}
    for row in found:
        if isinstance(row.entry, Call) and row.entry.service == "broker":
            facts = row.entry.facts
            for effect in _FOLLOWING.get(row.entry.route, ()):
                latest[row.peer, facts.get("group"), facts.get("instance"), *effect] = row
        elif isinstance(row.entry, Event) and row.entry.service == "broker":
            data = row.entry.data
            kind, instance = data.get("cause") or ("", "")
            about = row.peer, data.get("group"), data.get("instance") or instance
            if row.operation == "rebalance started":
                latest.pop((*about, "rebalance", kind), None)
            elif caller := latest.get((*about, row.operation, kind)):
                callers[row.number] = caller
    return callers
