"""Shrink a failure's drawn inputs together with its schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import process_time

from ....core.errors import broken_promise
from ....core.timers import monotonic
from ...search.player import Player
from ...search.shrinking import smallest
from ...search.singles import singles
from ...subject.clients import Inputs
from ...values.disturbances import Disturbance
from ...values.plan import Plan
from ...values.schedule import Schedule
from ...values.trial import FailingTrial, Trial
from .drawing import Drawing, InputSource, inputs_with_operations, number_of_operations, shrunk

SECONDS = 10.0
"""Processor seconds for shrinking inputs, in addition to the budget, so that the result does not
depend on what else the machine does (decided here).
"""
_REAL_SECONDS = 60.0
"""Wall-clock seconds for the same, because code may wait in real time (decided here)."""
_MOST_TRIALS = 3_000
"""Maximum number of trials with fewer operations that are drawn again (decided here)."""


class JointShrinking:
    """Looks for smaller inputs, and a smaller schedule, that still break the promise."""

    def __init__(
        self,
        player: Player,
        failing: FailingTrial,
        player_for: Callable[[Inputs], Player],
        sources: Mapping[str, InputSource],
        drawing: Drawing,
    ) -> None:
        self._player = player
        self._failing = failing
        self._player_for = player_for
        self._sources = sources
        self._drawing = drawing
        self._until = process_time() + SECONDS
        self._until_real = monotonic() + _REAL_SECONDS

    def shrink_inputs(self) -> tuple[Player, FailingTrial]:
        """Return the smallest failing trial that was found, and the player with its inputs."""
        self._shrink()
        if "stuck" not in self._failing.trial.flags and self._draw_fewer_operations():
            self._shrink()
        return self._player, self._failing

    def _shrink(self) -> None:
        """Leave out operations and disturbances, and simplify arguments, as long as that succeeds."""
        while "stuck" not in self._failing.trial.flags and self._has_time():
            inputs = self._player.subject.inputs
            shrunk(inputs, self._sources, self._breaks, self._drawing)
            if self._player.subject.inputs == inputs:
                break
            # Fewer disturbances may need fewer operations, so both are shrunk again.
            undisturbed = self._player.play(Plan(notes_points=True))
            self._failing = smallest(self._player, self._failing, undisturbed, {})

    def _draw_fewer_operations(self) -> bool:
        """Draw fewer operations with other arguments; return whether a trial breaks the promise.

        Leaving out operations ends where each of them is needed with these arguments: a withdrawal
        of 20 needs two deposits of 10, but only one of 50. One disturbance is tried at a time.
        """
        has_disturbances, trials = bool(self._failing.schedule), 0

        def with_one_disturbance(undisturbed: Trial) -> Iterator[Schedule]:
            nonlocal trials
            trials += 1
            for schedule in singles(undisturbed)[0] if has_disturbances else ():
                trials += 1
                yield schedule

        for count in range(1, number_of_operations(self._player.subject.inputs, self._sources)):
            for inputs in inputs_with_operations(count, self._sources, self._drawing):
                if self._breaks_under(inputs, with_one_disturbance):
                    return True
                if trials >= _MOST_TRIALS or not self._has_time():
                    return False
        return False

    def _has_time(self) -> bool:
        return process_time() < self._until and monotonic() < self._until_real

    def _breaks(self, inputs: Inputs) -> bool:
        schedule = self._failing.schedule
        return self._breaks_under(inputs, lambda _: _with_fewer_calls(schedule))

    def _breaks_under(
        self, inputs: Inputs, schedules: Callable[[Trial], Iterable[Schedule]]
    ) -> bool:
        """Return whether a trial with these inputs breaks the promise; remember the latest that does.

        It has no disturbances, or one of the schedules, which are chosen for the trial without any.
        """
        player = self._player_for(inputs)
        try:
            if not self._has_time():
                return False
            trial = player.play_undisturbed(Plan(notes_points=True, has_details=True))
            if any(broken_promise(error) is None for error in trial.errors.values()):
                return False  # The code rejects these inputs.
            candidates = iter(schedules(trial))
            while trial.broken is None and self._has_time():
                schedule = next(candidates, None)
                if schedule is None:
                    return False
                trial = player.play(Plan(schedule))
        except Exception:
            return False  # The check cannot handle these inputs.
        if trial.broken is None:
            return False
        self._player, self._failing = player, FailingTrial.of(trial)
        return True


def _with_fewer_calls(schedule: Schedule) -> Iterator[Schedule]:
    """Yield a schedule, and those with earlier disturbances, because a client makes fewer calls."""
    if schedule:
        yield schedule
    strands = dict.fromkeys(disturbance.strand for disturbance in schedule)
    for strand in strands:
        own = (disturbance for disturbance in schedule if disturbance.strand == strand)
        first = min(disturbance.point for disturbance in own)
        for fewer in range(1, first):
            yield Schedule(_earlier(disturbance, strand, fewer) for disturbance in schedule)


def _earlier(disturbance: Disturbance, strand: str, fewer: int) -> Disturbance:
    if disturbance.strand != strand or disturbance.kind == "numbers":
        return disturbance
    return disturbance._replace(point=disturbance.point - fewer)
