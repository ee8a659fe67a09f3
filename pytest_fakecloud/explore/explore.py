"""Run code under many schedules and report the smallest one that breaks a promise."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, cast

from ..core.errors import ContractError, brief, broken_promise, counted, importing, shown
from ..core.journal import Results
from ..core.timers import Duration, duration_us
from ..queue.delivery.routes import parts_of
from .anomalies import Allowed
from .assertions import may_assert
from .clients import functions_of, has_drawn_inputs, text_of_inputs
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
from .result.exploration import NO_FAILURES, BrokenPromiseError, Exploration
from .result.failures import Failure
from .result.story import line_text, lookups_of_trial, reason
from .schedule import KINDS, SWITCHES, Kind, Schedule
from .search.explorer import Explorer
from .search.jobs import Jobs
from .search.lost_writes import examine
from .search.player import Player
from .search.shrinking import ReplayResult, replay, smallest
from .search.tally import SearchBudget, Tally, budget_of
from .simulation.state import Subject
from .trial import Line, Program, Trial

if TYPE_CHECKING:
    from ..cloud.base import BaseCloud

TRIALS = 1_000
"""Default budget: the number of trials of one ``explore()`` call."""
_OF_ANOTHER_LOOP = re.compile("Event loop is closed|different (?:event )?loop")
"""asyncio's errors for a connection or a lock that another event loop has used."""

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
    replayed = schedule_to_replay(schedule, programs)
    # With a seed, a search is the same each time, so it does not begin with what failed last time.
    cache = cloud._cache if seed is None else None
    seed = cloud.seed if seed is None else seed
    replay = current_replay.get()
    if inputs is None and replay is not None:
        inputs = replay.inputs
    input_search = None
    if inputs is not None or has_drawn_inputs(programs):
        with importing("inputs="):
            from .guests.inputs.search import InputSearch
        input_search = InputSearch(programs, inputs, seed, is_replayed=replayed is not None)
    allowed = budget_of(budget)
    named_kinds = () if kinds is None else names_of("kinds", kinds)
    with playing(
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
    ) as player:
        player.examines_promise = trust
        player.tally.has_promise = bool(player.subject.promises.checks) or any(
            may_assert(function)
            for program in programs
            for function in functions_of(program.function)
        )
        if replayed is not None:
            player = player.with_inputs(inputs or {})
            replay_only(player, replayed)
        else:
            search = partial(_search, seed=seed, cache=cache, make_jobs=make_jobs)
            if input_search is None:
                undisturbed = search(player, allowed, None)
            else:
                player, undisturbed = input_search.run(player, allowed, search)
            _check_budget(player.tally, allowed)
            _check_covered(player, named_kinds)
            player.subject.promises.finish()
            player.allowed.check_used()
            if trust and player.tally.has_promise:
                player.tally.trust = examine(player, undisturbed)
    return Exploration(player.tally, named_kinds if named_kinds or replayed is not None else KINDS)


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
) -> Iterator[Player]:
    """Explore a cloud within the block; the player runs the programs under schedules.

    ``explore()`` describes the arguments.
    """
    if asyncio._get_running_loop() is not None:
        raise ContractError(
            "code cannot be explored in an event loop: use await cloud.aio.explore(...) or "
            "cloud.aio.every_failure(...)"
        )
    promises, allowed_anomalies = Promises(check), Allowed(allow)
    possible = kinds_of(kinds)
    with explored(cloud, programs, process_time=process_time, seed=seed) as world:
        subject = Subject(
            world,
            programs,
            promises,
            disturbed=frozenset(fake.name for fake in chosen_fakes(cloud, services)),
            kinds=possible,
            patience_us=duration_us(patience),
            horizon_us=None if horizon is None else duration_us(horizon),
        )
        yield Player(world, subject, setup, allowed_anomalies)


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
    player.is_last = True
    # Nothing else runs for a promise, nor after the trial whose calls are kept.
    player.compares_orders = not tally.has_promise
    if not tally.has_promise and [*schedule]:
        player.play(Schedule())  # with which patterns compare the trial
        player.play(schedule)
        tally.coverage.kinds.clear()
    trial = player.play(schedule, keep=True, stacks=True)
    missed = [disturbance for disturbance in schedule if disturbance not in trial.fired]
    if trial.broken is not None:
        trial = replace(trial, schedule=schedule.without(missed))
        raise _broken_schedule(player, trial) from trial.broken
    if missed:
        workers = "|".join(re.escape(disturbance.strand) for disturbance in missed)
        starts = sorted(
            strand for strand in trial.strands if re.fullmatch(rf"({workers})/\d+", strand)
        )
        again = f"{starts[0]} began after a failure, and counts its own calls. " if starts else ""
        raise ContractError(
            "these disturbances of the schedule were not applied: "
            f"{', '.join(map(str, missed))}. {again}The code may have changed, or makes fewer "
            "calls: run explore() again without schedule="
        )
    tally.drawn = 1


def _search(
    player: Player,
    budget: SearchBudget,
    before: Tally | None,
    *,
    seed: int | str,
    cache: Any,
    make_jobs: Callable[[Player, Trial], Jobs],
    shrunk: Callable[[Player, Trial], tuple[Player, Trial]] = lambda player, trial: (player, trial),
) -> Trial:
    """Search for a schedule that breaks the promise; raise ``BrokenPromiseError`` if there is one.

    ``before`` is the tally of the searches with other inputs. Returns the undisturbed trial.
    """
    __tracebackhide__ = True
    undisturbed = player.play(Schedule(), notes=True, stacks=True, shows=True)
    if player.subject.inputs:
        if undisturbed.broken is not None and not _own_errors(undisturbed):
            player, undisturbed = _shrunk(player, undisturbed, before, shrunk)
            if undisturbed.fired:
                raise _broken_schedule(player, undisturbed) from undisturbed.broken
        elif not (undisturbed.calls or undisturbed.errors):
            return undisturbed  # These inputs lead to no call; others may.
    check_undisturbed(player, undisturbed)
    check_repeats(player, undisturbed, "the second time")
    uses_other_services = any(line.call and line.call.service != "kv" for line in undisturbed.lines)
    if not (player.tally.has_promise or undisturbed.effects.accesses or uses_other_services):
        raise ContractError(
            "nothing can fail: there is no check=, the code asserts nothing, and it reads and writes "
            "no data of a fake. Pass check=, a function that asserts what must hold after a trial"
        )
    player.tally.coverage.kinds.clear()
    if player.examines_promise:
        player.world.note_unwritten(undisturbed)
    with contextlib.closing(make_jobs(player, undisturbed)) as jobs:
        broken = Explorer(player, jobs, undisturbed, budget, seed, cache).search()
    if broken is None and not player.tally.has_promise and player.tally.anomalies:
        player.is_last = True
        # Trials that only show such a pattern have counted as held.
        player.outcomes.clear()
        shown_anomaly = next(iter(player.tally.anomalies.values()))
        broken = smallest(player, player.play(shown_anomaly.schedule), undisturbed)
    if broken is None:
        check_repeats(player, undisturbed, "after the search")
        return undisturbed
    if player.subject.inputs:
        player, broken = _shrunk(player, broken, before, shrunk)
    raise_broken(player, broken)


def raise_broken(
    player: Player, broken: Trial, failures: Results[Failure] = NO_FAILURES
) -> NoReturn:
    """Repeat a failing trial, and raise ``BrokenPromiseError`` with its story."""
    __tracebackhide__ = True
    replays = replay(player, broken)
    if replays.trial is None:
        raise ContractError(
            f"the schedule {broken.schedule} broke the promise ({broken.broken}), but not in "
            f"{replays.total} further trials of it: the code depends on a state outside the fakes. "
            f"{'; '.join(['Reset that state in setup=', *broken.notes])}"
        )
    raise _broken_schedule(player, replays.trial, replays, failures) from replays.trial.broken


def _shrunk(
    player: Player,
    trial: Trial,
    before: Tally | None,
    shrunk: Callable[[Player, Trial], tuple[Player, Trial]],
) -> tuple[Player, Trial]:
    """Shrink inputs and schedule of a failing trial; the tally becomes that of all searches."""
    tally = player.tally
    if before is not None:
        before.merge(tally)
        tally = before
    player, trial = shrunk(player, trial)
    player.tally = tally
    return player, trial


def _own_errors(trial: Trial) -> list[tuple[str, BaseException]]:
    """Return the exceptions of the code, by client, which are no failed assertions."""
    return [(name, error) for name, error in trial.errors.items() if broken_promise(error) is None]


def _broken_schedule(
    player: Player,
    trial: Trial,
    replays: ReplayResult | None = None,
    failures: Results[Failure] = NO_FAILURES,
) -> BrokenPromiseError:
    undisturbed = None
    if trial.fired and "stuck" not in trial.flags:
        undisturbed = player.play(Schedule(), stacks=True)
    play = partial(player.play, stacks=True)
    changes = find_changes(trial, undisturbed, play)
    cause = find_cause(trial, undisturbed, changes, play, player.world.state_of)
    return BrokenPromiseError(
        trial,
        player.tally,
        undisturbed,
        cause,
        changes=changes,
        inputs=player.subject.inputs,
        replays=replays,
        failures=failures,
    )


def check_undisturbed(player: Player, trial: Trial) -> None:
    __tracebackhide__ = True
    inputs = player.subject.inputs
    for name, error in _own_errors(trial):
        # Raise the code's own error first, because it explains more than the broken promise.
        error.add_note(
            f"raised by {name} in the undisturbed trial, to which no disturbance was applied: "
            f"{_advice(error)}"
        )
        if inputs:
            error.add_note(f"inputs: {text_of_inputs(inputs)}")
        raise error
    if trial.broken is not None:
        again = trial if "stuck" in trial.flags else player.play(Schedule(), keep=True, stacks=True)
        shown_trial = again if again.broken is not None else trial
        raise BrokenPromiseError(shown_trial, player.tally, inputs=inputs) from shown_trial.broken
    if not trial.calls:
        raise ContractError("the code made no call to any fake, so there is nothing to explore")


def _advice(error: BaseException) -> str:
    if isinstance(error, RuntimeError) and _OF_ANOTHER_LOOP.search(str(error)):
        return "each client has an event loop of its own, so create its connections inside it"
    return "catch it in the client if it is expected"


def check_repeats(player: Player, first: Trial, when: str) -> None:
    """Raise ``ContractError`` if another undisturbed trial makes other calls or gets other answers.

    ``when`` completes the sentence, such as "the second time".
    """
    __tracebackhide__ = True
    second = player.play(Schedule(), stacks=True)
    # Without the process's time, arguments and answers contain wall-clock times.
    has_content = player.world.process_time is not None
    pairs = itertools.zip_longest(first.call_lines, second.call_lines)
    for number, (line, other) in enumerate(pairs, 1):
        if not (line and other and _content(line, has_content) == _content(other, has_content)):
            was = f"was '{_call_text(line, first)}'" if line else "did not exist"
            now = f"'{_call_text(other, second)}'" if other else "there was none"
            if line and other and was == f"was {now}":
                now = f"the same except for {_difference(line, other)},"
            difference = (
                f"call {number} {was}, and {'was ' if other and not line else ''}{now} {when}"
            )
            raise _remembers(difference, dict.fromkeys((*first.notes, *second.notes)))
    if first.broken is None and second.broken is not None:
        raise _remembers(f"the promise held, and was broken {when} ({reason(second.broken)})", {})


def _remembers(difference: str, notes: Iterable[str]) -> ContractError:
    text = (
        f"two trials in which no disturbance was applied differ: {difference}. The code remembers an "
        "earlier trial, for example in a cache, a counter or a client that it keeps, or depends on "
        "something outside the fakes: create it within the explored functions, or reset it in setup="
    )
    return ContractError("; ".join([text, *notes]))


def _content(line: Line, has_content: bool) -> tuple[object, ...]:
    call = line.call
    assert call is not None
    key = line.strand, call.fake, call.route
    if not has_content:
        return key
    # Compare bytes, because a body that the journal has cut refuses comparisons.
    sent, answer = bytes(call.request_body), bytes(call.response_body)
    return *key, call.method, call.target, sent, call.status, call.outcome, answer


def _difference(line: Line, other: Line) -> str:
    """Describe the first difference of two calls whose lines in a story are alike."""
    assert line.call is not None
    assert other.call is not None
    for part in ("target", "request_body", "status", "outcome", "response_body"):
        before, after = getattr(line.call, part), getattr(other.call, part)
        if isinstance(before, bytes):
            before, after = bytes(before), bytes(after)
            pairs = enumerate(zip(before, after, strict=False))
            at = next((at for at, (one_byte, other_byte) in pairs if one_byte != other_byte), 0)
            before, after = before[max(0, at - 20) : at + 60], after[max(0, at - 20) : at + 60]
        if before != after:
            return (
                f"its {part.replace('_', ' ')}, which had {shown(before)} and then {shown(after)}"
            )
    return "its route"


def _call_text(line: Line, trial: Trial) -> str:
    return f"{line.strand}: {line_text(line, lookups_of_trial(trial))}"


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
            f"the possible kinds are: {', '.join(sorted(kinds, key=KINDS.index))}"
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
