"""Runs the plans of a search: each when the search asks for it, unless a subclass does so before."""

from __future__ import annotations

from collections.abc import Iterator

from ..values.plan import Plan
from ..values.trial import Outline
from .player import Player


class PlanRunner:
    """Runs the plans of a search. A subclass may run some of those that will probably follow."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def offer(self, upcoming: Iterator[Plan]) -> None:
        """Let a subclass play some of the plans that a source will probably return next."""

    def play(self, plan: Plan) -> Outline:
        """Return the outline of a plan's trial, which the player has recorded; all of it if it fails."""
        return self._player.play(plan)

    def close(self) -> None:
        """End what a subclass has started."""
