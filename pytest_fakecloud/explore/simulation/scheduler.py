"""The steps of a trial: which strand runs next, and the moves of the clock in between."""

from __future__ import annotations

from collections import Counter, deque
from functools import partial

from ...core.errors import ContractError
from .clock import MOST_CHOSEN_MOVES, ClockMove, Option, TrialClock
from .decisions import Decisions
from .delivery_strands import DeliveryStrands
from .operations import Operations
from .part import Common, Part
from .pauses import Pauses
from .real_waits import RealWaits
from .stacks import describe_places
from .strand import Strand
from .workers import Workers

MOST_TURNS = 20_000
"""Maximum number of turns that strands have in one trial."""
_LATEST_STEPS = 1_000
"""Number of latest steps that are remembered, to name the strand that goes on and on."""
_BLOCKED_NOTE = "not all interleavings: the code waited for a lock that explore() does not control"


class Scheduler(Part):
    """Lets the steps of a trial happen, and checks the promises before the first and after each: turns
    of strands, starts of deliveries, and moves of the clock, by choice or because no strand can run.

    By default a strand runs until it ends or waits, and tasks of one loop take turns at their calls: the
    first option of the default order (``_place()``) comes next. ``Decisions`` applies the schedule.
    """

    def __init__(
        self,
        common: Common,
        *,
        real_waits: RealWaits,
        operations: Operations,
        pauses: Pauses,
        clock: TrialClock,
        decisions: Decisions,
        delivery_strands: DeliveryStrands,
        workers: Workers,
    ) -> None:
        super().__init__(common)
        self._real_waits = real_waits
        self._operations = operations
        self._pauses = pauses
        self._clock = clock
        self._decisions = decisions
        self._delivery_strands = delivery_strands
        self._workers = workers
        self._continuing_root: Strand | None = None
        """The client, worker or delivery of the strand that ran last, unless the clock has moved."""
        self._last_root: Strand | None = None
        """The client, worker or delivery that ran last, whether or not the clock has moved since."""
        self._latest: deque[Strand] = deque(maxlen=_LATEST_STEPS)
        """The strands that made the latest steps."""

    def advance(self) -> Strand | None:
        """Let the trial go on until a strand has to run; return the strand, or None at the end."""
        strands = self._strands
        if any(strand.is_waiting_for_other_thread() for strand in strands):
            self._real_waits.await_idle()
        if self._turns.count > MOST_TURNS:
            raise ContractError(self._endless())
        while True:
            self._operations.check_promises()
            for strand in strands:
                if strand.root.crashed and strand.can_crash():
                    return strand
            options = self._runnable()
            if not options:
                options = self._restart_worker()
            if self._script.may_move_clock:
                options = self._add_clock_move(options)
            if options:
                chosen = self._take(self._decisions.decide(options, self._last_root))
                if chosen is not None:
                    return chosen
            elif self._wait_or_move_clock():
                self._continuing_root = None
            else:
                return None

    def _endless(self) -> str:
        """Describe a trial with too many steps, and the strand that made most of the last ones."""
        [(strand, _)] = Counter(self._latest).most_common(1)
        return (
            f"{describe_places([strand])} goes on after {MOST_TURNS:,} steps of the trial: "
            "explore() is for code that ends, so give its loop an end"
        )

    def _add_clock_move(self, options: list[Option]) -> list[Option]:
        """Add the move of the clock to what can run, if it is one to order with other steps."""
        if not options:
            self._clock.end_unawaited_queue_schedules()
        move = self._clock.possible_move(options)
        if move is None:
            return options
        if options and self._clock.chosen_moves >= MOST_CHOSEN_MOVES:
            self._log.flags.add("limited")
            return options
        return [*options, move]

    def _has_options(self) -> bool:
        return bool(self._runnable()) or self._workers.to_restart(self._fakes.now_us()) is not None

    def _restart_worker(self) -> list[Option]:
        """Restart a worker that may have work, if there is one; return its new strand."""
        worker = self._workers.to_restart(self._fakes.now_us())
        return [] if worker is None else [self._workers.restart(worker)]

    def _runnable(self) -> list[Option]:
        """Return the strands and deliveries that can run, in the default order."""
        now = self._fakes.now_us()
        options: list[Option] = [strand for strand in self._strands if strand.can_run(now)]
        if self._pauses.all_until_us <= now:
            options += self._fakes.deliveries.due(now)
        if all(map(_is_new_worker, options)) and not self._workers.may_begin(now):
            return []
        options.sort(key=partial(_place, self._continuing_root))
        return options

    def _take(self, option: Option) -> Strand | None:
        """Let an option happen; return the strand that runs for it, if any."""
        if isinstance(option, ClockMove):
            self._clock.move(option, self._runnable())
            self._continuing_root = None
            return None
        strand = option if isinstance(option, Strand) else self._delivery_strands.begin(option)
        if strand is not None:
            self._continuing_root = self._last_root = strand.root
            self._latest.append(strand)
        return strand

    def _wait_or_move_clock(self) -> bool:
        """Wait or move the clock until something may run; return False at the end of the trial."""
        # Time must not pass while another thread may still work for a strand.
        if self._real_waits.await_threads(self._has_options):
            return True
        if self._clock.pass_time():
            return True
        return self._real_waits.await_release(self._has_options)

    def advance_meanwhile(self) -> Strand | None:
        """Like ``advance()``, while a strand is blocked in the middle of a step: check no promise, ask
        no schedule, and wait for no thread.
        """
        while True:
            options = self._runnable()
            if not options:
                options = self._restart_worker()
            if options:
                chosen = self._take(options[0])
                if chosen is not None:
                    self._log.note(_BLOCKED_NOTE)
                    return chosen
            elif not self._clock.pass_time():
                return None


def _is_new_worker(option: Option) -> bool:
    return isinstance(option, Strand) and option.type == "worker" and option.state == "new"


def _place(continuing_root: Strand | None, option: Option) -> tuple[int, ...]:
    """Return the place of a strand or a delivery in the default order, in which they come next:

    1. Strands that go on, and new threads: first those of the client, worker or delivery that ran last,
       the ``continuing_root``. So a client that waits for a thread of its own goes on with that, and
       one switch delays all of its calls. Of these

       1. those at a point: first those of the thread that gave up its turn last, of its tasks the one
          that did so first;
       2. those whose wait is over, by their times;
       3. new threads.
    2. New clients, in their order.
    3. Deliveries, by their due times.
    4. Strands that a pause has put last, unless they are of a worker.
    5. Workers that start, at most ``MOST_STARTS`` times each.
    6. Strands of workers that a pause has put last, so that other workers start before they go on.
    """
    if not isinstance(option, Strand):
        return (3,)
    is_other = option.root is not continuing_root
    match option.state, option.type:
        case "new", "client":
            return (2,)
        case "new", "worker":
            return (5,)
        case "new", _:
            return 1, is_other, 3
    if option.pause.lets_others_first:
        return (6 if option.root.type == "worker" else 4,)
    if option.state == "waiting":
        wake_us = option.waiting.wake_us
        return 1, is_other, 2, -1 if wake_us is None else wake_us
    return 1, is_other, 1, -option.host.rest_number, option.rest_number
