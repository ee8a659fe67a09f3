"""Moves of the clock: forced ones, those that the search chooses, and pauses of strands."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import ContractError
from ..event_effects import seconds
from ..footprint import CHECKS_PROMISE, MOVES_CLOCK, Footprint
from ..run import ClockMove, Option, Step
from ..schedule import CLOCK, DELAY, EDGE, JUMPS, PAUSES, TICKS, Event, Kind
from .state import Part, RunState
from .strands import Strand, Waiting
from .stuck import describe_places

MOST_STEPS = 20_000
MOST_MOVES = 8
"""Maximum number of times that the clock moves in one run although a strand could run."""
FIRINGS = 3
"""Number of times that a queue's schedules fire at the end of a run, if no ``horizon`` is given."""

_LATE_STARTS: tuple[tuple[Kind, str], ...] = (
    ("delay", str(DELAY)),
    *(("tick", span) for span in TICKS),
    ("nearly", EDGE),
    ("jump", EDGE),
)
"""The events by which a client may start later than the others."""


class ClockMoves(Part):
    """Moves the clock when no strand can run, or when the schedule demands it."""

    def __init__(self, state: RunState, *, moves_time: bool) -> None:
        super().__init__(state)
        self.moves_time = moves_time
        """Whether the search orders the moves of the clock."""
        self.may_move = moves_time or any(event.detail == CLOCK for event in state.schedule)
        """Whether the clock may move although a strand could run."""
        self.moves: list[tuple[int, int]] = []
        """The index of each step that moved the clock, with the time to which it moved."""
        self.held_us = 0
        """The end of a pause of all strands; until then, no delivery begins."""
        self.barrier = -1
        """The index of the last step before the last forced move of the clock."""
        self._chosen_moves = 0
        self._forced_moves = 0
        self._firings = 0

    def all_times(self) -> frozenset[int]:
        """Return the times that the clock can move to, if timers are explored."""
        if not self.moves_time:
            return frozenset()
        waits = (s.waiting.wake_us for s in self._state.strands if s.state == "waiting")
        wakes = (wake_us for wake_us in waits if wake_us is not None)
        return frozenset((*self._world.time.known_instants(MOST_MOVES), *wakes))

    def next_move(self, options: Sequence[Option]) -> ClockMove | None:
        """Return the next move of the clock, or None if a client's patience does not allow it."""
        if options:
            return self._chosen_move(options)
        at_us = self.next_us(forced=True)
        if at_us is None or not self.moves_time:
            return None
        return ClockMove(min([at_us, *self._world.time.known_instants(1)]))

    def _chosen_move(self, options: Sequence[Option]) -> ClockMove | None:
        """Return the move that may come before the strands that can run."""
        at_us = self.next_us(forced=False)
        if at_us is None:
            return None
        span_us = at_us - self._world.now_us()
        waiting = [one for one in options if isinstance(one, Strand) and one.state != "new"]
        if not all(self.may_pause(strand, span_us) for strand in waiting):
            return None
        if self._chosen_moves >= MOST_MOVES:
            self._run.is_cut = True
            return None
        return ClockMove(at_us)

    def move(self, move: ClockMove, options: Sequence[Option]) -> None:
        """Move the clock as a step of its own, which a search can order relative to other steps."""
        now = self._world.now_us()
        for option in options:
            if isinstance(option, Strand) and option.state != "new":
                option.paused_us += move.at_us - now
        if options:
            self._chosen_moves += 1
            self._record.add_line("clock", f"moves by {seconds(move.at_us - now)}", event=True)
        else:
            self._count_firing(move.at_us)
        ends = list(self._world.time.ends_until(move.at_us)) if self._record.has_steps else []
        fired = self._world.time.move_to(move.at_us)
        if self._record.has_steps:
            index = len(self._run.steps) - 1
            self.moves.append((index, move.at_us))
            self._record.touch([MOVES_CLOCK, *ends])
            if fired:
                self._run.steps[index].footprint.is_everything = True

    def foresee(self) -> None:
        """Record clock moves that were due after the end: a later run may make them earlier."""
        world, now = self._world, self._world.now_us()
        if self._chosen_moves >= MOST_MOVES:
            return
        for at_us in world.time.known_instants(MOST_MOVES - self._chosen_moves):
            if at_us > now + self._state.scope.patience_us:
                return
            touched = Footprint([MOVES_CLOCK, *world.time.ends_until(at_us)])
            if self._state.scope.always:
                touched.add(CHECKS_PROMISE)
            touched.is_everything = world.time.fires_until(at_us)
            self._run.steps.append(Step(CLOCK, "switch", 0, (CLOCK,), touched, -1, self.barrier))

    def pass_time(self) -> bool:
        """Move the clock to the next event; return False if there is none."""
        target = self.next_us(forced=True)
        if target is None:
            return False
        self._count_firing(target)
        self._forced_moves += 1
        if self._forced_moves > MOST_STEPS:
            waiting = [s for s in self._state.strands if s.state == "waiting"]
            raise ContractError(
                f"time has moved {MOST_STEPS:,} times and the run goes on: "
                f"{describe_places(waiting)} waits again and again. Give its loop an end"
            )
        self._world.time.move_to(target)
        self.barrier = len(self._run.steps) - 1
        return True

    def next_us(self, *, forced: bool) -> int | None:
        """Return the time of the next timer or wake-up, or None.

        A forced move skips the ends of TTLs, because no strand waits for them. It does not go beyond
        the horizon of schedules: if only a later firing is left, this method ends the schedules.
        """
        now, deliveries = self._world.now_us(), self._world.deliveries
        found = self._wake_ups(now)
        if not forced:
            found += self._world.time.known_instants(1)
        firing = deliveries.next_firing_us()
        if firing is not None:
            if found or self._may_fire(firing):
                found.append(firing)
            elif forced:
                deliveries.end_schedules()
        # A message that is due but cannot begin waits for something else, such as a paused queue.
        due = deliveries.next_us(after_us=now)
        if due is not None:
            found.append(due)
        return min((at for at in found if at > now), default=None)

    def _wake_ups(self, now: int) -> list[int]:
        """Return the times at which strands go on; daemon threads count only beside others."""
        strands = self._state.strands
        only_daemons = all(
            s.is_daemon or s.state == "ended" or (s.role == "thread" and s.waiting.wake_us is None)
            for s in strands
        )
        found = [self.held_us] if self.held_us > now else []
        for strand in strands:
            if strand.state == "ended" or (strand.is_daemon and only_daemons):
                continue
            wake_us = strand.waiting.wake_us or 0
            if strand.held_until_us > now:
                found.append(strand.held_until_us)
            elif strand.state in ("waiting", "new") and wake_us > now:
                found.append(wake_us)
        return found

    def _count_firing(self, at_us: int) -> None:
        """Count a forced move to the time at which a queue's schedule fires."""
        if at_us == self._world.deliveries.next_firing_us():
            self._firings += 1

    def _may_fire(self, at_us: int) -> bool:
        """Return whether schedules may still fire although no strand waits. Retries do not count,
        because messages that are never handled would let schedules fire for hours.
        """
        horizon_us = self._state.scope.horizon_us
        if horizon_us is None:
            return self._firings < FIRINGS
        return at_us <= self._run.start_us + horizon_us

    def pause(self, strand: Strand, event: Event) -> bool:
        """Pause a strand for an event of the schedule; return False if patience forbids that."""
        until_us = None if self._world.clock.driving else self._pause_end_us(event)
        if until_us is None:
            return False
        now, stops_all = self._world.now_us(), event.kind != "delay"
        span_us = until_us - now
        held = [strand, *self._idle_strands(strand, now)] if stops_all else [strand]
        started = [each for each in held if each is strand or each.state != "new"]
        if not all(self.may_pause(each, span_us) for each in started):
            return False
        for each in held:
            each.held_until_us = until_us
        for each in started:
            each.paused_us += span_us
        words = f"pauses for {seconds(span_us)} before its call"
        if stops_all:
            self.held_us = until_us
            strand.yields_to_others = True
            due_us = self._world.deliveries.next_us()
            if len(held) > 1 or (due_us is not None and due_us < until_us):
                words += ", and the others wait"
        self._state.park(strand, "switch")
        self._record.add_line(strand.name, words, event=True)
        return True

    def slow_down(self, strand: Strand, event: Event) -> bool:
        """Delay an answer for an event of the schedule; return False if patience forbids that."""
        span_us = int(event.detail or DELAY) * 1_000_000
        if not self.may_pause(strand, span_us):
            return False
        strand.paused_us += span_us
        strand.held_until_us = self._world.now_us() + span_us
        self._state.park(strand, "late")
        words = f"receives its answer {seconds(span_us)} later"
        self._record.add_line(strand.name, words, event=True)
        return True

    def _idle_strands(self, strand: Strand, now: int) -> list[Strand]:
        """Return the other strands that could run now."""
        return [
            s
            for s in self._state.strands
            if s is not strand and s.state in ("parked", "new") and s.held_until_us <= now
        ]

    def _pause_end_us(self, event: Event) -> int | None:
        """Return the time at which a pause that begins now ends, or None without such a time."""
        now = self._world.now_us()
        if event.kind == "delay":
            return now + int(event.detail or DELAY) * 1_000_000
        if event.kind == "tick":
            return now + TICKS[event.detail]
        if event.detail == EDGE:
            target = _edge(now)
        else:
            instants = self._world.time.known_instants(JUMPS)
            index = int(event.detail) - 1 if event.detail.isdigit() else 0
            if index >= len(instants):
                return None
            target = instants[index]
        target += {"nearly": -1_000, "past": 1_000_000}.get(event.kind, 0)
        return target if target > now else None

    def delay_starts(self) -> None:
        """Let clients of which there are several start later, as the schedule demands."""
        clients = [strand for strand in self._state.strands if strand.role == "client"]
        if len(clients) < 2:
            return
        for strand in clients:
            if self._record.notes_points:
                self._record.add_point(strand.name, 0, list(_LATE_STARTS))
            for event in self._state.schedule.at(strand.name, 0):
                if event.kind in PAUSES and (end_us := self._pause_end_us(event)) is not None:
                    strand.waiting = Waiting(wake_us=end_us)
                    self._run.fired.append(event)
                    span = seconds(end_us - self._world.now_us())
                    self._record.add_line(strand.name, f"starts {span} later", event=True)

    def may_pause(self, strand: Strand, span_us: int) -> bool:
        deadline_us = strand.root.deadline_us
        if deadline_us is not None:
            return self._world.now_us() + span_us <= deadline_us
        return strand.paused_us + span_us <= self._state.scope.patience_us

    def note_moves(self, strand: Strand, choices: Sequence[tuple[Kind, str]]) -> None:
        """Record the events that are possible at a point: the given ones and moves of the clock."""
        world = self._world
        moves: list[tuple[Kind, str]] = []
        if not world.clock.driving:
            now = world.now_us()
            for index, at in enumerate(world.time.known_instants(JUMPS), 1):
                if self.may_pause(strand, at - now):
                    detail = "" if index == 1 else str(index)
                    moves += [("jump", detail), ("past", detail), ("nearly", detail)]
            moves += [("tick", span) for span in TICKS]
            if self.may_pause(strand, _edge(now) - now):
                moves.append(("nearly", EDGE))
        self._record.add_point(strand.name, strand.points, [*choices, *moves])


def _edge(now_us: int) -> int:
    """Return the start of the next second; the event ``nearly`` ends a millisecond before it."""
    return (now_us // 1_000_000 + 1) * 1_000_000
