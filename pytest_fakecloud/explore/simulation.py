"""Runs explored code once, under one schedule."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError
from ..core.problems import broken_promise, ends_the_test
from ..core.timeparse import monotonic
from ..http.messages import Effect, Request, Response, Serve
from ..queue.model import Outcome
from .call_events import FAULT_WORDS, command_of, delivery_words, faulted, seconds, session_of
from .footprint import (
    MEMORY,
    MOVES_CLOCK,
    READS_CLOCK,
    Footprint,
    Touch,
    touches_of_delivery,
)
from .history import History, Operation, begin, begin_client, end
from .run import Choice, Line, Moment, Option, Point, Program, Run, Step, Strategy
from .runtime.deliveries import Due
from .runtime.frames import Source, carried_source, source_of, told_apart
from .runtime.loops import await_in_own_loop
from .runtime.strands import Crash, Place, Strand, Threads, Turns, pause
from .runtime.stuck import describe_stuck, is_in_application
from .schedule import (
    CLOCK,
    DELAY,
    EDGE,
    FAULTS,
    PARTITION,
    SLOW,
    SWITCHES,
    TICKS,
    Event,
    Kind,
    Schedule,
)
from .world import HOLD_US, ROTATED_US, World

if TYPE_CHECKING:
    import socket

    from ..core.timers import Signal
    from ..handle import Handle
    from ..queue.model import Delivery
    from .runtime.loops import OwnLoop
    from .runtime.wires import Wire

MOST_POINTS = 2_000
"""Maximum number of calls of one strand; more calls count as an endless loop."""
MOST_STEPS = 20_000
MOST_MOVES = 8
"""Maximum number of times that the clock moves in one run although a strand could run."""
MOST_STARTS = 12
"""Maximum number of times that one worker is started."""
FIRINGS = 3
"""Number of times that a queue's schedules fire at the end of a run, if no ``horizon`` is given."""
_GRACE = 500
"""Wall-clock milliseconds before a waiting strand counts as stuck."""
_PATIENCE = 10.0
"""Wall-clock seconds to wait until a fake has handled requests whose answers the code does not
read.
"""
_LOOK = 0.5
"""Wall-clock seconds between two checks of whether a strand has ended."""
_AT_CALLS: tuple[Kind, ...] = ("answer", "drop", "lose_answer", "crash")
_PREPARING = frozenset(
    ("HELLO", "AUTH", "CLIENT", "SELECT", "QUIT", "RESET", "MULTI", "DISCARD", "UNWATCH")
)
"""Redis-protocol commands at which no event is tried, because they affect only their connection."""
_MOVES = frozenset({"jump", "nearly", "past", "tick", "delay"})
_JUMPS = 3
"""Number of known times to which ``jump`` events move the clock, from each point."""
simulation: ContextVar[Simulation | None] = ContextVar("simulation", default=None)
"""The simulation in which the current code runs."""
_Turn = Generator[None, None, None]
"""A generator that yields wherever the strand must give up its turn."""


class Simulation:
    """Runs clients, workers, the queue's deliveries and the clock under one schedule, one strand at
    a time.

    A strand is a client, worker, delivery, task or thread. By default it runs until it ends or
    waits. The next one to run is the strand that gave up its turn last; then come clients in their
    order, deliveries in the order of their due times, and workers. The clock moves when no strand
    can run.
    """

    def __init__(
        self,
        world: World,
        programs: Sequence[Program],
        schedule: Schedule,
        choice: Choice,
        threads: Threads,
        strategy: Strategy | None = None,
        *,
        stacks: bool = False,
        notes: bool = True,
    ) -> None:
        self._world = world
        self._notes = notes
        self._choice = choice
        self._schedule = schedule
        self._strategy = strategy
        self._stacks = stacks
        self._turns = Turns(self, threads)
        self._strands: list[Strand] = []
        for one in programs:
            self._add(Strand(one.name, "worker" if one.is_worker else "client", one.function))
        self._names = {one.name for one in programs}
        self._switches: dict[tuple[str, int], list[Event]] = {}
        for event in schedule:
            if event.kind in SWITCHES:
                self._switches.setdefault((event.process, event.point), []).append(event)
        kinds = choice.kinds
        places = strategy.places if strategy is not None else frozenset[Place]()
        self._late = "late" in kinds or "late" in places or _has(schedule, "late")
        self._noted: set[tuple[str, int, Kind]] = set()
        self._mishaps: dict[str, tuple[str, ...]] = {}
        self._losses: dict[str, list[str]] = {}
        self._clients: dict[str, Operation] = {}
        self._tasks: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
        self._owners: dict[int, Strand] = {}
        self._serving: dict[int, Strand] = {}
        self._cut: dict[tuple[str, str], int] = {}
        self._parkings = itertools.count(1)
        self._served = 0
        self._firings = 0
        self._moves_time = strategy is not None and strategy.moves_time
        self._may_move = self._moves_time or any(event.detail == CLOCK for event in schedule)
        self._moves: list[tuple[int, int]] = []
        self._moved = 0
        self._passed = 0
        self._times: frozenset[int] = frozenset()
        self._held_us = 0
        self._aside = 0
        self._lock = threading.RLock()
        self._barrier = -1
        self._by: dict[str, int] = {}
        self._sources: dict[int, Source] = {}
        self._inner_sources: weakref.WeakKeyDictionary[Any, Source] = weakref.WeakKeyDictionary()
        self.run = Run(schedule, start_us=world.now_us())
        self.history = History(world.cloud, str(schedule))

    def play(self) -> Run:
        """Run all strands to their end. Does not check the promise."""
        token = simulation.set(self)
        turns = self._turns = Turns(self, self._turns._threads)
        self._world.stage = self
        try:
            turns.run()
        finally:
            self._world.stage = None
            simulation.reset(token)
            self._cut_wires(lambda owner: owner.crashed or owner.host.crashed or owner.is_over)
        self._world.settle()
        run = self.run
        if self._records and run.broken is None:
            self._note_disabled((CLOCK,))
        if self._moves_time and run.broken is None:
            self._foresee()
        for line, source in zip(
            run.lines, told_apart([one.lines for one in run.lines]), strict=True
        ):
            line.source = source
        run.ids = self._world.message_names()
        for strand in self._strands:
            if strand.error is not None:
                run.errors[strand.name] = strand.error
                run.broken = run.broken or broken_promise(strand.error)
        return run

    def _cut_wires(self, concerned: Callable[[Strand], bool]) -> None:
        """Close the connections of strands that have ended, so that the server notices their end."""
        for wire in self._world.wires.all():
            owner = self._owners.get(wire.port)
            if owner is not None and concerned(owner):
                wire.cut()

    # -- which strand runs -----------------------------------------------------------------------

    def choose(self) -> Strand | None:
        """Return the strand to run next, or None at the end of the run; move the clock if no strand
        can run.
        """
        self._check_always()
        if len(self.run.steps) > MOST_STEPS:
            raise ContractError(f"a run has not ended after {MOST_STEPS} steps: make the code end")
        while True:
            for strand in self._strands:
                if strand.root.crashed and self._is_dying(strand):
                    return strand
            options = self._options()
            moment = self._moment(options) if self._may_move else None
            if moment is not None:
                options.append(moment)
            if options:
                chosen = self._start(self._decide(options))
                if chosen is not None:
                    return chosen
            elif any(s.carried for s in self._strands):
                if not self._wait_for_carried():
                    return None
            elif not self._pass_time() and self._is_the_end():
                return None

    def _is_dying(self, strand: Strand) -> bool:
        if strand.carried:
            return False
        if strand.role == "task" and not (strand.host.state == "waiting" and strand.host.is_idle):
            return False
        return strand.state in ("parked", "waiting")

    def live(self) -> list[Strand]:
        """Return the strands that have begun and not ended."""
        return [
            s
            for s in self._strands
            if s.state not in ("new", "ended") or (s.thread and s.state == "new")
        ]

    def _options(self) -> list[Option]:
        """Return the strands that can run now; the first is the default."""
        now = self._world.now_us()
        parked: list[Strand] = []
        last: list[Strand] = []
        awake: list[Strand] = []
        threads: list[Strand] = []
        clients: list[Strand] = []
        workers: list[Strand] = []
        for strand in self._strands:
            state = strand.state
            if strand.held_until_us > now or strand.carried:
                continue
            if strand.role == "task" and not strand.host.is_idle and not strand.inline:
                continue
            if state == "parked":
                (last if strand.last else parked).append(strand)
            elif state == "waiting":
                if strand.wake_us is not None and strand.wake_us <= now:
                    (last if strand.last else awake).append(strand)
                elif strand.ready is not None and strand.ready():
                    awake.append(strand)
            elif state == "new":
                if strand.wake_us is not None and strand.wake_us > now:
                    continue
                if strand.role == "thread":
                    threads.append(strand)
                else:
                    (workers if strand.role == "worker" else clients).append(strand)
        if len(parked) > 1:
            parked.sort(key=lambda s: (-s.host.parked_at, s.parked_at))
        if len(awake) > 1:
            awake.sort(key=lambda s: -1 if s.wake_us is None else s.wake_us)
        options: list[Option] = [*parked, *awake, *threads, *clients]
        if self._held_us <= now:
            options += self._world.due()
        options += last
        if workers and (options or self._workers_may_begin(now)):
            options += workers
        if not options:
            again = self._worker_again(now)
            if again is not None:
                options.append(again)
        return options

    def _workers_may_begin(self, now: int) -> bool:
        # Start workers only after all deliveries and sleeps, so that there is work for them.
        if self._world.next_delivery_us(after_us=now) is not None:
            return False
        return not any(
            s.state == "waiting" and s.wake_us is not None and not s.is_daemon
            for s in self._strands
        )

    def _decide(self, options: list[Option]) -> Option:
        default = options[0]
        kind, point = _place_of(default)
        if len(options) == 1 and not self._records:
            return default
        others = options[1:]
        label = default.name, point
        names = [one.name for one in options]
        if self._records:
            self._note_disabled(names)
        if others:
            self._note_switches(label, kind, [name for name in names[1:] if name != CLOCK])
        wanted = default.name
        planned = self._switches.get(label)
        if planned:
            for event in planned:
                if event.kind == kind and event.detail in names:
                    planned.remove(event)
                    wanted = event.detail
                    self._switched(event)
                    break
        elif self._strategy is not None and kind in self._strategy.places:
            wanted = self._strategy.pick(self.run, names, kind)
            if wanted != default.name:
                self._switched(Event(default.name, point, kind, wanted))
        if self._records:
            self._begin_step(next(one for one in options if one.name == wanted), names)
        return next(one for one in options if one.name == wanted)

    def _switched(self, event: Event) -> None:
        self.run.fired.append(event)
        if event.detail == CLOCK:
            return
        other = _title(event.process)
        when = {
            "switch": "before {} continues" if event.point else "before {} starts",
            "late": "before {} receives its answer",
            "wake": "before {} continues",
        }[event.kind]
        chosen = next((s for s in self._strands if s.name == event.detail), None)
        is_late = chosen is not None and chosen.state == "parked" and chosen.place == "late"
        what = "receives its answer" if is_late else "runs"
        self._say(event.detail, f"{what} {when.format(other)}", event=True)

    @property
    def _records(self) -> bool:
        return self._stacks or (self._strategy is not None and self._strategy.records)

    def _begin_step(self, option: Option, options: Sequence[str]) -> None:
        place, point = _place_of(option)
        due_us = None
        if isinstance(option, Due):
            due_us = option.timer.due_us
        elif isinstance(option, Strand) and option.state != "parked":
            due_us = option.wake_us
        enabled_by = self._by.get(option.name, -1)
        for index, at_us in self._moves:
            if due_us is not None and at_us >= due_us:
                enabled_by = max(enabled_by, index)
                break
        if not self.run.has_timers:
            self.run.has_timers = self._next_us(forced=False) is not None
        step = Step(
            option.name, place, point, tuple(options), Footprint(), enabled_by, self._barrier
        )
        if self._strategy is not None and "late" in self._strategy.places and place != "switch":
            step.footprint.add(MEMORY)
        self.run.steps.append(step)

    def _note_disabled(self, options: Sequence[str]) -> None:
        """Record which options and clock times the last step made impossible."""
        before, self._times = self._times, self._all_times()
        if not self.run.steps:
            return
        last = self.run.steps[-1]
        last.disabled = set(last.options) - {last.strand, *options}
        if last.strand != CLOCK and any(at > self._world.now_us() for at in before - self._times):
            last.disabled.add(CLOCK)

    def _all_times(self) -> frozenset[int]:
        """Return the times that the clock can move to, if timers are explored."""
        if not self._moves_time:
            return frozenset()
        waits = (s.wake_us for s in self._strands if s.state == "waiting" and s.wake_us is not None)
        return frozenset((*self._world.known_instants(MOST_MOVES), *waits))

    def touch(self, touches: Iterable[Touch]) -> None:
        """Record accesses of the current step."""
        if self.run.steps and not self._aside:
            footprint = self.run.steps[-1].footprint
            for touch in touches:
                footprint.add(touch)
                if touch.writes and self._choice.always:
                    # The result of a promise that is checked after every step depends on the order
                    # of all writes.
                    footprint.add(Touch("", "promise", "*", True))

    def _touch_message(self, due: Due) -> None:
        if self._records:
            self.touch([*touches_of_delivery(due.queue.name, due.first_name, due.message)])

    def _touch_history(self, writes: bool) -> None:
        if self._choice.is_history_read and self._records:
            self.touch([Touch("", "history", "*", writes)])

    def _note_switches(self, label: tuple[str, int], kind: Kind, names: Iterable[str]) -> None:
        if kind in self._choice.kinds and (*label, kind) not in self._noted:
            self._noted.add((*label, kind))
            self.run.points.append(Point(*label, [(kind, name) for name in names]))

    def _start(self, option: Option) -> Strand | None:
        if isinstance(option, Moment):
            self._move(option)
            return None
        if isinstance(option, Due):
            return self._begin_delivery(option)
        option.last = False
        return option

    def _add(self, strand: Strand) -> Strand:
        strand.patience_us = self._choice.patience_us
        self._strands.append(strand)
        return strand

    def _new_name(self, name: str) -> str:
        """Return a name that no other strand of this run has."""
        found = name
        for number in itertools.count(2):
            if found not in self._names:
                break
            found = f"{name}{number}"
        self._names.add(found)
        return found

    # -- deliveries and workers ------------------------------------------------------------------

    def _begin_delivery(self, due: Due) -> Strand | None:
        kinds: list[tuple[Kind, str]] = [("duplicate", ""), ("crash_after_answer", "")]
        left = due.message.max_retries - due.message.retried
        if left > 0:
            kinds += [("fail", str(left))] if left > 1 else []
            kinds.append(("unreachable", "1"))
            kinds += [("unreachable", str(left))] if left > 1 else []
        kinds += [("fail", str(left + 1)), ("unreachable", str(left + 1))]
        self._note(due.name, 0, kinds)
        hit = [e for e in self._schedule.at(due.name, 0) if e.kind not in SWITCHES]
        hit = [
            e for e in hit if e.kind in ("duplicate", "crash_after_answer", "fail", "unreachable")
        ]
        self._mishaps[due.message.id] = tuple(
            e.kind for e in hit if e.kind in ("duplicate", "crash_after_answer")
        )
        for event in hit:
            if event.kind in ("fail", "unreachable"):
                first = ["unheard"] if event.kind == "fail" else []
                rest = int(event.detail or 1) - len(first)
                self._losses[due.message.public_id] = first + ["unreachable"] * rest
        self._touch_message(due)
        body = due.begin()
        if body is None:
            return None
        self.run.fired += hit
        strand = self._add(Strand(due.name, "delivery", body, due))
        strand.began_us = self._world.now_us()
        strand.patience_us = max(0, due.message.timeout_us - 1000)
        self._by[due.name] = len(self.run.steps) - 1
        self._say(due.name, delivery_words(due, hit), event=bool(hit))
        return strand

    def perform_delivery(self, delivery: Delivery, perform: Callable[..., Outcome]) -> Outcome:
        """Perform a delivery. If the schedule contains such an event, fail it or lose its answer."""
        losses = self._losses.get(delivery.message_id)
        loss = losses.pop(0) if losses else ""
        if loss == "unreachable":
            error = ConnectionError("the connection was refused")
            return Outcome(exception=error, refused=True, where="explore")
        outcome = perform(delivery)
        if outcome.where in ("call", "wsgi", "asgi"):
            # Count only exceptions as failures, because a handler may answer 500 on purpose.
            self.run.handled.setdefault(outcome.where, []).append(outcome.exception is None)
        broken = broken_promise(outcome.exception) if outcome.status is not None else None
        if broken is not None:
            self.run.broken = self.run.broken or broken
        if loss == "unheard":
            error = ConnectionError("the answer was lost")
            return Outcome(exception=error, where=outcome.where)
        return outcome

    def _worker_again(self, now: int) -> Strand | None:
        """Restart a worker that ended before all of its work existed, and return its strand, or
        return None.
        """
        if not self._workers_may_begin(now):
            return None
        for strand in list(self._strands):
            if strand.role != "worker" or strand.starts >= MOST_STARTS or strand.state != "ended":
                continue
            own = [s for s in self._strands if s.role == "worker" and s.body is strand.body]
            if strand is not own[-1]:
                continue
            behind = self._is_behind(strand)
            if behind:
                self._leave_groups(strand)
            # The worker may have checked for work before another strand created it.
            if behind or any(
                other.last_call > strand.first_call and (other.role != "worker" or other.is_restart)
                for other in self._strands
                if other not in own and other.root is other
            ):
                return self._start_again(strand)
        return None

    def _is_behind(self, strand: Strand) -> bool:
        """Return whether a consumer has not yet committed records that it received."""
        groups = {(broker, group) for broker, group, _ in strand.members}
        return any(
            group in broker.groups() and broker.group(group).total_lag for broker, group in groups
        )

    def _start_again(self, strand: Strand, *, failed: bool = False) -> Strand:
        starts = strand.starts + 1
        name = f"{strand.name.partition('/')[0]}/{starts}"
        again = Strand(name, "worker", strand.body, starts=starts, is_restart=failed)
        if failed:
            # Double the pause before each restart, as process managers do.
            again.wake_us = self._world.now_us() + 1_000_000 * min(2 ** (strand.starts - 1), 30)
        self._add(again)
        if not failed:
            self.run.looks.add(name)
        return again

    # -- time ------------------------------------------------------------------------------------

    def _moment(self, options: Sequence[Option]) -> Moment | None:
        """Return the next move of the clock, or None if a client's patience does not allow it."""
        forced = not options
        at_us = self._next_us(forced=forced)
        if at_us is None:
            return None
        now = self._world.now_us()
        if forced:
            if not self._moves_time:
                return None
            at_us = min([at_us, *self._world.known_instants(1)])
        moment = Moment(at_us)
        if forced:
            return moment
        waiting = [one for one in options if isinstance(one, Strand) and one.state != "new"]
        if not all(self._may_pause(strand, moment.at_us - now) for strand in waiting):
            return None
        if self._moved >= MOST_MOVES:
            self.run.is_cut = True
            return None
        return moment

    def _move(self, moment: Moment) -> None:
        """Move the clock as a step of its own, which a search can order relative to other steps."""
        now = self._world.now_us()
        options = self._options()
        for option in options:
            if isinstance(option, Strand) and option.state != "new":
                option.paused_us += moment.at_us - now
        if options:
            self._moved += 1
            self._say("clock", f"moves by {seconds(moment.at_us - now)}", event=True)
        elif moment.at_us == self._world.next_firing_us():
            self._firings += 1
        ends = list(self._world.ends_until(moment.at_us)) if self._records else []
        fired = self._world.move_to(moment.at_us)
        if self._records:
            index = len(self.run.steps) - 1
            self._moves.append((index, moment.at_us))
            self.touch([MOVES_CLOCK, *ends])
            if fired:
                self.run.steps[index].footprint.is_everything = True

    def _foresee(self) -> None:
        """Record moves of the clock after the end of the run, because a later run may make them
        earlier.
        """
        run, world = self.run, self._world
        now = world.now_us()
        if self._moved >= MOST_MOVES:
            return
        for at_us in world.known_instants(MOST_MOVES - self._moved):
            if at_us > now + self._choice.patience_us:
                return
            touched = Footprint([MOVES_CLOCK, *world.ends_until(at_us)])
            if self._choice.always:
                touched.add(Touch("", "promise", "*", True))
            touched.is_everything = world.fires_until(at_us)
            run.steps.append(Step(CLOCK, "switch", 0, (CLOCK,), touched, -1, self._barrier))

    def _pass_time(self) -> bool:
        """Move the clock to the next event; return False if there is none."""
        target = self._next_us(forced=True)
        if target is None:
            return False
        if target == self._world.next_firing_us():
            self._firings += 1
        self._passed += 1
        if self._passed > MOST_STEPS:
            waiting = ", ".join(s.title for s in self._strands if s.state == "waiting")
            raise ContractError(
                f"time has moved {MOST_STEPS} times and the run goes on: {waiting} waits again and "
                "again. Give its loop an end"
            )
        self._world.move_to(target)
        self._barrier = len(self.run.steps) - 1
        return True

    def _next_us(self, *, forced: bool) -> int | None:
        """Return the time of the next timer or wake-up, or None.

        A forced move skips the ends of TTLs, because no strand waits for them, and does not go
        beyond the horizon of schedules.
        """
        now = self._world.now_us()
        found = []
        only_daemons = all(
            s.is_daemon or s.state == "ended" or (s.role == "thread" and s.wake_us is None)
            for s in self._strands
        )
        for strand in self._strands:
            if strand.state == "ended" or (strand.is_daemon and only_daemons):
                continue
            if strand.held_until_us > now:
                found.append(strand.held_until_us)
            elif strand.state in ("waiting", "new") and (strand.wake_us or 0) > now:
                found.append(strand.wake_us or 0)
        if self._held_us > now:
            found.append(self._held_us)
        # A message that is due but cannot begin waits for something else, such as a paused queue.
        due = self._world.next_delivery_us(after_us=now)
        if due is not None:
            found.append(due)
        firing = self._world.next_firing_us()
        if not forced:
            found += self._world.known_instants(1)
        if firing is not None and not found:
            horizon = self._choice.horizon_us
            if horizon is None:
                firing = firing if self._firings < FIRINGS else None
            elif firing > self.run.start_us + horizon:
                firing = None
        if firing is not None and firing > now:
            found.append(firing)
        return min((at for at in found if at > now), default=None)

    def _pause(self, strand: Strand, event: Event) -> bool:
        """Pause a strand for an event of the schedule; return False if its patience does not allow
        that.
        """
        world = self._world
        if world.clock.driving:
            return False
        now = world.now_us()
        if event.kind == "delay":
            target = now + int(event.detail or DELAY) * 1_000_000
        elif event.kind == "tick":
            target = now + TICKS[event.detail]
        else:
            instants = world.known_instants(_JUMPS)
            index = int(event.detail or 1) - 1 if (event.detail or "1").isdigit() else 0
            if event.detail == EDGE:
                target = _edge(now)
            elif index < len(instants):
                target = instants[index]
            else:
                return False
            target += {"nearly": -1_000, "past": 1_000_000}.get(event.kind, 0)
        if target <= now or not self._may_pause(strand, target - now):
            return False
        alone = event.kind == "delay"
        held = [strand]
        if not alone:
            held += [
                s
                for s in self._strands
                if s is not strand and s.state in ("parked", "new") and s.held_until_us <= now
            ]
            if not all(self._may_pause(s, target - now) for s in held if s.state != "new"):
                return False
        for each in held:
            each.held_until_us = target
            if each.state != "new":
                each.paused_us += target - now
        if not alone:
            self._held_us = target
            strand.last = True
        strand.state, strand.place = "parked", "switch"
        self._stamp(strand)
        span = seconds(target - now)
        self._say(strand.name, f"pauses for {span} before its call", event=True)
        return True

    def _may_pause(self, strand: Strand, span_us: int) -> bool:
        root = strand.root
        if root.patience_us is None:
            return True
        if root.role == "delivery":
            return self._world.now_us() + span_us - root.began_us <= root.patience_us
        return strand.paused_us + span_us <= root.patience_us

    def _stamp(self, strand: Strand) -> None:
        strand.parked_at = next(self._parkings)
        strand.host.parked_at = strand.parked_at

    # -- beginnings and ends ---------------------------------------------------------------------

    def perform(self, strand: Strand) -> object:
        """Run the code of a strand and return its result."""
        if inspect.iscoroutinefunction(strand.body):
            return await_in_own_loop(self._world, strand.body)
        result = strand.body()
        self._finish_calls(strand)
        if inspect.iscoroutine(result):
            return await_in_own_loop(self._world, lambda: _awaited(result))
        return result

    def begins(self, strand: Strand) -> None:
        """Record the start of a strand; for a client, also the start of an operation."""
        self.run.strands.add(strand.name)
        strand.began_us = strand.began_us or self._world.now_us()
        if strand.role == "client":
            self._clients[strand.name] = begin_client(self.history, strand.name)
            self._touch_history(False)

    def ended(self, strand: Strand) -> None:
        """Store the result of a strand, and restart a worker that failed."""
        history = self.history
        error = strand.error
        if (outcome := ends_the_test(error)) is not None:
            raise outcome
        if strand.crashed:
            strand.root.crashed = True
            self._cut_wires(lambda owner: owner.root is strand.root)
            if strand.root is strand:
                history.crashed.append(strand.title)
        if strand.role in ("client", "worker"):
            history.results[strand.title] = strand.result
        if strand.role != "delivery" and error is not None:
            history.errors[strand.title] = error
        if strand.role == "client":
            self._touch_history(True)
            operation = self._clients[strand.title]
            operation.error = error
            if error is None and not strand.crashed:
                end(history, operation, strand.result)
        if strand.due is not None:
            self._touch_message(strand.due)
            attempt = strand.due.message.attempts[-1]
            if attempt.state != "delivered":
                said = attempt.status if attempt.status is not None else "nothing"
                again = ", so it is retried" if strand.due.message.state == "RETRY" else ""
                self._say(strand.name, f"answered {said}{again}")
        failed = strand.crashed or (error is not None and broken_promise(error) is None)
        if failed:
            self._leave_groups(strand)
        if failed and strand.role == "worker" and strand.starts < MOST_STARTS:
            self._start_again(strand, failed=True)

    def _leave_groups(self, strand: Strand) -> None:
        for broker, group, instance in sorted(strand.members, key=lambda one: one[1:]):
            try:
                broker.expire(group, instance)
            except ContractError:
                continue  # the consumer has already left
            self._say(strand.name, f"the session of {instance} in {group} ended")

    def unhandled(self, error: BaseException) -> None:
        """Called with an exception of a task that no code awaited."""
        broken = broken_promise(error)
        if broken is not None:
            self.run.broken = self.run.broken or broken
        else:
            self.run.notes[f"a task raised {error!r}, which no code awaited"] = None

    # -- stuck strands ---------------------------------------------------------------------------

    def _wait_for_carried(self) -> bool:
        """Wait, in wall-clock time, for a blocked strand; return False if the strand is stuck."""
        for _ in range(1_500):
            pause(0.001)
            if self._turns.over:
                return False
            if not any(s.carried for s in self._strands) or self._options():
                return True
        self._report_stuck([s for s in self._strands if s.carried])
        return False

    def _is_the_end(self) -> bool:
        """Return whether no strand can run again; report the strands that still wait."""
        waiting = [
            strand
            for strand in self._strands
            if strand.state == "waiting"
            and not strand.is_daemon
            and strand.root.role != "worker"
            and not strand.root.crashed
        ]
        # Ignore idle threads of a pool, which wait in library code.
        busy = [s for s in waiting if s.role != "thread" or is_in_application(s)]
        if busy:
            for _ in range(_GRACE):
                # Wait briefly, because a thread that is not explored may still release a waiting
                # strand.
                pause(0.001)
                if self._turns.over or self._options():
                    return False
            self._report_stuck(busy)
        for strand in self._strands:
            if strand.is_daemon and strand.state not in ("ended", "new"):
                note = f"the daemon thread {strand.title} was still running at the end"
                self.run.notes[note] = None
        return True

    def _report_stuck(self, strands: Sequence[Strand]) -> None:
        text = describe_stuck(self._strands, strands)
        self.run.is_stuck = True
        self.run.broken = self.run.broken or AssertionError(text)

    def stuck(self, strand: Strand) -> None:
        """Report a blocked strand as a finding."""
        self._report_stuck([s for s in self._strands if s.carried] or [strand])

    def choose_meanwhile(self) -> Strand | None:
        """Return a strand that can run while another one is blocked, or None."""
        options = self._options()
        if not options:
            return None
        note = "not all interleavings: the code waited for a lock that explore() does not control"
        self.run.notes[note] = None
        return self._start(options[0])

    # -- calls -----------------------------------------------------------------------------------

    def is_here(self) -> bool:
        """Return whether this thread runs explored code."""
        return not self._aside and self._turns.here() is not None

    def _here(self) -> Strand | None:
        """Return the strand of this thread or, in an event loop, of its current task."""
        host = self._turns.here()
        if host is None or host.loop is None:
            return host
        try:
            task = asyncio.current_task(host.loop)
        except RuntimeError:
            task = None
        return host if task is None else self._task(host, task)

    def _task(self, host: Strand, task: asyncio.Task[Any]) -> Strand:
        found = self._tasks.get(task)
        if found is None:
            coroutine = task.get_coro()
            name = getattr(coroutine, "__name__", "task")
            if not str(name).isidentifier():
                name = "task"
            name = self._new_name(f"{host.root.title}:{name}")
            found = self._add(Strand(name, "task", _nothing, parent=host))
            found.state = "running"
            self._tasks[task] = found
            self.run.strands.add(name)
        return found

    def creates_task(self, task: asyncio.Task[Any], is_inner: bool) -> None:
        """Assign an inner task to the strand that created it."""
        creator = self._here()
        if is_inner and creator is not None and creator.role == "task":
            self._tasks[task] = creator
            if self._stacks:
                self._inner_sources[task] = source_of(sys._getframe())

    def _strand_of(self, request: Request) -> tuple[Strand | None, bool]:
        """Return the strand that makes a call, and whether the strand's own thread handles the
        call.
        """
        strand = self._here()
        if strand is not None:
            return strand, True
        if request.client is not None and request.client[1]:
            owner = self._owners.get(request.client[1])
            if owner is not None and owner.state != "ended":
                return owner, False
        # A thread that is not explored works for the running strand, or for a strand that waits for
        # it.
        waiting = (s for s in self._strands if s.state == "waiting" and s.why in ("lock", "join"))
        return self._turns.current or next(waiting, None), False

    def at_call(self, handle: Handle, request: Request, serve: Serve) -> Response:
        """Handle a request at its endpoint and return its outcome."""
        if self._aside:
            return serve()
        strand, own = self._strand_of(request)
        if strand is None and not self._turns.over:
            return serve()
        me = threading.get_ident()
        try:
            if self._turns.over or strand is None or strand.is_over:
                raise Crash
            self._serving[me] = strand
            if strand.state != "running" and not strand.granted:
                # Another thread makes this call for a waiting strand, so there is no turn to give
                # up.
                strand.points += 1
                if self._notes and handle.name in self._choice.handles:
                    self._note_call(strand, strand.points, handle, request, False)
                return self._serve(strand, handle, request, serve)
            if request.call.route == "database-port" and self._is_silent(handle, request):
                if self._stacks:
                    self.run.quiet.append(request.call)
                return serve()
            if strand.granted:
                strand.granted = False
            else:
                for _ in self._approach(strand, handle, request):
                    self._take_turn(strand, own)
            response = self._serve(strand, handle, request, serve)
            may_yield = self._late or self._schedule.at(strand.name, strand.points)
            if may_yield and not (strand.role == "task" and own and strand.turn_is_async):
                for _ in self._receive(strand):
                    self._take_turn(strand, own)
            return response
        except Crash:
            if own:
                raise
            # Another thread runs the code of this strand and ends when the strand gets its next
            # turn.
            return Effect("drop")
        finally:
            self._serving.pop(me, None)

    async def leaves(self, handle: Handle) -> None:
        """Let other tasks and strands run before an asynchronous request is sent."""
        strand = self._here()
        if strand is None or strand.role != "task":
            return
        self._check_alive(strand)
        for _ in self._approach(strand, handle, None):
            await self._take_turn_async(strand)
        strand.granted = strand.turn_is_async = True

    async def arrives(self, handle: Handle) -> None:
        """Let other strands run before the answer of an asynchronous request is received."""
        strand = self._here()
        if strand is None or strand.role != "task":
            return
        strand.turn_is_async = False
        for _ in self._receive(strand):
            await self._take_turn_async(strand)

    def _check_alive(self, strand: Strand) -> None:
        if self._turns.over or strand.is_over:
            raise Crash

    def _take_turn(self, strand: Strand, own: bool) -> None:
        if strand.role == "task" and not own:
            # The event loop of a task chooses the next strand when it is idle.
            while not strand.go.acquire(_LOOK):
                if strand.state == "ended":
                    raise Crash
            self._check_alive(strand)
            strand.state = "running"
            return
        if strand.role != "task" and self._is_alone(strand):
            strand.state, strand.last = "running", False
            self._turns.progress += 1
            self._check_always()
            self._check_alive(strand)
            return
        strand.inline = strand.role == "task"
        try:
            self._turns.give_way(strand)
        finally:
            strand.inline = False
        self._check_alive(strand)

    def _is_alone(self, strand: Strand) -> bool:
        """Return whether no other strand could run, so that this strand can keep its turn."""
        if self._records or self._may_move or strand.carried or strand.state != "parked":
            return False
        if strand.held_until_us > self._world.now_us() or self._world.has_messages():
            return False
        return all(one is strand or one.state == "ended" for one in self._strands)

    async def _take_turn_async(self, strand: Strand) -> None:
        assert strand.host.loop is not None
        strand.turn = strand.host.loop.create_future()
        try:
            await strand.turn
        finally:
            strand.turn = None
            if strand.state != "ended":
                strand.state = "running"
        self._check_alive(strand)

    def _approach(self, strand: Strand, handle: Handle, request: Request | None) -> _Turn:
        """Process the point before a call; yield wherever the strand must give up its turn."""
        strand.points += 1
        number = strand.points
        if number > MOST_POINTS:
            self._turns.fail(
                ContractError(
                    f"{strand.title} has made {MOST_POINTS} calls and goes on: explore() is for "
                    "code that ends, so give its loop an end"
                )
            )
        is_point = handle.name in self._choice.handles
        may_wait = not self._world.clock.driving
        if is_point and self._notes:
            self._note_call(strand, number, handle, request, may_wait)
        if not may_wait:
            return
        for event in self._schedule.at(strand.name, number):
            if event.kind in _MOVES and self._pause(strand, event):
                self.run.fired.append(event)
                yield
        if is_point or self._switches.get((strand.name, number)):
            strand.state, strand.place = "parked", "switch"
            self._stamp(strand)
            yield

    def _receive(self, strand: Strand) -> _Turn:
        """Process the point before the code receives an answer; yield wherever the strand must give
        up its turn.
        """
        if self._world.clock.driving:
            return
        for event in self._schedule.at(strand.name, strand.points):
            if event.kind == "slow":
                now = self._world.now_us()
                span = int(event.detail or DELAY) * 1_000_000
                if self._may_pause(strand, span):
                    strand.paused_us += span
                    strand.state, strand.place = "parked", "late"
                    strand.held_until_us = now + span
                    self._stamp(strand)
                    self.run.fired.append(event)
                    self._say(strand.name, f"receives its answer {seconds(span)} later", event=True)
                    yield
        if self._late:
            strand.state, strand.place = "parked", "late"
            self._stamp(strand)
            yield

    def _serve(self, strand: Strand, handle: Handle, request: Request, serve: Serve) -> Response:
        run, number = self.run, strand.points
        title = strand.title
        self._served += 1
        strand.root.last_call = self._served
        strand.root.first_call = strand.root.first_call or self._served
        run.calls[title] = run.calls.get(title, 0) + 1
        self._join(strand, handle, request)
        fault = ""
        for event in self._schedule.at(strand.name, number):
            if event.kind in FAULTS and not fault:
                if not self._may_befall(event.kind, request):
                    continue
                fault = event.kind
            elif event.kind in FAULTS or not self._before(strand, event, handle, request):
                continue
            run.fired.append(event)
            if strand.root.crashed:
                raise Crash
        until = self._cut.get((strand.root.title, handle.name), 0)
        line = Line(self._world.now_us(), strand.name, call=request.call, step=len(run.steps) - 1)
        app: Any = handle._app
        app.recorder.begins_now(request.call, line.at_us)
        if self._stacks:
            line.lines = (
                carried_source.get()
                or source_of(sys._getframe())
                or self._sources.get(request.client[1] if request.client else 0)
                or source_of(sys._current_frames().get(strand.host.thread))
            )
        run.lines.append(line)
        if self._records:
            self.touch(self._world.touches_of(handle, request))
        if until > self._world.now_us():
            line.event, line.words = True, f"does not reach {handle.name}"
            return Effect("drop")
        if not fault:
            return serve()
        line.event, line.words = True, FAULT_WORDS[fault]
        request.call.fault = fault
        return faulted(fault, handle, session_of(handle, request), serve)

    def at_gap(self, handle: Handle) -> None:
        """Let other strands run between two commands of a pipeline."""
        strand = self._serving.get(threading.get_ident()) or self._here()
        if strand is None or self._turns.over or self._world.clock.driving:
            return
        own = self._turns.here() is not None
        if strand.role == "task" and own:
            return
        strand.points += 1
        if self._notes:
            self._note_moves(strand, strand.points, [])
        for event in self._schedule.at(strand.name, strand.points):
            if event.kind in _MOVES and self._pause(strand, event):
                self.run.fired.append(event)
                self._take_turn(strand, own)
        strand.state, strand.place = "parked", "switch"
        self._stamp(strand)
        self._take_turn(strand, own)

    def _join(self, strand: Strand, handle: Handle, request: Request) -> None:
        if handle.fixture == "broker" and request.route in ("consume", "commit"):
            group, instance = request.params.get("group"), request.params.get("instance")
            if group and instance:
                strand.root.members.add((handle, group, instance))

    def _note_call(
        self, strand: Strand, number: int, handle: Handle, request: Request | None, may_wait: bool
    ) -> None:
        choices: list[tuple[Kind, str]] = []
        route = "" if request is None else request.call.route
        if handle.fixture == "broker":
            choices += [("rebalance", ""), ("redeliver", "")]
        if handle.fixture == "vector_index":
            choices.append(("hold_pending", ""))
        for kind in _AT_CALLS:
            if request is None or self._may_befall(kind, request):
                choices.append((kind, ""))
        if route != "database-port":
            choices.append(("duplicate", ""))
        if may_wait:
            choices += [("delay", str(DELAY)), *(("slow", str(span)) for span in SLOW)]
        choices += [("rotate_token", ""), ("partition", str(PARTITION))]
        self._note_moves(strand, number, choices)

    def _note_moves(self, strand: Strand, number: int, choices: list[tuple[Kind, str]]) -> None:
        world = self._world
        if not world.clock.driving:
            now = world.now_us()
            for index, at in enumerate(world.known_instants(_JUMPS), 1):
                if self._may_pause(strand, at - now):
                    detail = "" if index == 1 else str(index)
                    choices += [("jump", detail), ("past", detail), ("nearly", detail)]
            choices += [("tick", span) for span in TICKS]
            if self._may_pause(strand, _edge(now) - now):
                choices.append(("nearly", EDGE))
        self._note(strand.name, number, choices)

    def _note(self, process: str, number: int, choices: list[tuple[Kind, str]]) -> None:
        kinds = self._choice.kinds
        allowed = [choice for choice in choices if choice[0] in kinds]
        self.run.points.append(Point(process, number, allowed))

    def _may_befall(self, kind: Kind, request: Request) -> bool:
        """Return whether this kind of fault is possible on the call's transport."""
        return kind != "duplicate" or request.call.route != "database-port"

    def _is_silent(self, handle: Any, request: Request) -> bool:
        """Return whether a command only sets up its connection, or is queued for EXEC."""
        command = command_of(request)
        if command.partition(" ")[0] in _PREPARING:
            return True
        session = session_of(handle, request)
        return command != "EXEC" and session is not None and session.queue is not None

    # -- what events do --------------------------------------------------------------------------

    def _before(self, strand: Strand, event: Event, handle: Any, request: Request) -> bool:
        """Apply an event that precedes a call; return whether it was possible."""
        kind = event.kind
        if kind == "crash":
            strand.root.crashed = True
            strand.crashed = True
            self._say(strand.name, "crashes", event=True)
            return True
        if kind == "rotate_token":
            self._world.rotate(handle)
            text = (
                f"the token of {handle.name} is rotated; the code has the new one after "
                f"{seconds(ROTATED_US)}"
            )
            self._say(strand.name, text, event=True)
            return True
        if kind == "hold_pending":
            if handle.fixture != "vector_index":
                return False
            self._world.hold(handle)
            text = f"changes of {handle.name} stay pending for {HOLD_US // 1_000_000} s"
            self._say(strand.name, text, event=True)
            return True
        if kind == "partition":
            span = int(event.detail or PARTITION)
            place = strand.root.title, handle.name
            self._cut[place] = self._world.now_us() + span * 1_000_000
            text = f"is cut off from {handle.name} for {span} s"
            self._say(strand.name, text, event=True)
            return True
        if kind in ("rebalance", "redeliver"):
            return self._disturb(strand, kind, handle, request)
        return False

    def _disturb(self, strand: Strand, kind: str, broker: Any, request: Request) -> bool:
        group = request.params.get("group")
        if broker.fixture != "broker" or not group or group not in broker.groups():
            return False
        if kind == "rebalance":
            broker.rebalance(group)
            self._say(strand.name, f"{group} rebalances", event=True)
            return True
        try:
            again = broker.redeliver(group)
        except ContractError:
            return False  # There have been no deliveries yet.
        if not again:
            return False
        self._say(strand.name, f"the last commit of {group} is lost", event=True)
        return True

    def faults_of(self, message_id: str) -> tuple[str, ...]:
        """Return the faults of a delivery that is about to begin."""
        return self._mishaps.pop(message_id, ())

    # -- waiting ---------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the current fake time."""
        return self._world.now_us()

    def sleep(self, seconds: float) -> bool:
        """Sleep in fake time while other strands run."""
        strand = self._here()
        if strand is None or self._aside:
            return False
        self._check_alive(strand)
        if self._world.clock.driving or seconds <= 0:
            return True
        self.wait_for(strand, None, self._world.now_us() + math.ceil(seconds * 1e6), "sleep")
        return True

    @property
    def turns(self) -> Turns:
        """Return the object that passes the turn between strands."""
        return self._turns

    def cooperating(self) -> Strand | None:
        """Return the strand of this thread; None if it waits for a thread that is not explored."""
        strand = None if self._aside or self._turns.over else self._here()
        return None if strand is None or strand.host.real else strand

    def is_ending(self) -> bool:
        """Return whether this thread belongs to a run that has already ended."""
        return self._turns.over and self._turns.here() is not None

    def fail(self, error: BaseException) -> None:
        """End the run with an error."""
        self._turns.fail(error)

    def new_thread(self, strand: Strand, thread: threading.Thread) -> Strand:
        """Return a new strand for a thread that explored code starts."""
        self._finish_calls(strand)
        target = getattr(thread, "_target", None)
        name = getattr(target, "__name__", "thread").strip("_")
        name = self._new_name(f"{strand.root.title}+{name if name.isidentifier() else 'thread'}")
        child = self._add(Strand(name, "thread", _nothing, parent=strand))
        child.thread = -1
        child.is_daemon = thread.daemon
        self._by[name] = len(self.run.steps) - 1
        return child

    def touch_lock(self, name: str) -> None:
        """Record that a lock was acquired or released."""
        if self._records:
            self.touch([Touch("", "lock", name, True)])

    def wait_for(
        self,
        strand: Strand,
        ready: Callable[[], bool] | None,
        until_us: int | None,
        why: str,
        *,
        own: bool = True,
    ) -> None:
        """Let other strands run until ``ready()`` is true, or until the given time."""
        if own:
            self._finish_calls(strand)
        if until_us is not None and self._records:
            self.touch([READS_CLOCK])
        strand.place, strand.ready, strand.wake_us = "wake", ready, until_us
        strand.why = why
        strand.state = "waiting"
        self._stamp(strand)
        self._take_turn(strand, own)
        strand.ready = strand.wake_us = None

    def _finish_calls(self, strand: Strand, but: int = 0) -> None:
        """Wait, in wall-clock time, until the fakes have handled the requests whose answers a
        strand has not read.

        Does not wait for blocking commands, such as BLPOP. ``but`` is the port of a connection to
        ignore.
        """
        if strand.host.loop is not None:
            return
        deadline = monotonic() + _PATIENCE
        for wire in self._world.wires.all():
            if wire.port != but and self._owners.get(wire.port) is strand:
                while wire.has_unhandled() and monotonic() < deadline:
                    if strand.state == "waiting" and strand.why == "wait":
                        break
                    self._check_alive(strand)
                    pause(0.0005)

    def wait(
        self, signal: Signal, poll: Callable[[], object], until_us: int
    ) -> tuple[bool, object]:
        """Wait until ``poll()`` returns something other than None, as a blocking call does."""
        strand = self._serving.get(threading.get_ident())
        if strand is None or self._world.clock.driving:
            return False, None
        found: list[object] = []

        def ready() -> bool:
            if not found and (got := poll()) is not None:
                found.append(got)
            return bool(found) or signal.closed

        if not ready() and self._world.now_us() < until_us:
            own = self._here() is strand
            try:
                self.wait_for(strand, ready, until_us, "wait", own=own)
            except Crash:
                if own:
                    raise
            ready()
        return True, found[0] if found else None

    def pass_time(self, seconds: float) -> bool:
        """Let fake time pass in an event loop that is not explored."""
        if self._turns.current is None or self._aside:
            return False
        if not self._world.clock.driving and seconds > 0:
            self._world.move_to(self._world.now_us() + math.ceil(seconds * 1e6))
        return True

    def enters_loop(self, loop: OwnLoop) -> None:
        """Called when an event loop starts in this thread. Turns its tasks into strands."""
        host = self._turns.here()
        if host is None or host.loop is loop:
            return
        host.loop = loop
        loop.strand = host
        if host.role != "task" and not host.name.endswith(":loop"):
            main = Strand(host.title, "task", _nothing, parent=host, points=host.points)
            main.state = "running"
            self._add(main)
            host.main = main
            host.name = f"{host.title}:loop"
            for task in asyncio.all_tasks(loop):
                self._tasks[task] = main

    def leaves_loop(self, loop: OwnLoop) -> None:
        """Called after an event loop has ended in this thread."""
        host = self._turns.here()
        if host is None or host.loop is not loop:
            return
        host.loop = None
        host.name = host.title
        if host.main is not None:
            host.points = host.main.points
        for strand in self._strands:
            if strand.role == "task" and strand.host is host:
                strand.state = "ended"
                strand.go.release()

    def idle(self, loop: OwnLoop, timeout: float | None) -> bool:
        """Let other strands run while an event loop waits."""
        host = loop.strand
        if host is None or self._aside or self._turns.here() is not host:
            return False
        self._check_alive(host)
        if self._world.clock.driving:
            return True
        if loop.selector.has_events():
            # Do not wait: the next strand must not depend on the time at which an answer arrives.
            return True
        if loop.has_sockets() and not self._wires_of(host) and loop.has_soon():
            return True
        now = self._world.now_us()
        if timeout is not None and self._records:
            self.touch([READS_CLOCK])
        host.wake_us = None if timeout is None else now + math.ceil(timeout * 1e6)

        def arrived() -> bool:
            self._world.wires.settle()
            is_coming = any(wire.has_unread() for wire in self._wires_of(host))
            return loop.selector.has_events(_LOOK if is_coming else 0)

        host.ready = arrived
        host.place, host.why = "wake", "loop"
        host.points = host.main.points if host.main is not None else 0
        self._turns.idle(host)
        self._check_alive(host)
        return True

    def _wires_of(self, host: Strand) -> list[Wire]:
        return [
            w
            for w in self._world.wires.all()
            if (owner := self._owners.get(w.port)) is not None and owner.host is host
        ]

    def settles(self, loop: OwnLoop) -> None:
        """Wait, in wall-clock time, until the fakes have answered all requests of the loop's tasks.

        Otherwise the order in which several answers arrive would influence the run.
        """
        host = loop.strand
        if host is None or self._aside or self._turns.here() is not host:
            return
        deadline = monotonic() + _PATIENCE
        while self._has_answers_to_come(host) and monotonic() < deadline:
            self._check_alive(host)
            pause(0.0001)

    def _has_answers_to_come(self, host: Strand) -> bool:
        """Return whether a fake is working on a request of the loop's tasks."""
        return any(
            self._owners[wire.port].state == "running"
            and (wire.has_unhandled() or wire.has_unsent())
            for wire in self._wires_of(host)
        )

    def sends(self, port: int) -> None:
        """Called before the code sends to a fake from a local port."""
        self._note_source(port)
        strand = self._here()
        if strand is not None:
            if (self._turns.over or strand.is_over) and _is_finalizer(sys._getframe(1)):
                raise ConnectionResetError("the process has ended")
            self._check_alive(strand)
            self._finish_calls(strand, but=port)
            if strand is not strand.host or strand.loop is None:
                self._owners[port] = strand

    def sends_elsewhere(self, sock: socket.socket) -> None:
        """Called before a thread that is not explored sends, such as the loop of an ASGI application."""
        if self._stacks:
            with contextlib.suppress(OSError, IndexError):
                self._note_source(sock.getsockname()[1])

    def _note_source(self, port: int) -> None:
        if not self._stacks:
            return
        source = source_of(sys._getframe())
        if not source and self._turns.here() is not None:
            with contextlib.suppress(RuntimeError):
                source = self._inner_sources.get(asyncio.current_task(), ())
        if source:
            self._sources[port] = source

    def reads(
        self,
        is_readable: Callable[[float], bool],
        wire: Wire,
        timeout: float | None,
    ) -> bool:
        """Wait until a fake has sent something; return False when the timeout expires."""
        strand = self._here()
        if strand is None or strand.host.loop is not None:
            return True
        while not is_readable(0):
            self._check_alive(strand)
            owner = self._owners.get(wire.port, strand)
            # The connection may be shared with a strand whose call needs the turn that this strand
            # has.
            is_other_waiting = owner is not strand and owner.state == "parked"
            if not is_other_waiting and not wire.is_quiet():
                is_readable(0.01)
                continue
            if is_readable(0):
                break
            now = self._world.now_us()
            until = None if timeout is None else now + math.ceil(timeout * 1e6)

            def arrived() -> bool:
                self._world.wires.settle()
                return is_readable(_LOOK if wire.has_unread() else 0)

            self.wait_for(strand, arrived, until, "push")
            if not is_readable(0):
                return False
        self._check_alive(strand)
        return True

    # -- for the story and for checks ------------------------------------------------------------

    def _say(self, process: str, words: str, *, event: bool = False) -> None:
        line = Line(self._world.now_us(), process, words, event=event, step=len(self.run.steps) - 1)
        self.run.lines.append(line)

    def _check_always(self) -> None:
        if not self._choice.always or self.run.broken is not None:
            return
        with self.aside():
            for promise in self._choice.always:
                try:
                    promise(self.history)
                except AssertionError as error:
                    self.run.broken = error
                    self._say("the promise", "breaks here")
                    self.run.lines[-1].breaks = True
                    return

    def aside(self) -> _Aside:
        """Return a context manager for code of a promise, whose calls are not part of the explored
        code.
        """
        return _Aside(self)

    def began(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation:
        """Record the start of a client's operation."""
        strand = self._here() or self._turns.current
        client = strand.root.title if strand is not None else ""
        self._touch_history(False)
        return begin(self.history, client, name, args, kwargs)

    def finished(self, operation: Operation, result: object) -> None:
        """Record the end of a client's operation."""
        self._touch_history(True)
        end(self.history, operation, result)


class _Aside:
    def __init__(self, running: Simulation) -> None:
        self._running = running

    def __enter__(self) -> None:
        self._running._aside += 1

    def __exit__(self, *error: object) -> None:
        self._running._aside -= 1


async def _awaited(value: Any) -> Any:
    return await value


def _nothing() -> None:
    return None


def _is_finalizer(frame: FrameType | None) -> bool:
    """Return whether a stack is inside ``__del__``, where exceptions are ignored."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _has(schedule: Schedule, kind: Kind) -> bool:
    return any(event.kind == kind for event in schedule)


def _place_of(option: Option) -> tuple[Place, int]:
    if not isinstance(option, Strand) or option.state == "new":
        return "switch", 0
    return ("wake" if option.state == "waiting" else option.place), option.points


def _title(name: str) -> str:
    return name.removesuffix(":loop")


def _edge(now_us: int) -> int:
    """Return the start of the next second; the event ``nearly`` moves the clock to a millisecond
    before it.
    """
    return (now_us // 1_000_000 + 1) * 1_000_000
