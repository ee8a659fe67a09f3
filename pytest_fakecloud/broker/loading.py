"""Records as a test writes them down: values, mappings, JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ..kernel.errors import ContractError
from ..kernel.instants import instant_us
from .model import Header, Message

__all__ = ["Headers", "header_list", "messages_in", "text", "timestamp_ms"]

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


def text(value: Any) -> str:
    """A record's value: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def timestamp_ms(timestamp: int | datetime | str | None) -> int | None:
    """Milliseconds since the epoch, from those or from an instant."""
    if timestamp is None or isinstance(timestamp, int):
        return timestamp
    return instant_us(timestamp) // 1000


def header_list(headers: Headers | None) -> tuple[Header, ...]:
    """Headers given as a mapping or as pairs."""
    if headers is None:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple(Header(name, value) for name, value in pairs)


def messages_in(data: Any) -> Iterator[Message]:
    """The messages in any of the shapes that ``Broker.load`` takes."""
    if isinstance(data, Path):
        data = data.read_text("utf-8")
    if isinstance(data, str):
        data = [json.loads(line) for line in data.splitlines() if line.strip()]
    if isinstance(data, Mapping):
        for topic, items in data.items():
            for item in items:
                yield _message(item, topic)
    else:
        for item in data:
            yield _message(item, None)


def _message(item: Any, topic: str | None) -> Message:
    if isinstance(item, Message):
        return item
    if not isinstance(item, Mapping) or "value" not in item:
        if topic is None:
            raise ContractError(f"{item!r} is no message: give a mapping with topic and value")
        return Message(topic, text(item))
    unknown = set(item) - set(Message._fields)
    if unknown:
        raise ContractError(
            f"a message has no {', '.join(sorted(unknown))}; it has {', '.join(Message._fields)}"
        )
    name = item.get("topic", topic)
    if name is None:
        raise ContractError(f"{item!r} names no topic")
    headers = item.get("headers")
    if isinstance(headers, list):
        headers = [(h["key"], h["value"]) if isinstance(h, Mapping) else tuple(h) for h in headers]
    return Message(
        name,
        text(item["value"]),
        item.get("key"),
        item.get("partition"),
        timestamp_ms(item.get("timestamp")),
        header_list(headers),
    )
