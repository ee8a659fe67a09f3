"""Steps of a run: what each decision chose, from which options, and what a step made possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..footprint import MEMORY, Footprint
from ..run import Option, Plan, Point, Step
from ..schedule import CLOCK, Kind
from .clock import ClockMoves
from .deliveries import Due
from .state import Part, RunState
from .strands import Place, Strand


class Steps(Part):
    """Records the steps of a run for the search, and the points at which strands can be switched."""

    def __init__(self, state: RunState, plan: Plan, clock: ClockMoves) -> None:
        super().__init__(state)
        self._clock = clock
        self._shares_memory = plan.strategy is not None and "late" in plan.strategy.places
        """Whether code between two calls is a step of its own."""
        self._noted: set[tuple[str, int, Kind]] = set()
        self._times: frozenset[int] = frozenset()

    def note_switches(self, name: str, point: int, kind: Kind, others: Iterable[str]) -> None:
        """Record a point at which other strands could run first."""
        if kind in self._state.scope.kinds and (name, point, kind) not in self._noted:
            self._noted.add((name, point, kind))
            self._run.points.append(Point(name, point, [(kind, other) for other in others]))

    def end(self, options: Sequence[str]) -> None:
        """Record which options and clock times the last step made impossible."""
        before, self._times = self._times, self._clock.all_times()
        if not self._run.steps:
            return
        last = self._run.steps[-1]
        last.disabled = set(last.options) - {last.strand, *options}
        if last.strand != CLOCK and any(at > self._world.now_us() for at in before - self._times):
            last.disabled.add(CLOCK)

    def begin(self, option: Option, options: Sequence[str]) -> None:
        """Record the step that begins with a chosen option."""
        if not self._run.has_timers:
            self._run.has_timers = self._clock.next_us() is not None
        place, point = place_of(option)
        enabled_by, barrier = self._enabled_by(option), self._clock.barrier
        step = Step(option.name, place, point, tuple(options), Footprint(), enabled_by, barrier)
        if self._shares_memory and place != "switch":
            step.footprint.add(MEMORY)
        self._run.steps.append(step)

    def _enabled_by(self, option: Option) -> int:
        """Return the index of the step that created an option, or that moved the clock to its time."""
        created_by = self._state.created_by.get(option.name, -1)
        due_us = None
        if isinstance(option, Due):
            due_us = option.timer.due_us
        elif isinstance(option, Strand) and option.state != "parked":
            due_us = option.waiting.wake_us
        if due_us is None:
            return created_by
        moved_by = next((index for index, at_us in self._clock.moves if at_us >= due_us), -1)
        return max(created_by, moved_by)


def place_of(option: Option) -> tuple[Place, int]:
    """Return where an option continues: its place, and the number of its calls so far."""
    if not isinstance(option, Strand) or option.state == "new":
        return "switch", 0
    return ("wake" if option.state == "waiting" else option.place), option.points
