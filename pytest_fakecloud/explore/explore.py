"""Run code under many schedules and report the smallest one that breaks a promise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, cast

from ..core.errors import ContractError, brief, counted, importing, shown
from ..core.timers import Duration, duration_us
from ..queue.delivery.routes import parts_of
from .anomalies import Allowed
from .assertions import may_assert
from .clients import functions_of_all, has_drawn_inputs
from .disturbances import KINDS, SWITCHES, Kind
from .names import actor_of
from .patches import explored
from .programs import (
    Functions,
    chosen_fakes,
    current_replay,
    kinds_of,
    names_of,
    programs_of,
    schedule_to_replay,
)
from .promises import Promises
from .result.cause import find_cause
from .result.changes import find_changes
from .result.exploration import BrokenPromiseError, Exploration, Trust
from .schedule import Schedule
from .search.explorer import Explorer
from .search.jobs import Jobs
from .search.player import Player
from .search.shrinking import replay, smallest
from .search.tally import SearchBudget, Tally, budget_of, merged
from .search.undisturbed import check_repeats, check_undisturbed, own_errors
from .simulation.state import Subject
from .trial import Plan, Program, Trial

if TYPE_CHECKING:
    from ..cloud.base import BaseCloud
    from .world import World

TRIALS = 1_000
"""Default budget: the number of trials of one ``explore()`` call."""

Checks = Callable[..., object] | Sequence[Callable[..., object]] | None
"""One check, a list of checks, or None."""


class ExploreOptions(TypedDict, total=False):
    """The options of ``explore()``."""

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


def explore(
    cloud: BaseCloud,
    run: Functions,
    check: Checks = None,
    *,
    workers: Functions = (),
    services: str | Iterable[str] | None = None,
    kinds: Kind | Sequence[Kind] | None = None,
    setup: Callable[[], object] | None = None,
    budget: int | Duration = TRIALS,
    seed: int | str | None = None,
    schedule: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    processes: int | Literal["auto"] = 1,
    process_time: bool | None = None,
    patience: Duration = "1h",
    horizon: Duration | None = None,
    trust: bool = False,
    allow: str | Iterable[str] = (),
) -> Exploration:
    """Run code under many schedules; raise an error with the smallest one that breaks a promise.

    A schedule is a list of disturbances: faults, crashes, orders of calls, slow clients, repeated
    deliveries (see ``schedule.Kind``). Before each trial, the fakes return to their baseline.
    Queues deliver their messages. An ``AssertionError`` of ``check`` or of the code breaks the promise;
    any other exception of the code means that this client gave up.

    - ``run``: the code, a function (plain or asynchronous), or several that run concurrently as
      separate clients. ``drawn()`` and ``operations()`` are clients whose arguments and calls vary.
    - ``check``: a function that is called at the end of each trial, with the ``History`` if it takes an
      argument; a promise such as ``once("key")``; or a list of them.
    - ``workers``: functions such as consumers, which start after the clients and are restarted when
      they fail.
    - ``services``: the fixtures or fakes whose calls can have disturbances (default: all).
    - ``kinds``: the kinds of disturbances (default: all).
    - ``setup``: a function that is called before each trial, to reset state outside the fakes.
    - ``budget``: a number of trials, or wall-clock time such as ``"10s"``.
    - ``seed``: determines the random choices (default: the cloud's seed). With it, the search is the
      same each time: it does not begin with the schedule that failed last time.
    - ``schedule``: the only schedule to run, as a failure prints it.
    - ``inputs``: the only drawn inputs to run with, as a failure prints them.
    - ``processes``: the number of processes that run schedules (Linux); ``"auto"`` is one for each core
      that pytest-xdist leaves. The result does not depend on it, but what the code and the checks keep
      outside of the fakes stays in each process.
    - ``process_time``: whether ``time.time()`` follows the clock (default: if time-machine is
      installed).
    - ``patience``: how long a client may be slow in one trial; a delivery may be slow until its timeout.
    - ``horizon``: how long after the start a queue's schedules fire (default: they fire three times).
    - ``trust``: whether to examine the promise after the search: what it reads, and whether it notices
      lost writes.
    - ``allow``: anomalies that do no harm here, such as ``"early commit"`` or ``"early commit: jobs"``.

    Without ``check``, and without assertions in the code, an anomaly breaks the promise.

    Raises ``BrokenPromiseError``; the error of the undisturbed trial; exceptions that end a test, such
    as ``pytest.skip()``; and ``ContractError`` if the code makes no call or cannot be explored, or if
    nothing that was requested could be tried.
    """
    __tracebackhide__ = True
    programs = programs_of(run, workers)
    if setup is not None and not callable(setup):
        raise ContractError(f"setup={shown(setup)} is not a function")
    make_jobs = _jobs_in(processes)
    examining: Callable[[World], AbstractContextManager[Any]] = contextlib.nullcontext
    if trust:
        with importing("trust="):
            from .guests.trust import examining
        # What trials write is noted in this process only.
        make_jobs = _jobs_in(1)
    trusted = Trust()
    replayed = schedule_to_replay(schedule, programs)
    # With a seed, a search is the same each time, so it does not begin with what failed last time.
    cache = cloud._cache if seed is None else None
    seed = cloud.seed if seed is None else seed
    reproduced = current_replay.get()
    if inputs is None and reproduced is not None:
        inputs = reproduced.inputs
    drawn = None
    if inputs is not None or has_drawn_inputs(programs):
        with importing("inputs="):
            from .guests.inputs.search import InputSearch
        drawn = InputSearch(programs, inputs, seed, is_replayed=replayed is not None)
    allowed = budget_of(budget)
    named_kinds = () if kinds is None else names_of("kinds", kinds)
    with (
        playing(
            cloud,
            programs,
            check,
            services=services,
            kinds=kinds,
            setup=setup,
            seed=seed,
            process_time=process_time,
            patience=patience,
            horizon=horizon,
            allow=allow,
            anomalies_break=True,
        ) as player,
        examining(player.world) as examination,
    ):
        if replayed is not None:
            player = player.with_inputs(inputs or {})
            replay_only(player, replayed)
        else:
            search = partial(_search, seed=seed, cache=cache, make_jobs=make_jobs)
            if drawn is None:
                player, undisturbed = _search_all([(player, allowed)], search)
            else:
                parts, smaller = drawn.searches(player, allowed), partial(drawn.smallest, player)
                player, undisturbed = _search_all(parts, search, smaller)
            _check_budget(player.tally, allowed)
            _check_covered(player, named_kinds)
            player.subject.promises.finish()
            player.judge.allowed.check_used()
            if trust and player.judge.has_promise:
                trusted = examination.trust(player, undisturbed)
    kinds_to_name = named_kinds if named_kinds or replayed is not None else [*KINDS]
    return Exploration(player.tally, kinds_to_name, trusted)


@contextlib.contextmanager
def playing(
    cloud: BaseCloud,
    programs: Sequence[Program],
    check: Checks,
    *,
    services: str | Iterable[str] | None = None,
    kinds: Kind | Sequence[Kind] | None = None,
    setup: Callable[[], object] | None = None,
    seed: int | str | None = None,
    process_time: bool | None = None,
    patience: Duration = "1h",
    horizon: Duration | None = None,
    allow: str | Iterable[str] = (),
    anomalies_break: bool = False,
) -> Iterator[Player]:
    """Explore a cloud within the block; the player runs the programs under schedules.

    ``explore()`` describes the arguments. With ``anomalies_break``, an anomaly breaks a trial if neither
    a check nor the code asserts anything.
    """
    if asyncio._get_running_loop() is not None:
        raise ContractError(
            "code cannot be explored in an event loop: use await cloud.aio.explore(...) or "
            "cloud.aio.every_failure(...)"
        )
    promises, allowed_anomalies = Promises(check), Allowed(allow)
    possible = kinds_of(kinds)
    asserts = bool(promises.checks) or any(map(may_assert, functions_of_all(programs)))
    with explored(cloud, programs, process_time=process_time, seed=seed) as world:
        subject = Subject(
            world,
            programs,
            promises,
            disturbed=frozenset(fake.name for fake in chosen_fakes(cloud, services)),
            kinds=possible,
            patience_us=duration_us(patience),
            horizon_us=None if horizon is None else duration_us(horizon),
            setup=setup,
        )
        yield Player(world, subject, allowed_anomalies, has_promise=asserts or not anomalies_break)


def _jobs_in(processes: int | Literal["auto"]) -> Callable[[Player, Trial], Jobs]:
    """Return a function that makes what plays the trials of a search."""
    if type(processes) is int and processes == 1:
        return lambda player, _: Jobs(player)
    with importing("processes="):
        from .guests.ahead import jobs_in_processes, number_of_processes
    return partial(jobs_in_processes, number_of_processes(processes))


def replay_only(player: Player, schedule: Schedule) -> None:
    """Run one schedule; raise an error if it breaks the promise or cannot be applied."""
    __tracebackhide__ = True
    tally = player.tally
    tally.only_schedule = schedule
    player.judge.is_last = True
    if player.judge.has_promise:
        player.judge.serial = None  # Nothing else runs.
    elif schedule:
        player.judged(Plan())  # with which patterns compare the trial
        # The trials in one piece run for this one, and none runs after the trial that is kept.
        player.judged(Plan(schedule))
    trial = player.play(Plan.reported(schedule))
    missed = [disturbance for disturbance in schedule if disturbance not in trial.fired]
    if trial.broken is not None:
        trial = replace(trial, schedule=schedule.without(missed))
        raise _broken_schedule(player, trial) from trial.broken
    if missed:
        workers = {disturbance.strand for disturbance in missed}
        starts = sorted(
            strand
            for strand in trial.strands
            if strand not in workers and actor_of(strand) in workers
        )
        again = f"{starts[0]} began after a failure, and counts its own calls. " if starts else ""
        raise ContractError(
            "these disturbances of the schedule were not applied: "
            f"{', '.join(map(str, missed))}. {again}The code may have changed, or makes fewer "
            "calls: run explore() again without schedule="
        )
    tally.drawn = 1


def _search_all(
    parts: Iterable[tuple[Player, SearchBudget]],
    search: Callable[[Player, SearchBudget], tuple[Trial, Trial | None]],
    smaller: Callable[[Player, Trial], tuple[Player, Trial]] = lambda player, trial: (
        player,
        trial,
    ),
) -> tuple[Player, Trial]:
    """Search with each drawn input, or once; raise ``BrokenPromiseError`` for the first failure, with
    smaller inputs.

    Returns the player with the input of most calls, whose tally is that of all searches, and its
    undisturbed trial.
    """
    __tracebackhide__ = True
    searched: list[tuple[Player, Trial]] = []
    for player, budget in parts:
        undisturbed, broken = search(player, budget)
        searched.append((player, undisturbed))
        if broken is not None:
            tally = merged(player.tally for player, _ in searched)
            is_undisturbed = broken is undisturbed
            player, broken = smaller(player, broken)
            player.tally = tally
            if is_undisturbed:
                check_undisturbed(player, broken)
            raise_broken(player, broken)
    tally = merged(player.tally for player, _ in searched)
    player, undisturbed = max(searched, key=lambda search: len(search[1].call_lines))
    player.tally = tally
    return player, undisturbed


def _search(
    player: Player,
    budget: SearchBudget,
    *,
    seed: int | str,
    cache: Any,
    make_jobs: Callable[[Player, Trial], Jobs],
) -> tuple[Trial, Trial | None]:
    """Search for a schedule that breaks the promise.

    Returns the undisturbed trial, and the smallest failing trial that was found, if any.
    """
    __tracebackhide__ = True
    undisturbed = player.play(Plan.first())
    if player.subject.inputs:
        if undisturbed.broken is not None and not own_errors(undisturbed):
            return undisturbed, undisturbed  # Smaller inputs may break the promise, too.
        if not (undisturbed.calls or undisturbed.errors):
            return undisturbed, None  # These inputs lead to no call; others may.
    check_undisturbed(player, undisturbed)
    check_repeats(player, undisturbed, "the second time")
    uses_other_services = any(line.call and line.call.service != "kv" for line in undisturbed.lines)
    if not (player.judge.has_promise or undisturbed.effects.accesses or uses_other_services):
        raise ContractError(
            "nothing can fail: there is no check=, the code asserts nothing, and it reads and writes "
            "no data of a fake. Pass check=, a function that asserts what must hold after a trial"
        )
    with contextlib.closing(make_jobs(player, undisturbed)) as jobs:
        broken = Explorer(player, jobs, undisturbed, budget, seed, cache).search()
    if broken is None and not player.judge.has_promise and player.tally.anomalies:
        player.judge.is_last = True
        # Trials that only show such a pattern have counted as held.
        player.outcomes.clear()
        shown_anomaly = next(iter(player.tally.anomalies.values()))
        broken = smallest(player, player.play(Plan(shown_anomaly.schedule)), undisturbed)
    if broken is None:
        check_repeats(player, undisturbed, "after the search")
    return undisturbed, broken


def raise_broken(player: Player, broken: Trial, **options: Any) -> NoReturn:
    """Repeat a failing trial, and raise ``BrokenPromiseError`` with its story.

    The options are those of the error.
    """
    __tracebackhide__ = True
    replays = replay(player, broken)
    if replays.trial is None:
        raise ContractError(
            f"the schedule {broken.schedule} broke the promise ({broken.broken}), but not in "
            f"{replays.total} further trials of it: the code depends on a state outside the fakes. "
            f"{'; '.join(['Reset that state in setup=', *broken.notes])}"
        )
    raise _broken_schedule(
        player, replays.trial, replays=replays, **options
    ) from replays.trial.broken


def _broken_schedule(player: Player, trial: Trial, **options: Any) -> BrokenPromiseError:
    undisturbed = None
    if trial.fired and "stuck" not in trial.flags:
        undisturbed = player.play(Plan(stacks=True))

    def play(schedule: Schedule) -> Trial:
        return player.play(Plan(schedule, stacks=True))

    changes = find_changes(trial, undisturbed, play)
    cause = find_cause(trial, undisturbed, changes, play, player.world.state_of)
    return BrokenPromiseError(
        trial,
        player.tally,
        undisturbed,
        cause,
        changes=changes,
        inputs=player.subject.inputs,
        **options,
    )


def _check_budget(tally: Tally, budget: SearchBudget) -> None:
    """Raise ``ContractError`` if a time budget ended before the search tried any disturbance."""
    tried_something = tally.singles or not tally.all_singles or tally.orders > 1
    if budget.began is None or tried_something or tally.is_exhaustive:
        return
    raise ContractError(
        f"budget={shown(budget.argument)} allowed only {counted(tally.tried, 'schedule')}, and none of "
        f"the {tally.all_singles:,} with one disturbance: pass a larger budget=, fewer kinds=, or "
        "less code"
    )


def _check_covered(player: Player, named_kinds: Sequence[str]) -> None:
    """Raise ``ContractError`` if the promise held only because too little was explored.

    That is if a kind of disturbance never happened, or if no call of a destination handler succeeded.
    """
    tally, kinds = player.tally, player.tally.coverage.possible
    if not tally.tried:
        raise ContractError(
            "no schedule was possible: the code has no point for "
            f"{', '.join(named_kinds) or 'any disturbance'}. "
            "Pass more clients (for switches), other kinds=, or other services="
        )
    possible = kinds | SWITCHES if tally.orders or kinds & SWITCHES else kinds
    missing = [kind for kind in named_kinds if kind not in possible]
    if missing:
        raise ContractError(
            f"{', '.join(missing)} cannot happen in this code: leave it out of kinds=; "
            f"the possible kinds are: {', '.join(kind for kind in KINDS if kind in kinds)}"
        )
    handlers = [
        route
        for fake in player.world.cloud.fakes()
        if fake.fixture == "queue"
        for route in cast("Any", fake).destinations.routes()
        if parts_of(route).where == "call"
    ]
    if handlers and not tally.coverage.succeeded and not named_kinds:
        raise ContractError(
            f"no handler was ever called: nothing was delivered to {handlers[0].prefix}. Publish "
            "to its URL within run=, or remove the handler"
        )
    for (where, url), has_succeeded in tally.coverage.succeeded.items():
        if not has_succeeded:
            raise ContractError(
                f"each call of the handler given to destinations.{where}({brief(url)}) raised an "
                "exception, also in the undisturbed trial, so the promise was never tested with it. "
                "Correct the handler; if it is meant to fail, return 500"
            )
