"""Read the JSON bodies of requests. Errors contain the field, its value and what was expected.

The ``where`` of a function is the prefix of field names in its errors, such as ``[1].``, or empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..http.readers import json_value
from .errors import illegal_argument
from .model import INT64_MAX, Header, ProducerRecord, TopicPartition, TopicPartitionOffset

NO_BODY: Any = object()
_SHOWN = 60
# A number with this many digits does not fit into 64 bits. Python refuses to read thousands.
_MOST_DIGITS = 100
# A string without a closing quote matches up to the end of the body. Otherwise the search would
# start again at every quote inside it, which takes quadratic time.
_STRING = rb'(?s)"(?:\\.?|[^"\\])*+"?'


class BodyReader:
    """Reads bodies and their fields, with the ``coerce_scalars`` setting."""

    def __init__(self, *, coerce_scalars: bool) -> None:
        self._coerce_scalars = coerce_scalars

    def json(self, body: bytes) -> Any:
        """Return the parsed body, or ``NO_BODY`` if it is blank."""
        if not body.strip():
            return NO_BODY
        try:
            if self._coerce_scalars:
                return json.loads(body, parse_int=JsonNumber, parse_float=JsonNumber)
            return json_value(body)
        except (ValueError, RecursionError) as error:
            reason = str(error) or "it is nested too deeply"
            if re.search(rb",\s*[\]}]", re.sub(_STRING, b'""', body)):
                reason = f"JSON allows no trailing comma before ] or }} ({reason})"
            raise illegal_argument(f"The request body is not valid JSON: {reason}") from None

    def text(self, fields: Mapping[str, object], name: str, where: str = "") -> str | None:
        """Return a string field, or None if the field is absent or null."""
        value = fields.get(name)
        if value is None or type(value) is str:
            return value
        if self._coerce_scalars:
            if isinstance(value, JsonNumber):
                return value.text
            if isinstance(value, bool):
                return "true" if value else "false"
        raise illegal_argument(f"{where}{name} must be a string, got {shown(value)}")

    def _required_text(self, fields: Mapping[str, object], name: str, where: str) -> str:
        value = self.text(fields, name, where)
        if value is None:
            raise illegal_argument(f"{where}{name} is missing")
        return value

    def message(self, item: object, topic: str | None, where: str) -> ProducerRecord:
        """Return the message in an item of a produce request; ``topic`` is the topic in its path."""
        fields = object_of(item, where)
        return ProducerRecord(
            self._required_text(fields, "topic", where) if topic is None else topic,
            self._required_text(fields, "value", where),
            self.text(fields, "key", where),
            long_of(fields, "partition", where),
            long_of(fields, "timestamp", where),
            self._headers(fields.get("headers"), where),
        )

    def _headers(self, value: object, where: str) -> tuple[Header, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise illegal_argument(
                f"{where}headers must be an array of objects with key and value, got {shown(value)}"
            )
        headers = []
        for place, item in items_in(value, f"{where}headers"):
            fields = object_of(item, place)
            name = self._required_text(fields, "key", place)
            headers.append(Header(name, self._required_text(fields, "value", place)))
        return tuple(headers)

    def partition(self, item: object, where: str) -> TopicPartition:
        fields = object_of(item, where)
        topic = self._required_text(fields, "topic", where)
        return TopicPartition(topic, _required_long(fields, "partition", where))

    def position(self, item: object, where: str) -> TopicPartitionOffset:
        fields = object_of(item, where)
        topic, partition = self.partition(fields, where)
        offset = _required_long(fields, "offset", where, minimum=0)
        return TopicPartitionOffset(topic, partition, offset)


class JsonNumber(NamedTuple):
    """A JSON number as its source text, such as ``1.10``."""

    text: str


def items_in(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield the items of an array, or a single value, each with its prefix for errors."""
    if isinstance(value, list):
        yield from ((f"{name}[{index}].", item) for index, item in enumerate(value))
    else:
        yield "", value


def object_of(value: object, where: str = "") -> dict[str, object]:
    """Return the value if it is a JSON object; raise ``BrokerError`` otherwise."""
    if not isinstance(value, dict):
        place = f"{where.rstrip('.')} must be" if where else "The request body must be"
        raise illegal_argument(f"{place} a JSON object, got {shown(value)}")
    return value


def long_of(
    fields: Mapping[str, object], name: str, where: str, *, minimum: int | None = None
) -> int | None:
    """Return a 64-bit integer field, or None if absent; raise ``BrokerError`` if invalid."""
    value = number = fields.get(name)
    if value is None:
        return None
    if isinstance(value, JsonNumber):
        if not value.text.lstrip("-").isdigit():
            raise illegal_argument(f"{where}{name} must be an integer, got {value.text[:40]}")
        number = int(value.text[:_MOST_DIGITS])
    if isinstance(number, bool) or not isinstance(number, int):
        raise illegal_argument(f"{where}{name} must be an integer, got {shown(value)}")
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise illegal_argument(f"{where}{name} does not fit into 64 bits: {shown(value)}")
    if minimum is not None and number < minimum:
        raise illegal_argument(f"{where}{name} must be at least {minimum}, got {number}")
    return number


def _required_long(
    fields: Mapping[str, object], name: str, where: str, *, minimum: int | None = None
) -> int:
    value = long_of(fields, name, where, minimum=minimum)
    if value is None:
        raise illegal_argument(f"{where}{name} is missing")
    return value


def digits(text: str, name: str, expected: str) -> int:
    """Return a decimal number of a path or query; raise ``BrokerError`` if it is invalid."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= INT64_MAX):
        raise illegal_argument(f"{name} must be {expected}, got {text[:40]!r}")
    return int(text)


def shown(value: object) -> str:
    """Return a JSON value as ASCII text for an error message, shortened if it is long."""
    text = ""
    # Write the value in pieces and stop when there is enough text. Writing a deeply nested value as
    # a whole could exceed the recursion limit, although it could be parsed.
    for piece in _pieces(value):
        text += piece
        if len(text) > _SHOWN:
            return text[:_SHOWN] + "..."
    return text


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, JsonNumber):
        yield value.text
    elif isinstance(value, list):
        yield "["
        for index, item in enumerate(value):
            if index:
                yield ", "
            yield from _pieces(item)
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        for index, (name, item) in enumerate(value.items()):
            yield f"{', ' if index else ''}{json.dumps(name)}: "
            yield from _pieces(item)
        yield "}"
    else:
        yield json.dumps(value)
