"""What ``explore()`` does without its guests. Each of these classes has one subclass in ``guests/``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from .result.exploration import Trust
from .search.explorer import PlanPlayer
from .search.player import Player
from .search.tally import SearchBudget, Tally
from .values.trial import FailingTrial, Trial
from .world.world import World


class InputSearch:
    """The search for inputs: one part with a budget, and nothing to shrink, unless inputs are drawn."""

    def players(self, player: Player) -> Iterator[Player]:
        """Yield the player of each part."""
        yield player

    def budget_of_next(self, budget: SearchBudget, used: int) -> SearchBudget:
        """Return the part of a budget for the next player, after so many trials with others."""
        return budget

    def shrink_inputs(
        self, whole: Player, part: Player, failing: FailingTrial
    ) -> tuple[Player, FailingTrial]:
        """Return the player of the part, or one with smaller inputs, and its smallest failing trial."""
        return part, failing


class Processes:
    """The processes that play the plans of a search: this one, unless ``processes=`` asks for more."""

    def plan_player(self, player: Player, tally: Tally, undisturbed: Trial) -> PlanPlayer:
        """Return the player of the plans of a search that begins."""
        return PlanPlayer(player, tally)


class Examination:
    """The examination of the promise: none, unless ``trust=`` asks for one."""

    def watching(self, world: World) -> AbstractContextManager[None]:
        """Watch the fakes within the block, in which the code is explored."""
        return nullcontext()

    def trust(self, player: Player, undisturbed: Trial) -> Trust:
        """Return what the examination has found, after a search without a failure."""
        return Trust()
