"""Search for a schedule that breaks the promise: share the budget among the sources of plans."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from ..values.disturbances import SWITCHES
from ..values.trial import Outline, Trial
from .dpor import Branch, InterleavingTree
from .extend import Frontier
from .player import PlanRunner, Player
from .singles import singles
from .sources import Extending, Numbers, OrdersOfCalls, Singles, Source, varies_numbers
from .tally import SearchBudget
from .tuning import (
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

    @property
    def rounds(self) -> float:
        """The rounds so far, with the head start of the others; the source with the fewest is next."""
        return self.head_start + self.asked / self.weight


class Explorer:
    """Searches for a schedule that breaks the promise, within a budget."""

    def __init__(
        self,
        player: Player,
        runner: PlanRunner,
        undisturbed: Trial,
        budget: SearchBudget,
        seed: int | str,
    ) -> None:
        self._player = player
        self._runner = runner
        self._undisturbed = undisturbed
        self._kinds = player.subject.kinds
        self._tally = player.tally
        self._tally.interleavings.has_timers = "timers" in undisturbed.flags
        self._tally.seed = seed
        self._budget = budget
        self._chance = random.Random(str(seed))
        self._frontier = Frontier(self._tally)
        self._frontier.learn(undisturbed)

    def search(self) -> Trial | None:
        """Return the first trial that breaks the promise; None if no schedule did.

        First come orders of calls alone, if nothing else can differ. Then all sources share a part of
        the budget, until the single disturbances are tried that probably have an effect of their own,
        and then the rest of it.
        """
        orders, player, tally = self._orders(), self._player, self._tally
        for share in orders if self._kinds <= SWITCHES else ():
            budget = self._budget.part(tally.tried, ORDERS_ALONE_SHARE)
            if (failing := self.play_plans([share], budget)) is not None:
                return failing
        if self._has_tried_all():
            return None
        first, others = singles(self._undisturbed)
        tally.all_singles = len(first) + len(others)
        if tally.all_singles > self._budget.expected(tally.tried):
            # The budget is too small for all of them, so try them in random order.
            first, others = singles(self._undisturbed, self._chance)
        single = Singles(player, self._frontier, first)
        extending = Extending(player, self._frontier)
        beside = [*orders, Share(extending, EXTENDING_WEIGHTS[0], EXTENDING_HEAD_STARTS[0])]
        if varies_numbers(player):
            beside.append(Share(Numbers(player, [*first, *others])))
        weight = FIRST_SINGLES_WEIGHT * sum(share.weight for share in beside)
        budget = self._budget.part(tally.tried, FIRST_PHASE_SHARE)
        shares = [Share(single, weight, HEAD_START), *beside]
        if (failing := self.play_plans(shares, budget, until=single)) is not None:
            return failing
        # All sources go on without a head start.
        beside = [
            Share(share.source, share.weight) for share in beside if share.source is not extending
        ]
        if tally.interleavings.has_timers and {"switch", "jump"} <= self._kinds:
            beside.append(self._interleavings(late="late" in self._kinds, moves_time=True))
        beside.append(Share(extending, EXTENDING_WEIGHTS[1], EXTENDING_HEAD_STARTS[1]))
        spare = SPARE_FOR_SINGLES * (tally.all_singles - tally.counts["singles"])
        part = spare / max(1.0, self._budget.expected(tally.tried))
        part = min(MOST_SINGLES_SHARE, max(LEAST_SINGLES_SHARE, part))
        weight = part / (1 - part) * sum(share.weight for share in beside)
        single.go_on_with(others)
        return self.play_plans([Share(single, weight), *beside], self._budget)

    def play_plans(
        self, shares: Iterable[Share], budget: SearchBudget, until: Source | None = None
    ) -> Trial | None:
        """Play the plans of several sources until the budget is used up, or ``until`` has no more.

        Returns the first trial that breaks the promise.
        """
        shares = list(shares)
        while shares and budget.remaining(self._tally.tried) > 0 and not self._has_tried_all():
            if until is not None and until.is_over:
                break
            share = min(shares, key=lambda share: share.rounds)
            share.asked += 1
            trial = self._play_next(share.source)
            if trial is not None and trial.broken is not None:
                assert isinstance(trial, Trial)
                return trial
            if share.source.is_over:
                shares.remove(share)
        return None

    def _play_next(self, source: Source) -> Outline | None:
        """Play and count the next plan of a source; return None if it has none."""
        self._runner.offer(source.upcoming())
        plan = None if source.is_over else source.next_plan()
        if plan is None:
            return None
        trial = self._runner.play(plan)
        second_plan = None if trial.broken is not None else source.second_plan(trial)
        if second_plan is not None:
            self._tally.counts["drawn" if plan.schedule.series else source.counter] += 1
            trial = self._runner.play(second_plan)
        if "redundant" not in trial.flags:
            self._tally.counts[source.counter] += 1
        source.learn(trial)
        return trial

    def _has_tried_all(self) -> bool:
        """Return whether the search ran all that ``kinds`` allows, which is only orders of calls."""
        return self._tally.interleavings.is_complete and self._kinds <= SWITCHES

    def _orders(self) -> list[Share]:
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
    ) -> Share:
        tree = InterleavingTree(Branch(late=late, moves_time=moves_time))
        return Share(OrdersOfCalls(self._player, tree), head_start=head_start)
