"""Search for a schedule that breaks the promise: stored failures first, then several searches that
take turns, through interleavings, schedules with one and with two events, and random ones.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.errors import ContractError
from ...core.fatal_errors import broken_promise, ends_the_test
from ...core.journal import recorder_of
from ...core.timeparse import monotonic
from ..promises import takes_argument
from ..run import Choice, Program, Run, Strategy
from ..runtime.loops import await_in_own_loop
from ..runtime.strands import Threads
from ..schedule import DELAY, DELAYS, SWITCHES, Event, Schedule
from ..simulation.scheduler import Simulation
from ..simulation.state import add_schedule
from .budget import Budget
from .dpor import Interleavings, Redundant
from .pairs import Pairs, delayed_again, likelihood, paused_again
from .pct import DEPTHS, Priorities
from .shrink import shrink
from .singles import Singles
from .stored import database, forget, key_of, saved
from .tally import MOST_EVENTS, Tally

if TYPE_CHECKING:
    from ..world import World

SHRINK_SECONDS = 5.0
"""Wall-clock seconds for shrinking a failing schedule, in addition to the budget."""
MOST_REPEATED = 100
"""Number of consecutive random schedules already tried, after which the search ends."""
REPLAYS = 5
"""Number of times a failing schedule is replayed before it is reported."""
_HEAD_START = 20
"""Number of interleavings to run before anything else, because they explain a failure best."""
_BEFORE_PAIRS = 25
"""Number of turns of every other search before the first schedules with two events."""
_FOR_FIRST_SINGLES = 0.8
"""Maximum share of the budget until other schedules with two events, and random ones, begin, too."""
_FOR_ORDERS_ALONE = 0.25
"""Share of the remaining budget for interleavings, if only the order of calls is explored."""


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
    _has_timers: bool = False

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
        recorder = recorder_of(world.cloud.journal)
        number = recorder.reserve()
        world.reset()
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
                recorder.forget_since(number)
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
            recorder.forget_since(number)
        if strategy is None:
            self._known[schedule] = Schedule(run.fired) if run.broken is not None else None
        self.tally.coverage.add(run)
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
        self._has_timers = undisturbed.has_timers
        searches = self._orders(undisturbed)
        for search in searches[1:]:
            search.used = _HEAD_START
        if kinds <= SWITCHES:
            for search in searches:
                found = self._take_turns([search], budget.part(tally.tried, _FOR_ORDERS_ALONE))
                if found is not None or tally.is_exhaustive:
                    return found
        tally.priority_runs.range = sum(len(step.options) > 1 for step in undisturbed.steps)
        singles = Singles(undisturbed)
        tally.all_singles = len(singles.first) + len(singles.others)
        if tally.all_singles > budget.expected(tally.tried):
            singles = Singles(undisturbed, chance)
        runs: list[Run] = []
        for extend, weight in ((delayed_again, 1.0), (paused_again, 0.5)):
            pairs = self._pairs_of(extend, runs, chance)
            searches.append(_Search(pairs, weight, weight * _BEFORE_PAIRS))
        first = _Search(self._singles(singles.first, runs), 1.5 * len(searches))
        first.used = first.weight * _HEAD_START
        part = budget.part(tally.tried, _FOR_FIRST_SINGLES)
        found = self._take_turns([first, *searches], part, until=first)
        if found is not None:
            return found
        if self._has_timers and {"switch", "jump"} <= kinds:
            searches.append(self._order(late="late" in kinds, moves_time=True))
        left = max(1.0, budget.expected(tally.tried))
        rest = itertools.chain(
            first.runs, self._singles(singles.others, runs), self._any_pairs(runs, chance)
        )
        drawn = self._drawn([undisturbed, *runs], chance)
        if tally.all_singles**2 / 2 < left:
            rest = itertools.chain(rest, drawn)
        else:
            searches.append(_Search(drawn))
        share = min(0.8, max(0.4, 1.25 * (tally.all_singles - tally.singles) / left))
        weight = share / (1 - share) * len(searches)
        for search in searches:
            search.used = 0
        return self._take_turns([_Search(rest, weight), *searches], budget)

    def _take_turns(
        self, searches: Sequence[_Search], budget: Budget, *, until: _Search | None = None
    ) -> Run | None:
        """Run schedules of several searches in turn, in proportion to their weights.

        Ends when a schedule breaks the promise, when the budget is used up, or when all searches,
        or the search ``until``, have ended.
        """
        tally = self.tally
        going = list(searches)
        while going and budget.is_left(tally.tried) and not (until is not None and until.is_over):
            search = min(going, key=lambda one: one.used / one.weight)
            run = search.next()
            if run is not None and run.broken is not None:
                return run
            if search.is_over:
                going.remove(search)
                if tally.is_exhaustive and self.choice.kinds <= SWITCHES:
                    return None
        return None

    def _orders(self, undisturbed: Run) -> list[_Search]:
        """Return searches through interleavings; none if there is only one interleaving."""
        kinds = self.choice.kinds
        several = any(len(step.options) > 1 for step in undisturbed.steps)
        if "switch" not in kinds:
            return []
        if not several and not (kinds <= SWITCHES and len(undisturbed.strands) > 1):
            return []
        return [self._order(late=late) for late in (False, True) if not late or "late" in kinds]

    def _order(self, *, late: bool, moves_time: bool = False) -> _Search:
        self.tally.unfinished_order_searches += 1
        return _Search(self._interleavings(Interleavings(late=late, moves_time=moves_time)))

    def _interleavings(self, strategy: Interleavings) -> Iterator[Run | None]:
        """Run each order of conflicting calls once."""
        tally, kinds = self.tally, self.choice.kinds
        late = "late" in strategy.places
        while strategy.next():
            try:
                run = self.play(Schedule(), strategy=strategy)
            except _Repeated as repeated:
                strategy.learn(repeated.run, was_redundant=True)
                yield None
                continue
            strategy.learn(run, was_redundant=False)
            self._has_timers = self._has_timers or run.has_timers
            tally.orders += 1
            yield run
        tally.unfinished_order_searches -= 1
        tally.has_all_orders = strategy.is_exact and not tally.coverage.notes
        is_whole = strategy.moves_time or not (self._has_timers and "jump" in kinds)
        if tally.has_all_orders and is_whole and (late or "late" not in kinds):
            tally.is_exhaustive = True
            if late or strategy.moves_time:
                tally.orders = strategy.runs

    def _singles(self, schedules: Iterable[Schedule], runs: list[Run]) -> Iterator[Run]:
        """Run schedules with one event, and append their runs to a list."""
        for schedule in schedules:
            self.tally.singles += 1
            run = self.play(schedule, notes=True)
            run.overlaps = _overlaps(run)
            run.lines.clear()  # only the points are needed, to build schedules with two events
            runs.append(run)
            yield run

    def _pairs_of(
        self, extend: Callable[[Run], list[Schedule]], runs: list[Run], chance: random.Random
    ) -> Iterator[Run | None]:
        """Run schedules that extend those of the runs in a growing list, likely ones first."""
        tally, seen = self.tally, 0
        ready: list[Schedule] = []
        while ready or seen < len(runs) or tally.singles < tally.all_singles:
            added = [schedule for run in runs[seen:] for schedule in extend(run)]
            seen = len(runs)
            if added:
                ready += added
                chance.shuffle(ready)
                ready.sort(key=likelihood)
            if ready:
                yield from self._pairs([ready.pop()])
            else:
                yield None

    def _any_pairs(self, runs: list[Run], chance: random.Random) -> Iterator[Run]:
        """Run all schedules with two events, in random order."""
        tally = self.tally
        pairs = Pairs(runs)
        tally.all_pairs = len(pairs)
        yield from self._pairs(pairs.in_any_order(chance))
        tally.all_pairs = tally.pairs

    def _pairs(self, schedules: Iterable[Schedule]) -> Iterator[Run]:
        for schedule in schedules:
            if schedule not in self._known:
                self.tally.pairs += 1
                yield self.play(schedule)

    def _drawn(self, runs: Iterable[Run], chance: random.Random) -> Iterator[Run]:
        """Run random schedules of several events, and runs with random priorities."""
        tally = self.tally
        pool = sorted({e for run in runs for point in run.points for e in point.events()})
        others = [event for event in pool if event.kind not in SWITCHES]
        orders = self.choice.kinds & SWITCHES and any(e.kind in SWITCHES for e in pool)
        kept: list[Schedule] = []
        reached: set[object] = set()
        repeated = turn = 0
        while pool and repeated < MOST_REPEATED:
            turn += 1
            strategy = None
            schedule = Schedule()
            if orders and (not others or turn % 2):
                depth = DEPTHS[turn // 2 % len(DEPTHS)]
                late = "late" in self.choice.kinds and bool(turn // 2 % 2)
                strategy = Priorities(chance, depth, tally.priority_runs.range, late=late)
                if others and (turn % 4 == 1 or tally.is_exhaustive):
                    schedule = Schedule(chance.sample(others, 1))
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
                chose_all = "late" in strategy.places or "late" not in self.choice.kinds
                tally.priority_runs.add(strategy, is_counted=chose_all and not schedule)
            seen = _pairs_reached(run)
            if not seen <= reached:
                reached |= seen
                kept.append(Schedule(run.fired))
            yield run

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
        smallest = shrink(first, breaks, lambda: monotonic() < until, self.choice.kinds)
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


@dataclass
class _Search:
    """A part of the search: an iterator that runs a schedule at each step.

    The iterator yields None if it has nothing to run at the moment. ``weight`` determines the share
    of the steps that the search gets when it takes turns with others.
    """

    runs: Iterator[Run | None]
    weight: float = 1.0
    used: float = 0.0
    is_over: bool = False

    def next(self) -> Run | None:
        """Run the next schedule and return its run, if there is one."""
        self.used += 1
        try:
            return next(self.runs)
        except StopIteration:
            self.is_over = True
            return None


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
    states = [
        (line.process, line.call.route, line.call.status, line.words)  # type: ignore[union-attr]
        for line in calls
    ]
    return set(itertools.pairwise(states))
