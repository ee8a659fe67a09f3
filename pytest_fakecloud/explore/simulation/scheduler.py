"""The scheduler: chooses the strand that runs next, from the beginning of a run to its end."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from ...core.errors import ContractError
from ...core.fatal_errors import broken_promise, ends_the_test
from ..call_events import seconds
from ..footprint import MEMORY, MOVES_CLOCK, Footprint
from ..history import begin_client, end
from ..run import Moment, Option, Point, Run, Step
from ..runtime.deliveries import Due
from ..runtime.frames import distinct_places
from ..runtime.loops import await_in_own_loop
from ..runtime.strands import Place, Strand, Turns, pause
from ..runtime.stuck import describe_stuck, is_in_application
from ..schedule import CLOCK, Event, Kind
from .clock import MOST_STEPS
from .points import Points
from .state import simulation
from .workers import MOST_STARTS

_GRACE = 500
"""Wall-clock milliseconds before a waiting strand counts as stuck."""
_NOT_CONTROLLED = (
    "not all interleavings: the code waited for a lock that explore() does not control"
)


class Simulation(Points):
    """Runs clients, workers, the queue's deliveries and the clock under one schedule, one strand at
    a time.

    A strand is a client, worker, delivery, task or thread. By default it runs until it ends or
    waits. The next one to run is the strand that gave up its turn last; then come clients in their
    order, deliveries in the order of their due times, and workers. The clock moves when no strand
    can run.
    """

    def play(self) -> Run:
        """Run all strands to their end. Does not check the promise."""
        token = simulation.set(self)
        turns = self._turns = Turns(self, self._threads)
        self._world.stage = self
        try:
            self._delay_starts()
            turns.run()
        finally:
            self._world.stage = None
            simulation.reset(token)
            self._connections.cut(lambda one: one.crashed or one.host.crashed or one.is_over)
        self._world.disturbances.end()
        self._world.deliveries.resume_schedules()
        run = self.run
        if self.records and run.broken is None:
            self._note_disabled((CLOCK,))
        if self._moves_time and run.broken is None:
            self._foresee()
        if self._stacks:
            sources = distinct_places([line.lines for line in run.lines])
            for line, source in zip(run.lines, sources, strict=True):
                line.source = source
        run.ids = self._world.deliveries.names()
        for strand in self._strands:
            if strand.error is not None:
                run.errors[strand.name] = strand.error
                run.broken = run.broken or broken_promise(strand.error)
        return run

    def choose(self) -> Strand | None:
        """Return the strand to run next, or None at the end of the run; move the clock if no strand
        can run.
        """
        self._check_always()
        if len(self.run.steps) > MOST_STEPS:
            raise ContractError(f"a run has made {MOST_STEPS} steps and goes on: give it an end")
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
                if not self._wait_for_carried() and not self._pass_time():
                    self._report_stuck([s for s in self._strands if s.carried])
                    return None
            elif not self._pass_time() and self._is_the_end():
                return None

    def _is_dying(self, strand: Strand) -> bool:
        if strand.carried:
            return False
        if strand.role == "task" and not (strand.host.state == "waiting" and strand.host.is_idle):
            return False
        return strand.state in ("parked", "waiting")

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
            options += self._world.deliveries.due(now)
        if workers and (options or last or self._workers_may_begin(now)):
            # A paused worker lets other workers start before it continues.
            after = [strand for strand in last if strand.root.role == "worker"]
            options += [strand for strand in last if strand not in after]
            options += [*workers, *after]
        else:
            options += last
        if not options:
            again = self._worker_again(now)
            if again is not None:
                options.append(again)
        return options

    def _decide(self, options: list[Option]) -> Option:
        default = options[0]
        kind, point = _place_of(default)
        if len(options) == 1 and not self.records:
            return default
        others = options[1:]
        label = default.name, point
        names = [one.name for one in options]
        if self.records:
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
        if self.records:
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
        elif moment.at_us == self._world.deliveries.next_firing_us():
            self._firings += 1
        ends = list(self._world.time.ends_until(moment.at_us)) if self.records else []
        fired = self._world.time.move_to(moment.at_us)
        if self.records:
            index = len(self.run.steps) - 1
            self._moves.append((index, moment.at_us))
            self.touch([MOVES_CLOCK, *ends])
            if fired:
                self.run.steps[index].footprint.is_everything = True

    def perform(self, strand: Strand) -> object:
        """Run the code of a strand and return its result."""
        if inspect.iscoroutinefunction(strand.body):
            return await_in_own_loop(self._world, strand.body)
        result = strand.body()
        self._connections.finish_calls(strand)
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
            self._connections.cut(lambda owner: owner.root is strand.root)
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

    def unhandled(self, error: BaseException) -> None:
        """Called with an exception of a task that no code awaited."""
        broken = broken_promise(error)
        if broken is not None:
            self.run.broken = self.run.broken or broken
        else:
            self.run.notes[f"a task raised {error!r}, which no code awaited"] = None

    def _wait_for_carried(self) -> bool:
        """Wait, in wall-clock time, until another strand can run; return False if none can."""
        for _ in range(1_500):
            pause(0.001)
            if self._turns.over:
                return False
            if not any(s.carried for s in self._strands) or self._options():
                return True
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
        while True:
            for option in self._options():
                chosen = self._start(option)
                if chosen is not None:
                    self.run.notes[_NOT_CONTROLLED] = None
                    return chosen
            if not self._pass_time():
                return None


async def _awaited(value: Any) -> Any:
    return await value


def _place_of(option: Option) -> tuple[Place, int]:
    if not isinstance(option, Strand) or option.state == "new":
        return "switch", 0
    return ("wake" if option.state == "waiting" else option.place), option.points


def _title(name: str) -> str:
    return name.removesuffix(":loop")
