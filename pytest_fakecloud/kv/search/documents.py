"""Documents: the values of a key's indexed fields, converted to the types in the schema.

If a field is missing or has a value of the wrong type, only that field is left out, without an
error (specification of the vendor).

Decided here: each scalar in an array, at any depth, is a separate value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from ..table.syntax import encoded
from ..values.collections import HashValue
from ..values.json import JsonError, JsonValue, parse_json
from .schema import Definition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d))?", re.ASCII
)
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_MOST_LEVELS = 100
"""Maximum number of levels of a FACET path (decided here), because each level is indexed as a path."""
_NUMBER = re.compile(r"[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d{1,4})?", re.ASCII)


class Document:
    """The indexed values of a key. Documents are immutable.

    ``fields`` maps the names of fields that have values to tuples. For a TEXT field, the tuple
    contains a tuple of tokens for each text. For other types, it contains the values. ``size`` is
    an estimate in bytes.
    """

    __slots__ = ("fields", "key", "size")

    def __init__(self, key: bytes, fields: dict[str, tuple[Any, ...]]) -> None:
        self.key = key
        self.fields = fields
        # `make_document()` leaves out fields without values.
        items = sum(
            sum(map(len, values)) if values[0].__class__ is tuple else len(values)
            for values in fields.values()
        )
        self.size = len(key) + 8 * items


def source_of(kind: str, value: Any) -> dict[Any, Any] | None:
    """Return a key's content as a mapping (of a string, its JSON object), or None."""
    if kind == "HASH":
        return value.fields if isinstance(value, HashValue) else None
    if kind == "JSON":
        root = value.root if isinstance(value, JsonValue) else None
    elif isinstance(value, bytes | bytearray):
        try:
            root = parse_json(bytes(value))
        except JsonError:
            return None
    else:
        return None
    return root if isinstance(root, dict) else None


def values_at(root: Any, steps: list[str]) -> Iterator[Any]:
    """Yield the scalars at a path, including the scalars in arrays."""
    if isinstance(root, list):
        for item in root:
            yield from values_at(item, steps)
    elif steps:
        if isinstance(root, dict) and steps[0] in root:
            yield from values_at(root[steps[0]], steps[1:])
    elif root is not None and not isinstance(root, dict):
        yield root


def make_document(definition: Definition, key: bytes, value: Any) -> Document | None:
    """Return the document for a key, or None if the key's value cannot be indexed."""
    source = source_of(definition.kind, value)
    if source is None:
        return None
    fields: dict[str, tuple[Any, ...]] = {}
    for spec in definition.fields:
        found: Iterable[Any]
        if definition.kind == "HASH":
            raw = source.get(encoded(spec.path))
            found = () if raw is None else (bytes(raw).decode("utf-8", "replace"),)
            convert = _FROM_STRING[spec.kind]
        else:
            found = values_at(source, spec.path.split("."))
            convert = FROM_JSON[spec.kind]
        values = tuple(value for value in map(convert, found) if value is not None)
        if spec.is_text:
            values = tuple(map(definition.analyzer(spec).tokens, values))
        if values:
            fields[spec.name] = values
    return Document(key, fields)


# -- values of each type ---------------------------------------------------------------------------


def date_ms(text: str) -> int | None:
    """Convert an RFC 3339 string or a date (midnight UTC) to Unix milliseconds, others to None."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    day, time, fraction, zone = found.groups()
    try:
        if time is None:
            moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
        else:
            offset = "+00:00" if zone in "Zz" else zone
            moment = datetime.fromisoformat(f"{day}T{time}{offset}")
        return (moment - _EPOCH) // _MILLISECOND + int((fraction or "").ljust(3, "0")[:3])
    except (ValueError, OverflowError):
        return None


def facet_path(text: str) -> str | None:
    """Return a path such as ``/a/b`` without a trailing slash, or None if it is invalid."""
    if not text.startswith("/"):
        return None
    path = text.rstrip("/") or "/"
    return None if "//" in path or path.count("/") > _MOST_LEVELS else path


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(low: int, high: int) -> Callable[[Any], int | None]:
    def take(value: Any) -> int | None:
        return value if value.__class__ is int and low <= value <= high else None

    return take


FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "TEXT": _text,
    "KEYWORD": _text,
    "U64": _whole(0, 2**64 - 1),
    "I64": _whole(-(2**63), 2**63 - 1),
    "F64": lambda value: float(value) if value.__class__ in (int, float) else None,
    "BOOL": lambda value: value if value.__class__ is bool else None,
    "DATE": lambda value: date_ms(value) if isinstance(value, str) else None,
    "FACET": lambda value: facet_path(value) if isinstance(value, str) else None,
}
"""Functions that convert a JSON value to a type of field, or return None if it does not fit."""


def _read_whole(take: Callable[[Any], int | None]) -> Callable[[str], int | None]:
    return lambda text: take(int(text)) if _INTEGER.fullmatch(text) else None


def _read_float(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return None if math.isinf(value) else value


_FROM_STRING: dict[str, Callable[[str], Any]] = {
    **FROM_JSON,
    "U64": _read_whole(FROM_JSON["U64"]),
    "I64": _read_whole(FROM_JSON["I64"]),
    "F64": _read_float,
    "BOOL": {"true": True, "false": False}.get,
}
"""Functions that convert the string in a hash field to a type of field, or return None."""
