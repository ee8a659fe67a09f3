"""Search for a schedule that breaks the promise: share the budget among the sources of plans."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..values.disturbances import SWITCHES
from ..values.plan import Plan
from ..values.schedule import Schedule
from ..values.trial import Outline, Trial
from .dpor import Branch, InterleavingTree
from .extend import Frontier
from .interleavings import Extent, TriedInterleavings
from .player import Player
from .singles import singles
from .sources import Extending, NoPlan, Numbers, OrdersOfCalls, Singles, Source
from .tally import SearchBudget, Tally
from .tuning import (
    EXTENDING_HEAD_STARTS,
    EXTENDING_WEIGHTS,
    HEAD_START,
    LEAST_SINGLES_SHARE,
    MOST_SINGLES_SHARE,
    ORDERS_ALONE_SHARE,
    PHASE_2_SHARE,
    PHASE_2_SINGLES_WEIGHT,
    SPARE_FOR_SINGLES,
)


@dataclass
class Share:
    """The share of a source in a budget.

    The budget is used in rounds, in each of which a source plays ``weight`` plans; the first one comes
    after ``head_start`` rounds of others.
    """

    source: Source
    weight: float = 1.0
    head_start: float = 0.0
    asked: int = 0
    """How often the source has been asked for a plan, also if it had none."""
    is_over: bool = False
    """Whether the source has played all of its plans."""

    @property
    def rounds(self) -> float:
        """The rounds so far, with the head start of the others; the source with the fewest is next."""
        return self.head_start + self.asked / self.weight


class Phase(NamedTuple):
    """A phase of a search: the sources that share its budget.

    It ends when the budget is used up, when all has been tried that ``kinds`` allows, when no source
    has any more plans, or when that of ``until`` has none.
    """

    shares: Sequence[Share]
    budget: SearchBudget
    until: Share | None = None


class PlanPlayer:
    """Plays and records the plans of a search. A subclass may play some that will probably follow."""

    def __init__(self, player: Player, tally: Tally) -> None:
        self.player = player
        self.tally = tally

    def offer(self, plan: Plan, upcoming: Iterator[Plan]) -> None:
        """Let a subclass play a plan, and some of those that a source will probably return next."""

    def obtain(self, plan: Plan) -> Outline:
        """Play and record a plan. A subclass may return the outline of a trial that holds, which another
        process has played.
        """
        trial = self.player.play(plan)
        self.tally.record(plan, trial)
        return trial

    def close(self) -> None:
        """End what a subclass has started."""


class Explorer:
    """Searches for a schedule that breaks the promise, within a budget."""

    def __init__(self, plan_player: PlanPlayer, undisturbed: Trial, budget: SearchBudget) -> None:
        self._plan_player = plan_player
        self._undisturbed = undisturbed
        self._tally = plan_player.tally
        self._budget = budget
        self._chance = random.Random(str(self._tally.seed))
        self._frontier = Frontier(self._tally)
        self._frontier.learn(undisturbed)
        self._searches: list[OrdersOfCalls] = []
        """The searches for interleavings so far. One with a head start for others may not have begun."""

    def search(self) -> Trial | None:
        """Return the first trial that breaks the promise; None if no schedule did."""
        for phase in self._phases():
            if (failing := self.search_phase(phase)) is not None:
                return failing
        return None

    def _phases(self) -> Iterator[Phase]:
        """Yield the phases of the search. Each depends on the trials of those before it."""
        tally, orders = self._tally, self._orders()

        # 1. Orders of calls alone, if ``kinds=`` asks for nothing else.
        if self._tally.kinds <= SWITCHES:
            for share in orders:
                yield Phase([share], self._budget.part(tally.tried, ORDERS_ALONE_SHARE))
        if self._has_tried_all():
            return

        # 2. All sources, until the single disturbances are tried that probably have an effect of their
        # own, or a part of the budget is used up.
        likely, others = self._single_disturbances()
        single = Singles(tally, likely)
        extending = Extending(tally, self._frontier)
        numbers = [Numbers(tally, [*likely, *others])] if tally.varies_numbers else []
        beside = [
            *orders,
            Share(extending, EXTENDING_WEIGHTS[0], EXTENDING_HEAD_STARTS[0]),
            *map(Share, numbers),
        ]
        weight = PHASE_2_SINGLES_WEIGHT * sum(share.weight for share in beside)
        shares = [Share(single, weight, HEAD_START), *beside]
        yield Phase(shares, self._budget.part(tally.tried, PHASE_2_SHARE), until=shares[0])

        # 3. The same sources, the other single disturbances, and orders of timers, for the rest of the
        # budget.
        single.go_on_with(others)
        beside = [*(Share(share.source, is_over=share.is_over) for share in orders)]
        beside += map(Share, numbers)
        if tally.has_timers and {"switch", "jump"} <= self._tally.kinds:
            beside.append(self._interleavings(late="late" in self._tally.kinds, moves_clock=True))
        beside.append(Share(extending, EXTENDING_WEIGHTS[1], EXTENDING_HEAD_STARTS[1]))
        part = self._part_for_singles()
        weight = part / (1 - part) * sum(share.weight for share in beside)
        yield Phase([Share(single, weight), *beside], self._budget)

    def search_phase(self, phase: Phase) -> Trial | None:
        """Play the plans of a phase; return the first trial that breaks the promise."""
        until = phase.until
        while phase.budget.remaining(self._tally.tried) > 0:
            shares = [share for share in phase.shares if not share.is_over]
            if not shares or self._has_tried_all() or (until is not None and until.is_over):
                break
            share = min(shares, key=lambda share: share.rounds)
            share.asked += 1
            plan = share.source.next_plan()
            if isinstance(plan, NoPlan):
                share.is_over = plan is NoPlan.LEFT
                if isinstance(share.source, OrdersOfCalls):
                    self._note_interleavings()
                    if share.source.contains_others:
                        self._tally.count_orders_once(share.source.trials)
                continue
            self._plan_player.offer(plan, share.source.upcoming())
            trial = self._play_plan(plan, share.source)
            if trial.broken is not None:
                assert isinstance(trial, Trial)
                return trial
        return None

    def _play_plan(self, plan: Plan, source: Source) -> Outline:
        """Play and count the plan of a source, and let the source learn from its trial."""
        trial = self._plan_player.obtain(plan)
        second_plan = None if trial.broken is not None else source.second_plan(trial)
        if second_plan is not None:
            self._tally.count("drawn")
            trial = self._plan_player.obtain(second_plan)
        if "redundant" not in trial.flags:
            self._tally.count(source.counter)
        source.learn(trial)
        if plan.notes_points:
            self._frontier.learn(trial)
        return trial

    def _has_tried_all(self) -> bool:
        """Return whether the search ran all that ``kinds`` allows, which is only orders of calls."""
        extent = self._tally.interleavings.extent
        return extent >= Extent.ALL_OF_KINDS and self._tally.kinds <= SWITCHES

    def _single_disturbances(self) -> tuple[list[Schedule], list[Schedule]]:
        """Return the schedules with one disturbance: the likely ones, and others."""
        likely, others = singles(self._undisturbed)
        self._tally.all_singles = len(likely) + len(others)
        if self._tally.all_singles > self._budget.expected(self._tally.tried):
            # The budget is too small for all of them, so try them in random order.
            return singles(self._undisturbed, self._chance)
        return likely, others

    def _part_for_singles(self) -> float:
        """Return the part of the rest of the budget for the remaining single disturbances."""
        tally = self._tally
        spare_trials = SPARE_FOR_SINGLES * tally.remaining_singles
        part = spare_trials / max(1.0, self._budget.expected(tally.tried))
        return min(MOST_SINGLES_SHARE, max(LEAST_SINGLES_SHARE, part))

    def _orders(self) -> list[Share]:
        """Return the searches for orders of calls, if these can differ: one without late answers and, if
        ``kinds`` contain them, one with them after a head start.
        """
        if "switch" not in self._tally.kinds:
            return []
        can_differ = any(len(step.options) > 1 for step in self._undisturbed.steps)
        has_clients = self._tally.kinds <= SWITCHES and len(self._undisturbed.strands) > 1
        if not can_differ and not has_clients:
            return []
        searches = [self._interleavings(late=False)]
        if "late" in self._tally.kinds:
            searches.append(self._interleavings(late=True, head_start=HEAD_START))
        return searches

    def _interleavings(
        self, *, late: bool, moves_clock: bool = False, head_start: float = 0.0
    ) -> Share:
        tree = InterleavingTree(Branch(late=late, moves_clock=moves_clock))
        search = OrdersOfCalls(self._tally, self._plan_player.player.learned, tree)
        self._searches.append(search)
        self._note_interleavings()
        return Share(search, head_start=head_start)

    def _note_interleavings(self) -> None:
        results = [search.result for search in self._searches]
        self._tally.interleavings = TriedInterleavings.by(results)
