"""Run code under many schedules and report the smallest one found that breaks a promise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack

from ..core.clock import asyncio_is_running
from ..core.errors import ContractError, importing, shown
from ..core.timers import duration_us
from .find_failure import SearchResult, search_inputs
from .judge.anomalies import Allowed
from .judge.judge import Judge
from .result.exploration import Exploration, Trust
from .result.reproduce import raise_broken, raise_undisturbed, replay_only
from .search.coverage_checks import check_budget, check_covered
from .search.player import Player
from .search.tally import budget_of
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
from .values.disturbances import KINDS
from .values.learned import Learned
from .without_guests import Examination, InputSearch, Processes
from .world.patches import explored

if TYPE_CHECKING:
    from ..cloud.base import BaseCloud


def explore(
    cloud: BaseCloud, run: Functions, check: Checks = None, **arguments: Unpack[ExploreOptions]
) -> Exploration:
    """Run code under many schedules; raise an error with the smallest one found that breaks a promise.

    A schedule is a list of disturbances: faults, crashes, orders of calls, slow clients, repeated
    deliveries (see ``disturbances.KINDS``). Before each trial, the fakes return to their baseline.
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
    processes = _processes(options.processes, trust=options.trust)
    examination = _examination(options.trust)
    replayed = schedule_to_replay(options.schedule, programs)
    # With a seed, a search is the same each time, so it does not begin with what failed last time.
    cache = cloud._cache if options.seed is None else None
    seed = cloud.seed if options.seed is None else options.seed
    inputs = inputs_to_replay(options.inputs)
    input_search = _input_search(programs, inputs, seed, is_replayed=replayed is not None)
    budget = budget_of(options.budget)
    named_kinds = () if options.kinds is None else names_of("kinds", options.kinds)
    with (
        player_for(cloud, programs, check, options, anomalies_break=True) as player,
        examination.watching(player.world),
    ):
        if replayed is not None:
            tally = replay_only(player.with_inputs(inputs or {}), replayed)
            return Exploration(tally, named_kinds, Trust())
        result = search_inputs(player, input_search, budget, seed, cache, processes)
        if result.failing is not None:
            _raise_failure(result, input_search, player)
        check_budget(result.tally, budget)
        check_covered(result.tally, cloud, named_kinds)
        player.subject.promises.finish()
        player.judge.allowed.check_used(player.learned.used_allowances)
        has_promise = not player.judge.anomalies_break
        trust = examination.trust(result.player, result.undisturbed) if has_promise else Trust()
    return Exploration(result.tally, named_kinds or [*KINDS], trust)


def _raise_failure(result: SearchResult, inputs: InputSearch, original: Player) -> NoReturn:
    """Raise ``BrokenPromiseError`` for a search, with the smallest inputs that are found."""
    __tracebackhide__ = True
    assert result.failing is not None
    player, failing = inputs.shrink_inputs(original, result.player, result.failing)
    if result.failing.trial is result.undisturbed:
        raise_undisturbed(player, result.tally, failing)
    raise_broken(player, result.tally, failing)


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

    With ``anomalies_break``, an anomaly breaks a trial if there is no check, and the code has no
    assertion.
    """
    if asyncio_is_running():
        raise ContractError(
            "code cannot be explored in an event loop: use await cloud.aio.explore(...) or "
            "cloud.aio.every_failure(...)"
        )
    promises, allowed_anomalies = Promises(check), Allowed(options.allow)
    kinds = kinds_of(options.kinds)
    asserts = bool(promises.checks) or any(map(may_assert, functions_of_all(programs)))
    with explored(cloud, programs, options) as world:
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


def _input_search(
    programs: Sequence[Program],
    inputs: Mapping[str, Any] | None,
    seed: int | str,
    *,
    is_replayed: bool,
) -> InputSearch:
    if inputs is None and not has_drawn_inputs(programs):
        return InputSearch()
    with importing("inputs="):
        from .guests.inputs.search import DrawnInputSearch
    return DrawnInputSearch(programs, inputs, seed, is_replayed=is_replayed)


def _processes(argument: int | Literal["auto"], *, trust: bool) -> Processes:
    if type(argument) is int and argument == 1:
        return Processes()
    with importing("processes="):
        from .guests.ahead import ForkedProcesses, number_of_processes
    number = number_of_processes(argument)
    # With trust=, what trials write is noted in this process only.
    return Processes() if trust or number == 1 else ForkedProcesses(number)


def _examination(trust: bool) -> Examination:
    if not trust:
        return Examination()
    with importing("trust="):
        from .guests.trust import PromiseExamination
    return PromiseExamination()
