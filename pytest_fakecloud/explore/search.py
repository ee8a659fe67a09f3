"""Which schedules are tried: what failed last time, all of one event, of two, then drawn ones."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError, shown
from ..core.journal import recorder_of
from ..core.timeparse import Duration, duration_us, monotonic
from ..failures import broken_promise
from .schedule import TRIED, Event, Schedule
from .simulation import Choice, Program, Run, Simulation
from .sleeping import await_in_own_loop

if TYPE_CHECKING:
    from .world import World

__all__ = ["Budget", "Explorer", "Tally", "hypothesis"]

MOST_EVENTS = 6
"""Events of a drawn schedule."""
SHRINK_SECONDS = 5.0
"""Real seconds that making a failing schedule smaller may take beyond the budget."""
MOST_REPEATED = 100
"""Schedules in a row that were drawn before, after which there are taken to be no more."""
MOST_LISTED = 100_000
"""Pairs up to which all are put into an order; of more, some are drawn."""
_FOR_PAIRS = 0.75
"""The share of what is left of the budget that goes to pairs, where they do not all fit."""


def hypothesis() -> Any:
    """The package that draws and shrinks; ``ContractError`` in one line where it is missing."""
    try:
        import hypothesis
    except ModuleNotFoundError as error:
        raise ContractError(
            "explore() needs Hypothesis: pip install 'pytest-fakecloud[explore]'"
        ) from error
    return hypothesis


class Budget:
    """How many schedules may be tried: a number of runs, or a span of real time."""

    def __init__(self, given: int | Duration) -> None:
        self.runs: int | None = None
        self._until: float | None = None
        if isinstance(given, bool | float):
            raise _no_budget(given)
        if isinstance(given, int):
            if given < 1:
                raise _no_budget(given)
            self.runs = given
        else:
            self._until = monotonic() + duration_us(given) / 1e6

    def left(self, used: int) -> bool:
        """Whether one more may be tried."""
        if self.runs is not None:
            return used < self.runs
        assert self._until is not None
        return monotonic() < self._until

    def part(self, used: int, share: float) -> Budget:
        """A share of what is left."""
        made = Budget.__new__(Budget)
        made.runs = made._until = None
        if self.runs is not None:
            made.runs = used + round((self.runs - used) * share)
        else:
            assert self._until is not None
            now = monotonic()
            made._until = now + max(0.0, self._until - now) * share
        return made


def _no_budget(given: object) -> ContractError:
    return ContractError(
        f"budget={shown(given)} is not a budget: give a number of runs (500), or a span such as '10s'"
    )


@dataclass
class Tally:
    """How many schedules were tried, of how many there are."""

    singles: int = 0
    all_singles: int = 0
    pairs: int = 0
    all_pairs: int | None = None
    drawn: int = 0
    seconds: float = 0.0
    seed: int | str = 0
    calls: int = 0

    @property
    def tried(self) -> int:
        """All runs but the undisturbed one."""
        return self.singles + self.pairs + self.drawn

    def __str__(self) -> str:
        parts = [_of(self.singles, self.all_singles, "of one event")]
        if self.pairs:
            parts.append(_of(self.pairs, self.all_pairs, "of two"))
        if self.drawn:
            parts.append(f"{self.drawn:,} drawn, of up to {MOST_EVENTS}")
        return (
            f"{self.tried:,} schedule{'s' * (self.tried != 1)} in {self.seconds:.1f} s "
            f"({', '.join(parts)}; seed {self.seed!r})"
        )


def _of(done: int, there_are: int | None, what: str) -> str:
    if done == there_are:
        return f"all {done:,} {what}"
    return f"{done:,} {what}" if there_are is None else f"{done:,} of {there_are:,} {what}"


@dataclass
class Explorer:
    """Plays schedules, and looks for one that breaks the promise."""

    world: World
    programs: Sequence[Program]
    check: Callable[..., object] | None
    setup: Callable[[], object] | None
    choice: Choice
    tally: Tally = field(default_factory=Tally)
    _known: dict[Schedule, bool] = field(default_factory=dict)

    # -- one schedule ----------------------------------------------------------------------------

    def play(self, schedule: Schedule, *, keep: bool = False) -> Run:
        """Run everything under a schedule, from the baseline, and look at the promise."""
        world = self.world
        number = recorder_of(world.cloud.journal).reserve()
        world.reset()
        if self.setup is not None:
            self._call(self.setup)
        simulation = Simulation(world, self.programs, schedule, self.choice)
        run = simulation.play()
        if run.broken is None and self.check is not None:
            try:
                self._call(self.check, simulation.history)
            except BaseException as error:
                run.broken = broken_promise(error)
                if run.broken is None:
                    error.add_note(f"raised by check=, after the schedule {str(schedule)!r}")
                    raise
        if not keep:
            world.forget(number)
        self._known[schedule] = run.broken is not None
        return run

    def _call(self, function: Callable[..., object], *given: object) -> None:
        result = function(*given) if given and _takes_argument(function) else function()
        if inspect.iscoroutine(result):
            coroutine = result

            async def awaited() -> object:
                return await coroutine

            await_in_own_loop(self.world, awaited)

    # -- many ------------------------------------------------------------------------------------

    def search(self, budget: Budget, seed: int | str) -> Run | None:
        """The run of a smallest schedule that breaks the promise, or None.

        Raises what the undisturbed run raises.
        """
        __tracebackhide__ = True
        tally = self.tally
        began = monotonic()
        tally.seed = seed
        try:
            undisturbed = self.play(Schedule())
            if undisturbed.broken is not None:
                # What pytest.fail() raises stays what it is.
                cause = undisturbed.broken.__cause__
                raise cause if cause and broken_promise(cause) else undisturbed.broken
            for error in undisturbed.errors.values():
                raise error
            if not undisturbed.calls:
                raise ContractError(
                    "the code made no call to any fake, so there is nothing to explore"
                )
            return self._search(undisturbed, budget, random.Random(str(seed)))
        finally:
            tally.seconds = monotonic() - began

    def _search(self, undisturbed: Run, budget: Budget, chance: random.Random) -> Run | None:
        tally = self.tally
        key = self._key()
        saved = _saved(key)
        for text in saved:
            run = self._again(text)
            if run is not None and run.broken is not None:
                return run
            _forget(key, text)
        found = self._singles(undisturbed, budget, chance)
        if isinstance(found, Run):
            return self._kept(key, found)
        pairs = _Pairs(found)
        tally.all_pairs = len(pairs)
        part = budget
        if not (budget.runs is not None and tally.tried + len(pairs) <= budget.runs):
            part = budget.part(tally.tried, _FOR_PAIRS)
        for schedule in pairs.in_any_order(chance):
            if not part.left(tally.tried):
                break
            tally.pairs += 1
            run = self.play(schedule)
            if run.broken is not None:
                return self._kept(key, run)
        drawn = self._drawn([undisturbed, *found], budget, chance)
        return None if drawn is None else self._kept(key, drawn)

    def _again(self, text: str) -> Run | None:
        try:
            schedule = Schedule.parse(text)
        except ContractError:
            return None
        self.tally.drawn += 1
        return self.play(schedule)

    def _singles(self, undisturbed: Run, budget: Budget, chance: random.Random) -> Run | list[Run]:
        singles = [Schedule([each]) for point in undisturbed.points for each in point.events()]
        self.tally.all_singles = len(singles)
        if budget.runs is not None and len(singles) > budget.runs:
            # Of all kinds some, where there is no room for all of any.
            chance.shuffle(singles)
        else:
            singles.sort(key=lambda one: TRIED.index(one[0].kind))
        found = []
        for schedule in singles:
            if not budget.left(self.tally.tried):
                break
            self.tally.singles += 1
            run = self.play(schedule)
            if run.broken is not None:
                return run
            found.append(run)
        return found

    def _drawn(self, runs: Iterable[Run], budget: Budget, chance: random.Random) -> Run | None:
        """Schedules of several events, drawn and made smaller by Hypothesis."""
        tally = self.tally
        pool = sorted({e for run in runs for point in run.points for e in point.events()})
        if not pool or not budget.left(tally.tried):
            return None
        package = hypothesis()
        strategies = package.strategies
        known = self._known
        failing: list[float] = []
        repeated = 0

        def breaks(events: list[Event]) -> bool:
            nonlocal repeated
            schedule = Schedule(sorted(events))
            repeated += 1
            if repeated > MOST_REPEATED and not failing:
                raise _Spent
            if schedule not in known:
                repeated = 0
                if failing and monotonic() - failing[0] > SHRINK_SECONDS:
                    return False
                if not failing and not budget.left(tally.tried):
                    raise _Spent
                tally.drawn += 1
                self.play(schedule)
            if known[schedule] and not failing:
                failing.append(monotonic())
            return known[schedule]

        # The budget ends it, since what is drawn twice is not run twice.
        left = 1_000_000 if budget.runs is None else 20 * (budget.runs - tally.tried)
        settings = package.settings(
            max_examples=left, deadline=None, database=None, verbosity=package.Verbosity.quiet,
            phases=(package.Phase.generate, package.Phase.shrink),
        )  # fmt: skip
        events = strategies.sampled_from(pool)
        smaller = strategies.lists(events, min_size=1, max_size=MOST_EVENTS, unique=True)
        least = min(3, len(pool))
        drawn = strategies.lists(events, min_size=least, max_size=MOST_EVENTS, unique=True)
        with contextlib.suppress(_Spent, package.errors.NoSuchExample):
            smallest = package.find(
                drawn | smaller, breaks, settings=settings, random=random.Random(chance.random())
            )
            return self._fewest(self.play(Schedule(sorted(smallest))))
        return None

    def _fewest(self, run: Run) -> Run:
        """The run without the events that never found their point, if it breaks as well."""
        fired = Schedule(run.fired)
        if len(fired) < len(run.schedule):
            again = self.play(fired)
            if again.broken is not None:
                return again
        return run

    # -- what was found before -------------------------------------------------------------------

    def _key(self) -> bytes:
        functions = [program.function for program in self.programs]
        names = [
            f"{getattr(f, '__module__', '')}.{getattr(f, '__qualname__', type(f).__name__)}"
            for f in (*functions, self.check)
            if f is not None
        ]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
        return f"pytest_fakecloud.explore.{digest}".encode()

    def _kept(self, key: bytes, run: Run) -> Run:
        database = _database()
        if database is not None:
            database.save(key, str(run.schedule).encode())
        return run


class _Spent(BaseException):
    """The budget is spent; ends Hypothesis without counting as a failure."""


class _Pairs:
    """The schedules with one event more than those of some runs, at the last event's point or later.

    Counted and drawn without being made, since of a hundred calls there are a million.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._later: list[tuple[Run, int, list[Event]]] = []
        self._ends: list[int] = []
        total = 0
        for run in runs:
            if not run.fired:
                continue
            after = run.fired[-1]
            places = [(point.process, point.number) for point in run.points]
            place = (after.process, after.point)
            begins = places.index(place) if place in places else 0
            here = [event for event in run.points[begins].events() if _may_follow(event, after)]
            total += len(here) + sum(len(point.choices) for point in run.points[begins + 1 :])
            self._later.append((run, begins, here))
            self._ends.append(total)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Schedule:
        which = bisect_right(self._ends, index)
        run, begins, here = self._later[which]
        left = index - (self._ends[which - 1] if which else 0)
        if left < len(here):
            return run.schedule + here[left]
        left -= len(here)
        for point in run.points[begins + 1 :]:
            if left < len(point.choices):
                return run.schedule + point.events()[left]
            left -= len(point.choices)
        raise IndexError(index)

    def in_any_order(self, chance: random.Random) -> Iterator[Schedule]:
        """Each once, in random order."""
        if len(self) <= MOST_LISTED:
            order = list(range(len(self)))
            chance.shuffle(order)
            yield from map(self.__getitem__, order)
            return
        drawn: set[int] = set()
        while len(drawn) < len(self):
            index = chance.randrange(len(self))
            if index not in drawn:
                drawn.add(index)
                yield self[index]


def _may_follow(event: Event, after: Event) -> bool:
    """Whether an event of the same point comes after another, and can happen beside it."""
    return event.order > after.order and not (event.ends_call and after.ends_call)


def _takes_argument(function: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        for p in parameters
    )


def _database() -> Any:
    return hypothesis().settings().database


def _saved(key: bytes) -> list[str]:
    database = _database()
    if database is None:
        return []
    texts = sorted(database.fetch(key), key=lambda text: (len(text), text))
    return [text.decode("utf-8", "replace") for text in texts]


def _forget(key: bytes, text: str) -> None:
    database = _database()
    if database is not None:
        database.delete(key, text.encode())
