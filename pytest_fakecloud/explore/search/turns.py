"""Searches that take turns, in proportion to their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..run import Run


@dataclass
class Search:
    """A part of the search: an iterator that runs a schedule at each step.

    The iterator yields None if it has nothing to run at the moment. ``weight`` determines the share
    of the turns that the search gets. ``used`` is the number of turns that it has had, which may
    begin above 0 for a search that must wait.
    """

    runs: Iterator[Run | None]
    weight: float = 1.0
    used: float = 0.0
    is_over: bool = False

    def next(self) -> Run | None:
        """Run the next schedule and return its run, if there is one."""
        self.used += 1
        try:
            return next(self.runs)
        except StopIteration:
            self.is_over = True
            return None


def take_turns(searches: Sequence[Search], may_go_on: Callable[[], bool]) -> Run | None:
    """Run schedules of several searches in turn; return the first run that breaks the promise.

    Returns None when all searches have ended, or when ``may_go_on`` returns False.
    """
    going = list(searches)
    while going and may_go_on():
        search = min(going, key=lambda one: one.used / one.weight)
        run = search.next()
        if run is not None and run.broken is not None:
            return run
        if search.is_over:
            going.remove(search)
    return None
