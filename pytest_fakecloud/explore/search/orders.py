"""Searches through the interleavings of conflicting calls."""

from __future__ import annotations

from collections.abc import Iterator

from ..run import Run
from ..schedule import SWITCHES, Schedule
from .dpor import Interleavings
from .player import Player, Repeated
from .turns import Search


class OrderSearches:
    """Creates the searches through interleavings, and notes in the tally whether they are
    exhaustive.
    """

    def __init__(self, player: Player, undisturbed: Run) -> None:
        self._player = player
        self._undisturbed = undisturbed
        self._kinds = player.choice.kinds
        self._has_timers = undisturbed.has_timers

    @property
    def is_exhaustive(self) -> bool:
        """Return whether the search ran all that ``kinds`` allows, which is only orders of calls."""
        return self._player.tally.is_exhaustive and self._kinds <= SWITCHES

    def of_calls(self) -> list[Search]:
        """Return searches without and with late answers; none if there is only one interleaving."""
        if "switch" not in self._kinds:
            return []
        can_differ = any(len(step.options) > 1 for step in self._undisturbed.steps)
        has_clients = self._kinds <= SWITCHES and len(self._undisturbed.strands) > 1
        if not can_differ and not has_clients:
            return []
        searches = [self._search(late=False)]
        if "late" in self._kinds:
            searches.append(self._search(late=True))
        return searches

    def of_timers(self) -> list[Search]:
        """Return a search through interleavings of calls and timers, if the code has timers."""
        if self._has_timers and {"switch", "jump"} <= self._kinds:
            return [self._search(late="late" in self._kinds, moves_time=True)]
        return []

    def _search(self, *, late: bool, moves_time: bool = False) -> Search:
        self._player.tally.unfinished_order_searches += 1
        return Search(self._runs(Interleavings(late=late, moves_time=moves_time)))

    def _runs(self, strategy: Interleavings) -> Iterator[Run | None]:
        """Run each order of conflicting calls once."""
        tally = self._player.tally
        while strategy.next():
            try:
                run = self._player.play(Schedule(), strategy=strategy)
            except Repeated as repeated:
                strategy.learn(repeated.run, was_redundant=True)
                yield None
                continue
            strategy.learn(run, was_redundant=False)
            self._has_timers = self._has_timers or run.has_timers
            tally.orders += 1
            yield run
        tally.unfinished_order_searches -= 1
        tally.has_all_orders = strategy.is_exact and not tally.coverage.notes
        self._note_end(strategy)

    def _note_end(self, strategy: Interleavings) -> None:
        tally, late = self._player.tally, "late" in strategy.places
        has_all_times = strategy.moves_time or not (self._has_timers and "jump" in self._kinds)
        if tally.has_all_orders and has_all_times and (late or "late" not in self._kinds):
            tally.is_exhaustive = True
            if late or strategy.moves_time:
                tally.orders = strategy.runs
