"""Decisions of a trial: which option comes next, and the steps between them."""

from __future__ import annotations

from collections.abc import Sequence

from ..fakes.deliveries import DueDelivery
from ..values.disturbances import CLOCK, KINDS, SWITCHES, Disturbance, Kind
from ..values.footprint import MEMORY, Footprint
from ..values.names import StrandName
from ..values.plan import SwitchKind
from ..values.trial import Step
from .clock import ClockMove, Option, TrialClock
from .log import span_text
from .part import Common, Part
from .strand import Strand


class Decisions(Part):
    """Decides where several options could run: the first one does, unless the schedule or the strategy
    wants another. Records a step for each decision, if the search needs them.
    """

    def __init__(self, common: Common, *, clock: TrialClock) -> None:
        super().__init__(common)
        self._clock = clock
        self._switches: dict[tuple[str, int], list[Disturbance]] = {}
        """The switches of the schedule that are not applied yet, by strand and point."""
        self._noted: set[tuple[str, int, Kind]] = set()
        """The points that are recorded, at which other strands could run first."""
        self._times: frozenset[int] = frozenset()
        """The times that the clock could move to at the last decision."""
        self._strategy = self._script.strategy
        for disturbance in self._script.schedule:
            if disturbance.kind in SWITCHES:
                self._switches.setdefault(disturbance.point_id, []).append(disturbance)

    def has_switch(self, strand: str, point: int) -> bool:
        """Return whether the schedule runs another strand at a point, and has not done so yet."""
        return bool(self._switches.get((strand, point)))

    def decide(self, options: list[Option], last_root: Strand | None) -> Option:
        """Return the option that comes next: the first one unless the schedule or the strategy wants
        another. Record the decision. ``last_root`` is the client, worker or delivery that ran last.
        """
        has_steps = self._script.has_steps
        if len(options) == 1 and not has_steps:
            return options[0]
        names = [option.scheduled_name for option in options]
        if self._strategy is not None:
            last = "" if last_root is None or last_root.state == "ended" else last_root.name
            allowed = self._strategy.allowed(names, last, self._access_log.accesses)
            if len(allowed) < len(names):
                options = [option for option in options if option.scheduled_name in allowed]
                names = [option.scheduled_name for option in options]
        kind, point = _continuation(options[0])
        if has_steps:
            self.end_step(names)
        if len(options) > 1:
            self._note_point(names, point, kind)
        switch = self._wanted_switch(names, point, kind)
        chosen = options[0] if switch is None else options[names.index(switch.runs_first)]
        if has_steps:
            self._begin_step(chosen, names)
        if switch is not None:
            self._note_applied(switch, chosen)
        return chosen

    def _note_point(self, names: list[str], point: int, kind: Kind) -> None:
        """Record a point at which other options could come first, once."""
        key = names[0], point, kind
        if kind in self._script.subject.kinds and key not in self._noted:
            self._noted.add(key)
            others = tuple([(kind, name) for name in names[1:] if name != CLOCK])
            self._log.add_point(names[0], point, others, kind)

    def _wanted_switch(self, names: list[str], point: int, kind: Kind) -> Disturbance | None:
        """Return the switch to another option that the schedule or the strategy wants, if any."""
        planned = self._switches.get((names[0], point))
        if planned:
            for disturbance in planned:
                if disturbance.kind == kind and disturbance.runs_first in names:
                    return disturbance
        elif self._strategy is not None and kind in self._strategy.switch_kinds:
            name = self._strategy.pick(self._access_log.steps, names, kind)
            if name != names[0]:
                return Disturbance(names[0], point, kind, name)
        return None

    def _note_applied(self, switch: Disturbance, chosen: Option) -> None:
        """Record a switch as applied, in which an option comes first."""
        if planned := self._switches.get(switch.point_id):
            planned.remove(switch)
        if isinstance(chosen, ClockMove):
            span = span_text(chosen.at_us - self._fakes.now_us())
            self._log.note_applied([switch], "clock", f"moves by {span}")
            return
        is_start = switch.kind == "switch" and not switch.point
        when = "before {} starts" if is_start else KINDS[switch.kind].words
        words = "receives its answer" if _continuation(chosen)[0] == "late" else "runs"
        text = f"{words} {when.format(StrandName.of(switch.strand).shown)}"
        self._log.note_applied([switch], switch.runs_first, text)

    def end_step(self, options: Sequence[str]) -> None:
        """Record which options and clock times the last step made impossible."""
        before, self._times = self._times, self._clock.all_times()
        if not self._access_log.steps:
            return
        last = self._access_log.steps[-1]
        last.disabled = set(last.options) - {last.strand, *options}
        if last.strand != CLOCK and any(at > self._fakes.now_us() for at in before - self._times):
            last.disabled.add(CLOCK)

    def _begin_step(self, option: Option, options: Sequence[str]) -> None:
        if "timers" not in self._log.flags and self._clock.next_us() is not None:
            self._log.flags.add("timers")
        kind, point = _continuation(option)
        enabled_by, barrier = self._enabled_by(option), self._clock.barrier
        step = Step(
            option.scheduled_name, kind, point, tuple(options), Footprint(), enabled_by, barrier
        )
        if kind != "switch" and self._strategy and "late" in self._strategy.switch_kinds:
            # Code between two calls is a step of its own, which shares the process's memory.
            step.footprint.add(MEMORY)
        self._access_log.steps.append(step)

    def _enabled_by(self, option: Option) -> int:
        """Return the index of the step that created an option, or that moved the clock to its time."""
        created_by = self._strands.created_by.get(option.scheduled_name, -1)
        due_us = None
        if isinstance(option, DueDelivery):
            due_us = option.timer.due_us
        elif isinstance(option, Strand) and option.state != "parked":
            due_us = option.waiting.wake_us
        if due_us is None:
            return created_by
        moved_by = next((index for index, at_us in self._clock.moves if at_us >= due_us), -1)
        return max(created_by, moved_by)


def _continuation(option: Option) -> tuple[SwitchKind, int]:
    """Return the kind of switch that delays an option, and the number of its latest point."""
    if not isinstance(option, Strand) or option.state == "new":
        return "switch", 0
    return option.switch_kind, option.points
