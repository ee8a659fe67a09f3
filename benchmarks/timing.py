"""Time callables in interleaved rounds, and print their costs as ratios.

::

    table = compare({"raw socket": raw, "mount": mount}, rounds=20)
    print(table)
    line("mount + close against a raw listener", table.ratio("mount", "raw socket"), 3.0)

Every round runs every callable, in a random order, so that a slow second of a shared machine
affects all callables. Calls are timed individually. The figure of a row is a median (p50) and not a
mean, so that a few interrupted calls do not change it.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter_ns

NOT_INSTALLED = "not installed"
"""The reason for most missing libraries."""


@dataclass(frozen=True)
class Figure:
    """One claimed figure: its value, and its maximum or minimum."""

    label: str
    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the value is within its limit; True without a limit."""
        return (self.most is None or self.value <= self.most) and (
            self.least is None or self.value >= self.least
        )

    @property
    def bound(self) -> str:
        """The limit in words."""
        if self.least is not None:
            return f"at least {round(self.least, 3):g}{self.unit}"
        return "no limit" if self.most is None else f"at most {round(self.most, 3):g}{self.unit}"


@dataclass(frozen=True)
class Curve:
    """Cost against work: microseconds of one operation (``y``) at each amount of work (``x``)."""

    title: str
    work: str
    series: dict[str, list[tuple[float, float]]]


@dataclass
class Results:
    """The results of one part, in the order of their measurement."""

    quick: bool = False
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)


results = Results()
"""The results of this process so far; ``quick`` shortens every comparison."""


@dataclass(frozen=True)
class Row:
    """The times of one callable: one median per round, in microseconds per call."""

    name: str
    rounds: tuple[float, ...]
    calls: int

    @property
    def best(self) -> float:
        """The median of the quickest round, which other load affects least."""
        return min(self.rounds)

    @property
    def p50(self) -> float:
        """The median of all rounds' medians."""
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """The interquartile range of the rounds, as a fraction of their median."""
        if len(self.rounds) < 2:
            return 0.0
        low, _, high = quantiles(self.rounds, n=4, method="inclusive")
        return (high - low) / self.p50


class Table:
    """The rows of one comparison in the given order, and the reasons for missing rows."""

    def __init__(
        self, rows: list[Row], title: str = "", missing: Mapping[str, str] | None = None
    ) -> None:
        self.rows = rows
        self.title = title
        self.missing = dict(missing or {})

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise KeyError(f"no row {name!r}; there are: {names}")

    def ratio(self, name: str, base: str) -> float:
        """Return the cost of `name` divided by that of `base`, by the quickest round of each.

        Other load can only increase a time, so the quickest of many interleaved rounds is the most
        reliable.
        """
        return self[name].best / self[base].best

    def typical_ratio(self, name: str, base: str) -> float:
        """Return the cost of `name` divided by that of `base` in the median round, as users see
        their p50s.

        Both ran in the same round, so a slow round affects both.
        """
        pairs = zip(self[name].rounds, self[base].rounds, strict=True)
        return median(mine / theirs for mine, theirs in pairs)

    def __str__(self) -> str:
        width = max(len(name) for name in (*self.missing, *(row.name for row in self.rows)))
        head = (
            f"{'':{width}}  {'best us':>12}  {'p50 us':>12}  {'spread':>6}  {'calls':>7}"
            "  against the first"
        )
        lines = [head]
        for row in self.rows:
            against = self.ratio(row.name, self.rows[0].name)
            lines.append(
                f"{row.name:{width}}  {row.best:12,.1f}  {row.p50:12,.1f}"
                f"  {row.spread:6.0%}  {row.calls * len(row.rounds):7,}  {against:8.2f}x"
            )
        lines += [f"{name:{width}}  {why}" for name, why in self.missing.items()]
        return "\n".join(lines)


def stay_on_one_processor() -> None:
    """Run this process on one processor, with the threads and processes that it starts, where the system
    allows that. To wake a thread on an idle processor can take ten times as long as a command, so with
    two processors the figures would depend on where the system puts the threads.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def compare(
    callables: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    calls: int | Mapping[str, int] | None = None,
    slice_ms: float = 20.0,
    title: str = "",
    missing: Mapping[str, str] | None = None,
) -> Table:
    """Time each callable in `rounds` interleaved rounds and return the table.

    `calls` is the number of calls in a round: one number for all callables, or one per name. By
    default, each callable gets as many as take about `slice_ms` milliseconds (at least 3), which
    running it once determines; that call is also its warm-up. Garbage is collected before a slice
    and not during it. `missing` are libraries that cannot be measured, with the reason: rows
    without figures.
    """
    if results.quick:
        rounds, slice_ms = min(rounds, 3), min(slice_ms, 2.0)
        if calls is not None:
            few = {
                name: calls if isinstance(calls, int) else calls.get(name, 5) for name in callables
            }
            calls = {name: min(count, 5) for name, count in few.items()}
    counts = {name: _count(name, call, calls, slice_ms) for name, call in callables.items()}
    medians: dict[str, list[float]] = {name: [] for name in callables}
    order = list(callables)
    shuffle = random.Random(20260101).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            medians[name].append(_slice(callables[name], counts[name]))
    rows = [Row(name, tuple(medians[name]), counts[name]) for name in callables]
    table = Table(rows, title, missing)
    results.tables.append(table)
    return table


def line(
    label: str, ratio: float, limit: float | None = None, *, at_least: float | None = None
) -> bool:
    """Print one ratio with its limit, and return whether it holds.

    `limit` is the maximum of the ratio, `at_least` its minimum. A figure with neither is printed
    for information and always holds.
    """
    return _told(Figure(label, ratio, "x", limit, at_least))


def limit(
    label: str, value: float, most: float | None = None, *, at_least: float | None = None
) -> bool:
    """Print one figure that is not a ratio, with its unit in the label, like `line()`."""
    return _told(Figure(label, value, "", most, at_least))


def curve(title: str, work: str, series: dict[str, list[tuple[float, float]]]) -> Curve:
    """Print and keep cost against work: microseconds at each amount, one series per name."""
    new_curve = Curve(title, work, series)
    results.curves.append(new_curve)
    print(f"\n{title}, us by {work}")
    for name, points in series.items():
        shown = "  ".join(f"{x:,.0f}: {y:,.1f}" for x, y in points)
        print(f"  {name:28} {shown}")
    sys.stdout.flush()
    return new_curve


def _told(figure: Figure) -> bool:
    results.figures.append(figure)
    # Short runs only check that everything runs; their figures are too imprecise for limits.
    holds = figure.holds or results.quick
    verdict = "    " if results.quick else "ok  " if holds else "MISS"
    value = f"{figure.value:10,.2f}{figure.unit or ' '}"
    print(f"{verdict} {value}  ({figure.bound:>16})  {figure.label}", flush=True)
    return holds


def _count(
    name: str, call: Callable[[], object], calls: int | Mapping[str, int] | None, slice_ms: float
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
