"""The scheduler: chooses the strand that runs next, from the beginning of a run to its end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from ...core.errors import ContractError
from ..footprint import MEMORY, Footprint
from ..run import ClockMove, Option, Plan, Point, Step
from ..schedule import CLOCK, Event, Kind
from .clock import MOST_STEPS, ClockMoves
from .deliveries import DeliveryStrands, Due
from .lifecycle import WorkerRestarts
from .state import Part, RunState
from .strands import Place, Strand, pause
from .stuck import describe_places, describe_stuck, is_in_application

_CHECK = 0.001
"""Wall-clock seconds between two checks of whether a strand can run."""
_GRACE_CHECKS = 500
"""Number of these checks before a waiting strand counts as stuck."""
_PATIENCE_CHECKS = 1_500
"""Number of these checks before a blocked strand counts as stuck, when no other can run."""
_LATEST_STEPS = 1_000
"""Number of steps by which the strand is found that does not end."""
_DEFAULT_ORDER = ("parked", "waiting", "thread", "client")
"""The order of strands that can run, by ``_group_of()``; deliveries and workers follow."""
_NOT_CONTROLLED = (
    "not all interleavings: the code waited for a lock that explore() does not control"
)


class Scheduler(Part):
    """Chooses the next strand, delivery or move of the clock.

    By default a strand runs until it ends or waits. The next one to run is the strand that gave up
    its turn last; then come clients in their order, deliveries in the order of their due times, and
    workers. The clock moves when no strand can run.
    """

    def __init__(
        self,
        state: RunState,
        plan: Plan,
        clock: ClockMoves,
        deliveries: DeliveryStrands,
        restarts: WorkerRestarts,
    ) -> None:
        super().__init__(state)
        self._strategy = plan.strategy
        self._clock = clock
        self._deliveries = deliveries
        self._restarts = restarts
        self.steps = Steps(state, plan, clock)

    def choose(self) -> Strand | None:
        """Return the next strand, or None at the end of the run; move the clock if none can run."""
        self._state.check_promises()
        if len(self._run.steps) > MOST_STEPS:
            raise ContractError(self._endless())
        while True:
            for strand in self._state.strands:
                if strand.root.crashed and self._is_dying(strand):
                    return strand
            options = self._options()
            move = self._clock.plan_move(options) if self._clock.may_move else None
            if move is not None:
                options.append(move)
            if options:
                chosen = self._start(self._decide(options))
                if chosen is not None:
                    return chosen
            elif not self._wait():
                return None

    def _endless(self) -> str:
        """Describe a run with too many steps, and the strand that made most of the last ones."""
        latest = Counter(step.strand for step in self._run.steps[-_LATEST_STEPS:])
        name = latest.most_common(1)[0][0]
        strands = [strand for strand in self._state.strands if strand.name == name]
        return (
            f"{describe_places(strands) or name} goes on after {MOST_STEPS:,} steps of the run: "
            "explore() is for code that ends, so give its loop an end"
        )

    def _is_dying(self, strand: Strand) -> bool:
        if strand.is_stepped_over:
            return False
        if strand.role == "task" and not (
            strand.host.state == "waiting" and strand.host.loop.is_idle
        ):
            return False
        return strand.state in ("parked", "waiting")

    def _options(self) -> list[Option]:
        """Return what can run now; the first is the default. Restart a worker if nothing can run."""
        now = self._world.now_us()
        options = self._runnable(now)
        if not options and (again := self._restarts.again(now)) is not None:
            options.append(again)
        return options

    def _runnable(self, now: int) -> list[Option]:
        """Return the strands and deliveries that can run, in the default order."""
        groups: defaultdict[str, list[Strand]] = defaultdict(list)
        for strand in self._state.strands:
            if _can_run(strand, now):
                groups[_group_of(strand)].append(strand)
        groups["parked"].sort(key=lambda s: (-s.host.parked_at, s.parked_at))
        groups["waiting"].sort(key=lambda s: -1 if s.waiting.wake_us is None else s.waiting.wake_us)
        options: list[Option] = [one for group in _DEFAULT_ORDER for one in groups[group]]
        if self._state.all_paused_until_us <= now:
            options += self._world.deliveries.due(now)
        workers, last = groups["worker"], groups["last"]
        if workers and (options or last or self._restarts.may_begin(now)):
            # A paused worker lets other workers start before it continues.
            paused = [strand for strand in last if strand.root.role == "worker"]
            last = [*(strand for strand in last if strand not in paused), *workers, *paused]
        return options + last

    def _decide(self, options: list[Option]) -> Option:
        """Choose an option: the first one unless the schedule or the strategy wants another."""
        has_steps = self._record.has_steps
        if len(options) == 1 and not has_steps:
            return options[0]
        names = [one.name for one in options]
        kind, point = _place_of(options[0])
        if has_steps:
            self.steps.end(names)
        if len(options) > 1:
            others = [name for name in names[1:] if name != CLOCK]
            self.steps.note_switches(names[0], point, kind, others)
        chosen = options[names.index(self._wanted(names, point, kind))]
        if has_steps:
            self.steps.begin(chosen, names)
        return chosen

    def _wanted(self, names: list[str], point: int, kind: Kind) -> str:
        """Return the name of the option that the schedule or the strategy wants to run next."""
        default = names[0]
        planned = self._state.switches.get((default, point))
        if planned:
            for event in planned:
                if event.kind == kind and event.detail in names:
                    planned.remove(event)
                    self._switched(event)
                    return event.detail
        elif self._strategy is not None and kind in self._strategy.places:
            wanted = self._strategy.pick(self._run, names, kind)
            if wanted != default:
                self._switched(Event(default, point, kind, wanted))
            return wanted
        return default

    def _switched(self, event: Event) -> None:
        self._run.fired.append(event)
        if event.detail == CLOCK:
            return
        other = event.strand.removesuffix(":loop")
        when = {
            "switch": "before {} continues" if event.point else "before {} starts",
            "late": "before {} receives its answer",
            "wake": "before {} continues",
        }[event.kind]
        chosen = next((s for s in self._state.strands if s.name == event.detail), None)
        is_late = chosen is not None and chosen.state == "parked" and chosen.place == "late"
        words = "receives its answer" if is_late else "runs"
        self._record.add_line(event.detail, f"{words} {when.format(other)}", event=True)

    def _start(self, option: Option) -> Strand | None:
        if isinstance(option, ClockMove):
            self._clock.move(option, self._runnable(self._world.now_us()))
            return None
        if isinstance(option, Due):
            return self._deliveries.begin(option)
        option.yields_to_others = False
        return option

    def _wait(self) -> bool:
        """Wait or move the clock until something may run; return False at the end of the run."""
        if not any(s.is_stepped_over for s in self._state.strands):
            return self._clock.pass_time() or not self._has_ended()
        if self._wait_for_stepped_over() or self._clock.pass_time():
            return True
        self._report_stuck([s for s in self._state.strands if s.is_stepped_over])
        return False

    def _wait_for_stepped_over(self) -> bool:
        """Wait, in wall-clock time, until another strand can run; return False if none can."""
        for _ in range(_PATIENCE_CHECKS):
            pause(_CHECK)
            if self._turns.has_ended:
                return False
            if not any(s.is_stepped_over for s in self._state.strands) or self._options():
                return True
        return False

    def _has_ended(self) -> bool:
        """Return whether no strand can run again; report the strands that still wait."""
        waiting = [
            strand
            for strand in self._state.strands
            if strand.state == "waiting"
            and not strand.is_daemon
            and strand.root.role != "worker"
            and not strand.root.crashed
        ]
        # Ignore idle threads of a pool, which wait in library code.
        busy = [s for s in waiting if s.role != "thread" or is_in_application(s)]
        if busy:
            for _ in range(_GRACE_CHECKS):
                # A thread that is not explored may still release a waiting strand.
                pause(_CHECK)
                if self._turns.has_ended or self._options():
                    return False
            self._report_stuck(busy)
        for strand in self._state.strands:
            if strand.is_daemon and strand.state not in ("ended", "new"):
                note = f"the daemon thread {strand.title} was still running at the end"
                self._run.notes[note] = None
        return True

    def _report_stuck(self, strands: Sequence[Strand]) -> None:
        text = describe_stuck(self._state.strands, strands)
        self._run.is_stuck = True
        self._run.broken = self._run.broken or AssertionError(text)

    def stuck(self, strand: Strand) -> None:
        """Report a blocked strand as a finding."""
        self._report_stuck([s for s in self._state.strands if s.is_stepped_over] or [strand])

    def choose_meanwhile(self) -> Strand | None:
        """Return a strand that can run while another one is blocked, or None."""
        while True:
            for option in self._options():
                chosen = self._start(option)
                if chosen is not None:
                    self._run.notes[_NOT_CONTROLLED] = None
                    return chosen
            if not self._clock.pass_time():
                return None


def _can_run(strand: Strand, now: int) -> bool:
    if strand.held_until_us > now or strand.is_stepped_over:
        return False
    if strand.role == "task" and not (strand.host.loop.is_idle or strand.turn.is_inline):
        return False
    state, waiting = strand.state, strand.waiting
    if state == "new":
        return (waiting.wake_us or 0) <= now
    if state == "waiting":
        is_due = waiting.wake_us is not None and waiting.wake_us <= now
        return is_due or (waiting.ready is not None and waiting.ready())
    return state == "parked"


def _group_of(strand: Strand) -> str:
    """Return ``last``, the state of a strand that has begun, or the role of a new strand."""
    if strand.state == "new":
        return strand.role
    return "last" if strand.yields_to_others else strand.state


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
        if not self._run.has_timers:
            self._run.has_timers = self._clock.next_us() is not None
        place, point = _place_of(option)
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


def _place_of(option: Option) -> tuple[Place, int]:
    """Return where an option continues: its place, and the number of its calls so far."""
    if not isinstance(option, Strand) or option.state == "new":
        return "switch", 0
    return ("wake" if option.state == "waiting" else option.place), option.points
