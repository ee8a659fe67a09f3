"""Moves of the clock: forced ones, and those that the search chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...core.errors import ContractError
from ..footprint import CHECKS_PROMISE, MOVES_CLOCK, Footprint
from ..run import ClockMove, Option, Step
from ..schedule import CLOCK
from .pauses import Pauses
from .state import Part, RunState, seconds
from .strands import Strand
from .stuck import describe_places

MOST_STEPS = 20_000
MOST_MOVES = 8
"""Maximum number of times that the clock moves in one run although a strand could run."""
FIRINGS = 3
"""Number of times that a queue's schedules fire at the end of a run, if no ``horizon`` is given."""


class _NextTimes(NamedTuple):
    """The times at which a run goes on if no strand can run now, in microseconds."""

    wake_up: int | None
    delivery: int | None
    firing: int | None
    """The time at which a queue's schedule fires; None if it may not fire any more."""

    def earliest(self, after_us: int, others: Sequence[int] = ()) -> int | None:
        found = [at for at in (*self, *others) if at is not None and at > after_us]
        return min(found, default=None)


class ClockMoves(Part):
    """Moves the clock when no strand can run, or when the schedule demands it."""

    def __init__(self, state: RunState, pauses: Pauses, *, moves_time: bool) -> None:
        super().__init__(state)
        self._pauses = pauses
        self.moves_time = moves_time
        """Whether the search orders the moves of the clock."""
        self.may_move = moves_time or any(event.detail == CLOCK for event in state.schedule)
        """Whether the clock may move although a strand could run."""
        self.moves: list[tuple[int, int]] = []
        """The index of each step that moved the clock, with the time to which it moved."""
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

    def plan_move(self, options: Sequence[Option]) -> ClockMove | None:
        """Plan the next move of the clock, or none; end the schedules if nothing else goes on."""
        if options:
            return self._chosen_move(options)
        times = self._next_times()
        self._end_schedules_after(times)
        at_us = times.earliest(self._world.now_us())
        if at_us is None or not self.moves_time:
            return None
        return ClockMove(min([at_us, *self._world.time.known_instants(1)]))

    def _chosen_move(self, options: Sequence[Option]) -> ClockMove | None:
        """Return a move before the strands that can run, or None if a client's patience is less."""
        at_us = self.next_us()
        if at_us is None:
            return None
        span_us = at_us - self._world.now_us()
        waiting = [one for one in options if isinstance(one, Strand) and one.state != "new"]
        if not all(self._pauses.may_pause(strand, span_us) for strand in waiting):
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
        elif move.at_us == self._world.deliveries.next_firing_us():
            self._firings += 1
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
        times = self._next_times()
        self._end_schedules_after(times)
        target = times.earliest(self._world.now_us())
        if target is None:
            return False
        if target == times.firing:
            self._firings += 1
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

    def next_us(self) -> int | None:
        """Return the time of the next wake-up, delivery, timer or end of a TTL, or None."""
        known = self._world.time.known_instants(1)
        return self._next_times().earliest(self._world.now_us(), known)

    def _next_times(self) -> _NextTimes:
        """Return the next times without the ends of TTLs, because no strand waits for them."""
        now, deliveries = self._world.now_us(), self._world.deliveries
        wake_up, firing = self._next_wake_up(now), deliveries.next_firing_us()
        if wake_up is None and firing is not None and not self._may_fire(firing):
            firing = None
        # A message that is due but cannot begin waits for something else, such as a paused queue.
        return _NextTimes(wake_up, deliveries.next_us(after_us=now), firing)

    def _next_wake_up(self, now: int) -> int | None:
        """Return the next time at which a strand goes on; daemons count only beside others."""
        strands = self._state.strands
        only_daemons = all(
            s.is_daemon or s.state == "ended" or (s.role == "thread" and s.waiting.wake_us is None)
            for s in strands
        )
        found = [self._state.all_paused_until_us]
        for strand in strands:
            if strand.state == "ended" or (strand.is_daemon and only_daemons):
                continue
            if strand.held_until_us > now:
                found.append(strand.held_until_us)
            elif strand.state in ("waiting", "new"):
                found.append(strand.waiting.wake_us or 0)
        return min([at for at in found if at > now], default=None)

    def _end_schedules_after(self, times: _NextTimes) -> None:
        """End the schedules if no strand waits and none of them may fire, so that the run ends."""
        if times.wake_up is None and times.firing is None:
            self._world.deliveries.end_schedules()

    def _may_fire(self, at_us: int) -> bool:
        """Return whether schedules may still fire although no strand waits. Retries do not count,
        because messages that are never handled would let schedules fire for hours.
        """
        horizon_us = self._state.scope.horizon_us
        if horizon_us is None:
            return self._firings < FIRINGS
        return at_us <= self._run.start_us + horizon_us
