"""The state of a run that all parts of a simulation share."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..run import Choice, Program
from ..runtime.strands import Crash, Place, Strand
from ..runtime.threads import Threads
from ..runtime.turns import Turns
from ..schedule import SWITCHES, Event, Schedule
from .record import Record
from .wires import Connections

if TYPE_CHECKING:
    from ..world import World
    from .simulation import Simulation

simulation: ContextVar[Simulation | None] = ContextVar("simulation", default=None)
"""The simulation in which the current code runs."""


class RunState:
    """The strands of one run, with their turns, connections and tasks."""

    def __init__(
        self,
        world: World,
        programs: Sequence[Program],
        schedule: Schedule,
        choice: Choice,
        threads: Threads,
        record: Record,
    ) -> None:
        self.world = world
        self.schedule = schedule
        self.choice = choice
        self.record = record
        self.turns = Turns(threads, self.live)
        self.connections = Connections(
            world.wires, lambda: self.turns.has_ended, stacks=record.stacks
        )
        self.strands: list[Strand] = []
        self.tasks: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
        self.serving: dict[int, Strand] = {}
        """The strand whose call each thread handles, by the thread's identifier."""
        self.created_by: dict[str, int] = {}
        """The index of the step that created a strand or began a delivery, by its name."""
        self.switches: dict[tuple[str, int], list[Event]] = {}
        """The events that have not run another strand first yet, by strand and point."""
        for event in schedule:
            if event.kind in SWITCHES:
                self.switches.setdefault((event.process, event.point), []).append(event)
        self._names = {one.name for one in programs}
        self._parkings = itertools.count(1)
        for one in programs:
            self.add(Strand(one.name, "worker" if one.is_worker else "client", one.function))

    def live(self) -> list[Strand]:
        """Return the strands that have a thread or have begun, and have not ended."""
        return [s for s in self.strands if s.state != "ended" and (s.thread or s.state != "new")]

    def add(self, strand: Strand) -> Strand:
        strand.patience_us = self.choice.patience_us
        self.strands.append(strand)
        return strand

    def new_name(self, name: str) -> str:
        """Return a name that no other strand of this run has."""
        found = name
        for number in itertools.count(2):
            if found not in self._names:
                break
            found = f"{name}{number}"
        self._names.add(found)
        return found

    def park(self, strand: Strand, place: Place) -> None:
        strand.state, strand.place = "parked", place
        strand.parked_at = next(self._parkings)
        strand.host.parked_at = strand.parked_at

    def is_ending(self) -> bool:
        """Return whether this thread belongs to a run that has already ended."""
        return self.turns.has_ended and self.turns.here() is not None

    def is_here(self) -> bool:
        """Return whether this thread is running explored code."""
        return not self.record.aside_depth and self.turns.here() is not None

    def here(self) -> Strand | None:
        """Return the strand of this thread or, in an event loop, of its current task."""
        host = self.turns.here()
        if host is None or host.loop is None:
            return host
        try:
            task = asyncio.current_task(host.loop)
        except RuntimeError:
            task = None
        return host if task is None else self.task_strand(host, task)

    def task_strand(self, host: Strand, task: asyncio.Task[Any]) -> Strand:
        found = self.tasks.get(task)
        if found is None:
            coroutine = task.get_coro()
            name = getattr(coroutine, "__name__", "task")
            if not str(name).isidentifier():
                name = "task"
            name = self.new_name(f"{host.root.title}:{name}")
            found = self.add(Strand(name, "task", nothing, parent=host))
            found.state = "running"
            self.tasks[task] = found
            self.record.run.strands.add(name)
        return found

    def check_alive(self, strand: Strand) -> None:
        if self.turns.has_ended or strand.root.crashed:
            raise Crash

    def cooperating(self) -> Strand | None:
        """Return the strand of this thread; None if it waits for a thread that is not explored."""
        strand = None if self.record.aside_depth or self.turns.has_ended else self.here()
        return None if strand is None or strand.host.real_waits else strand


def add_schedule(error: BaseException, when: str, schedule: Schedule) -> None:
    """Add a note to an exception that names the schedule in which a check raised it."""
    where = f"{when} the schedule {str(schedule)!r}" if schedule else "in the undisturbed run"
    error.add_note(f"raised by check=, {where}")


def nothing() -> None:
    return None
