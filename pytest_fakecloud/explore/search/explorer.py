"""Search for a schedule that breaks the promise: stored failures first, then interleavings,
schedules with one and with two events, and random ones.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.errors import ContractError
from ...core.journal import recorder_of
from ...core.problems import broken_promise, ends_the_test
from ...core.timeparse import monotonic
from ..footprint import READS_CLOCK
from ..promises import takes_argument
from ..run import Choice, Program, Run, Strategy
from ..runtime.loops import await_in_own_loop
from ..runtime.strands import Threads
from ..schedule import DELAY, DELAYS, SWITCHES, TRIED, Event, Schedule
from ..simulation.scheduler import Simulation
from ..simulation.state import add_schedule
from .dpor import Interleavings, Redundant
from .pairs import Pairs
from .pct import DEPTHS, Priorities
from .shrink import shrink
from .stored import database, forget, key_of, saved
from .tally import MOST_EVENTS, Budget, Tally

if TYPE_CHECKING:
    from ..world import World

SHRINK_SECONDS = 5.0
"""Wall-clock seconds for shrinking a failing schedule, in addition to the budget."""
MOST_REPEATED = 100
"""Number of consecutive random schedules already tried, after which the search ends."""
REPLAYS = 5
"""Number of times a failing schedule is replayed before it is reported."""
_FOR_PAIRS = 0.5
"""Share of the remaining budget for schedules with two events, if they do not all fit."""
_FOR_PAUSES = 0.2
"""Share of the remaining budget for schedules with two pauses, which find code that truncates
times.
"""
_FOR_DELAYS = 0.2
"""Share of the remaining budget for schedules that delay two strands which then overlap."""
_FOR_FIRST_ORDERS = 0.1
"""Share of the remaining budget for interleavings that are run before single events are tried."""
_FOR_ORDERS = 0.25
"""Share of the remaining budget for further interleavings."""


@dataclass
class Explorer:
    """Runs schedules and searches for one that breaks the promise."""

    world: World
    programs: Sequence[Program]
    check: Callable[..., object] | None
    setup: Callable[[], object] | None
    choice: Choice
    threads: Threads
    tally: Tally = field(default_factory=Tally)
    _known: dict[Schedule, Schedule | None] = field(default_factory=dict)

    @functools.cached_property
    def _check_takes_history(self) -> bool:
        return self.check is not None and takes_argument(self.check)

    # -- one schedule ----------------------------------------------------------------------------

    def play(
        self,
        schedule: Schedule,
        *,
        strategy: Strategy | None = None,
        keep: bool = False,
        stacks: bool = False,
        notes: bool = False,
    ) -> Run:
        """Reset the fakes, run the programs under a schedule, and check the promise.

        ``notes`` makes the run record the points at which events are possible, and ``stacks`` the
        lines of the application that make each call.
        """
        world = self.world
        number = recorder_of(world.cloud.journal).reserve()
        world.reset()
        world.record(stacks or (strategy is not None and strategy.records))
        if self.setup is not None:
            self._call(self.setup)
        simulation = Simulation(
            world,
            self.programs,
            schedule,
            self.choice,
            self.threads,
            strategy,
            stacks=stacks,
            notes=notes,
        )
        try:
            run = simulation.play()
        except Redundant:
            run = simulation.run
            if not keep:
                world.forget(number)
            raise _Repeated(run) from None
        if run.broken is None and self.check is not None:
            try:
                if self._call(self.check, simulation.history) is False:
                    raise ContractError(
                        "check returned False, which explore() ignores: let it assert "
                        "the promise, such as 'assert total == 2'"
                    )
            except BaseException as error:
                outcome = ends_the_test(error)
                if outcome is error:
                    raise
                if outcome is not None:
                    raise outcome from error
                run.broken = broken_promise(error)
                if run.broken is None:
                    add_schedule(error, "after", schedule)
                    raise
        if not keep:
            world.forget(number)
        if strategy is None:
            self._known[schedule] = Schedule(run.fired) if run.broken is not None else None
        self.tally.note(run)
        return run

    def _call(self, function: Callable[..., object], *given: object) -> object:
        result = function(*given) if given and self._check_takes_history else function()
        if inspect.iscoroutine(result):
            coroutine = result

            async def awaited() -> object:
                return await coroutine

            return await_in_own_loop(self.world, awaited)
        return result

    # -- many ------------------------------------------------------------------------------------

    def search(self, undisturbed: Run, budget: Budget, seed: int | str) -> Run | None:
        """Search, and return a run of the smallest failing schedule found, or None."""
        began = monotonic()
        self.tally.seed = seed
        try:
            chance = random.Random(str(seed))
            key = key_of(self.programs, self.check, self.choice)
            found = self._stored(key) or self._search(undisturbed, budget, chance)
            if found is None:
                return None
            found = self._smallest(found)
            examples = database()
            if examples is not None and not found.is_stuck:
                examples.save(key, str(found.schedule).encode())
            return found
        finally:
            self.tally.seconds = monotonic() - began

    def _search(self, undisturbed: Run, budget: Budget, chance: random.Random) -> Run | None:
        tally, kinds = self.tally, self.choice.kinds
        only_orders = kinds <= SWITCHES
        orders = [
            _Orders(late) for late in (False, True) if {"switch", "late"} <= kinds or not late
        ]
        orders = orders if "switch" in kinds else []
        for each in orders:
            share = _FOR_ORDERS if only_orders else _FOR_FIRST_ORDERS
            found = self._interleavings(each, budget.part(tally.tried, share))
            if found is not None:
                return found
        if only_orders and tally.is_exhaustive:
            return None
        singles = self._singles(undisturbed, budget, chance)
        if isinstance(singles, Run):
            return singles
        if not only_orders:
            found = self._pairs(singles, budget, chance)
            if found is not None:
                return found
        if tally.has_timers and {"switch", "jump"} <= kinds:
            orders.append(_Orders("late" in kinds, moves_time=True))
        tally.is_cut = False
        for number, each in enumerate(orders, 1):
            share = 1 / (len(orders) + 1 - number) if only_orders else _FOR_ORDERS
            found = self._interleavings(each, budget.part(tally.tried, share))
            if found is not None:
                return found
        if only_orders:
            found = None if tally.is_exhaustive else self._pairs(singles, budget, chance)
            if found is not None or tally.is_exhaustive:
                return found
        return self._drawn([undisturbed, *singles], budget, chance)

    def _pairs(self, singles: list[Run], budget: Budget, chance: random.Random) -> Run | None:
        """Run schedules with two events: all of them, or a share of the budget."""
        tally = self.tally
        pairs = Pairs(singles)
        tally.all_pairs = len(pairs)
        pauses = pairs.pauses() if tally.reads_clock else ()
        for first, share in ((pairs.delays(), _FOR_DELAYS), (pauses, _FOR_PAUSES)):
            part = budget.part(tally.tried, share)
            for schedule in first:
                if not part.left(tally.tried):
                    break
                tally.pairs += 1
                run = self.play(schedule)
                if run.broken is not None:
                    return run
        part = budget
        if not (budget.runs is not None and tally.tried + len(pairs) <= budget.runs):
            part = budget.part(tally.tried, _FOR_PAIRS)
        for schedule in pairs.in_any_order(chance):
            if not part.left(tally.tried):
                break
            if schedule in self._known:
                continue
            tally.pairs += 1
            run = self.play(schedule)
            if run.broken is not None:
                return run
        else:
            tally.all_pairs = tally.pairs
        return None

    def _interleavings(self, orders: _Orders, part: Budget) -> Run | None:
        """Run each order of conflicting calls once, until a part of the budget is used up."""
        tally, strategy = self.tally, orders.strategy
        kinds = self.choice.kinds
        while orders.has_next():
            if not part.left(tally.tried):
                tally.is_cut = True
                return None
            orders.is_ready = False
            try:
                run = self.play(Schedule(), strategy=strategy)
            except _Repeated as repeated:
                strategy.learn(repeated.run, was_redundant=True)
                continue
            strategy.learn(run, was_redundant=False)
            tally.has_timers = tally.has_timers or run.has_timers
            tally.reads_clock = tally.reads_clock or any(
                READS_CLOCK in step.footprint.touches for step in run.steps
            )
            orders.several = orders.several or any(len(step.options) > 1 for step in run.steps)
            if not orders.several and not (kinds <= SWITCHES and len(run.strands) > 1):
                orders.is_over = True
                return None
            tally.orders += 1
            if run.broken is not None:
                return run
        if not orders.is_over:
            orders.is_over = True
            tally.all_orders = strategy.is_exact and not tally.notes
            is_whole = strategy.moves_time or not (tally.has_timers and "jump" in kinds)
            if tally.all_orders and is_whole and (orders.late or "late" not in kinds):
                tally.is_exhaustive = True
                if orders.late or strategy.moves_time:
                    tally.orders = strategy.runs
        return None

    def _singles(self, undisturbed: Run, budget: Budget, chance: random.Random) -> Run | list[Run]:
        singles = [Schedule([each]) for point in undisturbed.points for each in point.events()]
        singles = list(dict.fromkeys(singles))
        self.tally.all_singles = len(singles)
        if len(singles) > budget.expected(self.tally.tried):
            # The budget is too small for all events, so try a random selection of them.
            chance.shuffle(singles)
        else:
            singles.sort(key=lambda one: TRIED.index(one[0].kind))
        found = []
        for schedule in singles:
            if not budget.left(self.tally.tried):
                break
            self.tally.singles += 1
            run = self.play(schedule, notes=True)
            if run.broken is not None:
                return run
            run.overlaps = _overlaps(run)
            run.lines.clear()  # only the points are needed, to build schedules with two events
            found.append(run)
        return found

    def _drawn(self, runs: Iterable[Run], budget: Budget, chance: random.Random) -> Run | None:
        """Run random schedules of several events, and runs with random priorities."""
        tally = self.tally
        runs = list(runs)
        pool = sorted({e for run in runs for point in run.points for e in point.events()})
        others = [event for event in pool if event.kind not in SWITCHES]
        orders = self.choice.kinds & SWITCHES and any(e.kind in SWITCHES for e in pool)
        kept: list[Schedule] = []
        reached: set[object] = set()
        repeated = turn = 0
        while pool and budget.left(tally.tried) and repeated < MOST_REPEATED:
            turn += 1
            strategy = None
            schedule = Schedule()
            if orders and (not others or turn % 2):
                depth = DEPTHS[turn // 2 % len(DEPTHS)]
                late = "late" in self.choice.kinds and bool(turn // 2 % 2)
                strategy = Priorities(chance, depth, tally.decisions, late=late)
                if others and turn % 4 == 1:
                    schedule = Schedule(chance.sample(others, min(len(others), 1)))
                elif not tally.is_exhaustive:
                    tally.prioritised[depth] = tally.prioritised.get(depth, 0) + 1
            elif kept and chance.random() < 0.5:
                schedule = _mutated(chance.choice(kept), pool, chance)
            else:
                many = chance.randint(min(2, len(pool)), min(MOST_EVENTS, len(pool)))
                schedule = Schedule(sorted(chance.sample(pool, many)))
            if strategy is None:
                if schedule in self._known:
                    repeated += 1
                    continue
                repeated = 0
            tally.drawn += 1
            run = self.play(schedule, strategy=strategy)
            if strategy is not None:
                tally.decisions = max(tally.decisions, strategy.decisions)
                tally.strands = max(tally.strands, strategy.strands)
            if run.broken is not None:
                return run
            seen = _pairs_reached(run)
            if not seen <= reached:
                reached |= seen
                kept.append(Schedule(run.fired))
        return None

    # -- a failure -------------------------------------------------------------------------------

    def _smallest(self, run: Run) -> Run:
        """Shrink a failing run's schedule; return the run of the smallest one found."""
        if run.is_stuck:
            run.schedule = Schedule(run.fired)
            return run
        until = monotonic() + SHRINK_SECONDS

        def breaks(schedule: Schedule) -> Schedule | None:
            if schedule not in self._known:
                self.play(schedule)
            return self._known[schedule]

        first = Schedule(run.fired)
        if breaks(first) is None:
            run.schedule = first
            return run
        smallest = shrink(first, breaks, lambda: monotonic() < until)
        again = self.play(smallest)
        if again.broken is None:
            again = run
            again.schedule = first
        return again

    def confirm(self, run: Run) -> tuple[Run | None, int, int]:
        """Replay a failing schedule; return the last run that failed, the number of failures and
        the number of replays.
        """
        # Replay a stuck run only once, because each replay takes seconds and leaves threads behind.
        replays = 1 if run.is_stuck else REPLAYS
        found, failed = None, 0
        for number in range(replays):
            # The journal keeps only the last replay.
            is_last = number == replays - 1
            again = self.play(run.schedule, keep=is_last, stacks=is_last)
            if again.broken is not None:
                found, failed = again, failed + 1
        return found, failed, replays

    def undisturbed(self, run: Run) -> Run | None:
        """Run without events, for comparison with a failing run. Return None if that run is stuck."""
        if run.is_stuck or not run.fired:
            return None
        return self.play(Schedule(), stacks=True)

    # -- stored failures -------------------------------------------------------------------------

    def _stored(self, key: bytes) -> Run | None:
        for text in saved(key):
            try:
                schedule = Schedule.parse(text)
            except ContractError:
                schedule = Schedule()
            if schedule and all(event.kind in self.choice.kinds for event in schedule):
                self.tally.drawn += 1
                run = self.play(schedule)
                if run.broken is not None and len(run.fired) == len(schedule):
                    return run
            forget(key, text)
        return None


class _Orders:
    """A search through interleavings that can be interrupted and continued.

    With ``late``, answers may also reach a client later than they were sent; with ``moves_time``,
    timers may fire between any two calls.
    """

    def __init__(self, late: bool, *, moves_time: bool = False) -> None:
        self.late = late
        self.strategy = Interleavings(late=late, moves_time=moves_time)
        self.several = moves_time
        self.is_ready = False
        self.is_over = False

    def has_next(self) -> bool:
        """Prepare the next interleaving, unless one is prepared; return False if there is none."""
        self.is_ready = self.is_ready or (not self.is_over and self.strategy.next())
        return self.is_ready


class _Repeated(Exception):
    """Raised when a strategy ends a run because it would repeat an earlier one."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


def _mutated(schedule: Schedule, pool: Sequence[Event], chance: random.Random) -> Schedule:
    """Return a schedule with one event added, removed or replaced."""
    events = list(schedule)
    if events and chance.random() < 0.5:
        events.pop(chance.randrange(len(events)))
    if len(events) < MOST_EVENTS:
        events.append(chance.choice(pool))
    return Schedule(events)


def _overlaps(run: Run) -> bool:
    """Return whether another strand woke up and made a call while the run's event delayed a strand."""
    if not run.fired or run.fired[-1].kind not in DELAYS:
        return False
    event = run.fired[-1]
    own = (line.at_us for line in run.lines if line.event and line.process == event.process)
    began = next(own, run.start_us)
    ended = began + int(event.detail or DELAY) * 1_000_000
    return any(
        line.call is not None and line.process != event.process and began < line.at_us < ended
        for line in run.lines
    )


def _pairs_reached(run: Run) -> set[object]:
    """Return each pair of consecutive calls with their outcomes; a new pair means that a run
    reached a new state.
    """
    calls = [line for line in run.lines if line.call is not None]
    told = [
        (line.process, line.call.route, line.call.status, line.words)  # type: ignore[union-attr]
        for line in calls
    ]
    return set(itertools.pairwise(told))
