"""Fake time of a trial: moves of the clock and their times, pauses of the schedule, waiting
strands.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

from ...core.accesses import READS_CLOCK, Touch
from ...core.errors import ContractError, Crash
from ...core.signals import Signal
from ...kv.accesses import touch_of_key
from ..footprint import CHECKS_PROMISE, MOVES_CLOCK, Footprint
from ..schedule import CLOCK, DELAY, DELAYS, DUE, EDGE, JUMPS, PAUSES, TICKS, Disturbance, Kind
from ..trial import Choices, DueDelivery, Step
from .stacks import describe_places
from .state import TrialState, seconds
from .strands import Gate, Strand, Waiting, Why, pause

MOST_STEPS = 20_000
MOST_MOVES = 8
"""Maximum number of times that the clock moves in one trial although a strand could run."""
FIRINGS = 3
"""Number of times that a queue's schedules fire at the end of a trial, if no ``horizon`` is
given.
"""
_LATE_STARTS: Choices = (
    ("delay", str(DELAY)),
    *(("tick", span) for span in TICKS),
    ("nearly", EDGE),
    ("jump", EDGE),
)
"""The disturbances by which a client may start later than the others."""
MOST_TIMERS = 1_000
"""Maximum number of timers, or of pending stream entries of one group, that are inspected."""
_MOST_AHEAD_US = 86_400 * 1_000_000
"""Microseconds from now until which a number in a request counts as a time."""
_CHECKS_OF_SLEEPERS = 500
"""Number of checks, a ``pause()`` apart, for which the clock waits for code that it has woken."""
LOOK = 0.5
"""Wall-clock seconds between two checks of whether a strand has ended."""


@dataclass(frozen=True, slots=True)
class ClockMove:
    """A move of the clock, as an option of the simulation."""

    at_us: int
    name: ClassVar[str] = CLOCK


Option: TypeAlias = Strand | DueDelivery | ClockMove
"""An option of the simulation: a strand, a delivery, or a move of the clock."""


class _NextTimes(NamedTuple):
    """The times at which a trial goes on if no strand can run now, in microseconds."""

    wake_up: int | None
    delivery: int | None
    firing: int | None
    """The time at which a queue's schedule fires; None if it may not fire any more."""

    def earliest(self, after_us: int, others: Sequence[int] = ()) -> int | None:
        times = [at for at in (*self, *others) if at is not None and at > after_us]
        return min(times, default=None)


class _Sleeper(NamedTuple):
    """A sleep in a thread that is not explored, for a strand that waits for it."""

    until_us: int
    strand: Strand
    wake: Callable[[], object]


class TrialClock:
    """The fake time of a trial: moves the clock, and pauses strands or lets them wait.

    The clock moves when no strand can run, or when the schedule demands it. A disturbance pauses
    one strand or all strands, if the patience of a client allows it.
    """

    def __init__(self, state: TrialState, *, moves_time: bool) -> None:
        self._state = state
        self._fakes = state.fakes
        self._log = state.log
        self._turns = state.turns
        self._current_thread = state.current_thread
        self._connections = state.fakes.connections
        self.moves_time = moves_time
        """Whether the search orders the moves of the clock."""
        self.may_move = moves_time or any(
            disturbance.detail == CLOCK for disturbance in state.schedule
        )
        """Whether the clock may move although a strand could run."""
        self.moves: list[tuple[int, int]] = []
        """The index of each step that moved the clock, with the time to which it moved."""
        self.barrier = -1
        """The index of the last step before the last forced move of the clock."""
        self._idle_times: set[tuple[Any, bytes, bytes, int]] = set()
        self._data: set[int] = set()
        """The times in the future that requests contained, in microseconds."""
        self._chosen_moves = 0
        self._forced_moves = 0
        self._firings = 0
        self._sleepers: list[_Sleeper] = []

    def all_times(self) -> frozenset[int]:
        """Return the times that the clock can move to, if timers are explored."""
        if not self.moves_time:
            return frozenset()
        waits = [
            strand.waiting.wake_us for strand in self._state.strands if strand.state == "waiting"
        ]
        wakes = [wake_us for wake_us in waits if wake_us is not None]
        return frozenset(self.known_instants(self._fakes.now_us(), MOST_MOVES) + wakes)

    def plan_move(self, options: Sequence[Option]) -> ClockMove | None:
        """Plan the next move of the clock, or none; end the schedules if nothing else goes on."""
        if options:
            return self._chosen_move(options)
        now = self._fakes.now_us()
        times = self._next_times(now)
        self._end_schedules_after(times)
        at_us = times.earliest(now)
        if at_us is None or not self.moves_time:
            return None
        return ClockMove(min([at_us, *self.known_instants(now, 1)]))

    def _chosen_move(self, options: Sequence[Option]) -> ClockMove | None:
        """Return a move before the strands and deliveries that can run, or None if the patience of one
        of them is less, or if no schedule may fire any more.
        """
        at_us = self.next_us()
        if at_us is None:
            return None
        if at_us == self._fakes.deliveries.next_firing_us() and not self._may_fire(at_us):
            return None
        span_us = at_us - self._fakes.now_us()
        for option in options:
            if (
                isinstance(option, DueDelivery)
                and at_us - option.timer.due_us > self._state.subject.patience_us
            ):
                return None
            if (
                isinstance(option, Strand)
                and option.state != "new"
                and not self.may_pause(option, span_us)
            ):
                return None
        if self._chosen_moves >= MOST_MOVES:
            self._log.flags.add("cut")
            return None
        return ClockMove(at_us)

    def move(self, move: ClockMove, options: Sequence[Option]) -> None:
        """Move the clock as a step of its own, which a search can order relative to other steps."""
        now = self._fakes.now_us()
        for option in options:
            if isinstance(option, Strand) and option.state != "new":
                option.paused_us += move.at_us - now
        if options:
            self._chosen_moves += 1
            self._state.add_line(
                "clock", f"moves by {seconds(move.at_us - now)}", is_disturbance=True
            )
        if move.at_us == self._fakes.deliveries.next_firing_us():
            self._firings += 1
        ends = list(self.ends_until(move.at_us)) if self._state.has_steps else []
        fired = self.move_to(move.at_us)
        if self._state.has_steps:
            index = len(self._log.steps) - 1
            self.moves.append((index, move.at_us))
            self._state.touch([MOVES_CLOCK, *ends])
            if fired:
                self._log.steps[index].footprint.is_everything = True

    def foresee(self) -> None:
        """Record clock moves that were due after the end: a later trial may make them earlier."""
        now = self._fakes.now_us()
        if self._chosen_moves >= MOST_MOVES:
            return
        for at_us in self.known_instants(now, MOST_MOVES - self._chosen_moves):
            if at_us > now + self._state.subject.patience_us:
                return
            touched = Footprint([MOVES_CLOCK, *self.ends_until(at_us)])
            if self._state.subject.promises.at_step:
                touched.add(CHECKS_PROMISE)
            _, timers = self._fakes.clock.planned(MOST_TIMERS)
            touched.is_everything = any(t.lane == "state" and t.due_us <= at_us for t in timers)
            self._log.steps.append(Step(CLOCK, "switch", 0, (CLOCK,), touched, -1, self.barrier))

    def pass_time(self) -> bool:
        """Move the clock to the next time at which the trial goes on; return False if there is none."""
        now = self._fakes.now_us()
        times = self._next_times(now)
        self._end_schedules_after(times)
        target = times.earliest(now)
        if target is None:
            return False
        if target == times.firing:
            self._firings += 1
        self._forced_moves += 1
        if self._forced_moves > MOST_STEPS:
            waiting = [strand for strand in self._state.strands if strand.state == "waiting"]
            raise ContractError(
                f"time has moved {MOST_STEPS:,} times and the trial goes on: "
                f"{describe_places(waiting)} waits again and again. Give its loop an end"
            )
        self.move_to(target)
        self.barrier = len(self._log.steps) - 1
        return True

    def next_us(self) -> int | None:
        """Return the time of the next wake-up, delivery, timer or end of a TTL, or None."""
        now = self._fakes.now_us()
        return self._next_times(now).earliest(now, self.known_instants(now, 1))

    def _next_times(self, now: int) -> _NextTimes:
        """Return the next times without the ends of TTLs, because no strand waits for them."""
        deliveries = self._fakes.deliveries
        wake_up, firing = self._next_wake_up(now), deliveries.next_firing_us()
        if wake_up is None and firing is not None and not self._may_fire(firing):
            firing = None
        # A message that is due but cannot begin waits for something else, such as a paused queue.
        return _NextTimes(wake_up, deliveries.next_us(after_us=now), firing)

    def _next_wake_up(self, now: int) -> int | None:
        """Return the next time at which a strand goes on; daemons count only beside others."""
        times = [self._state.all_paused_until_us, *(sleeper.until_us for sleeper in self._sleepers)]
        for strand in self._state.strands:
            if strand.state == "ended" or (strand.is_daemon and self._are_only_daemons_left()):
                continue
            if strand.held_until_us > now:
                times.append(strand.held_until_us)
            elif strand.state in ("waiting", "new"):
                times.append(strand.waiting.wake_us or 0)
        return min([at for at in times if at > now], default=None)

    def _are_only_daemons_left(self) -> bool:
        return all(
            strand.is_daemon
            or strand.state == "ended"
            or (strand.role == "thread" and strand.waiting.wake_us is None)
            for strand in self._state.strands
        )

    def _end_schedules_after(self, times: _NextTimes) -> None:
        """End the schedules if no strand waits and none of them may fire, so that the trial
        ends.
        """
        if times.wake_up is None and times.firing is None:
            self._fakes.deliveries.end_schedules()

    def _may_fire(self, at_us: int) -> bool:
        """Return whether schedules may still fire although no strand waits. Retries do not count,
        because messages that are never handled would let schedules fire for hours.
        """
        horizon_us = self._state.subject.horizon_us
        if horizon_us is None:
            return self._firings < FIRINGS
        return at_us <= self._log.start_us + horizon_us

    # -- pauses that the schedule contains

    def pause(self, strand: Strand, disturbance: Disturbance) -> bool:
        """Pause a strand before its call or, if it is slow, before its answer; return False if patience
        forbids that.

        Every other kind of pause pauses the other strands that could run, too.
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
                for other in self._state.strands
                if other is not strand
                and other.state in ("parked", "new")
                and other.held_until_us <= now
            ]
        begun = [other for other in paused if other is strand or other.state != "new"]
        if not all(self.may_pause(other, span_us) for other in begun):
            return False
        for other in paused:
            other.held_until_us = until_us
        for other in begun:
            other.paused_us += span_us
        # What is due is done first, so that the strand can be switched to in the middle of it.
        strand.yields_to_others = disturbance.detail == DUE
        words = f"pauses for {seconds(span_us)} before its call"
        if disturbance.kind == "slow":
            words = f"receives its answer {seconds(span_us)} later"
        if is_for_all:
            self._state.all_paused_until_us = until_us
            strand.yields_to_others = True
            due_us = self._fakes.deliveries.next_us()
            if len(paused) > 1 or (due_us is not None and due_us < until_us):
                words += ", and the others wait"
        self._state.park(strand, "late" if disturbance.kind == "slow" else "switch")
        self._state.add_line(strand.name, words, is_disturbance=True)
        return True

    def delay_starts(self) -> None:
        """Let clients of which there are several start later, as the schedule demands."""
        clients = [strand for strand in self._state.strands if strand.role == "client"]
        if len(clients) < 2:
            return
        for strand in clients:
            if self._state.plan.notes:
                self._state.add_point(strand.name, 0, _LATE_STARTS)
            for disturbance in self._state.schedule.at(strand.name, 0):
                if disturbance.kind in PAUSES and (end_us := self._end_us(disturbance)) is not None:
                    strand.waiting = Waiting(wake_us=end_us)
                    self._log.fired.append(disturbance)
                    span = seconds(end_us - self._fakes.now_us())
                    self._state.add_line(strand.name, f"starts {span} later", is_disturbance=True)

    def _end_us(self, disturbance: Disturbance) -> int | None:
        """Return the time at which a pause that begins now ends, or None without such a time."""
        now = self._fakes.now_us()
        if disturbance.detail == DUE:
            return self._next_in_data(now)
        if disturbance.kind in DELAYS:
            return now + int(disturbance.detail or DELAY) * 1_000_000
        if disturbance.kind == "tick":
            return now + TICKS[disturbance.detail]
        if disturbance.detail == EDGE:
            target = _edge(now)
        else:
            index = int(disturbance.detail or 1) - 1
            instants = self.known_instants(now, JUMPS)
            if index >= len(instants):
                return None
            target = instants[index]
        target += {"nearly": -1_000, "past": 1_000_000}.get(disturbance.kind, 0)
        return target if target > now else None

    def may_pause(self, strand: Strand, span_us: int) -> bool:
        """Return whether a strand may be slower by a span, within its deadline or the patience."""
        now = self._fakes.now_us()
        return now + span_us <= self._latest_us(strand, now)

    def _latest_us(self, strand: Strand, now: int) -> int:
        """Return the latest time at which a pause of a strand that begins now may end."""
        deadline_us = strand.root.deadline_us
        if deadline_us is not None:
            return deadline_us
        return now + self._state.subject.patience_us - strand.paused_us

    def note_point(self, strand: Strand, choices: Choices = ()) -> None:
        """Record the disturbances that are possible at a point: the given ones and pauses of
        all strands.
        """
        if not self._fakes.clock.driving:
            now = self._fakes.now_us()
            due_us, latest_us = self._next_in_data(now), self._latest_us(strand, now)
            choices += _pauses(
                bisect_right(self.known_instants(now, JUMPS), latest_us),
                has_due=due_us is not None and due_us <= latest_us,
                has_edge=_edge(now) <= latest_us,
            )
        self._state.add_point(strand.name, strand.points, choices)

    # -- waiting strands

    def sleep(self, seconds: float) -> bool:
        strand = self._current_thread.strand()
        if strand is None:
            return False
        self._turns.check_alive(strand)
        if self._fakes.clock.driving or seconds <= 0:
            return True
        self.wait_for(strand, None, self._fakes.now_us() + math.ceil(seconds * 1e6), "sleep")
        return True

    def wait_for(
        self,
        strand: Strand,
        ready: Callable[[], bool] | None,
        until_us: int | None,
        why: Why,
        *,
        is_own_thread: bool = True,
    ) -> None:
        """Let other strands run until ``ready()`` is true, or until the given time."""
        if until_us is not None:
            self._state.touch([READS_CLOCK])
            # In another order, the time could pass while another strand can run.
            if len(self._state.strands) > 1:
                self._log.flags.add("timers")
        self._state.park(strand, "wake")
        strand.wait(Waiting(why, ready, until_us))
        self.take_turn(strand, is_own_thread)

    def wait(
        self, strand: Strand, signal: Signal, poll: Callable[[], object], until_us: int
    ) -> object:
        """Let other strands run until ``poll()`` returns something other than None, for a strand whose
        blocking call this thread handles.
        """
        result: object = None

        def ready() -> bool:
            nonlocal result
            if result is None:  # A poll that succeeds takes its result, so it must not be repeated.
                result = poll()
            return result is not None or signal.closed

        if not ready() and self._fakes.now_us() < until_us:
            is_own_thread = self._current_thread.strand() is strand
            line = strand.line
            try:
                self.wait_for(strand, ready, until_us, "wait", is_own_thread=is_own_thread)
            except Crash:
                if is_own_thread:
                    raise
            if ready() and line is not None and result is not None:
                self._log.postpone(line, self._fakes.now_us())
        return result

    def sleep_elsewhere(self, seconds: float) -> bool:
        """Sleep in a thread that is not explored but works for a strand, such as a worker thread of an
        ASGI application; return False for other threads.
        """
        strand = self._current_thread.sleeping_for()
        if strand is None:
            return False
        if not self._passes(strand, seconds):
            gate, me, sleeping = (
                Gate(),
                threading.get_ident(),
                self._state.subject.outsiders.sleeping,
            )

            def wake() -> None:
                sleeping.discard(me)
                gate.release()

            sleeping.add(me)
            self._add_sleeper(strand, seconds, wake)
            gate.acquire()
            if self._turns.has_ended:
                raise RuntimeError("the trial has ended in which this thread began to sleep")
        return True

    async def sleep_in_loop(self, seconds: float) -> bool:
        """Like ``sleep_elsewhere()``, for a task of an event loop that is not explored."""
        strand = self._current_thread.sleeping_for()
        if strand is None:
            return False
        if not self._passes(strand, seconds):
            loop = asyncio.get_running_loop()
            future = loop.create_future()

            def end() -> None:
                if self._turns.has_ended:
                    future.cancel()  # Any other exception could be caught, or end the whole loop.
                elif not future.done():
                    future.set_result(None)

            self._add_sleeper(strand, seconds, partial(loop.call_soon_threadsafe, end))
            await future
        return True

    def _passes(self, strand: Strand, seconds: float) -> bool:
        """Let time pass for a strand that waits for this thread in its turn; return False for one that
        lets other strands run, whose sleep must wait for them.
        """
        if self._fakes.clock.driving or seconds <= 0:
            return True
        if self._turns.current is not strand and not strand.host.real_waits:
            return False
        self.move_to(self._fakes.now_us() + math.ceil(seconds * 1e6))
        return True

    def _add_sleeper(self, strand: Strand, seconds: float, wake: Callable[[], object]) -> None:
        until_us = self._fakes.now_us() + math.ceil(seconds * 1e6)
        self._sleepers.append(_Sleeper(until_us, strand, wake))

    def _wake_sleepers(self) -> None:
        """Wake the sleepers whose time has come, one after the other, in the order of the strands."""
        due = [sleeper for sleeper in self._sleepers if sleeper.until_us <= self._fakes.now_us()]
        strands = self._state.strands
        for sleeper in sorted(
            due, key=lambda sleeper: (sleeper.until_us, strands.index(sleeper.strand))
        ):
            self._sleepers.remove(sleeper)
            sleeper.wake()
            strand, ready = sleeper.strand, sleeper.strand.waiting.ready
            for _ in range(_CHECKS_OF_SLEEPERS):
                sleeps_again = any(other.strand is strand for other in self._sleepers)
                if self._turns.has_ended or sleeps_again or ready is None or ready():
                    break
                pause()

    def has_sleepers(self) -> bool:
        return bool(self._sleepers)

    def end_sleeps(self) -> None:
        """Wake all sleepers, because the trial has ended."""
        while self._sleepers:
            self._sleepers.pop().wake()

    def take_turn(self, strand: Strand, is_own_thread: bool) -> None:
        """Let other strands run; return at the next turn of a strand that is parked or waits.

        A task waits in the thread that handles its request until its event loop chooses it.
        A strand that is alone keeps its turn. Any other strand passes the turn on.
        """
        is_task = strand.role == "task"
        if is_task and not is_own_thread:
            self._await_loop(strand)
        elif not is_task and self._is_alone(strand):
            strand.state, strand.yields_to_others = "running", False
            self._turns.progress += 1
            self._state.check_promises()
        else:
            strand.turn.is_inline = is_task
            try:
                self._turns.yield_turn(strand)
            finally:
                strand.turn.is_inline = False
            self._turns.check_alive(strand)

    def _await_loop(self, strand: Strand) -> None:
        """Wait for the turn of a task, whose event loop chooses the next strand when it is idle."""
        self._turns.check_alive(strand)
        link = self._connections.step_back()
        strand.turn.resume = None if link is None else link.resume
        has_turn = False
        while not has_turn and strand.state != "ended":
            has_turn = strand.gate.acquire(LOOK)
        strand.turn.resume = None
        self._turns.check_alive(strand)
        if strand.state == "ended":
            raise Crash
        strand.state = "running"

    def _is_alone(self, strand: Strand) -> bool:
        """Return whether no other strand could run, so that this strand can keep its turn."""
        if self._state.has_steps or self.may_move or self._fakes.deliveries.are_left():
            return False
        if strand.state != "parked" or strand.held_until_us or strand.is_stepped_over:
            return False
        return [other for other in self._state.strands if other.state != "ended"] == [strand]

    async def take_turn_async(self, strand: Strand) -> None:
        """Like ``take_turn()``, for a task whose event loop must not be blocked."""
        loop = strand.host.loop.running
        assert loop is not None
        strand.turn.future = loop.create_future()
        try:
            await strand.turn.future
        finally:
            strand.turn.future = None
            if strand.state != "ended":
                strand.state = "running"
        self._turns.check_alive(strand)

    # -- the times at which the state of the fakes changes

    def note_data(self, times_us: Iterable[int]) -> None:
        """Record the times in the next hours that a request contains: due times, leases, windows."""
        for at_us in times_us:
            if 0 < at_us - self._fakes.now_us() <= _MOST_AHEAD_US:
                self._data.add(at_us)

    def _next_in_data(self, now: int) -> int | None:
        """Return the next time that the application keeps as data, or None."""
        ahead = None
        for at in self._data:
            if at > now and (ahead is None or at < ahead):
                ahead = at
        return ahead

    def note_idle_time(self, keyspace: Any, claims: tuple[bytes, bytes, int]) -> None:
        """Record the idle time after which a command claims or lists pending stream entries."""
        self._idle_times.add((keyspace, *claims))

    def move_to(self, instant_us: int) -> bool:
        """Move the clock, fire the engines' own timers on the way, and return whether any fired."""
        target = max(instant_us, self._fakes.now_us())
        fired = bool(self._fakes.clock.fire(lambda: target, ("state",)))
        self._wake_sleepers()
        return fired

    def known_instants(self, now: int, most: int) -> list[int]:
        """Return the next times of timers, deliveries, the ends of TTLs and of idle times."""
        ends_ms: set[int] = set()
        if self._idle_times:
            ends_ms.update(self._ends_of_idle_times())
        for keyspace in self._fakes.keyspaces.values():
            ends_ms.update(keyspace.expires.values(), keyspace.volatile.values())
        ends = sorted(ends_ms)
        next_end = bisect_right(ends, now // 1000)
        times = self._fakes.clock.due_times()
        # Every point of a trial comes here, and there may be thousands of keys.
        for at_ms in ends[next_end : next_end + most]:
            times.add(at_ms * 1000)
        ordered = sorted(times)
        first = bisect_right(ordered, now)
        return ordered[first : first + most]

    def _ends_of_idle_times(self) -> Iterator[int]:
        """Yield the times at which pending stream entries become claimable, in milliseconds."""
        for keyspace, key, group, idle_ms in self._idle_times:
            consumer_group = getattr(keyspace.values.get(key), "groups", {}).get(group)
            if consumer_group is not None:
                for _, pending in itertools.islice(consumer_group.pending.items(), MOST_TIMERS):
                    yield pending.delivered_ms + idle_ms

    def ends_until(self, until_us: int) -> Iterator[Touch]:
        """Yield the accesses to keys that expire, or have fields that expire, by a given time."""
        for (fake, _), keyspace in self._fakes.keyspaces.items():
            for key, at_ms in [*keyspace.expires.items(), *keyspace.volatile.items()]:
                if at_ms * 1000 <= until_us:
                    yield touch_of_key(fake, keyspace.index, key, True)


@functools.cache
def _pauses(jumps: int, *, has_due: bool, has_edge: bool) -> Choices:
    """Return the pauses of all strands that are possible, with jumps to a number of known times."""
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
    """Return the start of the next second; the disturbance ``nearly`` ends a millisecond before
    it.
    """
    return (now_us // 1_000_000 + 1) * 1_000_000
