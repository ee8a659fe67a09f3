"""Search for a schedule that breaks the promise.

Sources of plans take turns:

- ``orders``: orders of calls (``dpor``), also of late answers and, later, of timers.
- ``singles``: schedules with one disturbance (``singles``), first those unlike all others.
- ``extend``: schedules that add one disturbance to an earlier one (``extend``).
- ``numbers``: other random numbers, if the code draws any, alone or with one disturbance.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from ..disturbances import SWITCHES
from ..schedule import Schedule
from ..trial import Plan, Trial
from .dpor import Branch, Interleavings
from .extend import Frontier
from .lookahead import Lookahead
from .player import Player
from .singles import singles
from .tally import SearchBudget
from .tuning import (
    EXTENDED_AHEAD,
    EXTENDING_HEAD_STARTS,
    EXTENDING_WEIGHTS,
    FIRST_PHASE_SHARE,
    FIRST_SINGLES_WEIGHT,
    HEAD_START,
    LEAST_SINGLES_SHARE,
    MOST_SINGLES_SHARE,
    ORDERS_ALONE_SHARE,
    SPARE_FOR_SINGLES,
)

Plans: TypeAlias = Generator[Plan | None, Trial, None]
"""Plans, each of which is sent its trial. None ends a turn, in which usually one plan is played."""


@dataclass
class Source:
    """A source of plans, with a turn for each.

    Sources share a budget in rounds, in which each has ``weight`` turns; the first comes after
    ``head_start`` rounds of others. A turn has no plan if there is nothing to play at the moment.
    """

    plans: Plans
    weight: float = 1.0
    head_start: float = 0.0
    turns: int = 0
    is_over: bool = False

    @property
    def rounds(self) -> float:
        """The rounds so far, with the head start of the others; the source with the fewest is next."""
        return self.head_start + self.turns / self.weight

    def begin_turn(self) -> Plan | None:
        self.turns += 1
        try:
            return next(self.plans)
        except StopIteration:
            self.is_over = True
            return None


class _Phase(NamedTuple):
    """Sources that take turns until a budget is used up, or one of them has no more plans."""

    sources: Sequence[Source]
    budget: SearchBudget
    until: Source | None = None


class Explorer:
    """Searches for a schedule that breaks the promise, within a budget."""

    def __init__(
        self,
        player: Player,
        lookahead: Lookahead,
        undisturbed: Trial,
        budget: SearchBudget,
        seed: int | str,
    ) -> None:
        self._player = player
        self._lookahead = lookahead
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
        """Return the first trial that breaks the promise; None if no schedule did."""
        for phase in self._phases():
            trial = self._take_turns(phase)
            if trial is not None:
                return trial
        return None

    def _take_turns(self, phase: _Phase) -> Trial | None:
        """Play the plans of several sources in turn; return the first trial that breaks the promise."""
        sources, budget = list(phase.sources), phase.budget
        while sources and budget.remaining(self._tally.tried) > 0 and not self._has_tried_all():
            if phase.until is not None and phase.until.is_over:
                break
            source = min(sources, key=lambda source: source.rounds)
            plan = source.begin_turn()
            while plan is not None:
                trial = self._lookahead.take(plan) or self._player.play(plan)
                plan = source.plans.send(trial)
                if trial.broken is not None:
                    return trial
            if source.is_over:
                sources.remove(source)
        return None

    def _phases(self) -> Iterator[_Phase]:
        """Yield the phases of the search; what each has found determines the next one."""
        orders, tally = self._orders(), self._tally
        if self._kinds <= SWITCHES:
            for source in orders:
                yield _Phase([source], self._budget.part(tally.tried, ORDERS_ALONE_SHARE))
            if self._has_tried_all():
                return
        first, others = singles(self._undisturbed)
        tally.all_singles = len(first) + len(others)
        if tally.all_singles > self._budget.expected(tally.tried):
            # The budget is too small for all of them, so try them in random order.
            first, others = singles(self._undisturbed, self._chance)
        likely, extending = self._single_plans(first), self._extending_plans()
        beside = [*orders, Source(extending, EXTENDING_WEIGHTS[0], EXTENDING_HEAD_STARTS[0])]
        if self._varies_numbers():
            beside.append(Source(self._plans_with_numbers([*first, *others])))
        weight = FIRST_SINGLES_WEIGHT * sum(source.weight for source in beside)
        source = Source(likely, weight, HEAD_START)
        budget = self._budget.part(tally.tried, FIRST_PHASE_SHARE)
        yield _Phase([source, *beside], budget, until=source)
        # All sources go on without a head start.
        beside = [
            Source(source.plans, source.weight)
            for source in beside
            if source.plans is not extending
        ]
        if self._has_timers and {"switch", "jump"} <= self._kinds:
            beside.append(self._interleavings(late="late" in self._kinds, moves_time=True))
        beside.append(Source(extending, EXTENDING_WEIGHTS[1], EXTENDING_HEAD_STARTS[1]))
        turns = SPARE_FOR_SINGLES * (tally.all_singles - tally.singles)
        share = turns / max(1.0, self._budget.expected(tally.tried))
        share = min(MOST_SINGLES_SHARE, max(LEAST_SINGLES_SHARE, share))
        weight = share / (1 - share) * sum(source.weight for source in beside)
        remaining = _in_sequence(likely, self._single_plans(others))
        yield _Phase([Source(remaining, weight), *beside], self._budget)

    def _has_tried_all(self) -> bool:
        """Return whether the search ran all that ``kinds`` allows, which is only orders of calls."""
        return self._tally.orders.is_complete and self._kinds <= SWITCHES

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
            searches.append(self._interleavings(late=True, head_start=HEAD_START))
        return searches

    def _interleavings(
        self, *, late: bool, moves_time: bool = False, head_start: float = 0.0
    ) -> Source:
        self._tally.orders.unfinished_searches += 1
        tree = Interleavings(Branch(late=late, moves_time=moves_time))
        return Source(self._order_plans(tree), head_start=head_start)

    def _order_plans(self, tree: Interleavings) -> Plans:
        orders, promises = self._tally.orders, self._player.subject.promises
        had_read_order = promises.reads_order
        for branch in self._lookahead.below(tree):
            trial = yield Plan(orders=branch)
            tree.learn(trial)
            if "redundant" not in trial.flags:
                self._has_timers = self._has_timers or "timers" in trial.flags
                orders.number += 1
            yield None
        orders.unfinished_searches -= 1
        # Each interleaving runs with the random numbers of the undisturbed trial, and code that is not
        # explored may run in any order.
        is_one_of_many = self._varies_numbers() or bool(self._tally.coverage.notes)
        is_exact = tree.is_exact and promises.reads_order == had_read_order
        orders.ran_all = is_exact and not is_one_of_many
        late, moves_time = tree.root.late, tree.root.moves_time
        has_all_times = moves_time or not self._has_timers
        if orders.ran_all and (late or "late" not in self._kinds):
            orders.is_complete = has_all_times or "jump" not in self._kinds
            if has_all_times:
                orders.is_exhaustive = True
                if late or moves_time:
                    orders.number = tree.trials

    # -- disturbances ----------------------------------------------------------------------------------

    def _single_plans(self, schedules: Iterable[Schedule]) -> Plans:
        plans = (Plan(schedule, notes=True) for schedule in schedules)
        for plan in self._lookahead.through(plans):
            varied = replace(plan, schedule=self._varied(plan.schedule))
            trial = yield varied
            if varied != plan and plan.schedule[0] not in trial.fired and trial.broken is None:
                # Other random numbers have led the code past the point of the disturbance.
                self._tally.drawn += 1
                trial = yield plan
            self._tally.singles += 1
            self._frontier.learn(trial)
            yield None

    def _extending_plans(self) -> Plans:
        """Yield plans whose schedules add a disturbance to an earlier one."""
        tally, outcomes = self._tally, self._player.outcomes
        while True:
            plans = self._extensions()
            if not plans and tally.singles >= tally.all_singles:
                return
            if not plans:
                yield None  # A further single disturbance may lead to a trial that can be extended.
            for plan in self._lookahead.through(plans):
                if plan.schedule not in outcomes:
                    tally.extended += 1
                    trial = yield plan
                    self._frontier.learn(trial)
                    yield None

    def _extensions(self) -> list[Plan]:
        """Return the next schedules that extend trials, which several processes can run together."""
        schedules = iter(self._frontier.next, None)
        new = (schedule for schedule in schedules if schedule not in self._player.outcomes)
        return [Plan(schedule, notes=True) for schedule in itertools.islice(new, EXTENDED_AHEAD)]

    def _plans_with_numbers(self, schedules: Sequence[Schedule]) -> Plans:
        """Yield plans with other random numbers, alone and with each of the schedules, in turn."""
        alone = Schedule()
        pairs = ((alone, schedule) for schedule in schedules or [alone])
        for schedule in itertools.cycle(itertools.chain(*pairs)):
            self._tally.drawn += 1
            yield Plan(self._varied(schedule))
            yield None

    def _varied(self, schedule: Schedule) -> Schedule:
        """Return a schedule with random numbers of its own, if the code draws any."""
        if not self._varies_numbers() or schedule.series:
            return schedule
        return schedule.with_series(self._tally.tried + 1)

    def _varies_numbers(self) -> bool:
        return "numbers" in self._kinds and self._tally.coverage.draws_numbers


def _in_sequence(*sources: Plans) -> Plans:
    """Yield the plans of one source after those of the other."""
    for plans in sources:
        yield from plans
