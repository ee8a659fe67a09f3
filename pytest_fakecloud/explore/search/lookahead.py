"""How a search plays its trials: when it asks for them, unless a subclass plays some before."""

from __future__ import annotations

from collections.abc import Iterator

from ..values.plan import Plan
from ..values.trial import Trial
from .player import Player


class Lookahead:
    """Plays the plans of a search. A subclass may play some of those that will probably follow."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def offer(self, upcoming: Iterator[Plan]) -> None:
        """Let a subclass play some of the plans that a source will probably return next."""

    def play(self, plan: Plan) -> Trial:
        """Return the trial of a plan, which the player has recorded."""
        return self._player.play(plan)

    def close(self) -> None:
        """End what plays trials ahead of time."""
