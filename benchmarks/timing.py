"""Time callables in interleaved rounds, and print what they cost as ratios.

::

    table = compare({"raw socket": raw, "mount": mount}, rounds=20)
    print(table)
    line("mount + close against a raw listener", table.ratio("mount", "raw socket"), 3.0)

Every round runs every callable, in an order drawn anew, so that a slow second of a shared machine
falls on all of them alike. A call is timed on its own: a row's figure is a median (p50) and not a
mean, because one preempted call in a thousand is not what a user feels.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

__all__ = ["Row", "Table", "compare", "line"]


@dataclass(frozen=True)
class Row:
    """What one callable cost: one median per round, in microseconds a call."""

    name: str
    rounds: tuple[float, ...]
    calls: int

    @property
    def best(self) -> float:
        """The quickest round's median: the figure least touched by other load."""
        return min(self.rounds)

    @property
    def p50(self) -> float:
        """The median of all rounds' medians."""
        return median(self.rounds)


class Table:
    """The rows of one comparison, in the order in which they were given."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        known = ", ".join(row.name for row in self.rows)
        raise KeyError(f"no row {name!r}; there are: {known}")

    def ratio(self, name: str, base: str) -> float:
        """How many times `base` `name` costs, by the quickest round of each.

        Other load can only add to a time, so of many interleaved rounds the quickest says most.
        """
        return self[name].best / self[base].best

    def typical_ratio(self, name: str, base: str) -> float:
        """How many times `base` `name` costs in the median round: what a user sees of their p50s.

        Both of a pair ran in the same round, so what slows a whole round down is in both.
        """
        pairs = zip(self[name].rounds, self[base].rounds, strict=True)
        return median(mine / theirs for mine, theirs in pairs)

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        head = f"{'':{width}}  {'best us':>12}  {'p50 us':>12}  {'calls':>7}  against the first"
        lines = [head]
        for row in self.rows:
            against = self.ratio(row.name, self.rows[0].name)
            lines.append(
                f"{row.name:{width}}  {row.best:12,.1f}  {row.p50:12,.1f}"
                f"  {row.calls * len(row.rounds):7,}  {against:8.2f}x"
            )
        return "\n".join(lines)


def compare(
    callables: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    calls: int | Mapping[str, int] | None = None,
    slice_ms: float = 20.0,
) -> Table:
    """Time each callable in `rounds` interleaved rounds and give back the table.

    `calls` is the number of calls in a round, one number for all or one per name; left out, each
    callable gets as many as fill about `slice_ms` milliseconds (at least 3), found by running it
    once, which is also its warm-up. Garbage is collected before a slice and not during it.
    """
    counts = {name: _count(name, call, calls, slice_ms) for name, call in callables.items()}
    medians: dict[str, list[float]] = {name: [] for name in callables}
    order = list(callables)
    shuffle = random.Random(20260101).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            medians[name].append(_slice(callables[name], counts[name]))
    return Table([Row(name, tuple(medians[name]), counts[name]) for name in callables])


def line(
    label: str,
    ratio: float,
    limit: float | None = None,
    *,
    at_least: float | None = None,
) -> bool:
    """Print one figure with its limit, and tell whether it holds.

    `limit` is the most the ratio may be, `at_least` the least; a figure with neither is printed
    for information and always holds.
    """
    if at_least is not None:
        holds, bound = ratio >= at_least, f"at least {at_least:g}x"
    elif limit is not None:
        holds, bound = ratio <= limit, f"at most {limit:g}x"
    else:
        holds, bound = True, "no limit"
    verdict = "ok  " if holds else "MISS"
    print(f"{verdict} {ratio:10,.2f}x  ({bound:>16})  {label}")
    sys.stdout.flush()
    return holds


def _count(
    name: str,
    call: Callable[[], object],
    calls: int | Mapping[str, int] | None,
    slice_ms: float,
) -> int:
    call()
    if isinstance(calls, int):
        return calls
    if calls is not None and name in calls:
        return calls[name]
    started = perf_counter_ns()
    call()
    once_ns = max(1, perf_counter_ns() - started)
    return max(3, min(20_000, round(slice_ms * 1e6 / once_ns)))


def _slice(call: Callable[[], object], count: int) -> float:
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        taken = []
        for _ in range(count):
            started = perf_counter_ns()
            call()
            taken.append(perf_counter_ns() - started)
    finally:
        if was_enabled:
            gc.enable()
    return median(taken) / 1_000
