"""Plays the trials of a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..trial import Plan, Trial
from .dpor import Branch, Interleavings
from .player import Player


class Jobs:
    """Plays the trials of a search when it asks for them. A subclass may play some ahead of time."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def through(self, plans: Iterable[Plan]) -> Iterator[Plan]:
        """Yield plans, which must not depend on the outcomes of earlier ones."""
        return iter(plans)

    def below(self, tree: Interleavings) -> Iterator[Branch]:
        """Yield the branches of a tree; the caller learns from each branch."""
        return iter(tree.next, None)

    def play(self, plan: Plan) -> Trial:
        return self._player.play(plan)

    def close(self) -> None:
        """End what plays trials ahead of time."""
