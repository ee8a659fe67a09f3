"""The moves of the clock in a trial, and when they are possible or necessary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from ...core.errors import ContractError
from ..fakes.deliveries import DueDelivery
from ..values.disturbances import CLOCK
from ..values.footprint import CHECKS_PROMISE, MOVES_CLOCK, Footprint
from ..values.trial import Step
from .known_times import MOST_TIMERS, KnownTimes
from .part import Common, Part
from .pauses import Pauses
from .sleepers import Sleepers
from .stacks import describe_places
from .strand import Strand

MOST_FORCED_MOVES = 20_000
"""Maximum number of times that the clock moves in one trial because no strand could run."""
MOST_CHOSEN_MOVES = 8
"""Maximum number of times that the clock moves in one trial although a strand could run."""
FIRINGS = 3
"""Number of firings in a trial after which the schedules of queues fire only while a strand waits and
none can run, if no ``horizon`` is given.
"""


@dataclass(frozen=True, slots=True)
class ClockMove:
    """A move of the clock, as an option of the simulation."""

    at_us: int
    scheduled_name: ClassVar[str] = CLOCK


Option: TypeAlias = Strand | DueDelivery | ClockMove
"""An option of the simulation: a strand, a delivery, or a move of the clock."""


class _NextTimes(NamedTuple):
    """When a trial goes on if no strand can run now, by the reason, in microseconds; None for never."""

    wake_up: int | None
    delivery: int | None
    firing: int | None
    """When a queue's schedule fires, if it may."""

    def earliest(self, after_us: int) -> int | None:
        return min((at for at in self if at is not None and at > after_us), default=None)


class TrialClock(Part):
    """Moves the fake time of a trial: as an option that is chosen (``move()``), because no strand can
    run (``pass_time()``), or for a thread that sleeps while a strand waits for it (``move_to()``).
    """

    def __init__(
        self, common: Common, *, known_times: KnownTimes, sleepers: Sleepers, pauses: Pauses
    ) -> None:
        super().__init__(common)
        self._known_times = known_times
        self._sleepers = sleepers
        self._pauses = pauses
        self.moves: list[tuple[int, int]] = []
        """The index of each step that moved the clock, with the time to which it moved."""
        self.barrier = -1
        """The index of the last step before the last forced move of the clock."""
        self.chosen_moves = 0
        """Number of times that the clock has moved although a strand could run."""
        self._forced_moves = 0
        self._firings = 0

    def all_times(self) -> frozenset[int]:
        """Return the times that the clock can move to, if timers are explored."""
        if not self._script.moves_clock:
            return frozenset()
        waits = [strand.waiting.wake_us for strand in self._strands if strand.state == "waiting"]
        wakes = [wake_us for wake_us in waits if wake_us is not None]
        return frozenset(
            self._known_times.upcoming(self._fakes.now_us(), MOST_CHOSEN_MOVES) + wakes
        )

    def possible_move(self, options: Sequence[Option]) -> ClockMove | None:
        """Return the move of the clock to the next time, as an option beside the strands and deliveries
        that can run. None if nothing is due, if one of these cannot wait for so long, or if the schedule
        of a queue would fire that may not. None also if no strand can run, and the search does not order
        the moves of the clock, or the trial is over.
        """
        now = self._fakes.now_us()
        goes_on = bool(options) or self._next_times(now).earliest(now) is not None
        at_us = self.next_us()
        if at_us is None or not goes_on:
            return None
        if not options:
            return ClockMove(at_us) if self._script.moves_clock else None
        is_firing = at_us == self._fakes.deliveries.next_firing_us()
        if is_firing and self._next_firing(is_awaited=False) is None:
            return None
        span_us = at_us - now
        for option in options:
            may_wait = True
            if isinstance(option, Strand):
                may_wait = option.state == "new" or self._pauses.may_pause(option, span_us)
            elif isinstance(option, DueDelivery):
                may_wait = at_us - option.timer.due_us <= self._script.subject.patience_us
            if not may_wait:
                return None
        return ClockMove(at_us)

    def move(self, move: ClockMove, options: Sequence[Option]) -> None:
        """Move the clock as a step of its own, which a search can order relative to other steps."""
        now = self._fakes.now_us()
        for option in options:
            if isinstance(option, Strand):
                option.slow_down(move.at_us - now)
        if options:
            self.chosen_moves += 1
        ends = list(self._known_times.ends_until(move.at_us)) if self._script.has_steps else []
        fired = self._move_to_next(move.at_us)
        if self._script.has_steps:
            index = len(self._access_log.steps) - 1
            self.moves.append((index, move.at_us))
            self._access_log.touch([MOVES_CLOCK, *ends])
            if fired:
                self._access_log.steps[index].footprint.is_everything = True

    def foresee(self) -> None:
        """Record clock moves that were due after the end: a later trial may make them earlier."""
        now = self._fakes.now_us()
        if self.chosen_moves >= MOST_CHOSEN_MOVES:
            return
        for at_us in self._known_times.upcoming(now, MOST_CHOSEN_MOVES - self.chosen_moves):
            if at_us > now + self._script.subject.patience_us:
                return
            touched = Footprint([MOVES_CLOCK, *self._known_times.ends_until(at_us)])
            if self._script.subject.promises.at_step:
                touched.add(CHECKS_PROMISE)
            _, timers = self._fakes.clock.planned(MOST_TIMERS)
            touched.is_everything = any(t.lane == "state" and t.due_us <= at_us for t in timers)
            self._access_log.steps.append(
                Step(CLOCK, "switch", 0, (CLOCK,), touched, -1, self.barrier)
            )

    def pass_time(self) -> bool:
        """Move the clock to the next time at which the trial goes on; return False if there is none."""
        self.end_unawaited_queue_schedules()
        now = self._fakes.now_us()
        target = self._next_times(now).earliest(now)
        if target is None:
            return False
        self._forced_moves += 1
        if self._forced_moves > MOST_FORCED_MOVES:
            waiting = [strand for strand in self._strands if strand.state == "waiting"]
            raise ContractError(
                f"time has moved {MOST_FORCED_MOVES:,} times and the trial goes on: "
                f"{describe_places(waiting)} waits again and again. Give its loop an end"
            )
        self._move_to_next(target)
        self.barrier = len(self._access_log.steps) - 1
        return True

    def next_us(self) -> int | None:
        """Return the time of the next wake-up, delivery, timer or end of a TTL, or None."""
        now = self._fakes.now_us()
        times = self._next_times(now).earliest(now), *self._known_times.upcoming(now, 1)
        return min((at for at in times if at is not None), default=None)

    def end_unawaited_queue_schedules(self) -> None:
        """Take out the schedules of queues if none may fire and no strand waits for a time, so that the
        trial can end.
        """
        times = self._next_times(self._fakes.now_us())
        if times.wake_up is None and times.firing is None:
            self._fakes.deliveries.end_queue_schedules()

    def _next_times(self, now: int) -> _NextTimes:
        """Return the next times without the ends of TTLs, because no strand waits for them."""
        wake_up = self._next_wake_up(now)
        # A message that is due but cannot begin waits for something else, such as a paused queue.
        delivery = self._fakes.deliveries.next_us(after_us=now)
        return _NextTimes(wake_up, delivery, self._next_firing(is_awaited=wake_up is not None))

    def _next_wake_up(self, now: int) -> int | None:
        """Return the next time at which a strand goes on; daemons count only beside others."""
        times = [self._pauses.all_until_us, *self._sleepers.times()]
        for strand in self._strands:
            if strand.state == "ended" or (strand.is_daemon and self._are_only_daemons_left()):
                continue
            times.append(strand.next_us(now) or 0)
        return min([at for at in times if at > now], default=None)

    def _are_only_daemons_left(self) -> bool:
        return all(
            strand.is_daemon
            or strand.state == "ended"
            or (strand.type == "thread" and strand.waiting.wake_us is None)
            for strand in self._strands
        )

    def _next_firing(self, *, is_awaited: bool) -> int | None:
        """Return when the next schedule of a queue fires, or None if it may not: it may while a strand
        waits and none can run (``is_awaited``), before the horizon, or without one ``FIRINGS`` times.
        Retries do not count, because messages that are never handled would let schedules fire for hours.
        """
        at_us, horizon_us = self._fakes.deliveries.next_firing_us(), self._script.subject.horizon_us
        if at_us is None or is_awaited:
            return at_us
        if horizon_us is None:
            return at_us if self._firings < FIRINGS else None
        return at_us if at_us <= self._log.start_us + horizon_us else None

    def _move_to_next(self, at_us: int) -> bool:
        """Like ``move_to()``, to one of the next times; count it if a schedule fires then."""
        if at_us == self._fakes.deliveries.next_firing_us():
            self._firings += 1
        return self.move_to(at_us)

    def move_to(self, instant_us: int) -> bool:
        """Move the clock, fire the engines' own timers on the way, and return whether any fired."""
        target = max(instant_us, self._fakes.now_us())
        fired = bool(self._fakes.clock.fire(lambda: target, ("state",)))
        self._sleepers.wake(self._fakes.now_us())
        return fired
