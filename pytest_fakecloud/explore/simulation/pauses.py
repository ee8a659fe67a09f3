"""Pauses of strands that the schedule contains."""

from __future__ import annotations

import functools
from bisect import bisect_right

from ..values.disturbances import (
    DELAY,
    DELAYS,
    DUE,
    EDGE,
    JUMPS,
    KINDS,
    PAUSES,
    TICKS,
    Disturbance,
    Kind,
)
from ..values.trial import Choices
from .known_times import KnownTimes
from .log import span_text
from .part import Common, Part
from .strand import Strand

_LATE_STARTS: Choices = (
    ("delay", str(DELAY)),
    *(("tick", span) for span in TICKS),
    ("nearly", EDGE),
    ("jump", EDGE),
)
"""The disturbances by which a client may start later than the others."""


class Pauses(Part):
    """Pauses one strand or all strands, within the patience of those that have begun."""

    def __init__(self, common: Common, *, known_times: KnownTimes) -> None:
        super().__init__(common)
        self._known_times = known_times
        self.all_until_us = 0
        """The end of a pause of all strands; until then, no delivery begins."""

    def apply(self, strand: Strand, disturbance: Disturbance) -> bool:
        """Pause a strand, which then has to give up its turn; return False if there is no time to pause
        until, or if the patience of one that would be paused is less.

        Kinds of pauses that are not among ``DELAYS`` pause the other strands that could run, too.
        """
        until_us = self._end_us(disturbance)
        if until_us is None:
            return False
        now, is_for_all = self._fakes.now_us(), disturbance.kind not in DELAYS
        span_us = until_us - now
        paused = [strand]
        if is_for_all:
            paused += [
                other
                for other in self._strands
                if other is not strand
                and other.state in ("parked", "new")
                and not other.is_paused(now)
            ]
        begun = [other for other in paused if other.state != "new"]
        if not all(self.may_pause(other, span_us) for other in begun):
            return False
        # What is due is done first, so that the strand can be switched to in the middle of it.
        is_last = is_for_all or disturbance.is_until_due
        for other in paused:
            other.pause_until(until_us, span_us, lets_others_first=is_last and other is strand)
        words = KINDS[disturbance.kind].words.format(span_text(span_us))
        if is_for_all:
            self.all_until_us = until_us
            due_us = self._fakes.deliveries.next_us()
            if len(paused) > 1 or (due_us is not None and due_us < until_us):
                words += ", and the others wait"
        self._log.note_applied([disturbance], strand.scheduled_name, words)
        return True

    def delay_starts(self) -> None:
        """Let clients start later, as the schedule says, if there are several."""
        clients = [strand for strand in self._strands if strand.type == "client"]
        if len(clients) < 2:
            return
        for strand in clients:
            if self._script.plan.notes_points:
                self._log.add_point(strand.scheduled_name, 0, _LATE_STARTS)
            for disturbance in self._script.schedule.at(strand.scheduled_name, 0):
                if disturbance.kind in PAUSES and (end_us := self._end_us(disturbance)) is not None:
                    strand.start_at(end_us)
                    words = f"starts {span_text(end_us - self._fakes.now_us())} later"
                    self._log.note_applied([disturbance], strand.scheduled_name, words)

    def _end_us(self, disturbance: Disturbance) -> int | None:
        """Return the time at which a pause that begins now ends, or None without such a time."""
        now = self._fakes.now_us()
        if disturbance.is_until_due:
            return self._known_times.next_in_data(now)
        if disturbance.kind in DELAYS or disturbance.kind == "tick":
            return now + disturbance.span_us
        if disturbance.is_at_edge:
            target = _edge(now)
        else:
            times = self._known_times.upcoming(now, JUMPS)
            if disturbance.known_time > len(times):
                return None
            target = times[disturbance.known_time - 1]
        target += {"jump": 0, "nearly": -1_000, "past": 1_000_000}[disturbance.kind]
        return target if target > now else None

    def may_pause(self, strand: Strand, span_us: int) -> bool:
        """Return whether a strand may be slower by a span, within its deadline or the patience."""
        now = self._fakes.now_us()
        return now + span_us <= self._latest_us(strand, now)

    def _latest_us(self, strand: Strand, now: int) -> int:
        """Return the latest time at which a pause of a strand that begins now may end."""
        deadline_us = strand.root.pause.deadline_us
        if deadline_us is not None:
            return deadline_us
        return now + self._script.subject.patience_us - strand.pause.total_us

    def note_point(self, strand: Strand, choices: Choices = ()) -> None:
        """Record the disturbances that are possible at a point: these, and pauses until times."""
        if not self._fakes.clock.is_moving:
            now = self._fakes.now_us()
            due_us, latest_us = self._known_times.next_in_data(now), self._latest_us(strand, now)
            choices += _pauses(
                bisect_right(self._known_times.upcoming(now, JUMPS), latest_us),
                has_due=due_us is not None and due_us <= latest_us,
                has_edge=_edge(now) <= latest_us,
            )
        self._log.add_point(strand.scheduled_name, strand.points, choices)


@functools.cache
def _pauses(jumps: int, *, has_due: bool, has_edge: bool) -> Choices:
    """Return the pauses until times that are possible, with jumps to a number of known times."""
    pauses: list[tuple[Kind, str]] = []
    for detail in ("", *map(str, range(2, JUMPS + 1)))[:jumps]:
        pauses += [("jump", detail), ("past", detail), ("nearly", detail)]
    pauses += [("tick", span) for span in TICKS]
    if has_due:
        pauses.append(("delay", DUE))
    if has_edge:
        pauses.append(("nearly", EDGE))
    return tuple(pauses)


def _edge(now_us: int) -> int:
    """Return the start of the next second; the disturbance ``nearly`` ends a millisecond before it."""
    return (now_us // 1_000_000 + 1) * 1_000_000
