"""The replay of a broker, and of what its events change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.calls import Call, Event
from ..inspect.data import State
from . import journal


class ReplayedBroker(journal.ReplayedFake):
    """A replayed broker, which appends the same messages of each batch as the real one."""

    def replay_call(self, call: Call) -> None:
        keep = [int(fault["keep"]) for fault in call.faults if fault["kind"] == "partial_produce"]
        for number in keep if call.reached else ():
            self.fake.faults.partial_produce(number)
        super().replay_call(call)


REPLAYED = ReplayedBroker


def frames(before: State, now: State, events: Sequence[Event]) -> list[tuple[Event | None, State]]:
    """Return the data after a call, with None, and after each event that it caused.

    A commit changes the committed offsets of its group and a rebalance the owners; the call changes
    the rest.
    """
    state = _undone(events, before, now)
    frames_of_events: list[tuple[Event | None, State]] = [(None, state)]
    for event in events:
        state = _applied(event, state)
        frames_of_events.append((event, state))
    return frames_of_events


def _undone(events: Sequence[Event], before: State, now: State) -> State:
    """Return the current data with the earlier values of all fields that the events set."""
    state = {section: {**items} for section, items in now.items()}
    for event in events:
        section, changed = _set_by(event)
        for item, fields in state.get(section, {}).items():
            old = before.get(section, {}).get(item, {})
            state[section][item] = {**fields, **{field: old.get(field) for field in changed}}
    return state


def _applied(event: Event, state: State) -> State:
    """Return data after an event: a rebalance sets all owners, a commit only some offsets."""
    section, changed = _set_by(event)
    items = {item: dict(fields) for item, fields in state.get(section, {}).items()}
    for item, fields in items.items():
        for field, values in changed.items():
            unset = fields[field] if field == "committed" else None
            fields[field] = values.get(item, unset)
    return {**state, section: items}


def _set_by(event: Event) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the section of an event's group, and the values that the event set, by field and item."""
    data = event.data
    changed: dict[str, dict[str, Any]] = {}
    if event.kind == "rebalance":
        changed["owner"] = {f"{topic}-{partition}": member
                            for member, places in (data.get("assignment") or {}).items()
                            for topic, partition in places}  # fmt: skip
    if data.get("offsets"):
        changed["committed"] = {f"{topic}-{partition}": offset
                                for topic, partition, offset in data["offsets"]}  # fmt: skip
    return f"group {data.get('group')}", changed
