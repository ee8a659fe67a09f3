"""Why a record is not the expected one: the reasons behind a failed assertion, nearest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from math import isfinite
from typing import Any

from ..core.errors import ContractError
from ..core.journal import Call
from ..core.wording import Predicate, brief, differences
from .loading import Headers, header_list
from .model import Record
from .settings import (
    BUILTIN,
    comparable,
    string,
    whole,
)

__all__ = ["Expectation", "Sought", "failure", "shown_call"]

_NEAREST = 5
_RANKED = 1000
"""How many records are compared closely for a failed assertion."""
_COMPARED = 200
"""How many characters of a value are compared for likeness."""


class Expectation:
    """What a record should be; each part may be left None.

    ``value``: text, a predicate on the text, or anything else to compare with the value as JSON.
    ``key``: text, ``""`` for no key, or a predicate. ``headers``: names and values that must be
    among the record's, as a mapping or pairs. ``partition``: a number. A predicate that raises does
    not hold. Raises ``ContractError`` for what no record can ever be.
    """

    def __init__(
        self,
        value: Any = None,
        key: str | Callable[[str], object] | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        comparable("key", key, str)
        whole("partition", partition, 0, optional=True)
        self.value = _as_json(value)
        self.key = key
        self.headers = None if headers is None else _headers(headers)
        self.partition = partition
        self._value = Predicate(value) if callable(value) else None
        self._key = Predicate(key) if callable(key) else None

    def __str__(self) -> str:
        parts = {"value": self.value, "key": self.key, "headers": self.headers}
        given = {**parts, "partition": self.partition}
        shown = ", ".join(f"{k}={brief(v)}" for k, v in given.items() if v is not None)
        return f" with {shown}" if shown else ""

    @property
    def unclear(self) -> str:
        """What nobody knows because a predicate raised for every record; empty mostly."""
        predicates = [p for p in (self._value, self._key) if p is not None]
        if any(predicate.undecided for predicate in predicates):
            return "a predicate raised for every record it was asked about, so it decides nothing"
        return ""

    def why_not(self, record: Record) -> list[str]:
        """The reasons why the record is not the expected one; empty when it is."""
        reasons = []
        if self.value is not None:
            reasons += self._value_reasons(record)
        if self.key is not None:
            key = record.key or ""
            if self._key is not None:
                if (why := self._key.why_not(key)) is not None:
                    reasons.append(f"key is {brief(key)}{why}")
            elif key != self.key:
                reasons.append(f"key is {key!r}, not {brief(self.key)}")
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

    def distance(self, record: Record) -> float:
        """How far a record is from the expected one: the parts that differ, then how unlike they are."""
        value = self._value_reasons(record) if self.value is not None else []
        parts = len(self.why_not(record)) - len(value) + bool(value)
        unlike = 1 - self._likeness(record.value) if value else 0.0
        return parts + unlike / 2

    def _likeness(self, value: str) -> float:
        wanted = self.value
        if isinstance(wanted, str):
            return float(SequenceMatcher(None, wanted[:_COMPARED], value[:_COMPARED]).ratio())
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return 0.0
        if isinstance(found, dict) and isinstance(wanted, dict):
            names = {*found, *wanted}
            same = sum(n in found and n in wanted and found[n] == wanted[n] for n in names)
            return 0.5 + float(same) / len(names) / 2
        return 0.25 if type(found) is type(wanted) else 0.0

    def _value_reasons(self, record: Record) -> list[str]:
        wanted, value = self.value, record.value
        if self._value is not None:
            why = self._value.why_not(value)
            return [] if why is None else [f"value is {brief(value)}{why}"]
        if isinstance(wanted, str):
            return [] if value == wanted else [f"value is {brief(value)}, not {brief(wanted)}"]
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return [f"value {brief(value)} is not JSON, expected {brief(wanted)}"]
        return list(differences(parsed, wanted, "value"))


class Sought:
    """The record that a test waits for.

    Raises ``ContractError`` for a predicate that cannot be called, and a time nobody can wait.
    """

    def __init__(
        self, topic: str, predicate: Callable[[Record], object] | None, timeout: float
    ) -> None:
        string("topic", topic)
        if predicate is not None and not callable(predicate):
            raise ContractError(
                f"predicate={predicate!r:.200} cannot be called: give a function of a record"
            )
        number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not (number and timeout >= 0):
            raise ContractError(
                f"timeout={timeout!r:.200} must be real seconds, a number of at least 0"
            )
        self.topic = topic
        self.timeout = timeout
        self._predicate = None if predicate is None else Predicate(predicate)

    def among(self, records: Sequence[Record]) -> Record | None:
        """The first of the records that is the one; None while there is none."""
        for record in records:
            if self._predicate is None or self._predicate.why_not(record) is None:
                return record
        return None

    def missing(self, records: Sequence[Record]) -> str:
        """What a failure says: the records that are there, and why each is not the one."""
        lines = [
            f"no record of topic {self.topic!r} satisfied the predicate within {self.timeout} s; "
            f"there are {len(records)}:"
        ]
        for record in records[-10:]:
            why = None if self._predicate is None else self._predicate.why_not(record)
            lines.append(f"  {record!r}{why or ''}")
        return "\n".join(lines)


def failure(
    what: str,
    candidates: Sequence[tuple[Record, list[str]]],
    matched: Sequence[Record],
    note: str,
    distance: Callable[[Record], float] | None = None,
) -> str:
    """The text of a failed assertion: what was expected, what matched, and the nearest others.

    ``distance`` tells which are nearest; without, those with the fewest reasons.
    """
    lines = [what]
    lines += [f"  matched: {_where(record)}" for record in matched[:_NEAREST]]
    misses = sorted((pair for pair in candidates if pair[1]), key=lambda pair: len(pair[1]))
    if distance is not None:
        near = sorted(misses[:_RANKED], key=lambda pair: distance(pair[0]))
        misses = [*near, *misses[_RANKED:]]
    lines += [f"  not {_where(record)}: {'; '.join(why)}" for record, why in misses[:_NEAREST]]
    if len(misses) > _NEAREST:
        lines.append(f"  ... and {len(misses) - _NEAREST} more records that differ")
    if note:
        lines.append(f"  {note}")
    return "\n".join(lines)


def shown_call(call: Call) -> str:
    """A call and how it ended, in a line."""
    ended = f"{call.status}" if call.status is not None else call.outcome
    try:
        why = call.answer_json()["error"]
    except (ValueError, TypeError, KeyError):
        why = call.fault or ""
    return f"{call.method} {call.target[:200]} -> {ended}" + (f": {why}" if why else "")


def _where(record: Record) -> str:
    return f"{record.topic}-{record.partition}@{record.offset} {brief(record.value)}"


def _headers(headers: Headers) -> list[tuple[str, Any]]:
    found = [(header.key, header.value) for header in header_list(headers)]
    for name, value in found:
        string("a header's name", name)
        if value is None or isinstance(value, BUILTIN):
            string(f"header {name!r}", value)
    return found


def _as_json(value: Any) -> Any:
    """Lists for tuples, as JSON brings them; ``ContractError`` for what JSON never brings."""
    if isinstance(value, dict):
        for name in value:
            if isinstance(name, BUILTIN):
                string("a name in the expected JSON", name)
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    unknown = isinstance(value, BUILTIN) and not isinstance(value, str | int | float)
    if unknown or (isinstance(value, float) and not isfinite(value)):
        raise ContractError(
            f"value={brief(value)} can never be produced: give text, what JSON can say, or a predicate"
        )
    return value
