"""Pauses of strands, by which the schedule lets time pass before, during or after a call."""

from __future__ import annotations

from collections.abc import Sequence

from ..schedule import DELAY, EDGE, JUMPS, PAUSES, TICKS, Event, Kind
from .state import Part, seconds
from .strands import Strand, Waiting

_LATE_STARTS: tuple[tuple[Kind, str], ...] = (
    ("delay", str(DELAY)),
    *(("tick", span) for span in TICKS),
    ("nearly", EDGE),
    ("jump", EDGE),
)
"""The events by which a client may start later than the others."""


class Pauses(Part):
    """Pauses one strand or all strands for an event, if the patience of a client allows it."""

    def pause(self, strand: Strand, event: Event) -> bool:
        """Pause a strand before its call; return False if patience forbids that.

        Every kind of pause but ``delay`` pauses the other strands that could run, too.
        """
        until_us = self._end_us(event)
        if until_us is None:
            return False
        now, is_for_all = self._world.now_us(), event.kind != "delay"
        span_us = until_us - now
        paused = [strand]
        if is_for_all:
            paused += [
                one for one in self._state.strands if one is not strand and _can_run(one, now)
            ]
        begun = [one for one in paused if one is strand or one.state != "new"]
        if not all(self.may_pause(one, span_us) for one in begun):
            return False
        for one in paused:
            one.held_until_us = until_us
        for one in begun:
            one.paused_us += span_us
        words = f"pauses for {seconds(span_us)} before its call"
        if is_for_all:
            self._state.all_paused_until_us = until_us
            strand.yields_to_others = True
            due_us = self._world.deliveries.next_us()
            if len(paused) > 1 or (due_us is not None and due_us < until_us):
                words += ", and the others wait"
        self._state.park(strand, "switch")
        self._record.add_line(strand.name, words, event=True)
        return True

    def slow_down(self, strand: Strand, event: Event) -> bool:
        """Delay an answer; return False if patience forbids that."""
        span_us = int(event.detail or DELAY) * 1_000_000
        if not self.may_pause(strand, span_us):
            return False
        strand.paused_us += span_us
        strand.held_until_us = self._world.now_us() + span_us
        self._state.park(strand, "late")
        words = f"receives its answer {seconds(span_us)} later"
        self._record.add_line(strand.name, words, event=True)
        return True

    def delay_starts(self) -> None:
        """Let clients of which there are several start later, as the schedule demands."""
        clients = [strand for strand in self._state.strands if strand.role == "client"]
        if len(clients) < 2:
            return
        for strand in clients:
            if self._record.notes_points:
                self._record.add_point(strand.name, 0, _LATE_STARTS)
            for event in self._state.schedule.at(strand.name, 0):
                if event.kind in PAUSES and (end_us := self._end_us(event)) is not None:
                    strand.waiting = Waiting(wake_us=end_us)
                    self._run.fired.append(event)
                    span = seconds(end_us - self._world.now_us())
                    self._record.add_line(strand.name, f"starts {span} later", event=True)

    def _end_us(self, event: Event) -> int | None:
        """Return the time at which a pause that begins now ends, or None without such a time."""
        now = self._world.now_us()
        if event.kind == "delay":
            return now + int(event.detail or DELAY) * 1_000_000
        if event.kind == "tick":
            return now + TICKS[event.detail]
        if event.detail == EDGE:
            target = _edge(now)
        else:
            index = int(event.detail or 1) - 1
            instants = self._world.time.known_instants(JUMPS)
            if index >= len(instants):
                return None
            target = instants[index]
        target += {"nearly": -1_000, "past": 1_000_000}.get(event.kind, 0)
        return target if target > now else None

    def may_pause(self, strand: Strand, span_us: int) -> bool:
        """Return whether a strand may be slower by a span, within its deadline or the patience."""
        deadline_us = strand.root.deadline_us
        if deadline_us is not None:
            return self._world.now_us() + span_us <= deadline_us
        return strand.paused_us + span_us <= self._state.scope.patience_us

    def note_point(self, strand: Strand, choices: Sequence[tuple[Kind, str]] = ()) -> None:
        """Record the events that are possible at a point: the given ones and pauses of all strands."""
        world = self._world
        pauses: list[tuple[Kind, str]] = []
        if not world.clock.driving:
            now = world.now_us()
            for index, at in enumerate(world.time.known_instants(JUMPS), 1):
                if self.may_pause(strand, at - now):
                    detail = "" if index == 1 else str(index)
                    pauses += [("jump", detail), ("past", detail), ("nearly", detail)]
            pauses += [("tick", span) for span in TICKS]
            if self.may_pause(strand, _edge(now) - now):
                pauses.append(("nearly", EDGE))
        self._record.add_point(strand.name, strand.points, [*choices, *pauses])


def _can_run(strand: Strand, now: int) -> bool:
    return strand.state in ("parked", "new") and strand.held_until_us <= now


def _edge(now_us: int) -> int:
    """Return the start of the next second; the event ``nearly`` ends a millisecond before it."""
    return (now_us // 1_000_000 + 1) * 1_000_000
