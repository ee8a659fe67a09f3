"""Trials that are played before the search asks for them: none, unless a subclass plays some."""

from __future__ import annotations

from collections.abc import Iterator

from ..values.plan import Plan
from ..values.trial import Trial
from .player import Player


class Lookahead:
    """The plans that a search will probably play. A subclass may play some of them ahead of time."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def offer(self, upcoming: Iterator[Plan]) -> None:
        """Let a subclass play some of the plans that a source will probably return next."""

    def take(self, plan: Plan) -> Trial | None:
        """Return the trial of a plan that has been played and counted; None if it is not played yet."""
        return None

    def close(self) -> None:
        """End what plays trials ahead of time."""
