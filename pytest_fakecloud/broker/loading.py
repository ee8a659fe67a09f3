"""Read the records that tests supply as values, mappings or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from os import PathLike
from typing import Any

from ..core.errors import ContractError
from ..core.settings import optional, whole
from ..core.timeparse import instant_us
from ..core.wording import unknown_name
from .errors import string
from .model import INT64_MAX, Header, ProducerRecord

Loadable = (
    Mapping[str, Iterable[object]]
    | Iterable[ProducerRecord | Mapping[str, object]]
    | str
    | PathLike[str]
)
"""Records to load: a mapping ``{topic: [value or message, ...]}``, a list of messages that contain
their topic, or JSON lines.
"""

Headers = Mapping[str, str] | Iterable[tuple[str, str] | Mapping[str, str]]
"""Headers as a mapping, as pairs of name and value, or as mappings with ``key`` and ``value`` like
in the API.
"""

_PARTITION = optional(whole())
_TIMESTAMP = optional(whole(maximum=INT64_MAX))


def text(value: Any) -> str:
    """Return a record's value as stored: a string unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(
            f"the value {value!r:.200} is neither a string nor a JSON value: {error}"
        ) from None


def timestamp_ms(timestamp: int | datetime | str | None) -> int | None:
    """Return a time in milliseconds since the epoch. An integer is already in milliseconds."""
    if timestamp is None or isinstance(timestamp, int):
        return timestamp
    return instant_us(timestamp) // 1000


def header_list(headers: Headers | None) -> tuple[Header, ...]:
    """Convert headers from any form that ``Headers`` allows."""
    if headers is None:
        return ()
    try:
        items = list(headers.items() if isinstance(headers, Mapping) else headers)
        return tuple(_header(item) for item in items)
    except (TypeError, ValueError):
        raise ContractError(
            f"headers={headers!r:.200} must be a mapping, or pairs of name and value"
        ) from None


def _header(item: Any) -> Header:
    """Convert a pair or a mapping; raise ``TypeError`` or ``ValueError`` if the item is neither."""
    if isinstance(item, Mapping):
        return Header(**{"key": None, "value": None, **item})
    if isinstance(item, str):
        raise TypeError("a string is not a pair of strings")
    name, value = item
    return Header(name, value)


def checked(message: ProducerRecord) -> ProducerRecord:
    """Return a message with its headers as a tuple; raise ``ContractError`` for invalid types."""
    string("topic", message.topic)
    string("value", message.value)
    string("key", message.key, optional=True)
    # Skip what most messages lack, because reading a setting is slow.
    if message.partition is not None:
        _PARTITION.read("partition", message.partition)
    if message.timestamp is not None:
        _TIMESTAMP.read("timestamp", message.timestamp)
    if message.headers == ():
        return message
    headers = header_list(message.headers)
    for name, value in headers:
        string("a header's name", name)
        string(f"header {name!r}", value)
    return message._replace(headers=headers) if headers else message


def messages_in(data: Any) -> Iterator[ProducerRecord]:
    """Yield the messages from data in any form that ``Broker.load()`` accepts."""
    if isinstance(data, PathLike):
        data = _text_of(data)
    if isinstance(data, str):
        data = [_json(n, line) for n, line in enumerate(data.split("\n"), 1) if line.strip()]
    if isinstance(data, Mapping):
        for topic, items in data.items():
            for item in _each(items, f"the records of topic {topic!r}"):
                yield checked(_message(item, topic))
    else:
        for item in _each(data, "the data"):
            yield checked(_message(item, None))


def _text_of(path: PathLike[str]) -> str:
    from ..files import DATA_BYTES, read_file  # Imported here, because few tests load a file.

    try:
        return read_file(path, DATA_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ContractError(f"{str(path)!r:.200} is not UTF-8: {error.reason}") from None


def _json(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"line {number} is not JSON: {error}: {line[:80]!r}") from None


def _each(items: Any, what: str) -> Iterable[Any]:
    if isinstance(items, Iterable) and not isinstance(items, str | bytes | Mapping):
        return items
    raise ContractError(
        f"{what} must be a list of values or messages, got {items!r:.200}; load() takes "
        "{topic: [value or message, ...]}, messages that name their topic, or JSON lines"
    )


def _message(item: Any, topic: str | None) -> ProducerRecord:
    if isinstance(item, ProducerRecord):
        return item
    if isinstance(item, Mapping) and "value" in item:
        return _message_of_fields(item, topic)
    if topic is None:
        raise ContractError(f"{item!r:.200} is not a message: pass a mapping with topic and value")
    return ProducerRecord(topic, text(item))


def _message_of_fields(fields: Mapping[Any, Any], topic: str | None) -> ProducerRecord:
    unknown = set(fields) - set(ProducerRecord._fields)
    if unknown:
        first = min(unknown, key=str)
        raise ContractError(unknown_name("field of a message", first, ProducerRecord._fields))
    topic = fields.get("topic", topic)
    if topic is None:
        raise ContractError(
            f"{fields!r:.200} has no topic: add one, or load {{topic: [message, ...]}}"
        )
    return ProducerRecord(
        topic,
        text(fields["value"]),
        fields.get("key"),
        fields.get("partition"),
        timestamp_ms(fields.get("timestamp")),
        header_list(fields.get("headers")),
    )
