"""Run code under many schedules and report the smallest one that breaks a promise."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from ..core.errors import ContractError, shown
from ..core.fatal_errors import broken_promise
from ..core.timeparse import Duration, duration_us
from ..core.wording import brief, counted, unknown_name
from ..every_failure import chosen_handles, names_of
from .assertions import may_assert
from .cause import cause_text, find_cause
from .cooperation import cooperation, share_locks
from .promises import Promises
from .run import Choice, Program, Run
from .runtime.strands import Threads
from .schedule import CLOCK, KINDS, SWITCHES, Kind, Schedule
from .search.budget import Budget, RunBudget, budget_of
from .search.explorer import Explorer
from .search.failures import replay, run_undisturbed
from .search.player import Player
from .search.stored import hypothesis
from .search.summary import summary
from .search.tally import Tally
from .story import story
from .world import World

if TYPE_CHECKING:
    from ..cloud import Cloud

F = TypeVar("F", bound=Callable[..., Any])
RUNS = 1_000
"""Default budget: the number of runs of one ``explore()`` call."""

Checks = Callable[..., object] | Sequence[Callable[..., object]] | None
"""One check, a list of checks, or None."""
Runs = Callable[[], object] | Iterable[Callable[[], object]] | Mapping[str, Callable[[], object]]
"""One function, several that run concurrently, or several by name."""
_replayed: ContextVar[str | None] = ContextVar("replayed", default=None)


class ExploreOptions(TypedDict, total=False):
    """The options of ``explore()``."""

    workers: Runs
    services: str | Iterable[str] | None
    kinds: Kind | Sequence[Kind]
    setup: Callable[[], object] | None
    budget: int | Duration
    seed: int | str | None
    schedule: str | None
    process_time: bool | None
    patience: Duration
    horizon: Duration | None


class Exploration:
    """The result of an ``explore()`` call that found no broken promise.

    ``tried`` is the number of schedules: ``orders`` distinct interleavings (``is_exhaustive`` if
    there are no others), ``singles`` with one event, ``pairs`` with two events, and ``drawn``
    random ones. ``all_singles`` and ``all_pairs`` are the numbers that exist (None if unknown).
    ``calls`` maps each client to its calls, ``points`` to the points at which events were tried;
    ``kinds`` maps each kind of event to the number of times it was applied. ``untried`` are the
    kinds that were never possible, ``unreached`` those that the budget did not allow. ``likely``
    maps a number of ordered switches to the minimum probability that a bug that needs them was
    found. ``notes`` describe what could not be explored.
    ``seconds`` is wall-clock time. ``str()`` returns a summary.
    """

    def __init__(self, tally: Tally, wanted: Iterable[str]) -> None:
        self.tried = tally.tried
        self.orders, self.is_exhaustive = tally.orders, tally.is_exhaustive
        self.singles, self.all_singles = tally.singles, tally.all_singles
        self.pairs, self.all_pairs = tally.pairs, tally.all_pairs
        self.drawn = tally.drawn
        covered = tally.coverage
        self.calls = dict(covered.calls)
        self.points = {name: len(points) for name, points in covered.points.items()}
        self.kinds = dict(covered.kinds)
        missing = [kind for kind in wanted if kind not in covered.kinds]
        left = covered.possible - covered.attempted
        self.untried = tuple(kind for kind in missing if kind not in left)
        self.unreached = tuple(kind for kind in missing if kind in left)
        self.likely = tally.priority_runs.likely
        self.notes = tuple(covered.notes)
        self.seconds = tally.seconds
        self.seed = tally.seed
        self._text = summary(tally)

    def __str__(self) -> str:
        lines = [f"the promise held in {self._text}"]
        if self.calls:
            texts = (f"{name} {counted(calls, 'call')}" for name, calls in self.calls.items())
            lines.append(f"calls: {', '.join(texts)}")
        if self.kinds:
            texts = (f"{kind} {times:,}" for kind, times in self.kinds.items())
            lines.append(f"events: {', '.join(texts)}")
        if self.untried:
            lines.append(f"never had a place: {', '.join(self.untried)}")
        if self.unreached:
            lines.append(f"not reached within the budget: {', '.join(self.unreached)}")
        lines += self.notes
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Exploration: the promise held in {self._text}>"


class BrokenSchedule(AssertionError):
    """Raised with the smallest schedule found that breaks a promise.

    ``schedule`` is the schedule as a string, for ``explore(..., schedule=...)`` and
    ``replay_schedule``; it is empty for the undisturbed run. ``events`` is its number of events.
    ``cause`` describes the event or the conflict that broke the promise, or is empty. ``story`` lists
    what happened up to the step that broke the promise, on one clock. ``tried`` is the number of
    schedules tried before. ``runs`` are the failing run and the undisturbed run, for the report's
    page. The failed assertion is the ``__cause__``.
    """

    def __init__(
        self,
        run: Run,
        tally: Tally,
        undisturbed: Run | None = None,
        *,
        given: bool,
        failed: int = 1,
        replays: int = 1,
    ) -> None:
        self.runs = run, undisturbed
        self.schedule = str(run.schedule)
        self.events = len(run.schedule)
        self.cause = cause_text(find_cause(run, undisturbed), run)
        self.story = story(run)
        self.tried = tally.tried
        self.seconds = tally.seconds
        many = counted(self.events, "event")
        if given:
            found = "the promise was broken by the given schedule"
        elif not self.events:
            found = "the promise was broken by the undisturbed run: no event was applied"
        else:
            found = f"the promise was broken by a schedule of {many}, after {summary(tally)}"
        if failed < replays:
            found += f"; the code is not deterministic: it failed in {failed} of {replays} replays"
        details = f"cause: {self.cause}\n{self.story}" if self.cause else self.story
        text = f"{found}:\n{details}"
        if self.events:
            text += f'\nreplay it with @pytest_fakecloud.replay_schedule("{self.schedule}")'
        super().__init__(text)


def explore(
    cloud: Cloud,
    run: Runs,
    check: Checks = None,
    *,
    workers: Runs = (),
    services: str | Iterable[str] | None = None,
    kinds: Kind | Sequence[Kind] = KINDS,
    setup: Callable[[], object] | None = None,
    budget: int | Duration = RUNS,
    seed: int | str | None = None,
    schedule: str | None = None,
    process_time: bool | None = None,
    patience: Duration = "1h",
    horizon: Duration | None = None,
) -> Exploration:
    """Run code under many schedules; raise an error with the smallest one that breaks a promise.

    ``run`` is the code: a function (plain or asynchronous), or several that run concurrently as
    separate clients. ``workers``, such as consumers, start after the clients and are restarted when
    they fail. Queues deliver their messages. At the end of each run, ``check`` is called, with the
    ``History`` if it takes an argument. An ``AssertionError`` of ``check`` or of the code breaks the
    promise; any other exception of the code means that this client gave up. ``check`` may also be a
    promise such as ``once("key")``, or a list of promises. ``setup`` is called before each run, to
    reset state outside the fakes; the fakes return to their baseline.

    A schedule is a list of events: faults, crashes, orders of calls, slow clients, repeated deliveries
    (see ``schedule.Kind``). ``kinds`` limits the events, and ``services`` the calls to some fixtures or
    fakes. Orders of conflicting calls, schedules with one event of each kind, and schedules with two
    delays take turns; other schedules with two events, orders of timers, and random schedules with up
    to six events follow, until ``budget`` is used up: a number of runs, or wall-clock time such as
    ``"10s"``. ``seed`` (default: the cloud's) determines the random choices. ``schedule`` runs one
    given schedule only. ``process_time`` says whether ``time.time()`` follows the clock (default: if
    time-machine is installed). ``patience`` is how long a client may be slow in one run; a delivery may
    be slow until its timeout. Schedules of a queue fire until ``horizon`` after the start, or three
    times if it is not given.

    Raises ``BrokenSchedule``; the error of the undisturbed run; exceptions that end a test, such as
    ``pytest.skip()``; and ``ContractError`` if the code makes no call or cannot be explored, or if
    nothing that was requested could be tried.
    """
    __tracebackhide__ = True
    _check_no_loop()
    hypothesis()
    programs = [*_programs("run", run, is_worker=False), *_programs("workers", workers, True)]
    programs = _with_unique_names(programs)
    if not programs:
        raise ContractError("run= is empty, and so is workers=: pass the code to explore")
    if setup is not None and not callable(setup):
        raise ContractError(f"setup={shown(setup)} is not a function")
    promises = Promises(check)
    text = schedule if schedule is not None else _replayed.get()
    wanted = None if text is None else Schedule.parse(text)
    if wanted is not None:
        _check_names(wanted, programs)
    allowed = budget_of(budget)
    handles = chosen_handles(cloud, services)
    chosen = Choice(
        frozenset(handle.name for handle in handles),
        _kinds(kinds),
        duration_us(patience),
        None if horizon is None else duration_us(horizon),
        promises.steps,
        promises.reads_history,
    )
    threads = Threads()
    try:
        with (
            World(cloud, process_time=process_time) as world,
            cooperation(world),
            share_locks(world, programs),
        ):
            player = Player(world, programs, promises.check, setup, chosen, threads)
            return _explored(player, promises, cloud, allowed, seed, wanted, kinds)
    finally:
        threads.close()


def _explored(
    player: Player,
    promises: Promises,
    cloud: Cloud,
    budget: Budget,
    seed: int | str | None,
    wanted: Schedule | None,
    kinds: Kind | Sequence[Kind],
) -> Exploration:
    __tracebackhide__ = True
    tally = player.tally
    asked = () if kinds is KINDS else names_of("kinds", kinds)
    if wanted is not None:
        run = player.play(wanted, keep=True, stacks=True)
        if run.broken is not None:
            raise BrokenSchedule(
                run, tally, run_undisturbed(player, run), given=True
            ) from run.broken
        missed = [str(event) for event in wanted if event not in run.fired]
        if missed:
            raise ContractError(
                f"these events of the schedule were not applied: {', '.join(missed)}. The code may "
                "have changed, or makes fewer calls: run explore() again without schedule="
            )
        tally.drawn, tally.is_given = 1, True
        return Exploration(tally, asked)
    undisturbed = player.play(Schedule(), notes=True, stacks=True)
    _check_undisturbed(player, undisturbed)
    if not promises and not any(may_assert(each.function) for each in player.programs):
        raise ContractError(
            "nothing can fail: there is no check=, and the code asserts nothing. Pass check=, a "
            "function that asserts what must hold after a run, or a promise such as once('key')"
        )
    tally.coverage.kinds.clear()
    broken = Explorer(player, undisturbed, budget, cloud.seed if seed is None else seed).search()
    if broken is not None:
        replays = replay(player, broken)
        if replays.run is None:
            raise ContractError(
                f"the schedule {broken.schedule} broke the promise ({broken.broken}), but not in "
                f"{replays.total} further runs of it: the code depends on a state outside the fakes. "
                "Reset that state in setup="
            )
        raise BrokenSchedule(
            replays.run,
            tally,
            run_undisturbed(player, replays.run),
            given=False,
            failed=replays.failed,
            replays=replays.total,
        ) from replays.run.broken
    _check_budget(tally, budget)
    _check_covered(player, cloud, asked)
    promises.finish()
    return Exploration(tally, asked or KINDS)


def _check_undisturbed(player: Player, run: Run) -> None:
    """Raise an error if the undisturbed run failed."""
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
        raise BrokenSchedule(
            again if again.broken is not None else run, player.tally, given=False
        ) from run.broken
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


def _check_covered(player: Player, cloud: Cloud, asked: Sequence[str]) -> None:
    """Raise ``ContractError`` if the promise held only because too little was explored."""
    tally, covered = player.tally, player.tally.coverage
    if not tally.tried:
        raise ContractError(
            f"no schedule was possible: the code has no point for {', '.join(asked) or 'any event'}. "
            "Pass more clients (for switches), other kinds=, or other services="
        )
    possible = set(covered.possible)
    if tally.orders or covered.possible & SWITCHES:
        possible |= SWITCHES
    missing = [kind for kind in asked if kind not in possible]
    if missing:
        raise ContractError(
            f"{', '.join(missing)} cannot happen in this code: leave it out of kinds=; "
            f"the possible kinds are: {', '.join(sorted(covered.possible, key=KINDS.index))}"
        )
    handlers = [
        route
        for handle in cloud.handles
        if handle.fixture == "queue"
        for route in cast("Any", handle).destinations.routes
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


def _check_names(schedule: Schedule, programs: Sequence[Program]) -> None:
    known = [program.name for program in programs]
    for event in schedule:
        named = [event.process, *([event.detail] if event.kind in SWITCHES else [])]
        for name in named:
            root = re.split(r"[/:+]", name)[0]
            if root not in (*known, CLOCK) and not re.fullmatch(r"delivery\d+", root):
                raise ContractError(f"{shown(str(event))}: {unknown_name('client', root, known)}")


def replay_schedule(text: str) -> Callable[[F], F]:
    """Decorate a test so that ``explore`` runs only this schedule in it."""
    Schedule.parse(text)

    def decorate(test: F) -> F:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def replayed_async(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                token = _replayed.set(text)
                try:
                    return await test(*args, **kwargs)
                finally:
                    _replayed.reset(token)

            return replayed_async  # type: ignore[return-value]

        @functools.wraps(test)
        def replayed(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            token = _replayed.set(text)
            try:
                return test(*args, **kwargs)
            finally:
                _replayed.reset(token)

        return replayed  # type: ignore[return-value]

    return decorate


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


def _kinds(given: Kind | Sequence[Kind]) -> frozenset[Kind]:
    names = names_of("kinds", given)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ContractError(unknown_name("kind of event", unknown[0], KINDS))
    return frozenset(cast("Sequence[Kind]", names))


def _name(function: object) -> str:
    function = getattr(function, "func", function)
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "client"


def _with_unique_names(programs: Sequence[Program]) -> list[Program]:
    """Add a number to the second and each further program of one name."""
    taken = {program.name for program in programs}
    named: list[Program] = []
    for program in programs:
        name = program.name
        if any(other.name == name for other in named):
            name = next(f"{name}{n}" for n in itertools.count(2) if f"{name}{n}" not in taken)
            taken.add(name)
        named.append(replace(program, name=name))
    return named


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ContractError("explore() cannot run in an event loop: use await cloud.aio.explore(...)")
