"""Read entries of the journal: the answers to calls, whether they did something, what events changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..core.calls import Call, Entry, Event


def calls_in(entries: Iterable[Entry], service: str = "") -> list[Call]:
    """Return the calls among entries, only those to a service if one is given."""
    calls = [entry for entry in entries if isinstance(entry, Call)]
    return [call for call in calls if service in ("", call.service)]


def events_in(entries: Iterable[Entry]) -> list[Event]:
    return [entry for entry in entries if isinstance(entry, Event)]


def has_full_answer(call: Call) -> bool:
    """Return whether a call received a complete response that is not an error."""
    return call.status is not None and call.status < 400 and call.outcome == "answered"


def success_of(call: Call, did_something: bool = True) -> bool | None:
    """Return whether a call did something, as ``succeeded`` of its `DataAccess`es:

    - full answer: ``did_something``, which the service reads in the answer
    - error that no fault caused: False
    - everything else: None, because the answer does not say it
    """
    if has_full_answer(call):
        return did_something
    return False if call.status is not None and call.status >= 400 and call.fault is None else None


def executed(call: Call) -> bool:
    """Return whether a call reached the fake, which answered with a status of success."""
    return call.reached and 200 <= (call.status or 0) < 300


def executed_without_its_answer(call: Call) -> bool:
    """Return whether a call was executed, but a fault lost, cut or replaced its response. The status of
    a response that was altered is the fault's own.
    """
    if call.outcome == "altered":
        return call.reached and (call.status or 0) >= 400
    return executed(call) and call.outcome in ("lost", "truncated")


def changed_items(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the items that an event without a call changed, such as a restore, each with its section of
    the fake's state.
    """
    for section, items in (event.data.get("changed") or {}).items():
        yield from ((section, item) for item in items)
