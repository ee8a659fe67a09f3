"""Runs of equal increments among the versions of an item, which a page shows as one line each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

LEAST = 3
"""Minimum number of increments of a run."""


class Repeat(NamedTuple):
    """A run of equal increments: the indexes of its first and last version, and their difference."""

    first: int
    last: int
    by: str


class _Increment(NamedTuple):
    """A change of one number in the value of an item, and what made it."""

    part: str
    by: Decimal
    made_by: Hashable


def repeats(versions: Sequence[Any], made_by: Callable[[int], Hashable | None]) -> Iterator[Repeat]:
    """Yield the runs of at least three equal increments of one number, in the order of the versions.

    ``made_by`` returns what tells the call of an entry from others, None for an entry without a call.
    """
    increments = [
        None if index == 0 else _increment(versions[index - 1].fields, version, made_by)
        for index, version in enumerate(versions)
    ]
    first = 0
    for index in range(1, len(versions) + 1):
        if index < len(versions) and increments[index] == increments[first]:
            continue
        if (increment := increments[first]) is not None and index - first >= LEAST:
            yield Repeat(first, index - 1, f"{increment.by:+f}")
        first = index


def _increment(
    before: Any, version: Any, made_by: Callable[[int], Hashable | None]
) -> _Increment | None:
    """Return the increment that made a version of an item; None if something else made it."""
    after = version.fields
    if before is None or after is None or "value" not in {**before, **after}:
        return None
    if {**before, "value": None} != {**after, "value": None}:
        return None
    part, old, new = _changed_part(before.get("value"), after.get("value"))
    call = made_by(version.number)
    try:
        by = Decimal(str(new)) - Decimal(str(old))
    except InvalidOperation:
        return None
    return _Increment(part, by, call) if call is not None and by.is_finite() else None


def _changed_part(old: Any, new: Any) -> tuple[str, Any, Any]:
    """Return the only member of a hash that differs, with both values; for other values the whole."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        names = [name for name in old if old[name] != new[name]]
        if len(names) == 1:
            return names[0], old[names[0]], new[names[0]]
    return "", old, new
