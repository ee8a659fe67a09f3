"""The sources of plans, which share the budget of a search.

- ``OrdersOfCalls``: orders of calls (``dpor``), also of late answers and, later, of timers.
- ``Singles``: schedules with one disturbance (``singles``).
- ``Extending``: schedules that extend an earlier one (``extend``).
- ``Numbers``: other random numbers, if the code draws any, alone or with one disturbance.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum

from ..values.learned import Learned
from ..values.plan import Plan
from ..values.schedule import UNDISTURBED, Schedule
from ..values.trial import Outline
from .dpor import InterleavingTree
from .extend import Frontier
from .interleavings import Extent, extent_of_search
from .tally import CounterName, Tally
from .tuning import EXTENDED_AHEAD


class NoPlan(Enum):
    """Why a source has no next plan."""

    YET = "others have to play theirs first"
    LEFT = "it has played all"


class Source(ABC):
    """A source of plans: the search calls ``next_plan()``, plays the plan, and calls ``learn()``.

    The plans must depend on nothing but the seed and the trials so far: the same seed finds the same
    failure, with any number of processes. A search that finds a failure asks for no further plan.
    """

    counter: CounterName
    """The counter to which the search adds the trials of this source."""

    @abstractmethod
    def next_plan(self) -> Plan | NoPlan:
        """Return the next plan. The search extends its trial (``Frontier``) if it ``notes_points``.

        A source that returns ``NoPlan.YET`` for ever keeps the search from ending.
        """

    def learn(self, trial: Outline) -> None:
        """Learn from the latest trial, which has been counted unless it is redundant."""
        return

    def upcoming(self) -> Iterator[Plan]:
        """Yield plans that probably follow the latest one, without a change of the source. Other
        processes may play them in any order. Without any, this process plays all.
        """
        yield from ()

    def second_plan(self, trial: Outline) -> Plan | None:
        """Return a plan to play in place of the latest trial, which has not failed. That one counts as
        one with other random numbers (``drawn``).
        """
        return None


class OrdersOfCalls(Source):
    """The distinct interleavings of a tree."""

    counter = "orders"

    def __init__(self, tally: Tally, learned: Learned, tree: InterleavingTree) -> None:
        self._tally = tally
        self._learned = learned
        self._tree = tree
        self._had_read_order: bool | None = None
        """Whether a check had read the order of operations before the first trial of this source."""
        self.result: Extent | None = None
        """Which interleavings have run, at the end of the search."""

    def next_plan(self) -> Plan | NoPlan:
        if self._had_read_order is None:
            self._had_read_order = self._learned.reads_order
        branch = self._tree.next()
        if branch is not None:
            return Plan(strategy_factory=branch)
        self.result = self._extent()
        return NoPlan.LEFT

    @property
    def trials(self) -> int:
        return self._tree.trials

    @property
    def contains_others(self) -> bool:
        """Whether all interleavings have run, those of all other searches among them."""
        root = self._tree.root
        return self.result is Extent.ALL and (root.late or root.moves_clock)

    def learn(self, trial: Outline) -> None:
        self._tree.learn(trial)

    def upcoming(self) -> Iterator[Plan]:
        for branch in self._tree.upcoming():
            yield Plan(strategy_factory=branch)

    def _extent(self) -> Extent:
        """Return which interleavings have run, now that the tree has no others."""
        tally = self._tally
        # Each interleaving runs with the random numbers of the undisturbed trial, and code that is not
        # explored may run in any order.
        is_one_of_many = tally.varies_numbers or bool(tally.coverage.notes)
        is_exact = self._tree.is_exact and self._learned.reads_order == self._had_read_order
        if not is_exact or is_one_of_many:
            return Extent.SOME
        return extent_of_search(self._tree.root, tally.kinds, has_timers=tally.has_timers)


class Singles(Source):
    """Schedules with one disturbance, each with random numbers of its own if the code draws any."""

    counter = "singles"

    def __init__(self, tally: Tally, schedules: Sequence[Schedule]) -> None:
        self._tally = tally
        self._schedules = [*schedules]
        self._number = 0
        """The number of plans so far."""
        self._latest = UNDISTURBED

    def go_on_with(self, schedules: Sequence[Schedule]) -> None:
        """Add further schedules after those that there are."""
        self._schedules += schedules

    def next_plan(self) -> Plan | NoPlan:
        if self._number == len(self._schedules):
            return NoPlan.LEFT
        schedule = self._schedules[self._number]
        self._number += 1
        self._latest = schedule
        if self._tally.varies_numbers and not schedule.series:
            self._latest = schedule.with_series(self._tally.tried + 1)
        return Plan(self._latest, notes_points=True)

    def second_plan(self, trial: Outline) -> Plan | None:
        """Return the plan without other random numbers if these led the code past its point."""
        schedule = self._schedules[self._number - 1]
        if self._latest == schedule or schedule[0] in trial.applied:
            return None
        return Plan(schedule, notes_points=True)

    def upcoming(self) -> Iterator[Plan]:
        for schedule in itertools.islice(self._schedules, self._number, None):
            yield Plan(schedule, notes_points=True)


class Extending(Source):
    """Schedules that extend an earlier one, while the frontier has any."""

    counter = "extended"

    def __init__(self, tally: Tally, frontier: Frontier) -> None:
        self._tally = tally
        self._frontier = frontier
        self._chosen: deque[Plan] = deque()
        """The next plans, which are chosen together, so that several processes can play them."""

    def next_plan(self) -> Plan | NoPlan:
        self._choose()
        if self._chosen:
            return self._chosen.popleft()
        # A further single disturbance may lead to a trial that can be extended.
        return NoPlan.YET if self._tally.remaining_singles > 0 else NoPlan.LEFT

    def upcoming(self) -> Iterator[Plan]:
        yield from self._chosen

    def _choose(self) -> None:
        """Choose the next plans, unless there are some whose schedules nothing else has tried."""
        outcomes = self._tally.outcomes
        while self._chosen and self._chosen[0].schedule in outcomes:
            self._chosen.popleft()
        if not self._chosen:
            schedules = iter(self._frontier.next, None)
            new = (schedule for schedule in schedules if schedule not in outcomes)
            plans = (Plan(schedule, notes_points=True) for schedule in new)
            self._chosen.extend(itertools.islice(plans, EXTENDED_AHEAD))


class Numbers(Source):
    """Other random numbers, alone and with each of some schedules, again and again. It never ends."""

    counter = "drawn"

    def __init__(self, tally: Tally, schedules: Sequence[Schedule]) -> None:
        self._tally = tally
        pairs = ((UNDISTURBED, schedule) for schedule in schedules or [UNDISTURBED])
        self._schedules = itertools.cycle(itertools.chain(*pairs))

    def next_plan(self) -> Plan:
        # Two numbers after the last trial: single disturbances have the next one (`Singles`).
        return Plan(next(self._schedules).with_series(self._tally.tried + 2))
