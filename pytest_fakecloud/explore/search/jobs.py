"""Trials that a search plays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..schedule import Schedule
from ..trial import Trial
from .dpor import Branch, Interleavings
from .player import Player


class Job(NamedTuple):
    """A trial to play: its schedule, whether to record its points, and its strategy."""

    schedule: Schedule
    notes: bool = False
    plan: Branch | None = None


def perform(player: Player, job: Job) -> Trial:
    """Play a job in this process."""
    strategy = None if job.plan is None else job.plan.strategy()
    return player.play(job.schedule, notes=job.notes, strategy=strategy)


class Jobs:
    """Plays the trials of a search when it asks for them. A subclass may play some ahead of time."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def through(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs, which must not depend on the outcomes of earlier ones."""
        return iter(jobs)

    def below(self, tree: Interleavings) -> Iterator[Branch]:
        """Yield the branches of a tree; the caller learns from each branch."""
        while (branch := tree.next()) is not None:
            yield branch

    def play(self, job: Job) -> Trial:
        """Return the trial of a job."""
        return perform(self._player, job)

    def close(self) -> None:
        """End what plays trials ahead of time."""
