"""The data of a fake as sections of named items, each a mapping of fields, and its changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from ..core.calls import Event
from ..core.timers import to_datetime

Item: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, dict[str, Item]]
"""Items by section and name, each a mapping of its fields."""


class Change(NamedTuple):
    """A changed item of a fake, with its fields after the change; None if it was removed."""

    fake: str
    section: str
    item: str
    fields: Item | None


LONGEST = 2_000
"""Maximum number of characters that are kept of a value."""


def _kv(handle: Any) -> State:
    from ..kv.engine.keyspace import type_name
    from ..kv.python_values import python_value, word

    keys: dict[str, Item] = {}
    with handle._engine.reading() as keyspace:
        for key in list(keyspace):
            value = keyspace.peek(key)
            expiry = keyspace.expires.get(key)
            keys[str(word(key))] = {
                "type": type_name(value),
                "value": plain(python_value(value)),
                "expires": None if expiry is None else _time(expiry * 1000),
            }
    return {"keys": keys}


def _vector(handle: Any) -> State:
    found: State = {}
    for name in handle.namespaces():
        found[_section_of(name)] = {
            str(item["id"]): {**plain(dict(item)), "state": "ready"}
            for item in handle.vectors(name)
        }
    for item in handle.pending():
        fields = {**plain(item), "state": "pending"}
        section = _section_of(fields.pop("namespace"))
        found.setdefault(section, {})[str(fields["id"])] = fields
    return found


def _section_of(namespace: str) -> str:
    return f"namespace {namespace}" if namespace else "default namespace"


def _broker(handle: Any) -> State:
    partitions: dict[str, Item] = {}
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for topic in handle.topics():
        name = topic.name
        pairs = zip(topic.start_offsets, topic.end_offsets, strict=True)
        for number, (start, end) in enumerate(pairs):
            ends[name, number] = start, end
            partitions[f"{name}-{number}"] = {"start": start, "end": end}
    found: State = {"partitions": partitions}
    for view in handle.groups():
        group = view._described()
        owners = {
            (one.topic, one.partition): member
            for member, assigned in group.assignment.items()
            for one in assigned
        }
        # Convert each TopicPartition to a plain tuple.
        known = dict.fromkeys([*map(tuple, group.lag), *map(tuple, group.committed), *owners])
        items = found[f"group {group.name}"] = {}
        for at in known:
            start, end = ends.get(at, (0, 0))
            items[f"{at[0]}-{at[1]}"] = {
                "owner": owners.get(at), "committed": group.committed.get(at),
                "position": group.position.get(at), "start": start, "end": end,
            }  # fmt: skip
    return found


def _queue(handle: Any) -> State:
    engine = handle._engine
    with engine.lock:
        messages = {
            one.id: {
                "url": str(one.url), "kind": one.kind, "state": one.state,
                "attempts": [attempt.status for attempt in one.attempts],
                "next attempt": None if one.due_us is None else _time(one.due_us),
            }
            for one in engine.messages.values()
        }  # fmt: skip
    letters = {
        letter.id: {"url": str(letter.url), "status": letter.status, "message": letter.message.id}
        for letter in handle.dead_letters()
    }
    schedules = {
        one.id: {"cron": one.cron, "destination": str(one.url), "paused": one.paused}
        for one in handle.schedules()
    }
    return {"messages": messages, "dead letters": letters, "schedules": schedules}


VIEWS: Mapping[str, Callable[[Any], State]] = {
    "kv_server": _kv,
    "vector_index": _vector,
    "broker": _broker,
    "queue": _queue,
}
"""The function that returns a fake's data, by fixture, for fixtures whose fakes hold data."""


def state_of(handle: Any) -> State:
    return VIEWS[handle.fixture](handle)


def _time(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def plain(value: Any, errors: str = "backslashreplace") -> Any:
    """Return a value as plain JSON: keys are strings, sets are sorted, and bytes are decoded.

    ``errors`` says how to decode bytes that are not UTF-8.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", errors)
    if isinstance(value, Mapping):
        return {str(plain(key, errors)): plain(item, errors) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item, errors) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item, errors) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


# -- changes ---------------------------------------------------------------------------------------


def changes_of(name: str, before: State, after: State) -> Iterator[Change]:
    for section in {**before, **after}:
        old, new = before.get(section, {}), after.get(section, {})
        if old == new:
            continue
        for item in {**old, **new}:
            if old.get(item) != new.get(item):
                fields = new.get(item)
                yield Change(name, section, item, None if fields is None else _short(fields))


def shortened(state: State) -> State:
    return {
        section: {name: _short(fields) for name, fields in items.items()}
        for section, items in state.items()
    }


def _short(fields: Mapping[str, Any]) -> Item:
    """Return an item's fields; a value that is too long is shortened and states its full length."""
    found = dict(fields)
    for name, value in fields.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(text) > LONGEST:
            found[name] = f"{text[:LONGEST]}… ({len(text):,} characters)"
    return found


def frames(
    before: Mapping[str, State], now: dict[str, State], events: Sequence[Event]
) -> Iterator[tuple[Event | None, dict[str, State]]]:
    """Yield the states after a call, with None, and after each event that it caused.

    A commit changes the committed offsets of its group and a rebalance the owners; the call changes
    the rest. If the events do not explain the change, it belongs to the call alone.
    """
    name = events[0].handle if events else ""
    if name in now and before[name] != now[name]:
        state = _undone(events, before[name], now[name])
        found: list[tuple[Event | None, State]] = [(None, state)]
        for event in events:
            state = _applied(event, state)
            found.append((event, state))
        if state == now[name]:
            for cause, each in found:
                yield cause, {name: each}
    yield None, now


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
