"""Search for a schedule that breaks the promise.

The search first tries the failing schedule that an earlier search stored. Then its sources take turns:

- ``orders``: orders of calls (``dpor``), also of late answers and, later, of timers.
- ``singles``: schedules with one disturbance (``singles``), first those unlike all others.
- ``extend``: schedules that add one disturbance to an earlier one (``extend``).
- ``numbers``: other random numbers, if the code draws any, alone or with one disturbance.

A failing schedule is then shrunk, and stored for later searches.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.timers import monotonic
from ..clients import functions_of_all
from ..disturbances import SWITCHES
from ..schedule import Schedule
from ..trial import Plan, Trial
from .dpor import Branch, Interleavings
from .extend import Frontier
from .jobs import Jobs
from .player import Player
from .shrinking import smallest
from .singles import singles
from .store import Store, key_of
from .tally import SearchBudget

_HEAD_START = 20
"""Number of interleavings to run before anything else, because they explain a failure best."""
_FOR_ORDERS_ALONE = 0.25
"""Share of the remaining budget for interleavings, if only the order of calls is explored."""
_FOR_FIRST_SINGLES = 0.8
"""Maximum share of the budget for the first phase."""
_FIRST_SINGLES = 1.5
"""Weight of the likely single disturbances, relative to all other sources of the first phase."""
_EXTEND = (1.5, 4.0)
"""Weights of the schedules that extend others in the two phases, relative to one search for
interleavings.
"""
_BEFORE_EXTENDING = (25, 5)
"""Number of rounds of the other sources before them, so that a small budget has single disturbances."""
_EXTENDED_AHEAD = 4
"""Number of schedules that extend others, which are chosen together."""
_SPARE_FOR_SINGLES = 1.25
"""Factor for the turns of the remaining single disturbances, so that others can follow in the budget."""
_LEAST_SHARE, _MOST_SHARE = 0.3, 0.8
"""Limits of the share of single disturbances in the second phase."""


@dataclass
class Source:
    """A source of schedules: an iterator that runs one at each turn.

    The iterator yields None if it has nothing to run at the moment. Sources share a budget in
    rounds, in which each has ``weight`` turns; the first comes after ``head_start`` rounds of others.
    """

    trials: Iterator[Trial | None]
    weight: float = 1.0
    head_start: float = 0.0
    turns: int = 0
    is_over: bool = False

    @property
    def rounds(self) -> float:
        """The rounds so far, with the head start of the others; the source with the fewest is next."""
        return self.head_start + self.turns / self.weight

    def next(self) -> Trial | None:
        self.turns += 1
        try:
            return next(self.trials)
        except StopIteration:
            self.is_over = True
            return None


class Explorer:
    """Searches for a schedule that breaks the promise, within a budget."""

    def __init__(
        self,
        player: Player,
        jobs: Jobs,
        undisturbed: Trial,
        budget: SearchBudget,
        seed: int | str,
        cache: Any,
    ) -> None:
        self._player = player
        self._cache = cache
        """pytest's cache, for the schedule that failed last time; None if the search does not use it."""
        self._jobs = jobs
        self._undisturbed = undisturbed
        self._kinds = player.subject.kinds
        self._has_timers = "timers" in undisturbed.flags
        self._tally = player.tally
        self._tally.seed = seed
        self._budget = budget
        self._chance = random.Random(str(seed))
        self._frontier = Frontier(self._tally)
        self._frontier.learn(undisturbed)

    def search(self) -> Trial | None:
        """Return the smallest failing trial that was found; None if no schedule broke the
        promise.
        """
        began = monotonic()
        player = self._player
        try:
            subject = player.subject
            functions = [*functions_of_all(subject.programs), *subject.promises.checks]
            inputs = repr(subject.inputs) if subject.inputs else ""
            key = key_of(functions, subject.kinds, subject.disturbed, inputs)
            store = Store(self._cache, key)
            trial = self._play_stored(store) or self._search()
            if trial is None:
                return None
            trial = smallest(player, trial, self._undisturbed)
            if "stuck" not in trial.flags:
                store.save(trial.schedule)
            return trial
        finally:
            self._tally.seconds = monotonic() - began

    def _play_stored(self, store: Store) -> Trial | None:
        """Return the trial of the stored schedule if it still breaks the promise, and forget it
        if not.
        """
        schedule = store.load()
        if not schedule:
            return None
        self._tally.drawn += 1
        trial = self._player.play(Plan(schedule))
        if trial.broken is not None and len(trial.fired) == len(schedule):
            return trial
        store.save(Schedule())
        return None

    def _search(self) -> Trial | None:
        orders = self._orders()
        if self._kinds <= SWITCHES:
            for source in orders:
                budget = self._budget.part(self._tally.tried, _FOR_ORDERS_ALONE)
                trial = self._take_turns([source], budget)
                if trial is not None:
                    return trial
            if self._has_tried_all():
                return None
        first, others = singles(self._undisturbed)
        tally = self._tally
        tally.all_singles = len(first) + len(others)
        if tally.all_singles > self._budget.expected(tally.tried):
            # The budget is too small for all of them, so try them in random order.
            first, others = singles(self._undisturbed, self._chance)
        likely, extending = self._run_singles(first), self._run_extensions()
        beside = [*orders, Source(extending, _EXTEND[0], _BEFORE_EXTENDING[0])]
        if self._varies_numbers():
            beside.append(Source(self._run_numbers([*first, *others])))
        weight = _FIRST_SINGLES * sum(source.weight for source in beside)
        source = Source(likely, weight, _HEAD_START)
        budget = self._budget.part(tally.tried, _FOR_FIRST_SINGLES)
        trial = self._take_turns([source, *beside], budget, until=source)
        if trial is not None:
            return trial
        # All sources go on without a head start.
        beside = [
            Source(source.trials, source.weight)
            for source in beside
            if source.trials is not extending
        ]
        if self._has_timers and {"switch", "jump"} <= self._kinds:
            beside.append(self._interleavings(late="late" in self._kinds, moves_time=True))
        beside.append(Source(extending, _EXTEND[1], _BEFORE_EXTENDING[1]))
        remaining = itertools.chain(likely, self._run_singles(others))
        wanted = _SPARE_FOR_SINGLES * (tally.all_singles - tally.singles)
        share = wanted / max(1.0, self._budget.expected(tally.tried))
        share = min(_MOST_SHARE, max(_LEAST_SHARE, share))
        weight = share / (1 - share) * sum(source.weight for source in beside)
        return self._take_turns([Source(remaining, weight), *beside], self._budget)

    def _take_turns(
        self, sources: Sequence[Source], budget: SearchBudget, *, until: Source | None = None
    ) -> Trial | None:
        """Run schedules of several sources in turn; return the first trial that breaks the
        promise.
        """
        going = list(sources)
        while going and budget.remaining(self._tally.tried) > 0 and not self._has_tried_all():
            if until is not None and until.is_over:
                break
            source = min(going, key=lambda source: source.rounds)
            trial = source.next()
            if trial is not None and trial.broken is not None:
                return trial
            if source.is_over:
                going.remove(source)
        return None

    def _has_tried_all(self) -> bool:
        """Return whether the search ran all that ``kinds`` allows, which is only orders of calls."""
        return self._tally.is_complete and self._kinds <= SWITCHES

    # -- interleavings ---------------------------------------------------------------------------

    def _orders(self) -> list[Source]:
        """Return a search without late answers, and one with them that begins after a head start."""
        if "switch" not in self._kinds:
            return []
        can_differ = any(len(step.options) > 1 for step in self._undisturbed.steps)
        has_clients = self._kinds <= SWITCHES and len(self._undisturbed.strands) > 1
        if not can_differ and not has_clients:
            return []
        searches = [self._interleavings(late=False)]
        if "late" in self._kinds:
            searches.append(self._interleavings(late=True, head_start=_HEAD_START))
        return searches

    def _interleavings(
        self, *, late: bool, moves_time: bool = False, head_start: float = 0.0
    ) -> Source:
        self._tally.unfinished_order_searches += 1
        tree = Interleavings(Branch(late=late, moves_time=moves_time))
        return Source(self._run_interleavings(tree), head_start=head_start)

    def _run_interleavings(self, tree: Interleavings) -> Iterator[Trial | None]:
        tally, promises = self._tally, self._player.subject.promises
        had_read_order = promises.reads_order
        for branch in self._jobs.below(tree):
            trial = self._jobs.play(Plan(orders=branch))
            tree.learn(trial)
            if "redundant" in trial.flags:
                yield None
                continue
            self._has_timers = self._has_timers or "timers" in trial.flags
            tally.orders += 1
            yield trial
        tally.unfinished_order_searches -= 1
        # Each interleaving runs with the random numbers of the undisturbed trial.
        is_one_of_many = self._varies_numbers()
        is_exact = tree.is_exact and promises.reads_order == had_read_order
        tally.has_all_orders = is_exact and not tally.coverage.notes and not is_one_of_many
        late, moves_time = tree.root.late, tree.root.moves_time
        has_all_times = moves_time or not self._has_timers
        if tally.has_all_orders and (late or "late" not in self._kinds):
            tally.is_complete = has_all_times or "jump" not in self._kinds
            if has_all_times:
                tally.is_exhaustive = True
                if late or moves_time:
                    tally.orders = tree.trials

    # -- disturbances ----------------------------------------------------------------------------------

    def _run_singles(self, schedules: Iterable[Schedule]) -> Iterator[Trial]:
        plans = (Plan(schedule, notes=True) for schedule in schedules)
        for plan in self._jobs.through(plans):
            varied = replace(plan, schedule=self._varied(plan.schedule))
            trial = self._jobs.play(varied)
            if varied != plan and plan.schedule[0] not in trial.fired and trial.broken is None:
                # Other random numbers have led the code past the point of the disturbance.
                self._tally.drawn += 1
                trial = self._player.play(plan)
            self._tally.singles += 1
            self._frontier.learn(trial)
            yield trial

    def _run_extensions(self) -> Iterator[Trial | None]:
        """Run schedules that add a disturbance to an earlier one."""
        tally, outcomes = self._tally, self._player.outcomes
        while True:
            plans = self._extensions()
            if not plans and tally.singles >= tally.all_singles:
                return
            if not plans:
                yield None  # A further single disturbance may lead to a trial that can be extended.
            for plan in self._jobs.through(plans):
                if plan.schedule not in outcomes:
                    tally.extended += 1
                    trial = self._jobs.play(plan)
                    self._frontier.learn(trial)
                    yield trial

    def _extensions(self) -> list[Plan]:
        """Return the next schedules that extend trials, which several processes can run together."""
        schedules = iter(self._frontier.next, None)
        new = (schedule for schedule in schedules if schedule not in self._player.outcomes)
        return [Plan(schedule, notes=True) for schedule in itertools.islice(new, _EXTENDED_AHEAD)]

    def _run_numbers(self, schedules: Sequence[Schedule]) -> Iterator[Trial]:
        """Run the code with other random numbers, alone and with each of the schedules, in turn."""
        alone = Schedule()
        pairs = ((alone, schedule) for schedule in schedules or [alone])
        for schedule in itertools.cycle(itertools.chain(*pairs)):
            self._tally.drawn += 1
            yield self._jobs.play(Plan(self._varied(schedule)))

    def _varied(self, schedule: Schedule) -> Schedule:
        """Return a schedule with random numbers of its own, if the code draws any."""
        if not self._varies_numbers() or schedule.series:
            return schedule
        return schedule.with_series(self._tally.tried + 1)

    def _varies_numbers(self) -> bool:
        return "numbers" in self._kinds and self._tally.coverage.draws_numbers
