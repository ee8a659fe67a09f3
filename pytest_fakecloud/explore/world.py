"""A cloud while it is explored, which plays trials from its baseline."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any, NoReturn

from ..cloud.base import BaseCloud
from ..core.accesses import ALL, READS_CLOCK, Touch
from ..core.errors import ContractError
from ..kv.accesses import key_of_touch
from .fakes import Fakes
from .footprint import command_line
from .programs import check_has_run, current_observer
from .randomness import Randomness
from .simulation.clock import MOST_TIMERS
from .simulation.current_thread import CurrentThread
from .simulation.pool import Threads
from .simulation.scheduler import Simulation
from .simulation.sockets import OwnLoop, SocketHooks
from .simulation.state import Subject, TrialHistory
from .simulation.strands import Strand
from .trial import Effects, Trial, TrialPlan
from .trust import Reads
from .waits import Waits


class World(Fakes):
    """A cloud while it is explored, with the simulation of the current trial.

    What ``patches.explored()`` replaces in the process passes through it.
    """

    def __init__(self, cloud: BaseCloud, seed: int | str) -> None:
        super().__init__(cloud)
        self.randomness = Randomness(seed, lambda: self.current_thread.drawing_for())
        self.simulation: Simulation | None = None
        self._between_trials = self.current_thread = CurrentThread()
        self.waits = Waits(self)
        # The trials of a search repeat the same commands.
        self.command_line = lru_cache(maxsize=256)(command_line)
        self.reads = Reads(self.fakes, self.keyspaces)
        self.unwritten: set[Touch] = set()
        """The keys that a promise read, and that no trial has written so far."""
        self.free_locks: Sequence[Callable[[], None]] = ()
        """Free the replaced locks that were free, before each trial: a crash may leave them
        held.
        """
        self.carriers = ThreadPoolExecutor(MOST_TIMERS, "fakecloud-explore")
        """Threads for requests of event loops that several strands share."""
        self.threads = Threads()
        """Threads for strands."""

    def after_fork(self) -> None:
        """Let clients reach the copies of the fakes in a forked process."""
        self.carriers = ThreadPoolExecutor(MOST_TIMERS, "fakecloud-explore")
        self.connections.after_fork()

    def play(
        self, subject: Subject, plan: TrialPlan, setup: Callable[[], object] | None = None
    ) -> tuple[Trial, TrialHistory]:
        """Play one trial from the baseline of the fakes; return it, with its history for checks."""
        self.reset()
        self.randomness.begin(plan.schedule.series)
        if setup is not None:
            with self.current_thread.setting_up():
                check_has_run(self.awaited(setup()), "setup=")
            self.randomness.mark()
        simulation = Simulation(subject, plan)
        trial = self.run(simulation)
        if "redundant" in trial.flags:
            return trial, simulation.history
        if self.randomness.has_drawn():
            trial = trial.with_series(plan.schedule.series)
        else:
            trial = replace(trial, schedule=plan.schedule.with_series(0))
        state = (self.cloud, self.cloud.snapshot()) if plan.state else None
        effects = self._with_remains(trial.effects, *simulation.state.fingerprints.left())
        return replace(trial, effects=effects, state=state), simulation.history

    def run(self, simulation: Simulation) -> Trial:
        """Run a simulation on the present data of the fakes."""
        for free in self.free_locks:
            free()
        token = current_observer.set(simulation.observing)
        self.simulation, self.current_thread = simulation, simulation.state.current_thread
        try:
            trial = simulation.play()
        finally:
            self.simulation, self.current_thread = None, self._between_trials
            current_observer.reset(token)
        self.check_queues()
        return trial

    def _with_remains(
        self, effects: Effects, left: Mapping[Any, str], left_with_ttl: Mapping[Any, str]
    ) -> Effects:
        """Add what is left of the keys that a trial has accessed, before a check changes them."""
        remaining: dict[Touch, bool] = {}
        pending: set[Touch] = set()
        for access in effects.accesses:
            for key in access.keys:
                keyspace, name = self.keyspaces.get((key.fake, key.kind)), key_of_touch(key)
                if keyspace is not None and name in keyspace.values:
                    remaining[key] = name not in keyspace.expires
                    groups: dict[Any, Any] = getattr(keyspace.values[name], "groups", {})
                    if any(group.pending for group in groups.values()):
                        pending.add(key)
        return Effects(
            effects.accesses, remaining, left, left_with_ttl, pending, effects.acknowledged
        )

    def note_unwritten(self, trial: Trial) -> None:
        """Note the keys that the promise read but that the undisturbed trial did not write."""
        by_name = (
            touch for touch in self.reads.touches if touch.kind[:3] == "key" and touch.name != ALL
        )
        self.unwritten = set(by_name)
        for step in trial.steps:
            self.note_written(step.footprint.touches)

    def note_written(self, touches: Iterable[Touch]) -> None:
        if self.unwritten:
            writes = [touch for touch in touches if touch.writes]
            self.unwritten = {
                touch
                for touch in self.unwritten
                if not any(write.conflicts(touch) for write in writes)
            }

    def sockets(self) -> SocketHooks | None:
        return None if self.simulation is None else self.simulation.sockets

    def new_loop(self) -> OwnLoop:
        """Create an event loop that runs on fake time. Ends a trial whose threads cannot have one."""
        if (here := self.here()) is not None and threading.get_ident() not in sys._current_frames():
            self._refuse_loop(*here)
        # The loop of a promise is no part of the trial whose steps the promise checks.
        hooks = _no_hooks if self.current_thread.is_in_promise() else self.sockets
        return OwnLoop(self, hooks, self.waits.until)

    def _refuse_loop(self, simulation: Simulation, strand: Strand) -> NoReturn:
        """End a trial with an error, because a library such as gevent has replaced the threads."""
        library = threading.get_ident.__module__.partition(".")[0]
        simulation.turns.fail(
            ContractError(
                f"{strand.title} runs an event loop, but {library} has replaced the threads of this "
                "process by its own, which share one thread of the system. explore() runs each client "
                "in a thread, and only one event loop can run in a thread of the system. Let the "
                f"clients be functions without an event loop, or {without_patching(library)}"
            )
        )

    def awaited(self, value: Any) -> Any:
        """Return a value or, if it is a coroutine, its result in a loop that runs on fake time."""
        if not inspect.iscoroutine(value):
            return value
        # A coroutine for which no loop can be created would warn that it was never awaited.
        with contextlib.closing(value), asyncio.Runner(loop_factory=self.new_loop) as runner:
            return runner.run(value)

    def note_clock_read(self) -> None:
        state = None if self.simulation is None else self.simulation.state
        if state is not None and state.has_steps and self.current_thread.is_explored():
            state.touch([READS_CLOCK])

    def here(self) -> tuple[Simulation, Strand] | None:
        """Return the simulation and the strand of this thread, if it may let other strands run."""
        strand = self.current_thread.cooperating()
        return None if strand is None or self.simulation is None else (self.simulation, strand)


def without_patching(library: str) -> str:
    """Return the advice for a library that has replaced parts of the standard library."""
    return (
        f"run this test in a process in which {library} replaces nothing: leave its patching out of "
        "conftest.py and of the modules that the test imports"
    )


def _no_hooks() -> None:
    return None
