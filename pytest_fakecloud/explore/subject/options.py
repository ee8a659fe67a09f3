"""The options of ``explore()``, and the subject of a search, which follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ...core.timers import Duration
from ..values.disturbances import Kind
from .programs import Functions, Program
from .promises import Promises

TRIALS = 1_000
"""Default budget: the number of trials of one ``explore()`` call."""

Checks = Callable[..., object] | Sequence[Callable[..., object]] | None
"""One check, a list of checks, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of an exploration, with their defaults."""

    workers: Functions = ()
    """Functions such as consumers. By default, they start when all clients have ended or wait. They are
    restarted when they fail, and when there may be work that they have missed.
    """
    services: str | Iterable[str] | None = None
    """The fixtures or fakes whose calls and pipelines can have disturbances (default: all)."""
    kinds: Kind | Sequence[Kind] | None = None
    """The kinds of disturbances (default: all)."""
    setup: Callable[[], object] | None = None
    """A function that is called before each trial, to reset state outside the fakes."""
    budget: int | Duration = TRIALS
    """A number of trials, or wall-clock time such as ``"10s"``."""
    seed: int | str | None = None
    """Determines the random choices (default: the cloud's seed). With it, the search is the same each
    time: it does not begin with the schedule that failed last time.
    """
    schedule: str | None = None
    """The only schedule to run, as a failure prints it."""
    inputs: Mapping[str, Any] | None = None
    """The only drawn inputs to run with, as a failure prints them."""
    processes: int | Literal["auto"] = 1
    """The number of processes that play schedules (Linux); ``"auto"`` is one for each core that
    pytest-xdist leaves. The result does not depend on it, but what the code and the checks keep outside
    of the fakes stays in each process.
    """
    process_time: bool | None = None
    """Whether ``time.time()`` follows the clock (default: if time-machine is installed)."""
    patience: Duration = "1h"
    """How long a client may be slow in one trial; a delivery may be slow until its timeout."""
    horizon: Duration | None = None
    """How long after the start a queue's schedules fire although nothing waits for it (default: until
    they have fired three times).
    """
    trust: bool = False
    """Whether to examine the promise: what it reads, and whether it notices lost writes."""
    allow: str | Iterable[str] = ()
    """Anomalies that do no harm here, such as ``"early commit"`` or ``"early commit: jobs"``."""


class ExploreOptions(TypedDict, total=False):
    """The same for type checkers, which check that ``Options`` has each of them."""

    workers: Functions
    services: str | Iterable[str] | None
    kinds: Kind | Sequence[Kind] | None
    setup: Callable[[], object] | None
    budget: int | Duration
    seed: int | str | None
    schedule: str | None
    inputs: Mapping[str, Any] | None
    processes: int | Literal["auto"]
    process_time: bool | None
    patience: Duration
    horizon: Duration | None
    trust: bool
    allow: str | Iterable[str]


@dataclass(frozen=True, slots=True)
class Subject:
    """What all trials of a search have in common: the code, its promises, and the options.
    ``disturbable_fakes`` are the names of the fakes whose calls and pipelines can have disturbances.
    """

    programs: Sequence[Program]
    promises: Promises
    disturbable_fakes: frozenset[str]
    kinds: frozenset[Kind]
    patience_us: int
    horizon_us: int | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The drawn inputs that the programs run with, by name."""
    setup: Callable[[], object] | None = None
    """What the caller wants to be called before each trial."""

    @property
    def workers(self) -> frozenset[str]:
        """The names of the programs that start again when they fail."""
        return frozenset(program.name for program in self.programs if program.is_worker)
