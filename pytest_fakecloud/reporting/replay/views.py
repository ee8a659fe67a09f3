"""The data of a fake as sections of named items, each a mapping of fields, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...core.timeparse import to_datetime

Item: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, dict[str, Item]]
"""Items by section and name, each a mapping of its fields."""


def _kv(handle: Any) -> State:
    from ...kv.engine.keyspace import type_name
    from ...kv.python_values import python_value, word

    keys: dict[str, Item] = {}
    with handle._engine.reading() as keyspace:
        for key in list(keyspace):
            value = keyspace.peek(key)
            expiry = keyspace.expires.get(key)
            keys[str(word(key))] = {
                "type": type_name(value),
                "value": _plain(python_value(value)),
                "expires": None if expiry is None else _time(expiry * 1000),
            }
    return {"keys": keys}


def _vector(handle: Any) -> State:
    found: State = {}
    for name in handle.namespaces():
        section = f"namespace {name}" if name else "default namespace"
        found[section] = {
            str(item["id"]): {**_plain(dict(item)), "state": "ready"}
            for item in handle.vectors(name)
        }
    for item in handle.pending():
        fields = dict(item)
        name = fields.pop("namespace")
        section = f"namespace {name}" if name else "default namespace"
        fields = {**_plain(fields), "state": "pending"}
        found.setdefault(section, {})[str(fields["id"])] = fields
    return found


def _broker(handle: Any) -> State:
    partitions: dict[str, Item] = {}
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for name in handle.topics():
        topic = handle.topic(name)
        pairs = zip(topic.start_offsets, topic.end_offsets, strict=True)
        for number, (start, end) in enumerate(pairs):
            ends[name, number] = start, end
            partitions[f"{name}-{number}"] = {"start": start, "end": end}
    found: State = {"partitions": partitions}
    for name in handle.groups():
        group = handle.group(name)
        owners = {
            (one.topic, one.partition): member
            for member, assigned in group.assignment.items()
            for one in assigned
        }
        # Convert each TopicPartition to a plain tuple.
        known = dict.fromkeys([*map(tuple, group.lag), *map(tuple, group.committed), *owners])
        found[f"group {name}"] = {
            f"{topic}-{number}": {
                "owner": owners.get((topic, number)),
                "committed": group.committed.get((topic, number)),
                "position": group.position.get((topic, number)),
                "start": ends.get((topic, number), (0, 0))[0],
                "end": ends.get((topic, number), (0, 0))[1],
            }
            for topic, number in known
        }
    return found


def _queue(handle: Any) -> State:
    engine = handle._engine
    with engine.lock:
        messages = {
            message.id: {
                "url": str(message.url),
                "kind": message.kind,
                "state": message.state,
                "attempts": [attempt.status for attempt in message.attempts],
                "next attempt": None if message.due_us is None else _time(message.due_us),
            }
            for message in engine.messages.values()
        }
    letters = {
        letter.id: {"url": str(letter.url), "status": letter.status, "message": letter.message.id}
        for letter in handle.dead_letters()
    }
    schedules = {
        one.id: {"cron": one.cron, "destination": str(one.destination), "paused": one.paused}
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


def _time(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def _plain(value: Any) -> Any:
    """Return a value as JSON, with bytes decoded."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value), key=str)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
