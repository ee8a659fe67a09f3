"""Run code under many schedules and report the smallest one that breaks a promise."""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ..core.errors import ContractError, brief, broken_promise, counted, shown, unknown_name
from ..core.recorder import is_library
from ..core.timers import Duration, duration_us
from ..every_failure import chosen_handles, names_of
from .locks import cooperation, share_locks
from .promises import Promises
from .result.cause import find_cause
from .result.exploration import BrokenPromiseError, Exploration
from .run import Program, Run, Scope, Subject
from .schedule import CLOCK, KINDS, SWITCHES, Kind, Schedule, current_replay
from .search.explorer import Explorer, Replays, hypothesis, replay
from .search.player import Budget, Player, RunBudget, Tally, budget_of
from .simulation.turns import Threads
from .world import World

if TYPE_CHECKING:
    from ..cloud import Cloud


Runs = Callable[[], object] | Iterable[Callable[[], object]] | Mapping[str, Callable[[], object]]
"""One function, several that run concurrently, or several by name."""


def programs_of(run: Runs, workers: Runs) -> list[Program]:
    """Return clients and workers with distinct names; raise ``ContractError`` for none."""
    programs = [*_programs("run", run, is_worker=False), *_programs("workers", workers, True)]
    if not programs:
        raise ContractError("run= is empty, and so is workers=: pass the code to explore")
    return _with_unique_names(programs)


def _programs(what: str, given: Runs, is_worker: bool) -> list[Program]:
    if isinstance(given, Mapping):
        named = list(given.items())
    else:
        functions = [given] if callable(given) else given
        if isinstance(functions, str) or not isinstance(functions, Iterable):
            raise ContractError(
                f"{what}={shown(given)} is not a function: pass one without arguments, or several"
            )
        named = [(_name(function), function) for function in functions]
    for name, function in named:
        if not callable(function):
            raise ContractError(
                f"{what}={shown(function)} is not a function: pass one that needs no arguments"
            )
        if not isinstance(name, str) or not name or any(c in " ,./" or c.isspace() for c in name):
            raise ContractError(f"{shown(name)} is not a valid client name: pass a single word")
    return [Program(name, function, is_worker) for name, function in named]


def _name(function: object) -> str:
    function = getattr(function, "func", function)
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "client"


def _with_unique_names(programs: Sequence[Program]) -> list[Program]:
    taken = {program.name for program in programs}
    named: list[Program] = []
    for program in programs:
        name = program.name
        if any(other.name == name for other in named):
            name = next(f"{name}{n}" for n in itertools.count(2) if f"{name}{n}" not in taken)
            taken.add(name)
        named.append(replace(program, name=name))
    return named


def kinds_of(given: Kind | Sequence[Kind] | None) -> frozenset[Kind]:
    if given is None:
        return frozenset(KINDS)
    names = names_of("kinds", given)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ContractError(unknown_name("kind of event", unknown[0], KINDS))
    return frozenset(cast("Sequence[Kind]", names))


def schedule_to_replay(given: str | None, programs: Sequence[Program]) -> Schedule | None:
    """Return the only schedule to run: the given one, or that of ``replay_schedule``."""
    replay = current_replay.get()
    if replay is not None:
        replay.is_explored = True
    text = given if given is not None or replay is None else replay.text
    if text is None:
        return None
    schedule = Schedule.parse(text)
    _check_names(schedule, programs)
    return schedule


def _check_names(schedule: Schedule, programs: Sequence[Program]) -> None:
    """Raise ``ContractError`` for an event of a strand that no program can begin."""
    known = [program.name for program in programs]
    for event in schedule:
        for name in (event.strand, event.detail) if event.kind in SWITCHES else (event.strand,):
            root = re.split(r"[/:+]", name)[0]
            if root not in (*known, CLOCK) and not re.fullmatch(r"delivery\d+", root):
                raise ContractError(f"{shown(str(event))}: {unknown_name('client', root, known)}")


_DEPTH = 3
"""Maximum number of calls between the explored function and the assertion."""
_FAILING = frozenset({"fail", "raises", "AssertionError"})
"""Names whose use is an assertion, in addition to names that begin with ``assert``."""
_IMPLICIT = frozenset({"__init__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__"})
"""Methods that code calls without naming them."""


@dataclass(frozen=True, slots=True)
class _Use:
    """An object that code names, such as a function, and the object that it is an attribute of."""

    value: object
    owner: object = None


def may_assert(function: Callable[..., object]) -> bool:
    """Return whether a function contains an assertion, or calls application code that does."""
    seen: set[types.CodeType] = set()
    uses = [_Use(function), *_attributes(_Use(function), _IMPLICIT)]
    for _ in range(_DEPTH + 1):
        following: list[_Use] = []
        for use in map(_unwrapped, uses):
            code = getattr(use.value, "__code__", None)
            if not isinstance(code, types.CodeType) or code in seen:
                continue
            seen.add(code)
            codes = list(_with_inner(code))
            if any(map(_asserts, codes)):
                return True
            following += _uses(use, {name for inner in codes for name in inner.co_names})
        uses = following
    return False


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of the functions that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def _asserts(code: types.CodeType) -> bool:
    if any(name in _FAILING or name.startswith("assert") for name in code.co_names):
        return True
    return any(
        instruction.opname == "LOAD_ASSERTION_ERROR"
        # From Python 3.14 on, other constants have the same instruction.
        or (
            instruction.opname == "LOAD_COMMON_CONSTANT" and "AssertionError" in instruction.argrepr
        )
        for instruction in dis.get_instructions(code)
    )


def _unwrapped(use: _Use) -> _Use:
    """Return the function behind a method, a partial object or a decorator."""
    value: Any = use.value
    owner = use.owner
    while True:
        if isinstance(value, functools.partial):
            value = value.func
        elif isinstance(value, types.MethodType):
            value, owner = value.__func__, value.__self__
        elif isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif (wrapped := inspect.getattr_static(value, "__wrapped__", None)) is not None:
            value = wrapped
        else:
            return _Use(value, owner)


def _uses(function: _Use, names: set[str]) -> list[_Use]:
    """Return the objects that a function names, and those of their attributes that it names."""
    scope = getattr(function.value, "__globals__", {})
    values = [function.owner, *(scope[name] for name in names if name in scope)]
    for cell in getattr(function.value, "__closure__", None) or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            continue  # The variable has no value yet.
    uses = [_Use(value) for value in values if value is not None]
    # Two levels of attributes reach self.cart.check() and package.module.check().
    attributes = [found for use in uses for found in _attributes(use, names | _IMPLICIT)]
    attributes += [found for use in attributes for found in _attributes(use, names)]
    return uses + [use for use in attributes if _is_application(use)]


def _attributes(use: _Use, names: set[str] | frozenset[str]) -> Iterator[_Use]:
    for name in names:
        found = inspect.getattr_static(use.value, name, None)
        if found is not None:
            yield _Use(found, use.value)


def _is_application(use: _Use) -> bool:
    code = getattr(_unwrapped(use).value, "__code__", None)
    return isinstance(code, types.CodeType) and not is_library(code.co_filename)


RUNS = 1_000
"""Default budget: the number of runs of one ``explore()`` call."""

Checks = Callable[..., object] | Sequence[Callable[..., object]] | None
"""One check, a list of checks, or None."""


class ExploreOptions(TypedDict, total=False):
    """The options of ``explore()``."""

    workers: Runs
    services: str | Iterable[str] | None
    kinds: Kind | Sequence[Kind] | None
    setup: Callable[[], object] | None
    budget: int | Duration
    seed: int | str | None
    schedule: str | None
    process_time: bool | None
    patience: Duration
    horizon: Duration | None


def explore(
    cloud: Cloud,
    run: Runs,
    check: Checks = None,
    *,
    workers: Runs = (),
    services: str | Iterable[str] | None = None,
    kinds: Kind | Sequence[Kind] | None = None,
    setup: Callable[[], object] | None = None,
    budget: int | Duration = RUNS,
    seed: int | str | None = None,
    schedule: str | None = None,
    process_time: bool | None = None,
    patience: Duration = "1h",
    horizon: Duration | None = None,
) -> Exploration:
    """Run code under many schedules; raise an error with the smallest one that breaks a promise.

    A schedule is a list of events: faults, crashes, orders of calls, slow clients, repeated deliveries
    (see ``schedule.Kind``). Before each run, the fakes return to their baseline. Queues deliver their
    messages. An ``AssertionError`` of ``check`` or of the code breaks the promise; any other exception
    of the code means that this client gave up.

    - ``run``: the code, a function (plain or asynchronous), or several that run concurrently as
      separate clients.
    - ``check``: a function that is called at the end of each run, with the ``History`` if it takes an
      argument; a promise such as ``once("key")``; or a list of them.
    - ``workers``: functions such as consumers, which start after the clients and are restarted when
      they fail.
    - ``services``: the fixtures or fakes whose calls can have events (default: all).
    - ``kinds``: the kinds of events (default: all).
    - ``setup``: a function that is called before each run, to reset state outside the fakes.
    - ``budget``: a number of runs, or wall-clock time such as ``"10s"``.
    - ``seed``: determines the random choices (default: the cloud's seed).
    - ``schedule``: the only schedule to run, as a failure prints it.
    - ``process_time``: whether ``time.time()`` follows the clock (default: if time-machine is
      installed).
    - ``patience``: how long a client may be slow in one run; a delivery may be slow until its timeout.
    - ``horizon``: how long after the start a queue's schedules fire (default: they fire three times).

    Raises ``BrokenPromiseError``; the error of the undisturbed run; exceptions that end a test, such as
    ``pytest.skip()``; and ``ContractError`` if the code makes no call or cannot be explored, or if
    nothing that was requested could be tried.
    """
    __tracebackhide__ = True
    _check_no_loop()
    hypothesis()
    programs = programs_of(run, workers)
    if setup is not None and not callable(setup):
        raise ContractError(f"setup={shown(setup)} is not a function")
    promises = Promises(check)
    given = schedule_to_replay(schedule, programs)
    allowed = budget_of(budget)
    scope = Scope(
        handles=frozenset(handle.name for handle in chosen_handles(cloud, services)),
        kinds=kinds_of(kinds),
        patience_us=duration_us(patience),
        horizon_us=None if horizon is None else duration_us(horizon),
        always=promises.at_step,
        is_history_read=promises.reads_history,
    )
    asked = () if kinds is None else names_of("kinds", kinds)
    threads = Threads()
    try:
        with (
            World(cloud, process_time=process_time) as world,
            cooperation(world),
            share_locks(world, programs),
        ):
            player = Player(Subject(world, programs, scope, threads), promises, setup)
            if given is not None:
                _replay(player, given)
            else:
                _search(player, allowed, cloud.seed if seed is None else seed)
                _check_budget(player.tally, allowed)
                _check_covered(player, asked)
                promises.finish()
    finally:
        threads.close()
    return Exploration(player.tally, asked if asked or given is not None else KINDS)


def _replay(player: Player, schedule: Schedule) -> None:
    __tracebackhide__ = True
    tally = player.tally
    tally.given = schedule
    run = player.play(schedule, keep=True, stacks=True)
    missed = [event for event in schedule if event not in run.fired]
    if run.broken is not None:
        run.schedule = schedule.without(missed)
        raise _broken_schedule(player, run) from run.broken
    if missed:
        raise ContractError(
            f"these events of the schedule were not applied: {', '.join(map(str, missed))}. The "
            "code may have changed, or makes fewer calls: run explore() again without schedule="
        )
    tally.drawn = 1


def _search(player: Player, budget: Budget, seed: int | str) -> None:
    """Search for a schedule that breaks the promise; raise ``BrokenPromiseError`` if there is one."""
    __tracebackhide__ = True
    undisturbed = player.play(Schedule(), notes=True, stacks=True)
    _check_undisturbed(player, undisturbed)
    functions = [program.function for program in player.subject.programs]
    if not player.promises.given and not any(map(may_assert, functions)):
        raise ContractError(
            "nothing can fail: there is no check=, and the code asserts nothing. Pass check=, a "
            "function that asserts what must hold after a run, or a promise such as once('key')"
        )
    player.tally.coverage.kinds.clear()
    broken = Explorer(player, undisturbed, budget, seed).search()
    if broken is None:
        return
    replays = replay(player, broken)
    if replays.run is None:
        raise ContractError(
            f"the schedule {broken.schedule} broke the promise ({broken.broken}), but not in "
            f"{replays.total} further runs of it: the code depends on a state outside the fakes. "
            "Reset that state in setup="
        )
    raise _broken_schedule(player, replays.run, replays) from replays.run.broken


def _broken_schedule(
    player: Player, run: Run, replays: Replays | None = None
) -> BrokenPromiseError:
    undisturbed = None
    if run.fired and not run.is_stuck:
        undisturbed = player.play(Schedule(), stacks=True)
    run.cause = find_cause(run, undisturbed, player.play)
    return BrokenPromiseError(run, player.tally, undisturbed, replays=replays)


def _check_undisturbed(player: Player, run: Run) -> None:
    __tracebackhide__ = True
    for name, error in run.errors.items():
        # Raise the code's own error first, because it explains more than the broken promise.
        if broken_promise(error) is None:
            error.add_note(
                f"raised by {name} in the undisturbed run, to which no event was applied: "
                "catch it in the client if it is expected"
            )
            raise error
    if run.broken is not None:
        again = run if run.is_stuck else player.play(Schedule(), keep=True, stacks=True)
        shown_run = again if again.broken is not None else run
        raise BrokenPromiseError(shown_run, player.tally) from run.broken
    if not run.calls:
        raise ContractError("the code made no call to any fake, so there is nothing to explore")


def _check_budget(tally: Tally, budget: Budget) -> None:
    """Raise ``ContractError`` if a time budget ended before the search tried any event."""
    tried_something = tally.singles or not tally.all_singles or tally.orders > 1
    if isinstance(budget, RunBudget) or tried_something or tally.is_exhaustive:
        return
    raise ContractError(
        f"budget={shown(budget.given)} allowed only {counted(tally.tried, 'schedule')}, and none of "
        f"the {tally.all_singles:,} with one event: pass a larger budget=, fewer kinds=, or less code"
    )


def _check_covered(player: Player, asked: Sequence[str]) -> None:
    """Raise ``ContractError`` if the promise held only because too little was explored."""
    tally, found = player.tally, player.tally.coverage.possible
    if not tally.tried:
        raise ContractError(
            f"no schedule was possible: the code has no point for {', '.join(asked) or 'any event'}. "
            "Pass more clients (for switches), other kinds=, or other services="
        )
    possible = found | SWITCHES if tally.orders or found & SWITCHES else found
    missing = [kind for kind in asked if kind not in possible]
    if missing:
        raise ContractError(
            f"{', '.join(missing)} cannot happen in this code: leave it out of kinds=; "
            f"the possible kinds are: {', '.join(sorted(found, key=KINDS.index))}"
        )
    _check_handlers(player, asked)


def _check_handlers(player: Player, asked: Sequence[str]) -> None:
    """Raise ``ContractError`` if no destination handler was called, or one failed in each call."""
    covered = player.tally.coverage
    handlers = [
        route
        for handle in player.subject.world.cloud.fakes()
        if handle.fixture == "queue"
        for route in cast("Any", handle).destinations.routes()
        if getattr(route, "_handler", None) is not None
    ]
    if handlers and not covered.succeeded and not asked:
        raise ContractError(
            f"no handler was ever called: nothing was delivered to {handlers[0].prefix}. Publish "
            "to its URL within run=, or remove the handler"
        )
    for (where, url), has_succeeded in covered.succeeded.items():
        if not has_succeeded:
            raise ContractError(
                f"each call of the handler given to destinations.{where}({brief(url)}) raised an "
                "exception, also in the undisturbed run, so the promise was never tested with it. "
                "Correct the handler; if it is meant to fail, return 500"
            )


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ContractError("explore() cannot run in an event loop: use await cloud.aio.explore(...)")
