"""What an aggregation asks for, read from its JSON and checked against the schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..index import SearchIndex
from ..schema import FieldSpec, SearchError

Numbers = list[int]
"""Documents by number, in the order of indexing."""

REQUIRED: Any = object()
"""Stands for an argument that has to be given."""


def number(value: float | int | None) -> bytes | None:
    """A number as it stands in a reply: text, the shortest there is (``"40"``, not ``"40.0"``)."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        value = int(value)
    return (str(value) if isinstance(value, int) else repr(value)).encode()


class Arguments:
    """The arguments of one operator, taken one by one; what is left over is an error."""

    def __init__(self, alias: str, operator: str, given: dict[str, Any]) -> None:
        self.alias = alias
        self.operator = operator
        self._given = dict(given)

    def error(self, text: str) -> SearchError:
        """An error about this aggregation."""
        return SearchError(f"Aggregation '{self.alias}' operator '{self.operator}' {text}")

    def has(self, name: str) -> bool:
        """Whether an argument is given."""
        return name in self._given

    def take(
        self, name: str, expected: str, accepts: Callable[[Any], bool], usual: Any = None
    ) -> Any:
        """An argument; raises where it is not as expected, or missing without a usual one."""
        if name not in self._given:
            if usual is REQUIRED:
                raise self.error(f"is missing required '{name}' property")
            return usual
        value = self._given.pop(name)
        if not accepts(value):
            raise self.error(f"takes {expected} as '{name}'")
        return value

    def count(self, name: str, usual: int | None, least: int = 0) -> Any:
        """A whole number."""
        return self.take(
            name,
            f"a whole number of at least {least}",
            lambda value: value.__class__ is int and value >= least,
            usual,
        )

    def number(self, name: str, usual: Any = None) -> Any:
        """A number."""
        return self.take(name, "a number", is_number, usual)

    def flag(self, name: str, usual: bool) -> bool:
        """True or false."""
        return bool(self.take(name, "true or false", lambda value: value.__class__ is bool, usual))

    def text(self, name: str, usual: str | None) -> Any:
        """A text."""
        return self.take(name, "a text", lambda value: isinstance(value, str), usual)

    def bounds(self, name: str) -> tuple[float, float] | None:
        """An object of ``min`` and ``max``."""
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

    def end(self) -> None:
        """Raise for arguments that nobody took."""
        for name in self._given:
            raise self.error(f"has no property '{name}'")


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return value.__class__ in (int, float)


@dataclass
class Aggregation:
    """One named aggregation: what computes it from documents, as a flat reply."""

    alias: str
    compute: Callable[[Numbers], list[Any]]

    @property
    def name(self) -> bytes:
        """The alias as it stands in a reply."""
        return self.alias.encode()


def column_of(
    index: SearchIndex, args: Arguments, allowed: tuple[str, ...]
) -> tuple[FieldSpec, dict[int, tuple[Any, ...]]]:
    """The field an aggregation is about, and its values; raises for one that cannot be used."""
    name = args.take("field", "a text", lambda value: isinstance(value, str))
    if name is None:
        # The service's own words.
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
        # The service's own words.
        raise args.error(f"requires field '{name}' to be FAST")
    return spec, index.values(name).of
