"""Read the JSON bodies of requests. Errors contain the field, its value and what was expected."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..http.readers import json_value
from .errors import illegal_argument
from .model import INT64_MAX, Header, ProducerRecord, TopicPartition, TopicPartitionOffset

NO_BODY: Any = object()
_SHOWN = 60
# A string without a closing quote matches up to the end of the body. Otherwise the search would
# start again at every quote inside it, which takes quadratic time.
_STRING = rb'(?s)"(?:\\.?|[^"\\])*+"?'


def json_of(body: bytes) -> Any:
    """Return the parsed body, or ``NO_BODY`` if it is blank."""
    if not body.strip():
        return NO_BODY
    try:
        return json_value(body)
    except (ValueError, RecursionError) as error:
        reason = str(error) or "it is nested too deeply"
        if re.search(rb",\s*[\]}]", re.sub(_STRING, b'""', body)):
            reason = f"JSON allows no trailing comma before ] or }} ({reason})"
        raise illegal_argument(f"The request body is not valid JSON: {reason}") from None


class Fields:
    """The fields of a JSON object, of which those that are absent or null are None.

    ``where`` is the prefix of field names in errors, such as ``[1].``, or empty. Methods raise
    ``BrokerError`` for invalid values.
    """

    def __init__(self, value: object, where: str = "") -> None:
        if not isinstance(value, dict):
            subject = f"{where.rstrip('.')} must be" if where else "The request body must be"
            raise illegal_argument(f"{subject} a JSON object, got {shown(value)}")
        self._values = value
        self._where = where

    def get(self, name: str) -> Any:
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or type(value) is str:
            return value
        raise illegal_argument(f"{self._where}{name} must be a string, got {shown(value)}")

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise illegal_argument(f"{self._where}{name} is missing")
        return value

    def long(self, name: str, *, minimum: int = -INT64_MAX - 1) -> int | None:
        """Return a 64-bit integer."""
        value = self._values.get(name)
        if value is None:
            return None
        name = self._where + name
        if isinstance(value, bool) or not isinstance(value, int):
            raise illegal_argument(f"{name} must be an integer, got {shown(value)}")
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise illegal_argument(f"{name} does not fit into 64 bits: {shown(value)}")
        if value < minimum:
            raise illegal_argument(f"{name} must be at least {minimum}, got {value}")
        return value

    def required_long(self, name: str, *, minimum: int = -INT64_MAX - 1) -> int:
        value = self.long(name, minimum=minimum)
        if value is None:
            raise illegal_argument(f"{self._where}{name} is missing")
        return value

    def objects(self, name: str, expected: str = "an array") -> Iterator[Fields]:
        """Return the fields of each object in an array."""
        value = self._values.get(name)
        if value is None:
            return iter(())
        name = self._where + name
        if not isinstance(value, list):
            raise illegal_argument(f"{name} must be {expected}, got {shown(value)}")
        return fields_in(value, name)

    def message(self, topic: str | None) -> ProducerRecord:
        """Return the message of a produce request; ``topic`` is the topic in its path."""
        return ProducerRecord(
            self.required_text("topic") if topic is None else topic,
            self.required_text("value"),
            self.text("key"),
            self.long("partition"),
            self.long("timestamp"),
            tuple(
                Header(header.required_text("key"), header.required_text("value"))
                for header in self.objects("headers", "an array of objects with key and value")
            ),
        )

    def partition(self) -> TopicPartition:
        return TopicPartition(self.required_text("topic"), self.required_long("partition"))

    def position(self) -> TopicPartitionOffset:
        return TopicPartitionOffset(*self.partition(), self.required_long("offset", minimum=0))


def fields_in(value: object, name: str = "") -> Iterator[Fields]:
    """Yield the fields of each object in an array, or of a single object.

    ``name`` is the name of the array in errors.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield Fields(item, f"{name}[{index}].")
    else:
        yield Fields(value)


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
    if isinstance(value, list):
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
