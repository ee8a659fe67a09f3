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
    """The searches of one ``explore()`` call, one for each input: a single one, unless any are drawn."""

    def players(self, player: Player) -> Iterator[Player]:
        """Yield the player of each search."""
        yield player

    def budget_of_next(self, budget: SearchBudget, used: int) -> SearchBudget:
        """Return the part of a budget for the next search, after so many trials of the others."""
        return budget

    def shrink_inputs(
        self, original: Player, player: Player, failing: FailingTrial
    ) -> tuple[Player, FailingTrial]:
        """Return the player of the search that failed, or one of the original code with smaller inputs,
        and its smallest failing trial.
        """
        return player, failing


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
