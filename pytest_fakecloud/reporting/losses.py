"""What the writes of a history removed without naming it, from a replay of the journal.

A SET removes the expiry of its key, an LTRIM elements, and an update of a vector its other metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..cloud.base import BaseCloud
from ..core.errors import listed
from ..inspect.data import StateChange, shown_time
from .model import HistoryRow, ReportSubject
from .replayed import changes_at
from .values import scalar, shortened, words_of


def with_losses(
    cloud: BaseCloud,
    rows: Sequence[HistoryRow],
    writes: Iterable[tuple[int, ReportSubject, str]],
    reads: Collection[int],
) -> list[HistoryRow]:
    """Return rows with what their writes removed. ``writes`` are the number of the row, the subject and
    the description of all writes: the effects of several of the same data in one request are not told
    apart. ``reads`` are the numbers of requests that only read, which need no replay.
    """
    times = Counter((number, subject) for number, subject, _ in writes)
    numbers = {row.number for row in rows if row.access.writes
               and row.access.subject.kind in ("key", "namespace")
               and times[row.number, row.access.subject] == 1}  # fmt: skip
    changes = changes_at(cloud, numbers, reads) if numbers else {}
    return [replace(row, lost=tuple(_lost(row, changes.get(row.number, ())))) for row in rows]


def _lost(row: HistoryRow, changes: Sequence[StateChange]) -> Iterator[str]:
    """Yield what a write removed without naming it."""
    access, today = row.access, shown_time(row.at_us)[: len("2026-01-01 ")]
    item = access.subject.name if access.subject.kind == "key" else access.part
    for change in changes:
        before, after = change.before, change.after
        if change.item != item or before is None:
            continue
        if after is None:
            # A key without elements is none. A command that wrote another key may have moved them.
            is_moved = any(other.after is not None for other in changes)
            if is_moved or not isinstance(before.get("value"), dict | list):
                continue
            after = {"value": type(before["value"])()}
        elif before.get("expires") and not after.get("expires"):
            yield f"its expiry, due {before['expires'].removeprefix(today).removesuffix(' UTC')}"
        lost = [scalar(name) for field in ("value", "metadata", "data")
                for name in _missing(before.get(field), after.get(field), field)]  # fmt: skip
        if not words_of(" ".join(lost)) <= words_of(f"{access.what} {access.result}"):
            yield shortened(listed(lost, 3), 80)


def _missing(before: Any, after: Any, field: str) -> list[Any]:
    """Return the fields or elements of a value that a later one lacks; none if others were added."""
    if before and after is None:
        return list(before) if isinstance(before, dict) else [field]
    if isinstance(before, dict) and isinstance(after, dict):
        return [name for name in before if name not in after]
    if not isinstance(before, list) or not isinstance(after, list):
        return []
    rest = list(before)
    for item in after:
        if item not in rest:
            return []
        rest.remove(item)
    return [item[0] if isinstance(item, list) and item else item for item in rest]
