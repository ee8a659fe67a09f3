"""One trial of explored code under one schedule: chooses the strand that runs next, and starts,
ends and restarts strands.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence

from ...core.errors import ContractError, broken_promise, ends_the_test
from ..disturbances import CLOCK
from ..limits import CHECKS_OF_BLOCKED, CHECKS_OF_WAITING
from ..programs import check_has_run
from ..trial import (
    NO_EFFECTS,
    CloudState,
    DueDelivery,
    Effects,
    Plan,
    Redundant,
    StrandRecord,
    Trial,
    Verdict,
    Wording,
)
from .calls import Calls
from .clock import MOST_STEPS, ClockMove, Option, TrialClock
from .decisions import Decisions
from .deliveries import DeliveryStrands
from .loops import Loops
from .pauses import Pauses
from .stacks import application_frame, describe_places, describe_stuck, distinct_places
from .state import Subject, TrialState
from .strand_waits import StrandWaits
from .strands import Strand, pause
from .turns import MOST_CRASHES
from .workers import MOST_STARTS, Workers

_LATEST_STEPS = 1_000
"""Number of steps by which the strand is found that does not end."""


class Simulation:
    """Runs clients, workers, deliveries and the clock under one schedule, one strand at a time.

    By default a strand runs until it ends or waits. The next one to run is the strand that gave up
    its turn last, first among those of the same client; then come clients in their order, deliveries
    in the order of their due times, and workers, which are started at most ``MOST_STARTS``
    times. The clock moves when no strand can run. The code that patches sockets, locks, event loops
    and the fakes calls the public parts.
    """

    def __init__(self, subject: Subject, plan: Plan) -> None:
        self.state = state = TrialState(subject, plan)
        self._log = state.log
        self.history = state.operations.history
        self.turns = state.turns
        self._fakes = state.fakes
        self._outsiders = subject.outsiders
        self._pauses = pauses = Pauses(state)
        self.clock = TrialClock(state, pauses)
        self._decisions = Decisions(state, self.clock)
        self.waits = StrandWaits(state, self.clock)
        self.deliveries = DeliveryStrands(state)
        self.loops = Loops(state)
        self._workers = Workers(state)
        self.calls = Calls(state, pauses, self.waits)
        self._last_root: Strand | None = None
        """The client, worker or delivery of the strand that ran last, unless the clock has moved."""
        self._last_begun: Strand | None = None
        """The client, worker or delivery that ran last, whether or not the clock has moved since."""

    def play(self) -> None:
        """Run all strands to their end, and check the promises that apply to every step."""
        try:
            self._pauses.delay_starts()
            self.turns.run(self)
        except Redundant:
            self._log.flags.add("redundant")
        finally:
            self.state.sleepers.end()
            self.state.cut(
                lambda strand: strand.crashed or strand.host.crashed or strand.root.crashed
            )
        self._fakes.disturbances.end()
        self._fakes.deliveries.resume_schedules()
        if "redundant" not in self._log.flags:
            self._end()
        self.calls.note_changes()

    def _end(self) -> None:
        """Complete the steps and the history of a trial that has run to its end."""
        log = self._log
        if self.state.has_steps and log.broken is None:
            self._decisions.end_step((CLOCK,))
        if self.state.moves_time and log.broken is None:
            self.clock.foresee()
        self.state.operations.sort_outcomes()
        for strand in self.state.strands:
            if strand.error is not None:
                log.breaks(broken_promise(strand.error))

    def frozen(self, effects: Effects = NO_EFFECTS, state: CloudState | None = None) -> Trial:
        """Return the trial that has ended, with its effects on the fakes and the data that it left."""
        log, plan, strategy = self._log, self.state.plan, self.state.strategy
        if plan.stacks:
            sources = distinct_places([line.lines for line in log.lines])
            for line, source in zip(log.lines, sources, strict=True):
                line.source = source
        if log.has_overlap():
            log.flags.add("overlap")
        results = {name: repr(result) for name, result in self.history.results.items()}
        errors = {s.title: s.error for s in self.state.strands if s.error is not None}
        names = dict.fromkeys((*log.calls, *sorted(log.begun), *errors))
        is_cut = "cut" in log.flags
        return Trial(
            log.schedule,
            # A trial that repeats a known order has no result.
            Verdict() if "redundant" in log.flags else Verdict(log.broken),
            log.start_us,
            tuple(log.fired),
            tuple(log.lines),
            tuple(log.steps),
            tuple(log.points),
            {
                name: StrandRecord(log.calls[name], results.get(name), errors.get(name))
                for name in names
            },
            log.handlers,
            effects,
            state,
            notes=tuple(log.notes),
            wording=Wording(self._fakes.deliveries.names(), log.silent_calls, log.idle_restarts),
            flags=frozenset(log.flags),
            lesson=None if strategy is None else strategy.lesson(log.steps, is_cut=is_cut),
        )

    # -- the choice of the next strand

    def choose(self) -> Strand | None:
        """Return the next strand, or None at the end of the trial; move the clock if none can
        run.
        """
        self.state.check_promises()
        strands = self.state.strands
        if any(strand.is_waiting_for_thread() for strand in strands):
            self.await_outsiders()
        if len(self._log.steps) > MOST_STEPS:
            raise ContractError(self._endless())
        while True:
            for strand in strands:
                if strand.root.crashed and self._is_dying(strand):
                    return strand
            options = self._decisions.of_piece(self._last_begun, self._runnable_or_restarted())
            move = self.clock.plan_move(options) if self.clock.may_move else None
            if move is not None:
                options.append(move)
            if options:
                chosen = self._start(self._decisions.decide(options))
                if chosen is not None:
                    return chosen
            elif self._wait():
                self._last_root = None
            else:
                return None

    def await_outsiders(self) -> None:
        """Wait until threads from before rest, because their speed would decide what runs next. End the
        trial with an error if one goes on.
        """
        try:
            if self._outsiders:
                self._outsiders.await_rest(lambda: self.turns.has_ended)
        except ContractError as error:
            self.turns.fail(error)  # The explored code could catch the exception.

    def _endless(self) -> str:
        """Describe a trial with too many steps, and the strand that made most of the last ones."""
        latest = Counter(step.strand for step in self._log.steps[-_LATEST_STEPS:])
        name = latest.most_common(1)[0][0]
        strands = [strand for strand in self.state.strands if strand.name == name]
        return (
            f"{describe_places(strands) or name} goes on after {MOST_STEPS:,} steps of the trial: "
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

    def _runnable_or_restarted(self) -> list[Option]:
        """Return what can run now, in the default order; if nothing can, restart a worker for that."""
        options = self._runnable()
        if not options and (worker := self._workers.restart(self._fakes.now_us())) is not None:
            options.append(worker)
        return options

    def _runnable(self) -> list[Option]:
        """Return the strands and deliveries that can run, in the default order."""
        now = self._fakes.now_us()
        groups: defaultdict[str, list[Strand]] = defaultdict(list)
        for strand in self.state.strands:
            if group := _group_of(strand, now):
                groups[group].append(strand)
        groups["parked"].sort(key=lambda s: (-s.host.parked_at, s.parked_at))
        groups["waiting"].sort(key=lambda s: -1 if s.waiting.wake_us is None else s.waiting.wake_us)
        strands = [*groups["parked"], *groups["waiting"], *groups["thread"]]
        # A client that waits for its thread goes on there, so one switch lets it make its calls.
        strands.sort(key=lambda s: s.root is not self._last_root)
        options: list[Option] = [*strands, *groups["client"]]
        if self.state.all_paused_until_us <= now:
            options += self._fakes.deliveries.due(now)
        workers, last = groups["worker"], groups["last"]
        if workers and (options or last or self._workers.may_begin(now)):
            # A paused worker lets other workers start before it continues.
            paused = [strand for strand in last if strand.root.role == "worker"]
            last = [*(strand for strand in last if strand not in paused), *workers, *paused]
        return options + last

    def _start(self, option: Option) -> Strand | None:
        if isinstance(option, ClockMove):
            self.clock.move(option, self._runnable())
            self._last_root = None
            return None
        if isinstance(option, DueDelivery):
            strand = self.deliveries.begin(option)
        else:
            strand = option
            strand.pause.lets_others_first = False
        if strand is not None:
            self._last_root = strand.root
            self._last_begun = strand.root
        return strand

    def _wait(self) -> bool:
        """Wait or move the clock until something may run; return False at the end of the trial."""
        if not any(strand.is_stepped_over for strand in self.state.strands):
            # A thread from before may work for a strand, so the time must not pass meanwhile.
            if self._outsiders:
                self._outsiders.await_rest(
                    lambda: self.turns.has_ended or bool(self._runnable_or_restarted())
                )
                if self._runnable_or_restarted():
                    return True
            return self.clock.pass_time() or not self._has_ended()
        only_daemons = all(
            strand.is_daemon or strand.state == "ended" for strand in self.state.strands
        )
        if (not only_daemons and self._wait_for_stepped_over()) or self.clock.pass_time():
            return True
        blocked = [
            strand
            for strand in self.state.strands
            if strand.is_stepped_over and not strand.is_daemon
        ]
        if not blocked:
            return not self._has_ended()
        self._report_stuck(blocked)
        return False

    def _wait_for_stepped_over(self) -> bool:
        """Wait, in wall-clock time, until another strand can run; return False if none can."""
        for _ in range(CHECKS_OF_BLOCKED):
            pause()
            if self.turns.has_ended:
                return False
            if (
                not any(strand.is_stepped_over for strand in self.state.strands)
                or self._runnable_or_restarted()
            ):
                return True
        return False

    def _has_ended(self) -> bool:
        """Return whether no strand can run again; report the strands that still wait."""
        waiting = [
            strand
            for strand in self.state.strands
            if strand.state == "waiting"
            and not strand.is_daemon
            and strand.root.role != "worker"
            and not strand.root.crashed
        ]
        # Ignore idle threads of a pool, which wait in library code.
        # Keep no dictionary of frames: it would contain this one, which refers to all data of the trial.
        busy = [
            strand
            for strand in waiting
            if strand.role != "thread"
            or application_frame(sys._current_frames().get(strand.host.thread.ident))
        ]
        if busy:
            for _ in range(CHECKS_OF_WAITING):
                # A thread that is not explored may still release a waiting strand.
                pause()
                if self.turns.has_ended or self.state.sleepers or self._runnable_or_restarted():
                    return False
            self._report_stuck(busy)
        for strand in self.state.strands:
            if strand.is_daemon and strand.state not in ("ended", "new"):
                note = f"the daemon thread {strand.title} was still running at the end"
                self._log.note(note)
        return True

    def _report_stuck(self, strands: Sequence[Strand]) -> None:
        text = describe_stuck(strands)
        self._log.flags.add("stuck")
        self._log.breaks(AssertionError(text))

    def stuck(self, strand: Strand) -> None:
        """End the trial, because a strand is blocked and no other one can run."""
        self._report_stuck([s for s in self.state.strands if s.is_stepped_over] or [strand])
        strand.is_stepped_over = True
        self.turns.end(None)

    def choose_meanwhile(self) -> Strand | None:
        """Return a strand that can run while another one is blocked, or None."""
        note = "not all interleavings: the code waited for a lock that explore() does not control"
        while True:
            for option in self._runnable_or_restarted():
                chosen = self._start(option)
                if chosen is not None:
                    self._log.note(note)
                    return chosen
            if not self.clock.pass_time():
                return None

    # -- the start and the end of a strand

    def perform(self, strand: Strand) -> object:
        """Run a strand's code, and return what it returns or, for a coroutine, awaits."""
        result = self.state.subject.world.awaited(strand.body())
        if strand.role != "delivery":
            check_has_run(result, strand.title)
        return result

    def begins(self, strand: Strand) -> None:
        """Record the start of a strand; for a client, also the start of an operation."""
        self._log.begun.add(strand.title)
        if strand.role == "client":
            self.state.operations.begin_client(strand)

    def lost(self, strand: Strand) -> None:
        """Note a thread of the code that has ended before its function began."""
        note = f"not explored: the thread {strand.title}, which ended before its code began"
        self._log.note(note)

    def ended(self, strand: Strand) -> None:
        """Store the result of a strand; report a failed delivery; restart a worker that failed."""
        error = strand.error
        if (outcome := ends_the_test(error)) is not None:
            raise outcome
        if strand.crashed:
            strand.root.crashed = True
            self.state.cut(lambda owner: owner.root is strand.root)
        self.state.operations.store(strand)
        if strand.due is not None:
            self.deliveries.report(strand.name, strand.due)
        if strand.crashed or (error is not None and broken_promise(error) is None):
            self._workers.leave_groups(strand)
            if strand.role == "worker" and strand.work.starts < MOST_STARTS:
                self._workers.start_again(strand, failed=True)

    def abandons(self, strand: Strand) -> None:
        """Note that a crashed strand goes on, and end the tasks of its event loop."""
        note = f"{describe_places([strand])} caught its crash {MOST_CRASHES} times"
        self._log.note(f"{note}: its thread was abandoned. Do not catch BaseException")
        for task in self.state.strands:
            if task.role == "task" and task.host is strand:
                task.end()
                task.crashed = True


def _group_of(strand: Strand, now: int) -> str:
    """Return ``last``, the state of a strand that has begun, or the role of a new strand; an empty
    string if the strand cannot run.
    """
    state, waiting = strand.state, strand.waiting
    if state in ("running", "ended") or strand.pause.until_us > now or strand.is_stepped_over:
        return ""
    if strand.role == "task" and not (strand.host.loop.is_idle or strand.turn.is_inline):
        return ""
    if state == "new":
        return strand.role if (waiting.wake_us or 0) <= now else ""
    if state == "waiting":
        is_due = waiting.wake_us is not None and waiting.wake_us <= now
        if not (is_due or (waiting.ready is not None and waiting.ready())):
            return ""
    return "last" if strand.pause.lets_others_first else state
