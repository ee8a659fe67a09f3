"""Trials that are played before the search asks for them: none, unless a subclass plays some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..trial import Plan, Trial
from .dpor import Branch, Interleavings
from .player import Player


class Lookahead:
    """The plans that a search will probably play. A subclass may play some of them ahead of time."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def through(self, plans: Iterable[Plan]) -> Iterator[Plan]:
        """Yield plans, which must not depend on the outcomes of earlier ones."""
        return iter(plans)

    def below(self, tree: Interleavings) -> Iterator[Branch]:
        """Yield the branches of a tree; the caller learns from each branch."""
        return iter(tree.next, None)

    def take(self, plan: Plan) -> Trial | None:
        """Return the trial of a plan that has been played and counted; None if it is not played yet."""
        return None

    def close(self) -> None:
        """End what plays trials ahead of time."""
