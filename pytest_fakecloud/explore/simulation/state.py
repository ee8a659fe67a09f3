"""The state of a trial that all parts of a simulation share, and the record of what happened in it."""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.calls import Call
from ...core.errors import breaks_a_check
from ...core.touches import Touch
from ...queue.touches import touches_of_delivery
from ..disturbances import SWITCHES, Disturbance, Kind
from ..fakes import Fakes
from ..fingerprint import Fingerprints
from ..footprint import CHECKS_PROMISE
from ..names import StrandName
from ..promises import Promises
from ..schedule import Schedule
from ..trial import Choices, DueDelivery, Line, Place, Plan, Point, Program
from .current_thread import CurrentThread
from .known_times import KnownTimes
from .log import TrialLog
from .operations import Operations
from .outsiders import OutsideCalls, Outsiders
from .sleepers import Sleepers
from .stacks import Sources
from .strands import Strand
from .turns import Turns

if TYPE_CHECKING:
    from ..world import World


_UNKNOWN = -1
"""The identifier of a thread of the code that has not begun."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What all trials of a search have in common: the fakes, the code, its promises, and the options.
    ``disturbed`` are the names of the fakes whose calls can have disturbances.
    """

    world: World
    programs: Sequence[Program]
    promises: Promises
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
        self.fakes: Fakes = subject.world
        self.plan = plan
        self.schedule = plan.schedule
        self.subject = subject
        self.strategy = strategy = None if plan.orders is None else plan.orders.strategy()
        places = subject.kinds if strategy is None else strategy.places
        self.is_late = "late" in places or any(d.kind == "late" for d in plan.schedule)
        """Whether strands can give up their turns before they receive their answers."""
        self.moves_time = strategy is not None and strategy.moves_time
        """Whether the search orders the moves of the clock."""
        self.has_steps = plan.stacks or strategy is not None
        self.fingerprints = Fingerprints(self.fakes)
        self.log = TrialLog(plan.schedule, self.fakes.now_us())
        self.sources = Sources(stacks=plan.stacks)
        self.strands: list[Strand] = []
        self.owners: dict[int, Strand] = {}
        """The strand that uses each connection, by the client's port."""
        self.turns = Turns(subject.world.threads, self.strands)
        self.current_thread = CurrentThread(self)
        self.outside_calls = OutsideCalls(self)
        self.operations = Operations(self)
        self.known_times = KnownTimes(self.fakes)
        self.sleepers = Sleepers(self)
        self.tasks: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
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
        self._names = {program.name for program in subject.programs}
        self._parkings = itertools.count(1)
        for program in subject.programs:
            self.add(
                Strand(program.name, "worker" if program.is_worker else "client", program.function)
            )

    def add(self, strand: Strand) -> Strand:
        self.outside_calls.forget_ended()
        self.strands.append(strand)
        return strand

    def _new_name(self, named: Callable[[str], str], function: str, otherwise: str) -> str:
        """Return a name that no strand has, after the name of a function if it is an identifier."""
        name = named(function if function.isidentifier() else otherwise)
        names = itertools.chain([name], (f"{name}{number}" for number in itertools.count(2)))
        free_name = next(candidate for candidate in names if candidate not in self._names)
        self._names.add(free_name)
        return free_name

    def park(self, strand: Strand, place: Place) -> None:
        strand.park(place, next(self._parkings))

    def new_thread(self, parent: Strand, thread: threading.Thread) -> Strand:
        """Add the strand of a thread that a strand starts."""
        function = getattr(getattr(thread, "_target", None), "__name__", "").strip("_")
        name = self._new_name(StrandName.of(parent.root.title).thread, function, "thread")
        self.created_by[name] = len(self.log.steps) - 1
        child = Strand(name, "thread", parent=parent, is_daemon=thread.daemon)
        child.thread.ident, child.thread.starting = _UNKNOWN, thread
        return self.add(child)

    def task_strand(self, host: Strand, task: asyncio.Task[Any]) -> Strand:
        """Return the strand of a task in the event loop of a strand."""
        strand = self.tasks.get(task)
        if strand is None:
            function = str(getattr(task.get_coro(), "__name__", ""))
            name = self._new_name(StrandName.of(host.root.title).task, function, "task")
            strand = self.add(Strand(name, "task", parent=host))
            strand.begin()
            self.tasks[task] = strand
            self.log.begun.add(name)
        return strand

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
        # The clients of a promise have the old tokens, as those of the code do.
        with self.current_thread.checking_promise(), self.fakes.disturbances.old_tokens():
            for promise in self.subject.promises.at_step:
                try:
                    promise(self.operations.history)
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
        if self.current_thread.is_checking_promise():
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

    def touch_lock(self, name: str) -> None:
        self.touch([Touch("", "lock", name, True)])

    def add_point(self, strand: str, number: int, choices: Choices, decision: str = "") -> None:
        """Record a point, and the fingerprint of the state in which the trial reaches it."""
        state = self.fingerprints.take(strand, decision) if self.plan.notes else 0
        choices = _allowed(choices, self.subject.kinds)
        self.log.points.append(Point(strand, number, choices, state, self.fakes.now_us()))

    def add_line(
        self,
        strand: str,
        words: str = "",
        call: Call | None = None,
        *,
        disturbances: Sequence[Disturbance] = (),
    ) -> Line:
        step = self.log.steps[-1] if self.log.steps else None
        now_us, applied = self.fakes.now_us(), tuple(disturbances)
        line = Line(now_us, strand, words, call, disturbances=applied, step=step)
        self.log.lines.append(line)
        return line


class Part:
    """A part of a simulation, which knows the state of the trial, and only those parts that it calls."""

    def __init__(self, state: TrialState) -> None:
        self._state = state
        self._fakes = state.fakes
        self._log = state.log
        self._turns = state.turns
        self._current_thread = state.current_thread


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
