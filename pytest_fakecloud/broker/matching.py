"""Why a record is not the expected one: the reasons behind a failed assertion, nearest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .model import Record

__all__ = ["Expectation", "failure"]

_NEAREST = 5


class Expectation:
    """What a record should be; each part may be left None.

    ``value``: text, a predicate on the text, or anything else to compare with the value as JSON.
    ``key``: text, ``""`` for no key, or a predicate. ``headers``: names and values that must be
    among the record's, as a mapping or pairs. ``partition``: a number.
    """

    def __init__(
        self,
        value: Any = None,
        key: str | Callable[[str], object] | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
        partition: int | None = None,
    ) -> None:
        self.value = value
        self.key = key
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        self.headers = None if pairs is None else [(name, text) for name, text in pairs]
        self.partition = partition

    def __str__(self) -> str:
        parts = {"value": self.value, "key": self.key, "headers": self.headers}
        given = {**parts, "partition": self.partition}
        shown = ", ".join(f"{k}={_brief(v)}" for k, v in given.items() if v is not None)
        return f" with {shown}" if shown else ""

    def why_not(self, record: Record) -> list[str]:
        """The reasons why the record is not the expected one; empty when it is."""
        reasons = []
        if self.value is not None:
            reasons += self._value_reasons(record)
        if self.key is not None:
            key = record.key or ""
            if not (self.key(key) if callable(self.key) else key == self.key):
                reasons.append(f"key is {key!r}, not {_brief(self.key)}")
        if self.partition is not None and record.partition != self.partition:
            reasons.append(f"partition is {record.partition}, not {self.partition}")
        for name, text in self.headers or ():
            values = [header.value for header in record.headers if header.key == name]
            if not values:
                names = sorted({header.key for header in record.headers})
                reasons.append(
                    f"header {name!r} is absent (there are: {', '.join(names) or 'none'})"
                )
            elif text not in values:
                reasons.append(
                    f"header {name!r} is {' and '.join(map(repr, values))}, not {text!r}"
                )
        return reasons

    def _value_reasons(self, record: Record) -> list[str]:
        wanted, value = self.value, record.value
        if callable(wanted):
            return (
                []
                if wanted(value)
                else [f"value {_brief(value)} does not satisfy {_brief(wanted)}"]
            )
        if isinstance(wanted, str):
            return [] if value == wanted else [f"value is {_brief(value)}, not {_brief(wanted)}"]
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return [f"value {_brief(value)} is not JSON, expected {_brief(wanted)}"]
        return [] if parsed == wanted else _differences(parsed, wanted, "value")


def _differences(found: Any, wanted: Any, path: str) -> list[str]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        reasons = []
        for name in sorted({*found, *wanted}, key=str):
            place = f"{path}.{name}"
            if name not in found:
                reasons.append(f"{place} is absent")
            elif name not in wanted:
                reasons.append(f"{place} = {_brief(found[name])} was not expected")
            elif found[name] != wanted[name]:
                reasons += _differences(found[name], wanted[name], place)
        return reasons
    return [f"{path} is {_brief(found)}, not {_brief(wanted)}"]


def failure(
    what: str, candidates: Sequence[tuple[Record, list[str]]], matched: Sequence[Record], note: str
) -> str:
    """The text of a failed assertion: what was expected, what matched, and the nearest others."""
    lines = [what]
    lines += [f"  matched: {_where(record)}" for record in matched[:_NEAREST]]
    misses = sorted((pair for pair in candidates if pair[1]), key=lambda pair: len(pair[1]))
    lines += [f"  not {_where(record)}: {'; '.join(why)}" for record, why in misses[:_NEAREST]]
    if len(misses) > _NEAREST:
        lines.append(f"  ... and {len(misses) - _NEAREST} more records that differ")
    if note:
        lines.append(f"  {note}")
    return "\n".join(lines)


def _where(record: Record) -> str:
    return f"{record.topic}-{record.partition}@{record.offset} {_brief(record.value)}"


def _brief(value: object) -> str:
    text = getattr(value, "__name__", "") if callable(value) else repr(value)
    text = text or repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
