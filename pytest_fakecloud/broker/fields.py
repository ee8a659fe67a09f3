"""Functions that read typed fields of request bodies; their errors contain the field and its value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from .errors import illegal_argument
from .model import INT64_MAX

_SHOWN = 60


class Source(int):
    """A JSON number that keeps its source text, such as ``1.10``."""

    text: str

    def __new__(cls, text: str) -> Source:
        try:
            number = super().__new__(cls, text)
        except ValueError:
            number = super().__new__(cls, 2**64)
        number.text = text
        return number


def where_in(body: object, index: int) -> str:
    """Return the prefix of field names in error messages: ``[index].`` if the body is an array."""
    return f"[{index}]." if isinstance(body, list) else ""


def object_of(value: object, where: str) -> dict[str, object]:
    """Return the value if it is a JSON object; raise ``BrokerError`` otherwise."""
    if not isinstance(value, dict):
        place = f"{where.rstrip('.')} must be" if where else "The request body must be"
        raise illegal_argument(f"{place} a JSON object, got {shown(value)}")
    return value


def long_of(
    fields: Mapping[str, object], name: str, where: str, *, minimum: int | None
) -> int | None:
    """Return a 64-bit integer field, or None if the field is absent or null.

    Raises ``BrokerError`` for any other value.
    """
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, Source) and not value.text.lstrip("-").isdigit():
        raise illegal_argument(f"{where}{name} must be an integer, got {value.text[:40]}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise illegal_argument(f"{where}{name} must be an integer, got {shown(value)}")
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise illegal_argument(f"{where}{name} does not fit into 64 bits: {shown(value)}")
    if minimum is not None and value < minimum:
        raise illegal_argument(f"{where}{name} must be at least {minimum}, got {value}")
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
    if isinstance(value, Source):
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
