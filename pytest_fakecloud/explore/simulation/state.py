"""The state of a run that all parts of a simulation share."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..history import Operation, begin, end
from ..run import Choice, Program, Strategy
from ..runtime.strands import Crash, Place, Strand, Threads, Turns
from ..schedule import CLOCK, SWITCHES, Event, Kind, Schedule
from .record import Record
from .wires import Connections

if TYPE_CHECKING:
    from ..world import World
    from .scheduler import Simulation

simulation: ContextVar[Simulation | None] = ContextVar("simulation", default=None)
"""The simulation in which the current code runs."""


class RunState(Record):
    """The strands of one run, with their connections and tasks."""

    _turns: Turns

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
        super().__init__(world, schedule, choice, strategy, stacks=stacks)
        self._notes = notes
        self._schedule = schedule
        self._threads = threads
        self._strands: list[Strand] = []
        for one in programs:
            self._add(Strand(one.name, "worker" if one.is_worker else "client", one.function))
        self._names = {one.name for one in programs}
        self._switches: dict[tuple[str, int], list[Event]] = {}
        for event in schedule:
            if event.kind in SWITCHES:
                self._switches.setdefault((event.process, event.point), []).append(event)
        kinds = choice.kinds
        places = strategy.places if strategy is not None else kinds
        self._late = "late" in places or _has(schedule, "late")
        self._noted: set[tuple[str, int, Kind]] = set()
        self._mishaps: dict[str, tuple[str, ...]] = {}
        self._losses: dict[str, list[str]] = {}
        self._clients: dict[str, Operation] = {}
        self._tasks: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
        self._serving: dict[int, Strand] = {}
        self._cut: dict[tuple[str, str], int] = {}
        self._parkings = itertools.count(1)
        self._starts: dict[tuple[object, ...], set[int]] = {}
        self._served = 0
        self._firings = 0
        self._moves_time = strategy is not None and strategy.moves_time
        self._may_move = self._moves_time or any(event.detail == CLOCK for event in schedule)
        self._moves: list[tuple[int, int]] = []
        self._moved = 0
        self._passed = 0
        self._times: frozenset[int] = frozenset()
        self._held_us = 0
        self._lock = threading.RLock()
        self._barrier = -1
        self._by: dict[str, int] = {}
        self._connections = Connections(world.wires, lambda: self._turns.over, stacks=stacks)

    def live(self) -> list[Strand]:
        """Return the strands that have begun and not ended."""
        return [
            s
            for s in self._strands
            if s.state not in ("new", "ended") or (s.thread and s.state == "new")
        ]

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

    def _park(self, strand: Strand, place: Place) -> None:
        strand.state, strand.place = "parked", place
        strand.parked_at = next(self._parkings)
        strand.host.parked_at = strand.parked_at

    @property
    def turns(self) -> Turns:
        """Return the object that passes the turn between strands."""
        return self._turns

    def is_ending(self) -> bool:
        """Return whether this thread belongs to a run that has already ended."""
        return self._turns.over and self._turns.here() is not None

    def is_here(self) -> bool:
        """Return whether this thread is running explored code."""
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
            found = self._add(Strand(name, "task", nothing, parent=host))
            found.state = "running"
            self._tasks[task] = found
            self.run.strands.add(name)
        return found

    def _check_alive(self, strand: Strand) -> None:
        if self._turns.over or strand.is_over:
            raise Crash

    def cooperating(self) -> Strand | None:
        """Return the strand of this thread; None if it waits for a thread that is not explored."""
        strand = None if self._aside or self._turns.over else self._here()
        return None if strand is None or strand.host.real else strand

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
                except Exception as error:
                    add_schedule(error, "during", Schedule(self.run.fired))
                    # End the run here, because the explored code could catch the exception.
                    self._turns.fail(error)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Do not explore the calls within the block, which a promise makes."""
        self._aside += 1
        try:
            # The clients of a promise have the old tokens, as those of the code do.
            with self._world.disturbances.old_tokens():
                yield
        finally:
            self._aside -= 1

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


def add_schedule(error: BaseException, when: str, schedule: Schedule) -> None:
    """Add a note to an exception that names the schedule in which a check raised it."""
    where = f"{when} the schedule {str(schedule)!r}" if schedule else "in the undisturbed run"
    error.add_note(f"raised by check=, {where}")


def nothing() -> None:
    return None


def _has(schedule: Schedule, kind: Kind) -> bool:
    return any(event.kind == kind for event in schedule)
