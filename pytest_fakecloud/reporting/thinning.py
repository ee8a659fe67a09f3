"""Which rows a report shows: what repeats is folded, what says the same is merged, the rest is cut."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from .rows import Row

__all__ = ["folded", "kept", "merged", "without_held_runs"]

KEPT = 60
"""How many rows are shown at most."""
NEWEST = 30
"""How many of the last rows are shown whatever they are."""
_LEAVING = ("join", "leave", "expire")
_REASON = re.compile(r"^rebalance: \S+ (generation \d+)(?: \(.*?\))?")


def without_held_runs(every: list[Row]) -> tuple[list[Row], int]:
    """The rows without those of runs whose promise held (of ``every_failure``), and how many runs.

    Where no run broke, all rows stay.
    """
    runs = [row for row in every if row.kind.partition(" ")[2].startswith("run ")]
    calm = [row for row in runs if not row.kind.endswith(" broken")]
    if len(calm) == len(runs):
        return every, 0
    return [
        row for row in every if not any(run.began <= row.began <= run.number for run in calm)
    ], sum(run.kind.endswith(" held") for run in calm)


def merged(every: Sequence[Row], marked: Collection[int]) -> list[Row]:
    """The rows with what a group did at once because of a call told in the call's row.

    The same for a member that left and the rebalance that came of it. Rows with a mark stay.
    """
    found: list[Row] = []
    place: dict[int, int] = {}
    for row in every:
        call = place.get(row.follows)
        if call is not None and row.number not in marked:
            found[call] = _with_event(found[call], row)
        elif found and row.number not in marked and _comes_of(row, found[-1]):
            found[-1] = replace(found[-1], what=f"{found[-1].what}; {_rebalance(row)}")
        else:
            place[row.number] = len(found)
            found.append(row)
    return found


def _with_event(call: Row, event: Row) -> Row:
    kind, _, told = event.what.partition(": ")
    if kind == "rebalance":
        told = _rebalance(event)
    elif kind == "join" or told.rpartition("committed ")[2] in call.what:
        return call
    return replace(call, remarks=(*call.remarks, told))


def _comes_of(row: Row, before: Row) -> bool:
    return (
        row.what.startswith("rebalance: ")
        and before.what.partition(":")[0] in _LEAVING
        and (row.target, row.at_us, row.depth) == (before.target, before.at_us, before.depth)
    )


def _rebalance(row: Row) -> str:
    return _REASON.sub(r"\1", row.what)


def kept(every: Sequence[Row], marked: Collection[int]) -> set[int]:
    """The numbers of the rows that are shown: the newest, and of the others those that matter."""
    if len(every) <= KEPT:
        return {row.number for row in every}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for row in every:
        first.setdefault(row.kind, row.number)
        last[row.kind] = row.number
    ends = {*first.values(), *last.values()}
    shown = {row.number for row in every[-NEWEST:]}
    by_weight = sorted(
        every[:-NEWEST],
        key=lambda row: (
            row.number in marked,
            bool(row.fault) or not row.ok or bool(row.note),
            row.number in ends,
            row.began,
        ),
        reverse=True,
    )
    return shown | {row.number for row in by_weight[: KEPT - NEWEST]}


def folded(every: Sequence[Row]) -> Iterator[list[Row]]:
    """Runs of rows that read the same; attempts of one message may differ in their count."""
    for _, group in itertools.groupby(every, key=_face):
        yield list(group)


def _face(row: Row) -> tuple[object, ...]:
    what = row.what
    if row.attempt:
        what = what.replace(f" {row.attempt} of ", " of ", 1)
    words = (row.source, row.target, what, row.detail, row.answer, row.fault, row.note)
    return (*words, row.below, row.remarks, row.depth)
