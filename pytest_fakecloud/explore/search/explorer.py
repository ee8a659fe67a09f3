"""Search for a schedule that breaks the promise.

The search tries, in this order:

1. The failing schedule that an earlier search stored.
2. If only the order of calls is explored: interleavings alone, for a part of the budget.
3. First phase: interleavings and schedules with one disturbance take turns, and soon schedules
   with two disturbances that the first ones make likely, until each likely single disturbance has
   been tried.
4. Second phase: the other schedules with one disturbance, then all with two disturbances, take
   turns with interleavings (also of timers), schedules that extend trials in new states, and random
   schedules.

A failing schedule is then shrunk, and stored for later searches.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.timers import monotonic
from ..inputs import functions_of
from ..schedule import SWITCHES, Schedule
from ..trial import Trial
from .ahead import Ahead, Job
from .candidates import Pairs, delayed_again, likelihood, paused_again, singles
from .dpor import Branch, Interleavings
from .guided import Frontier
from .player import Player
from .random_trials import RandomTrials
from .shrinking import smallest
from .store import Store, key_of
from .tally import SearchBudget

_HEAD_START = 20
"""Number of interleavings to run before anything else, because they explain a failure best."""
_BEFORE_PAIRS = 25
"""Number of rounds of the other searches before the first schedules with two disturbances."""
_FOR_ORDERS_ALONE = 0.25
"""Share of the remaining budget for interleavings, if only the order of calls is explored."""
_FOR_FIRST_SINGLES = 0.8
"""Maximum share of the budget for the first phase."""
_LIKELY_PAIRS = ((delayed_again, 1.0), (paused_again, 0.5))
"""Functions that list likely schedules with two disturbances, and their weights; two pauses are
rarer.
"""
_GUIDED = 3.0
"""Weight of the schedules that extend trials, relative to one search for interleavings."""
_BEFORE_GUIDED = 5
"""Number of rounds of the second phase before them, so that a small budget has all single
disturbances.
"""
_GUIDED_AHEAD = 4
"""Number of schedules that extend trials, which are chosen together."""
_FIRST_SINGLES = 1.5
"""Weight of the likely single disturbances, relative to all other searches of the first phase."""
_SPARE_FOR_SINGLES = 1.25
"""Factor for the turns of the remaining single disturbances, so that pairs can follow in the
budget.
"""
_LEAST_SHARE, _MOST_SHARE = 0.4, 0.8
"""Limits of the share of single disturbances and pairs in the second phase."""


@dataclass
class PartialSearch:
    """A part of the search: an iterator that runs a schedule at each turn.

    The iterator yields None if it has nothing to run at the moment. Searches share a budget in
    rounds, in which each has ``weight`` turns; the first comes after ``head_start`` rounds of others.
    """

    trials: Iterator[Trial | None]
    weight: float = 1.0
    head_start: float = 0.0
    turns: int = 0
    is_over: bool = False

    @property
    def rounds(self) -> float:
        """The rounds so far, with the head start of the others; the search with the fewest is next."""
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
        ahead: Ahead,
        undisturbed: Trial,
        budget: SearchBudget,
        seed: int | str,
        cache: Any,
    ) -> None:
        self._player = player
        self._cache = cache
        """pytest's cache, for the schedule that failed last time; None if the search does not use it."""
        self._ahead = ahead
        self._undisturbed = undisturbed
        self._kinds = player.subject.kinds
        self._has_timers = "timers" in undisturbed.flags
        self._tally = player.tally
        self._tally.seed = seed
        self._budget = budget
        self._chance = random.Random(str(seed))
        self._trials_of_singles: list[Trial] = []
        """The trials of schedules with one disturbance, which schedules with two disturbances
        extend.
        """
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
            functions = [
                *itertools.chain(*(functions_of(program.function) for program in subject.programs)),
                *subject.promises.checks,
            ]
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
        trial = self._player.play(schedule)
        if trial.broken is not None and len(trial.fired) == len(schedule):
            return trial
        store.save(Schedule())
        return None

    def _search(self) -> Trial | None:
        choices = sum(len(step.options) > 1 for step in self._undisturbed.steps)
        self._tally.priority_trials.most_decisions = choices
        orders = self._searches_of_calls()
        if self._kinds <= SWITCHES:
            for search in orders:
                budget = self._budget.part(self._tally.tried, _FOR_ORDERS_ALONE)
                trial = self._take_turns([search], budget)
                if trial is not None:
                    return trial
            if self._has_tried_all():
                return None
        first_singles, other_singles = singles(self._undisturbed)
        tally = self._tally
        tally.all_singles = len(first_singles) + len(other_singles)
        if tally.all_singles > self._budget.expected(tally.tried):
            # The budget is too small for all of them, so try them in random order.
            first_singles, other_singles = singles(self._undisturbed, self._chance)
        likely = self._run_singles(first_singles)
        pairs = (
            PartialSearch(self._run_likely_pairs(extend), weight, _BEFORE_PAIRS)
            for extend, weight in _LIKELY_PAIRS
        )
        others = [*orders, *pairs]
        first = PartialSearch(likely, _FIRST_SINGLES * len(others), _HEAD_START)
        budget = self._budget.part(self._tally.tried, _FOR_FIRST_SINGLES)
        trial = self._take_turns([first, *others], budget, until=first)
        if trial is not None:
            return trial
        if self._has_timers and {"switch", "jump"} <= self._kinds:
            others.append(self._interleavings(late="late" in self._kinds, moves_time=True))
        return self._second_phase(itertools.chain(likely, self._run_singles(other_singles)), others)

    def _take_turns(
        self,
        searches: Sequence[PartialSearch],
        budget: SearchBudget,
        *,
        until: PartialSearch | None = None,
    ) -> Trial | None:
        """Run schedules of several searches in turn; return the first trial that breaks the
        promise.
        """
        going = list(searches)
        while going and budget.remaining(self._tally.tried) > 0 and not self._has_tried_all():
            if until is not None and until.is_over:
                break
            search = min(going, key=lambda search: search.rounds)
            trial = search.next()
            if trial is not None and trial.broken is not None:
                return trial
            if search.is_over:
                going.remove(search)
        return None

    def _has_tried_all(self) -> bool:
        """Return whether the search ran all that ``kinds`` allows, which is only orders of calls."""
        return self._tally.is_complete and self._kinds <= SWITCHES

    def _second_phase(
        self, singles: Iterator[Trial | None], others: list[PartialSearch]
    ) -> Trial | None:
        tally = self._tally
        expected = max(1.0, self._budget.expected(tally.tried))
        systematic = itertools.chain(singles, self._all_pairs())
        trials = [self._undisturbed, *self._trials_of_singles]
        drawn = RandomTrials(self._player, self._ahead, trials, self._chance).trials()
        # All searches go on without a head start.
        others = [PartialSearch(search.trials, search.weight) for search in others]
        others.append(PartialSearch(self._run_guided(), _GUIDED, _BEFORE_GUIDED))
        # Random schedules come last if the budget is enough for all schedules with two disturbances.
        if tally.all_singles**2 / 2 < expected:
            systematic = itertools.chain(systematic, drawn)
        else:
            others.append(PartialSearch(drawn))
        wanted = _SPARE_FOR_SINGLES * (tally.all_singles - tally.singles) / expected
        share = min(_MOST_SHARE, max(_LEAST_SHARE, wanted))
        weight = share / (1 - share) * len(others)  # as if the others had a weight of 1 each
        return self._take_turns([PartialSearch(systematic, weight), *others], self._budget)

    # -- interleavings ---------------------------------------------------------------------------

    def _searches_of_calls(self) -> list[PartialSearch]:
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
    ) -> PartialSearch:
        self._tally.unfinished_order_searches += 1
        tree = Interleavings(Branch(late=late, moves_time=moves_time))
        return PartialSearch(self._run_interleavings(tree), head_start=head_start)

    def _run_interleavings(self, tree: Interleavings) -> Iterator[Trial | None]:
        tally, promises = self._tally, self._player.subject.promises
        had_read_order = promises.reads_order
        for branch in self._ahead.below(tree):
            trial = self._ahead.play(Job(Schedule(), plan=branch))
            tree.learn(trial)
            if "redundant" in trial.flags:
                yield None
                continue
            self._has_timers = self._has_timers or "timers" in trial.flags
            tally.orders += 1
            yield trial
        tally.unfinished_order_searches -= 1
        # Each interleaving runs with the random numbers of the undisturbed trial.
        is_one_of_many = self._player.varies_numbers
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
        jobs = (Job(schedule, notes=True) for schedule in schedules)
        for job in self._ahead.through(jobs):
            varied = job._replace(schedule=self._player.varied(job.schedule))
            trial = self._ahead.play(varied)
            if varied != job and job.schedule[0] not in trial.fired and trial.broken is None:
                # Other random numbers have led the code past the point of the disturbance.
                self._tally.drawn += 1
                trial = self._player.play(job.schedule, notes=True)
            self._tally.singles += 1
            self._trials_of_singles.append(trial.without_details())
            self._frontier.learn(trial)
            yield trial

    def _run_likely_pairs(
        self, extend: Callable[[Trial], list[Schedule]]
    ) -> Iterator[Trial | None]:
        """Run schedules that extend those with one disturbance, likely ones first."""
        tally, trials, seen = self._tally, self._trials_of_singles, 0
        waiting: list[Schedule] = []
        while waiting or seen < len(trials) or tally.singles < tally.all_singles:
            added = [schedule for trial in trials[seen:] for schedule in extend(trial)]
            seen = len(trials)
            if added:
                waiting += added
                self._chance.shuffle(waiting)
                waiting.sort(key=likelihood)
            if waiting:
                yield from self._run_pairs([waiting.pop()])
            else:
                yield None

    def _all_pairs(self) -> Iterator[Trial]:
        pairs = Pairs(self._trials_of_singles)
        self._tally.all_pairs = len(pairs)
        yield from self._run_pairs(pairs.in_any_order(self._chance))
        self._tally.all_pairs = self._tally.pairs

    def _run_guided(self) -> Iterator[Trial | None]:
        """Run schedules that add a disturbance to a trial in a state that it was the first to
        reach.
        """
        tally = self._tally
        while jobs := self._guided_jobs() or tally.singles < tally.all_singles:
            if jobs is True:
                yield None
                continue
            for job in self._ahead.through(jobs):
                if job.schedule not in self._player.outcomes:
                    tally.guided += 1
                    trial = self._ahead.play(job)
                    self._frontier.learn(trial)
                    yield trial

    def _guided_jobs(self) -> list[Job]:
        """Return the next schedules that extend trials, which several processes can run together."""
        schedules = iter(self._frontier.next, None)
        new = (schedule for schedule in schedules if schedule not in self._player.outcomes)
        return [Job(schedule, notes=True) for schedule in itertools.islice(new, _GUIDED_AHEAD)]

    def _run_pairs(self, schedules: Iterable[Schedule]) -> Iterator[Trial]:
        jobs = (Job(schedule, notes=True) for schedule in schedules)
        for job in self._ahead.through(jobs):
            if job.schedule not in self._player.outcomes:
                self._tally.pairs += 1
                trial = self._ahead.play(job)
                self._frontier.learn(trial)
                yield trial
