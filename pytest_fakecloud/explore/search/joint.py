"""Shrink a failure's drawn inputs together with its schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...core.errors import broken_promise
from ...core.timers import monotonic
from ..inputs import Drawing, Inputs, Source, shrunk_inputs
from ..schedule import Disturbance, Schedule
from ..trial import Trial
from .explorer import smallest
from .player import Player

SECONDS = 10.0
"""Wall-clock seconds for shrinking inputs, in addition to the budget (decided here)."""


class JointShrinking:
    """Looks for smaller inputs, and a smaller schedule, that still break the promise."""

    def __init__(
        self,
        player: Player,
        trial: Trial,
        player_for: Callable[[Inputs], Player],
        sources: Mapping[str, Source],
        drawing: Drawing,
    ) -> None:
        self._player = player
        self._trial = trial
        self._player_for = player_for
        self._sources = sources
        self._drawing = drawing
        self._until = monotonic() + SECONDS

    def smallest(self) -> tuple[Player, Trial]:
        """Return the smallest failing run that was found, and the player with its inputs."""
        while not self._trial.is_stuck and monotonic() < self._until:
            inputs = self._player.subject.inputs
            shrunk_inputs(inputs, self._sources, self._breaks, self._drawing)
            if self._player.subject.inputs == inputs:
                break
            # Fewer events may need fewer operations, so both are shrunk again.
            undisturbed = self._player.play(Schedule(), notes=True)
            self._trial = smallest(self._player, self._trial, undisturbed)
        return self._player, self._trial

    def _breaks(self, inputs: Inputs) -> bool:
        """Return whether a run with these inputs breaks the promise; remember the latest that does."""
        if monotonic() >= self._until:
            return False
        player = self._player_for(inputs)
        for schedule in (Schedule(), *_with_fewer_calls(self._trial.schedule)):
            try:
                trial = player.play(schedule)
            except Exception:
                return False  # The check cannot handle these inputs.
            if not schedule and any(broken_promise(e) is None for e in trial.errors.values()):
                return False  # The code rejects these inputs.
            if trial.broken is not None:
                trial.schedule = Schedule(trial.fired)
                self._player, self._trial = player, trial
                return True
        return False


def _with_fewer_calls(schedule: Schedule) -> Iterator[Schedule]:
    """Yield a schedule, and those whose events happen earlier because a client makes fewer calls."""
    if schedule:
        yield schedule
    strands = dict.fromkeys(disturbance.strand for disturbance in schedule)
    for strand in strands:
        first = min(d.point for d in schedule if d.strand == strand)
        for fewer in range(1, first):
            yield Schedule(_earlier(disturbance, strand, fewer) for disturbance in schedule)


def _earlier(disturbance: Disturbance, strand: str, fewer: int) -> Disturbance:
    if disturbance.strand != strand or disturbance.kind == "numbers":
        return disturbance
    return disturbance._replace(point=disturbance.point - fewer)
