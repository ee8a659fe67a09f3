"""Run code under many schedules and report the smallest one found that breaks a promise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack

from ..core.clock import asyncio_is_running
from ..core.errors import ContractError, importing, shown
from ..core.timers import duration_us
from .find_failure import InputSearch, MakePlanPlayer, SearchResult, find_failure
from .judge.anomalies import Allowed
from .judge.judge import Judge
from .result.exploration import Exploration, Trust
from .result.reproduce import raise_broken, replay_only
from .search.coverage_checks import check_budget, check_covered
from .search.explorer import PlanPlayer
from .search.player import Player
from .search.tally import budget_of, merged
from .subject.assertions import may_assert
from .subject.clients import functions_of_all, has_drawn_inputs
from .subject.options import Checks, ExploreOptions, Options, Subject
from .subject.programs import (
    Functions,
    Program,
    chosen_fakes,
    inputs_to_replay,
    kinds_of,
    names_of,
    programs_of,
    schedule_to_replay,
)
from .subject.promises import Promises
from .undisturbed import check_undisturbed
from .values.disturbances import KINDS
from .values.learned import Learned
from .world.patches import explored

if TYPE_CHECKING:
    from ..cloud.base import BaseCloud
    from .world.world import World


def explore(
    cloud: BaseCloud, run: Functions, check: Checks = None, **arguments: Unpack[ExploreOptions]
) -> Exploration:
    """Run code under many schedules; raise an error with the smallest one found that breaks a promise.

    A schedule is a list of disturbances: faults, crashes, orders of calls, slow clients, repeated
    deliveries (see ``disturbances.Kind``). Before each trial, the fakes return to their baseline.
    Queues deliver their messages. An ``AssertionError`` of ``check`` or of the code breaks the promise,
    and so does any exception of ``check`` after a disturbance; any other exception of the code means
    that this client gave up.

    - ``run``: the code, a function (plain or asynchronous), or several that run concurrently as
      separate clients. ``drawn()`` and ``operations()`` are clients whose arguments and calls vary.
    - ``check``: a function that is called at the end of each trial, with the ``History`` if it takes an
      argument; a promise such as ``once("key")``, or ``always()``, which is checked after each step; or
      a list of them.

    ``Options`` describes the other arguments. Without ``check``, and without assertions in the code, an
    anomaly breaks the promise.

    Raises ``BrokenPromiseError``; the error of the undisturbed trial; the ``AssertionError`` of a
    ``sometimes()`` that no trial reached; exceptions that end a test, such as ``pytest.skip()``; and
    ``ContractError`` if the code makes no call or cannot be explored, or if nothing that was requested
    could be tried.
    """
    __tracebackhide__ = True
    options = Options(**arguments)
    programs = programs_of(run, options.workers)
    if options.setup is not None and not callable(options.setup):
        raise ContractError(f"setup={shown(options.setup)} is not a function")
    make_plan_player = _maker_of_plan_player(options.processes, trust=options.trust)
    examining = _examining(options.trust)
    replayed = schedule_to_replay(options.schedule, programs)
    # With a seed, a search is the same each time, so it does not begin with what failed last time.
    cache = cloud._cache if options.seed is None else None
    seed = cloud.seed if options.seed is None else options.seed
    inputs = inputs_to_replay(options.inputs)
    input_search = InputSearch()
    if inputs is not None or has_drawn_inputs(programs):
        with importing("inputs="):
            from .guests.inputs.search import DrawnInputSearch
        input_search = DrawnInputSearch(programs, inputs, seed, is_replayed=replayed is not None)
    budget = budget_of(options.budget)
    named_kinds = () if options.kinds is None else names_of("kinds", options.kinds)
    trust = Trust()
    with (
        player_for(cloud, programs, check, options, anomalies_break=True) as player,
        examining(player.world) as examination,
    ):
        if replayed is not None:
            player = player.with_inputs(inputs or {})
            return Exploration(replay_only(player, replayed), named_kinds, trust)
        searches: list[SearchResult] = []
        for next_player in input_search.players(player):
            used = sum(ended.tally.tried for ended in searches)
            if searches and budget.remaining(used) <= 0:
                break
            left = input_search.budget_of_next(budget, used)
            searches.append(find_failure(next_player, left, seed, cache, make_plan_player))
            if searches[-1].failing is not None:
                _raise_failure(searches, input_search, player)
        # Reports are about the input of most calls, with the numbers of all searches.
        tally = merged(ended.tally for ended in searches)
        player, _, undisturbed, _ = max(
            searches, key=lambda ended: len(ended.undisturbed.call_lines)
        )
        check_budget(tally, budget)
        check_covered(tally, cloud, named_kinds)
        player.subject.promises.finish()
        player.judge.allowed.check_used(player.learned.used_allowances)
        if options.trust and not player.judge.anomalies_break:
            trust = examination.trust(player, undisturbed)
    return Exploration(tally, named_kinds or [*KINDS], trust)


def _raise_failure(searches: list[SearchResult], inputs: InputSearch, whole: Player) -> NoReturn:
    """Raise ``BrokenPromiseError`` for the last search, with the smallest inputs that are found."""
    __tracebackhide__ = True
    player, _, undisturbed, failing = searches[-1]
    assert failing is not None
    is_undisturbed = failing is undisturbed
    tally = merged(ended.tally for ended in searches)
    player, failing = inputs.shrink_inputs(whole, player, failing)
    if is_undisturbed:
        check_undisturbed(player, tally, failing)
    raise_broken(player, tally, failing)


@contextlib.contextmanager
def player_for(
    cloud: BaseCloud,
    programs: Sequence[Program],
    check: Checks,
    options: Options,
    *,
    anomalies_break: bool = False,
) -> Iterator[Player]:
    """Explore a cloud within the block; the player plays schedules of the programs.

    With ``anomalies_break``, an anomaly breaks a trial if neither a check nor the code asserts anything.
    """
    if asyncio_is_running():
        raise ContractError(
            "code cannot be explored in an event loop: use await cloud.aio.explore(...) or "
            "cloud.aio.every_failure(...)"
        )
    promises, allowed_anomalies = Promises(check), Allowed(options.allow)
    kinds = kinds_of(options.kinds)
    asserts = bool(promises.checks) or any(map(may_assert, functions_of_all(programs)))
    with explored(cloud, programs, process_time=options.process_time, seed=options.seed) as world:
        subject = Subject(
            programs,
            promises,
            disturbable_fakes=frozenset(
                fake.name for fake in chosen_fakes(cloud, options.services)
            ),
            kinds=kinds,
            patience_us=duration_us(options.patience),
            horizon_us=None if options.horizon is None else duration_us(options.horizon),
            setup=options.setup,
        )
        judge = Judge(world, promises, allowed_anomalies, anomalies_break and not asserts)
        yield Player.of(world, subject, judge, Learned())


def _examining(trust: bool) -> Callable[[World], AbstractContextManager[Any]]:
    """Return a block in which the promise is examined, if the caller asks for it."""
    if not trust:
        return contextlib.nullcontext
    with importing("trust="):
        from .guests.trust import examining
    return examining


def _maker_of_plan_player(processes: int | Literal["auto"], *, trust: bool) -> MakePlanPlayer:
    """Return a function that makes the player of the plans of a search."""
    if type(processes) is int and processes == 1:
        return lambda player, tally, _: PlanPlayer(player, tally)
    with importing("processes="):
        from .guests.ahead import number_of_processes, plan_player_in_processes
    number = number_of_processes(processes)
    # With trust=, what trials write is noted in this process only.
    return partial(plan_player_in_processes, 1 if trust else number)
