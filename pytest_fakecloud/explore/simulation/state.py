"""The state of a trial that all parts of a simulation share, and the record of what happened in
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ...core.calls import Call
from ...core.errors import ContractError, Crash, breaks_a_check
from ...core.frames import stack_of
from ...core.touches import ALL, Touch
from ...process.clocks import INFRASTRUCTURE, module_of
from ...queue.touches import touches_of_delivery
from ..disturbances import SWITCHES, Disturbance, Kind
from ..fakes import Fakes
from ..fingerprint import Fingerprints
from ..footprint import CHECKS_PROMISE
from ..names import StrandName
from ..promises import Promises
from ..schedule import Schedule
from ..trial import Choices, DueDelivery, History, Line, Operation, Place, Plan, Point, Program
from .log import TrialLog
from .strands import Gate, Sources, Strand, application_frame, carried_strand, pause
from .turns import Threads, Turns, is_of_a_strand, wakings

_CHECKS = 100
"""Number of checks for which a trial waits for threads that work."""
_CHECKS_AT_START = 5
"""Number of checks, a ``pause()`` apart, before the exploration."""
OF_FAKES = "fakecloud"
"""How the names of the fakes' threads begin."""
_OF_STRANDS = ("explore", "abandoned")
"""How the names of the threads begin that run strands, or have run them."""
_OWN = (OF_FAKES, *_OF_STRANDS)
"""How the names of this package's own threads begin."""


class Outsiders:
    """The threads that are alive now, without this one and those of the package. ``explore()`` does not
    control threads of the application that began before it.

    A thread rests while it waits at the place at which it is now, such as a pool's thread for work.
    """

    def __init__(self) -> None:
        self._resting: dict[threading.Thread, tuple[CodeType, ...]] = {}
        self._wakings: dict[threading.Thread, int | None] = {}
        """How many times each thread had woken up when all rested last."""
        self._users: set[threading.Thread] = set()
        """The threads that have used the fakes."""
        self._helpers: dict[threading.Thread, bool] = {threading.current_thread(): False}
        """Other threads, and whether each may work for these threads: those of the fakes, and those
        that have begun since, such as the pool of a running TestClient for plain functions.
        """
        self.sleeping: set[int] = set()
        """The threads that sleep in fake time, by their identifiers."""
        for thread in threading.enumerate():
            is_own = thread is threading.current_thread() or thread.name.startswith(_OWN)
            if not is_own and not _is_of_infrastructure(thread):
                self._resting[thread] = ()
        for _ in range(_CHECKS_AT_START if self._resting else 0):
            # A thread may still be on the way to the place where it rests.
            self._resting = {thread: _stack(thread) for thread in self._resting}
            pause()

    def __bool__(self) -> bool:
        return bool(self._resting)

    def shared(self) -> ContractError:
        """Return the error for several clients that use the fakes through these threads."""
        if any(thread.name.startswith(_PORTAL) for thread in self._resting):
            place = "the event loop of a running TestClient"
            advice = (
                "open a TestClient within each explored function (`with TestClient(app) as client:`), "
                "or use one without `with`: its requests run in an event loop of the explored client"
            )
        else:
            place = "a thread or an event loop"
            advice = (
                "start the thread, or the pool or the event loop that it belongs to, within each "
                "explored function"
            )
        return ContractError(
            f"several clients or threads use the fakes, through {place} that began before explore(), "
            "which cannot decide the order of their calls there, so that two runs could differ: "
            f"{advice}"
        )

    def notes(self, thread: threading.Thread) -> bool:
        """Note that a thread uses the fakes; return whether it is one of these threads."""
        is_known = thread in self._resting
        if is_known:
            self._users.add(thread)
        return is_known

    def await_rest(self, is_over: Callable[[], bool]) -> None:
        """Wait, in wall-clock time, until the threads rest or ``is_over()`` returns True.

        Raises ``ContractError`` for a thread that has used the fakes and works for too long. Another
        one counts as resting from then on, wherever it waits.
        """
        last = self._wakings
        # Most threads are idle: they have not woken up since the last trial. Where that is unknown, the
        # count is 0.
        threads = self._all_threads()
        if all(last.get(thread) and self._rests(thread, last[thread]) for thread in threads):
            return
        for _ in range(_CHECKS):
            # A thread may start another one at any time.
            before = {thread: wakings(thread) for thread in self._all_threads()}
            pause()
            # A thread that waits for the interpreter's own lock wakes up once in this time.
            Gate().acquire(sys.getswitchinterval())
            busy = [thread for thread, count in before.items() if not self._rests(thread, count)]
            if not busy:
                self._wakings = before
            if not busy or is_over():
                return
        for thread in busy:
            if thread in self._resting:
                self._resting[thread] = _stack(thread)
            if thread in self._users:
                raise ContractError(
                    f"the thread {thread.name}, which began before explore(), makes calls for the code "
                    "and goes on working, in real time, so that its calls would be part of a later "
                    "trial: start it, or the pool that it belongs to, within the explored function"
                )

    def _rests(self, thread: threading.Thread, count: int | None) -> bool:
        """Return whether a thread has not woken up since a count, and is where it rests."""
        if not thread.is_alive():
            return True
        is_asleep = count is not None and count == wakings(thread)
        if is_asleep and thread.ident in self.sleeping:
            return True
        if is_asleep and thread in self._helpers:
            return application_frame(sys._current_frames().get(thread.ident or 0)) is None
        return is_asleep and _stack(thread) == self._resting[thread]

    def _all_threads(self) -> list[threading.Thread]:
        """Return these threads, and those that may work for them."""
        for thread in threading.enumerate():
            if thread not in self._resting and thread not in self._helpers:
                is_explored = is_of_a_strand(thread) or thread.name.startswith(_OF_STRANDS)
                self._helpers[thread] = not is_explored and not _is_of_infrastructure(thread)
        return [*self._resting, *(thread for thread, helps in self._helpers.items() if helps)]


_PORTAL = "asyncio-portal-"
"""How the names of the threads begin in which a running TestClient has its event loop."""


def _description(thread: threading.Thread) -> str:
    if thread.name.startswith(_PORTAL):
        return "the order of calls in the event loop of a running TestClient"
    return f"the thread {thread.name}"


def _is_of_infrastructure(thread: threading.Thread) -> bool:
    """Return whether a test runner or the like runs a thread, which makes no calls for the code."""
    frame = sys._current_frames().get(thread.ident or 0)
    return any(module_of(caller).partition(".")[0] in INFRASTRUCTURE for caller in stack_of(frame))


def _stack(thread: threading.Thread) -> tuple[CodeType, ...]:
    frame = sys._current_frames().get(thread.ident or 0)
    return tuple(caller.f_code for caller in stack_of(frame))


class TrialHistory(History):
    """The history of a trial, which notes if a check reads in which order operations began and ended.

    Only then is that order a part of the result of the trial.
    """

    shows_order = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("operations", "clients"):
            self.shows_order = True
        return super().__getattribute__(name)


@dataclass(frozen=True, slots=True)
class Subject:
    """What all trials of a search have in common: the fakes, the code, its promises, the threads
    that run it, and the options. ``disturbed`` are the names of the fakes whose calls can have
    disturbances.
    """

    fakes: Fakes
    programs: Sequence[Program]
    promises: Promises
    threads: Threads
    awaited: Callable[[Any], Any]
    """Returns a value or, if it is a coroutine, its result in a loop that runs on fake time."""
    disturbed: frozenset[str]
    kinds: frozenset[Kind]
    patience_us: int
    horizon_us: int | None = None
    outsiders: Outsiders = field(default_factory=Outsiders)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The drawn inputs that the programs run with, by name."""
    setup: Callable[[], object] | None = None
    """What the caller wants to be called before each trial."""


class TrialState:
    """The strands of one trial, and the record of it for its story, the search and the promise."""

    def __init__(self, subject: Subject, plan: Plan) -> None:
        self.fakes = subject.fakes
        self.plan = plan
        self.schedule = plan.schedule
        self.subject = subject
        self.outsiders = subject.outsiders
        self.has_steps = plan.stacks or plan.orders is not None
        self.fingerprints = Fingerprints(subject.fakes)
        self.aside_depth = 0
        """Number of blocks of ``aside()`` that are in progress."""
        self.log = TrialLog(plan.schedule, subject.fakes.now_us())
        self.operations: list[Operation] = []
        self.clients: list[Operation] = []
        """The lists of the history, which only checks read there."""
        self.history = TrialHistory(
            subject.fakes.cloud,
            str(plan.schedule),
            self.operations,
            self.clients,
            inputs=subject.inputs,
        )
        self._positions = itertools.count()
        self.owners: dict[int, Strand] = {}
        """The strand that uses each connection, by the client's port."""
        self.sources = Sources(stacks=plan.stacks)
        self.strands: list[Strand] = []
        self.turns = Turns(subject.threads, self.strands)
        self.tasks: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
        self.serving: dict[int, Strand] = {}
        """The strand whose call each thread handles, by the thread's identifier."""
        self.created_by: dict[str, int] = {}
        """The index of the step that created a strand or began a delivery, by its name."""
        self.all_paused_until_us = 0
        """The end of a pause of all strands; until then, no delivery begins."""
        self.switches: dict[tuple[str, int], list[Disturbance]] = {}
        """The disturbances that have not run another strand first yet, by strand and point."""
        for disturbance in plan.schedule:
            if disturbance.kind in SWITCHES:
                self.switches.setdefault((disturbance.strand, disturbance.point), []).append(
                    disturbance
                )
        self.outside_ports: set[int] = set()
        """Local ports that threads use which began before the exploration."""
        self.helped_ports: set[int] = set()
        """Local ports that threads use which work for a strand, and are not explored either."""
        self.left_ports: set[int] = set()
        """Local ports that threads use which work for a strand of an earlier trial."""
        self._users_of_outsiders: set[Strand] = set()
        """The strands whose calls threads made that are not explored, without those that had ended
        before the latest strand began.
        """
        self._names = {program.name for program in subject.programs}
        self._parkings = itertools.count(1)
        for program in subject.programs:
            self.add(
                Strand(program.name, "worker" if program.is_worker else "client", program.function)
            )

    def add(self, strand: Strand) -> Strand:
        self._users_of_outsiders = {
            user for user in self._users_of_outsiders if user.state != "ended"
        }
        self.strands.append(strand)
        return strand

    def new_name(self, name: str) -> str:
        numbered = (f"{name}{number}" for number in itertools.count(2))
        free_name = next(
            candidate
            for candidate in itertools.chain([name], numbered)
            if candidate not in self._names
        )
        self._names.add(free_name)
        return free_name

    def park(self, strand: Strand, place: Place) -> None:
        strand.state, strand.place = "parked", place
        strand.parked_at = strand.host.parked_at = next(self._parkings)

    def is_here(self) -> bool:
        return not self.aside_depth and threading.get_ident() in self.turns.by_thread

    def here(self) -> Strand | None:
        """Return the strand of this thread or, in an event loop, of its current task."""
        host = self.turns.here()
        if host is None or host.loop.running is None:
            return host
        task = asyncio.current_task(host.loop.running)
        return host if task is None else self.task_strand(host, task)

    def task_strand(self, host: Strand, task: asyncio.Task[Any]) -> Strand:
        strand = self.tasks.get(task)
        if strand is None:
            name = str(getattr(task.get_coro(), "__name__", ""))
            name = name if name.isidentifier() else "task"
            name = self.new_name(StrandName.of(host.root.title).task(name))
            strand = self.add(Strand(name, "task", parent=host))
            strand.state = "running"
            self.tasks[task] = strand
            self.log.begun.add(name)
        return strand

    def check_alive(self, strand: Strand) -> None:
        if self.turns.has_ended or strand.root.crashed:
            self.turns.crash(strand)

    def carried(self) -> Strand | None:
        """Return the strand on whose behalf this thread works, if its context says so."""
        strand = carried_strand.get()
        return strand if strand in self.strands and strand.state != "ended" else None

    def is_left_over(self) -> bool:
        """Return whether this thread works for a strand of an earlier trial, which has ended."""
        strand = carried_strand.get()
        return strand is not None and strand not in self.strands

    def working_for(self) -> Strand | None:
        """Return the strand on whose behalf this thread works, also if the thread is not explored:
        the running strand, or one that waits, if the thread's context does not name it.
        """
        waiting = (strand for strand in self.strands if strand.is_waiting_for("lock", "join"))
        return self.here() or self.carried() or self.turns.current or next(waiting, None)

    def note_outsider(self, port: int = 0) -> bool:
        """Note a use of the fakes by this thread, and return whether it began before the
        exploration.

        ``port`` is the local port of the connection that the thread uses. Raises ``Crash`` in a
        thread that a strand of an earlier trial has left running.
        """
        if self.turns.here() is not None:
            return False
        if self.is_left_over():
            if port:  # A socket pair, with which a thread wakes a loop, has none.
                self.left_ports.add(port)
            return False
        thread = threading.current_thread()
        if self.outsiders.notes(thread):
            note = f"not explored: {_description(thread)}, which began before explore()"
            self.log.note(note)
            self.outside_ports.add(port)
            return True
        if self.carried() is not None:
            self.helped_ports.add(port)
        if is_of_a_strand(thread):
            raise Crash
        return False

    def note_use_of_outsiders(self, strand: Strand) -> None:
        """Note a strand whose call a thread makes that is not explored. End the trial with an error if
        another strand could make calls at the same time: real time would decide their order.
        """
        self._users_of_outsiders.add(strand)
        could_run = any(other is not strand and _could_run(other) for other in self.strands)
        if could_run or len(self._users_of_outsiders) > 1 or len(self.subject.programs) > 1:
            self.turns.fail(self.outsiders.shared())

    def cooperating(self) -> Strand | None:
        """Return the strand of this thread; None if it waits for a thread that is not explored."""
        strand = None if self.aside_depth or self.turns.has_ended else self.here()
        return None if strand is None or strand.host.real_waits else strand

    def cut(self, concerned: Callable[[Strand], bool]) -> None:
        """Close the connections of strands that have ended, as if their clients had died."""
        connections = self.fakes.connections
        for link in [*connections.by_fileno.values()]:
            owner = self.owners.get(link.port)
            if owner is not None and concerned(owner):
                link.end()
        connections.sweep()

    def check_promises(self) -> None:
        """Check the promises that must hold after every step; store the error of a broken one."""
        if not self.subject.promises.at_step or self.log.broken is not None:
            return
        with self.aside():
            for promise in self.subject.promises.at_step:
                try:
                    promise(self.history)
                except BaseException as error:
                    # Without a disturbance, an error of the promise is a mistake of the test.
                    is_broken = bool(self.log.fired) and breaks_a_check(error)
                    if isinstance(error, AssertionError) or is_broken:
                        self.log.breaks(error)
                        self.add_line("the promise", "breaks here").breaks = True
                        return
                    add_schedule(error, "during", Schedule(self.log.fired))
                    # End the trial here, because the explored code could catch the exception.
                    self.turns.fail(error)

    # -- the record of the trial

    def touch(self, touches: Collection[Touch]) -> None:
        """Record accesses of the running step to data, before they happen."""
        if self.aside_depth:
            return
        self.fingerprints.note(touches)
        if self.log.steps:
            footprint = self.log.steps[-1].footprint
            for touch in touches:
                footprint.add(touch)
                if touch.writes and self.subject.promises.at_step:
                    footprint.add(CHECKS_PROMISE)

    def touch_message(self, due: DueDelivery) -> None:
        self.touch([*touches_of_delivery(due.queue.name, due.first_name, due.message)])

    def begin(
        self, client: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Operation:
        self.touch_history(writes=False)
        return Operation(client, name, args, kwargs, next(self._positions))

    def end(self, operation: Operation, result: object) -> None:
        self.touch_history(writes=True)
        operation.ended, operation.result = next(self._positions), result

    def touch_history(self, *, writes: bool) -> None:
        promises = self.subject.promises
        if promises.reads_order or (writes and promises.reads_ends):
            self.touch([Touch("", "history", ALL, writes)])

    def touch_lock(self, name: str) -> None:
        self.touch([Touch("", "lock", name, True)])

    def add_point(self, strand: str, number: int, choices: Choices, place: str = "") -> None:
        """Record a point, and the fingerprint of the state in which the trial reaches it."""
        state = self.fingerprints.take(strand, place) if self.plan.notes else 0
        choices = _allowed(choices, self.subject.kinds)
        self.log.points.append(Point(strand, number, choices, state, self.fakes.now_us()))

    def add_line(
        self,
        strand: str,
        words: str = "",
        call: Call | None = None,
        *,
        is_disturbance: bool = False,
    ) -> Line:
        step = self.log.steps[-1] if self.log.steps else None
        line = Line(
            self.fakes.now_us(), strand, words, call, is_disturbance=is_disturbance, step=step
        )
        self.log.lines.append(line)
        return line

    def postpone(self, line: Line) -> None:
        """Move the line of a call that has waited to the time of its answer."""
        self.log.postpone(line, self.fakes.now_us())

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Do not explore the calls within the block, which a promise makes."""
        self.aside_depth += 1
        try:
            # The clients of a promise have the old tokens, as those of the code do.
            with self.fakes.disturbances.old_tokens():
                yield
        finally:
            self.aside_depth -= 1


def _could_run(strand: Strand) -> bool:
    """Return whether a strand could go on now, or begin."""
    ready = strand.waiting.ready
    is_ready = strand.state == "waiting" and ready is not None and ready()
    return is_ready or strand.state in ("new", "parked")


@functools.cache
def _allowed(choices: Choices, kinds: frozenset[Kind]) -> Choices:
    """Return the choices of these kinds, as one tuple for all points and trials that have them."""
    return tuple(choice for choice in choices if choice[0] in kinds)


def seconds(span_us: int) -> str:
    return f"{span_us / 1e6:.6g} s"


def add_schedule(error: BaseException, when: str, schedule: Schedule) -> None:
    """Add a note to an exception that names the schedule in which a check raised it."""
    where = f"{when} the schedule {str(schedule)!r}" if schedule else "in the undisturbed trial"
    error.add_note(f"raised by check=, {where}")
