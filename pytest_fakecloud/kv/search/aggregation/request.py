"""The arguments of an aggregation, parsed from JSON and checked against the index's schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..index import SearchIndex
from ..schema import FieldSpec, SearchError

DocumentNumbers = list[int]
"""Document numbers, in indexing order."""

NUMERIC = ("U64", "I64", "F64", "DATE")
"""The types of fields with numeric values."""

REQUIRED: Any = object()
"""The default value that marks an argument as required."""


def format_number(value: float | int | None) -> bytes | None:
    """Format a number for a reply; whole floats below 1e16 have no point, and None stays None."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        value = int(value)
    return (str(value) if isinstance(value, int) else repr(value)).encode()


class Arguments:
    """The arguments of an aggregation, consumed by name. `reject_rest()` rejects those that are left."""

    def __init__(self, alias: str, operator: str, given: dict[str, Any]) -> None:
        self.alias = alias
        self.operator = operator
        self._given = dict(given)

    def error(self, text: str) -> SearchError:
        return SearchError(f"Aggregation '{self.alias}' operator '{self.operator}' {text}")

    def take(
        self, name: str, expected: str, accepts: Callable[[Any], bool], default: Any = None
    ) -> Any:
        """Consume an argument; raise an error if it is invalid, or required but missing."""
        if name not in self._given:
            if default is REQUIRED:
                raise self.error(f"is missing required '{name}' property")
            return default
        value = self._given.pop(name)
        if not accepts(value):
            raise self.error(f"takes {expected} as '{name}'")
        return value

    def take_count(self, name: str, default: int | None, minimum: int = 0) -> Any:
        """Consume an integer argument that must be at least ``minimum``."""
        return self.take(
            name,
            f"an integer of at least {minimum}",
            lambda value: value.__class__ is int and value >= minimum,
            default,
        )

    def take_string(self, name: str) -> str | None:
        found: str | None = self.take(name, "a string", lambda value: isinstance(value, str))
        return found

    def take_number(self, name: str, default: Any = None) -> Any:
        return self.take(name, "a number", is_number, default)

    def take_flag(self, name: str, default: bool) -> bool:
        flag: bool = self.take(
            name, "true or false", lambda value: isinstance(value, bool), default
        )
        return flag

    def take_bounds(self, name: str) -> tuple[float, float] | None:
        """Consume an argument that is an object with the fields ``min`` and ``max``."""
        found = self.take(
            name,
            "an object of min and max",
            lambda value: (
                isinstance(value, dict)
                and value.keys() == {"min", "max"}
                and all(map(is_number, value.values()))
            ),
        )
        return None if found is None else (found["min"], found["max"])

    def reject_rest(self) -> None:
        if self._given:
            raise self.error(f"has no property '{next(iter(self._given))}'")


def is_number(value: Any) -> bool:
    return value.__class__ in (int, float)


class Aggregation(NamedTuple):
    """A named aggregation. ``compute`` returns its part of the reply for document numbers."""

    alias: str
    compute: Callable[[DocumentNumbers], list[Any]]


def column_of(
    index: SearchIndex, args: Arguments, allowed: tuple[str, ...]
) -> tuple[FieldSpec, dict[int, tuple[Any, ...]]]:
    """Return the field of an aggregation and its values by document, or raise an error."""
    name = args.take_string("field")
    if name is None:
        # This is the vendor's error message.
        raise SearchError(f"Aggregation '{args.alias}' is missing required 'field' property")
    spec = index.definition.by_name.get(name)
    if spec is None:
        raise args.error(f"refers to unknown field '{name}'")
    if spec.kind not in allowed:
        raise SearchError(
            f"Aggregation '{args.alias}' field '{name}' of type {spec.kind} cannot be used with "
            f"{args.operator}"
        )
    if not spec.is_column and spec.kind != "FACET":
        # This is the vendor's error message.
        raise args.error(f"requires field '{name}' to be FAST")
    return spec, index.values(name).of
