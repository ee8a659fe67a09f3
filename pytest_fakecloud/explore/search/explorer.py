"""Search for a schedule that breaks the promise.

The search tries, in this order:

1. Failures that an earlier search stored.
2. If only the order of calls is explored: interleavings alone, for a part of the budget.
3. First phase: interleavings and schedules with one event take turns, and soon schedules with two
   events that the first ones make likely, until each likely single event has been tried.
4. Second phase: the other schedules with one event, then all with two events, take turns with
   interleavings (also of timers) and with random schedules.

A failing schedule is then shrunk, and stored for later searches.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...core.timeparse import monotonic
from ..run import Run
from ..schedule import SWITCHES, Schedule
from .budget import Budget, Search
from .dpor import OrderSearches
from .drawn import RandomRuns
from .events import Pairs, Singles, delayed_again, has_overlap, likelihood, paused_again
from .failures import database, key_of, smallest, stored_failure
from .player import Player

_HEAD_START = 20
"""Number of interleavings to run before anything else, because they explain a failure best."""
_BEFORE_PAIRS = 25
"""Number of rounds of the other searches before the first schedules with two events."""
_FOR_ORDERS_ALONE = 0.25
"""Share of the remaining budget for interleavings, if only the order of calls is explored."""
_FOR_FIRST_SINGLES = 0.8
"""Maximum share of the budget for the first phase."""
_LIKELY_PAIRS = ((delayed_again, 1.0), (paused_again, 0.5))
"""Functions that list likely schedules with two events, and their weights; two pauses are rarer."""
_FIRST_SINGLES = 1.5
"""Weight of the likely single events, relative to all other searches of the first phase."""
_SPARE_FOR_SINGLES = 1.25
"""Factor for the turns of the remaining single events, so that pairs can follow in the budget."""
_LEAST_SHARE, _MOST_SHARE = 0.4, 0.8
"""Limits of the share of single events and pairs in the second phase."""


class Explorer:
    """Searches for a schedule that breaks the promise, within a budget."""

    def __init__(self, player: Player, undisturbed: Run, budget: Budget, seed: int | str) -> None:
        self._player = player
        self._undisturbed = undisturbed
        self._orders = OrderSearches(player, undisturbed)
        self._tally = player.tally
        self._tally.seed = seed
        self._budget = budget
        self._chance = random.Random(str(seed))
        self._runs_of_singles: list[Run] = []
        """The runs of schedules with one event, which schedules with two events extend."""

    def search(self) -> Run | None:
        """Return the smallest failing run that was found; None if no schedule broke the promise."""
        began = monotonic()
        player = self._player
        try:
            functions = [
                *(each.function for each in player.subject.programs),
                *player.promises.given,
            ]
            key = key_of(functions, player.subject.scope)
            run = stored_failure(player, key) or self._search()
            if run is None:
                return None
            run = smallest(player, run, self._undisturbed)
            examples = database()
            if examples is not None and not run.is_stuck:
                examples.save(key, str(run.schedule).encode())
            return run
        finally:
            self._tally.seconds = monotonic() - began

    def _search(self) -> Run | None:
        choices = sum(len(step.options) > 1 for step in self._undisturbed.steps)
        self._tally.priority_runs.most_decisions = choices
        orders = self._orders.of_calls(_HEAD_START)
        if self._player.subject.scope.kinds <= SWITCHES:
            for search in orders:
                budget = self._budget.part(self._tally.tried, _FOR_ORDERS_ALONE)
                run = self._take_turns([search], budget)
                if run is not None:
                    return run
            if self._orders.is_exhaustive:
                return None
        singles = self._singles()
        likely = self._run_singles(singles.first)
        pairs = (
            Search(self._run_likely_pairs(extend), weight, _BEFORE_PAIRS)
            for extend, weight in _LIKELY_PAIRS
        )
        others = [*orders, *pairs]
        first = Search(likely, _FIRST_SINGLES * len(others), _HEAD_START)
        budget = self._budget.part(self._tally.tried, _FOR_FIRST_SINGLES)
        run = self._take_turns([first, *others], budget, until=first)
        if run is not None:
            return run
        remaining = itertools.chain(likely, self._run_singles(singles.others))
        return self._second_phase(remaining, [*others, *self._orders.of_timers()])

    def _take_turns(
        self, searches: Sequence[Search], budget: Budget, *, until: Search | None = None
    ) -> Run | None:
        """Run schedules of several searches in turn; return the first run that breaks the promise.

        Returns None when the budget is used up, when all searches or the search ``until`` have ended,
        or when nothing is left to find.
        """
        going = list(searches)
        while going and budget.is_left(self._tally.tried) and not self._orders.is_exhaustive:
            if until is not None and until.is_over:
                break
            search = min(going, key=lambda each: each.rounds)
            run = search.next()
            if run is not None and run.broken is not None:
                return run
            if search.is_over:
                going.remove(search)
        return None

    def _singles(self) -> Singles:
        """Return the schedules with one event, in random order if the budget is too small for all."""
        tally = self._tally
        singles = Singles(self._undisturbed)
        tally.all_singles = len(singles.first) + len(singles.others)
        if tally.all_singles > self._budget.expected(tally.tried):
            return Singles(self._undisturbed, self._chance)
        return singles

    def _second_phase(self, singles: Iterator[Run | None], others: list[Search]) -> Run | None:
        tally = self._tally
        expected = max(1.0, self._budget.expected(tally.tried))
        systematic = itertools.chain(singles, self._all_pairs())
        known = [self._undisturbed, *self._runs_of_singles]
        drawn = RandomRuns(self._player, known, self._chance).runs()
        # All searches go on without a head start.
        others = [Search(each.runs, each.weight) for each in others]
        # Random schedules come last if the budget is enough for all schedules with two events.
        if tally.all_singles**2 / 2 < expected:
            systematic = itertools.chain(systematic, drawn)
        else:
            others.append(Search(drawn))
        wanted = _SPARE_FOR_SINGLES * (tally.all_singles - tally.singles) / expected
        share = min(_MOST_SHARE, max(_LEAST_SHARE, wanted))
        weight = share / (1 - share) * len(others)  # as if the others had a weight of 1 each
        return self._take_turns([Search(systematic, weight), *others], self._budget)

    def _run_singles(self, schedules: Iterable[Schedule]) -> Iterator[Run]:
        for schedule in schedules:
            self._tally.singles += 1
            run = self._player.play(schedule, notes=True)
            run.overlaps = has_overlap(run)
            run.lines.clear()  # only the points are needed, to build schedules with two events
            self._runs_of_singles.append(run)
            yield run

    def _run_likely_pairs(self, extend: Callable[[Run], list[Schedule]]) -> Iterator[Run | None]:
        """Run schedules that extend those with one event, likely ones first."""
        tally, runs, seen = self._tally, self._runs_of_singles, 0
        waiting: list[Schedule] = []
        while waiting or seen < len(runs) or tally.singles < tally.all_singles:
            added = [schedule for run in runs[seen:] for schedule in extend(run)]
            seen = len(runs)
            if added:
                waiting += added
                self._chance.shuffle(waiting)
                waiting.sort(key=likelihood)
            if waiting:
                yield from self._run_pairs([waiting.pop()])
            else:
                yield None

    def _all_pairs(self) -> Iterator[Run]:
        pairs = Pairs(self._runs_of_singles)
        self._tally.all_pairs = len(pairs)
        yield from self._run_pairs(pairs.in_any_order(self._chance))
        self._tally.all_pairs = self._tally.pairs

    def _run_pairs(self, schedules: Iterable[Schedule]) -> Iterator[Run]:
        for schedule in schedules:
            if schedule not in self._player.known:
                self._tally.pairs += 1
                yield self._player.play(schedule)
