"""explore(): reruns code under many schedules, and tells the smallest one that breaks its promise."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from ..core.aio import in_thread
from ..core.errors import ContractError, shown
from ..core.matching import nearest
from ..core.timeparse import Duration
from ..failures import chosen_handles, names_of
from .schedule import KINDS, Kind, Schedule
from .search import Budget, Explorer, Tally, hypothesis
from .simulation import Choice, Program, Run
from .story import story
from .world import World

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud

__all__ = [
    "BrokenSchedule",
    "Exploration",
    "ExploreOptions",
    "explore",
    "explore_async",
    "replay_schedule",
]

F = TypeVar("F", bound=Callable[..., Any])
RUNS = 1_000
"""The budget where none is given, in runs."""

Runs = Callable[[], object] | Iterable[Callable[[], object]] | Mapping[str, Callable[[], object]]
"""One function, several that run at the same time, or several by name."""
_replayed: ContextVar[str | None] = ContextVar("replayed", default=None)


class ExploreOptions(TypedDict, total=False):
    """The options of ``explore``."""

    workers: Runs
    services: str | Iterable[str] | None
    kinds: Kind | Sequence[Kind]
    setup: Callable[[], object] | None
    budget: int | Duration
    seed: int | str | None
    schedule: str | None
    process_time: bool | None


class Exploration:
    """What was tried by an ``explore`` that found nothing.

    ``tried`` counts the schedules, ``singles`` and ``pairs`` those of one and of two events of
    ``all_singles`` and ``all_pairs`` there are (None where that was not found out), ``drawn`` those of
    more; ``seconds`` are real ones. ``str()`` says so in words.
    """

    def __init__(self, tally: Tally) -> None:
        self.tried = tally.tried
        self.singles, self.all_singles = tally.singles, tally.all_singles
        self.pairs, self.all_pairs = tally.pairs, tally.all_pairs
        self.drawn = tally.drawn
        self.seconds = tally.seconds
        self.seed = tally.seed
        self._text = str(tally)

    def __str__(self) -> str:
        return f"the promise held in {self._text}"

    def __repr__(self) -> str:
        return f"<Exploration: {self}>"


class BrokenSchedule(AssertionError):
    """A schedule under which a promise does not hold.

    ``schedule`` is its text, for ``explore(..., schedule=...)`` and ``replay_schedule``; ``events`` how
    many deviations it has; ``story`` what happened, on one clock; ``tried`` how many schedules were
    tried until then. The assertion that failed is its cause.
    """

    def __init__(self, run: Run, tally: Tally, *, given: bool) -> None:
        self.schedule = str(run.schedule)
        self.events = len(run.schedule)
        self.story = story(run)
        self.tried = tally.tried
        self.seconds = tally.seconds
        if given:
            found = "the promise was broken by the given schedule"
        else:
            many = f"{self.events} event{'s' * (self.events != 1)}"
            found = f"the promise was broken by a schedule of {many}, after {tally}"
        super().__init__(
            f"{found}:\n{self.story}\n"
            f'replay it with @pytest_fakecloud.replay_schedule("{self.schedule}")'
        )


def explore(
    cloud: AnyCloud,
    run: Runs,
    check: Callable[..., object] | None = None,
    *,
    workers: Runs = (),
    services: str | Iterable[str] | None = None,
    kinds: Kind | Sequence[Kind] = KINDS,
    setup: Callable[[], object] | None = None,
    budget: int | Duration = RUNS,
    seed: int | str | None = None,
    schedule: str | None = None,
    process_time: bool | None = None,
) -> Exploration:
    """Run code under many schedules from one baseline; fail with the smallest that breaks a promise.

    ``run`` is the code: a function (plain or asynchronous), or several that run at the same time as
    clients of their own. ``workers`` are started too, last, and again when they die: consumers,
    schedulers. What queues have to deliver is delivered. Then ``check`` is called (with the
    ``History`` if it takes an argument): an ``AssertionError`` of it, or of the code, breaks the
    promise; any other exception is the code giving up. ``setup`` is called before each run, to start
    over what is not in the fakes.

    A schedule is a list of events at the code's calls: faults, turns of other clients, moves of the
    clock, crashes, deliveries that come again (see ``schedule.Kind``; ``kinds`` limits them, and
    ``services`` the calls to one or more fixtures or handles by name). All of one event are tried,
    then of two, then drawn ones of up to six, as far as ``budget`` goes: a number of runs, or real time
    (``"10s"``). ``seed`` (the cloud's) decides what is drawn. ``schedule`` runs only the given one.
    ``process_time`` says whether ``time.time()`` follows the clock; by default where time-machine is
    installed.

    Raises ``BrokenSchedule``; what the undisturbed run raises; and ``ContractError`` when the code
    makes no call, needs awaiting here, or cannot be explored.
    """
    __tracebackhide__ = True
    _check_no_loop()
    hypothesis()
    programs = [*_programs("run", run, is_worker=False), *_programs("workers", workers, True)]
    names = [program.name for program in programs]
    programs = [
        Program(_unique(names, index), one.function, one.is_worker)
        for index, one in enumerate(programs)
    ]
    if not programs:
        raise ContractError("run= is empty, and so is workers=: give the code to explore")
    for name, given in (("check", check), ("setup", setup)):
        if given is not None and not callable(given):
            raise ContractError(f"{name}={shown(given)} is not a function")
    text = schedule if schedule is not None else _replayed.get()
    wanted = None if text is None else Schedule.parse(text)
    allowed = Budget(budget)
    chosen = Choice(
        frozenset(handle.name for handle in chosen_handles(cloud, services)), _kinds(kinds)
    )
    with World(cloud, process_time=process_time) as world:
        explorer = Explorer(world, programs, check, setup, chosen)
        if wanted is not None:
            broken: Run | None = explorer.play(wanted, keep=True)
            assert broken is not None
            if broken.broken is None:
                explorer.tally.drawn = 1
                return Exploration(explorer.tally)
        else:
            broken = explorer.search(allowed, cloud.seed if seed is None else seed)
            if broken is None:
                return Exploration(explorer.tally)
            # Once more, so that the journal tells of nothing else; and to see that it is no chance.
            again = explorer.play(broken.schedule, keep=True)
            if again.broken is None:
                raise ContractError(
                    f"the schedule {broken.schedule} broke the promise ({broken.broken}) and held "
                    "when it was run again: the code depends on something that is not in the fakes. "
                    "Start that over in setup="
                )
            broken = again
        raise BrokenSchedule(broken, explorer.tally, given=wanted is not None) from broken.broken


async def explore_async(
    cloud: AnyCloud, run: Runs, check: Callable[..., object] | None = None, **options: Any
) -> Exploration:
    """``explore`` where a loop is running: in a thread, each asynchronous client in its own loop."""
    __tracebackhide__ = True
    return await in_thread(explore, cloud, run, check, **options)


def replay_schedule(text: str) -> Callable[[F], F]:
    """Let ``explore`` within the decorated test run this schedule only."""
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
                f"{what}={shown(given)} is not a function: give one without arguments, or several"
            )
        named = [(_name(function), function) for function in functions]
    for name, function in named:
        if not callable(function):
            raise ContractError(
                f"{what}: {shown(function)} is not a function: give one without arguments"
            )
        if not isinstance(name, str) or not name or any(c in " ,./" or c.isspace() for c in name):
            raise ContractError(f"{shown(name)} is not a name of a client: give one word")
    return [Program(name, function, is_worker) for name, function in named]


def _kinds(given: Kind | Sequence[Kind]) -> frozenset[Kind]:
    names = names_of("kinds", given)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ContractError(
            f"{shown(unknown)} is not a kind of event{nearest(unknown[0], KINDS)}; give names out of "
            f"{', '.join(KINDS)}"
        )
    return frozenset(cast("Sequence[Kind]", names))


def _name(function: object) -> str:
    function = getattr(function, "func", function)
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "client"


def _unique(names: list[str], index: int) -> str:
    same = names[: index + 1].count(names[index])
    return names[index] if same == 1 else f"{names[index]}{same}"


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ContractError("a loop is running here: use await cloud.aio.explore(...)")
