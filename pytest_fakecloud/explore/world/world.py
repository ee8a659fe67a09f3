"""A cloud while it is explored, which plays trials from its baseline."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from ...cloud.base import BaseCloud
from ...core.touches import READS_CLOCK
from ...process.replace import Function
from ..fakes.fakes import Fakes
from ..simulation.current_thread import OF_FAKES, CurrentThread, ThreadBetweenTrials
from ..simulation.loops import AsyncLibrary
from ..simulation.outsiders import Outsiders
from ..simulation.pool import Threads
from ..simulation.simulation import Simulation
from ..simulation.strand import Strand
from ..subject.options import Subject
from ..subject.programs import check_has_run, current_observer
from ..values.footprint import command_line
from ..values.history import TrialHistory
from ..values.learned import Learned
from ..values.plan import Plan
from ..values.trial import Trial
from .asyncio_library import Asyncio
from .randomness import Randomness
from .waits import ThreadWaits

_MOST_REQUESTS = 1_000
"""Maximum number of threads for requests of event loops that several strands share."""


class World:
    """A cloud while it is explored, with the simulation to which all that is replaced leads."""

    def __init__(
        self,
        cloud: BaseCloud,
        seed: int | str,
        libraries: Iterable[Callable[[World], AsyncLibrary]] = (),
    ) -> None:
        """``libraries`` make the libraries with event loops that are supported beside asyncio."""
        self.cloud, self.fakes = cloud, Fakes(cloud)
        self.randomness = Randomness(seed, lambda: self.current_thread.drawing_for())
        self.simulation: Simulation | None = None
        self.between_trials = ThreadBetweenTrials()
        self.current_thread: CurrentThread = self.between_trials
        self.waits = ThreadWaits(self)
        # The trials of a search repeat the same commands.
        self.command_line = lru_cache(maxsize=256)(command_line)
        self.free_locks: list[Callable[[], None]] = []
        """Free the replaced locks that were free, before each trial: a crash may leave them held."""
        self.request_pool = ThreadPoolExecutor(_MOST_REQUESTS, f"{OF_FAKES}-explore")
        """Threads for requests of event loops that several strands share. By their names, they count as
        threads of the fakes: their calls are made for the strand of the connection.
        """
        self.threads = Threads()
        """Threads for strands."""
        self._asyncio = Asyncio(self)
        self.async_libraries = [self._asyncio, *(library(self) for library in libraries)]
        portals = tuple(library.portal for library in self.async_libraries)
        self.outsiders = Outsiders(portals)
        """The threads that began before the exploration."""

    def after_fork(self) -> None:
        """Let clients reach the copies of the fakes in a forked process, which lacks the threads."""
        self.request_pool = ThreadPoolExecutor(_MOST_REQUESTS, f"{OF_FAKES}-explore")
        self.threads.after_fork()
        self.fakes.connections.after_fork()

    def play_unjudged(
        self, subject: Subject, plan: Plan, learned: Learned
    ) -> tuple[Trial, TrialHistory]:
        """Play one trial from the baseline of the fakes; return it, with its history for checks."""
        self.fakes.reset()
        self.randomness.begin(plan.schedule.series)
        if subject.setup is not None:
            with self.between_trials.setting_up():
                check_has_run(self.awaited(subject.setup()), "setup=")
            self.randomness.mark()
        simulation = Simulation(self, subject, plan, learned)
        with self.simulating(simulation):
            simulation.run_strands()
        log, history = simulation.log, simulation.operations.history
        if "redundant" in log.flags:
            return simulation.make_trial(), history
        if self.randomness.has_drawn():
            log.note_numbers(plan.schedule.series)
        state = (self.cloud, self.cloud.snapshot()) if plan.keeps == "everything" else None
        return simulation.make_trial(state), history

    @contextlib.contextmanager
    def simulating(self, simulation: Simulation) -> Iterator[None]:
        """Let calls, waits and locks of the code pass through a simulation within the block."""
        for free in self.free_locks:
            free()
        token = current_observer.set(simulation.operations.observing)
        self.simulation, self.current_thread = simulation, simulation.current_thread
        try:
            yield
        finally:
            self.simulation, self.current_thread = None, self.between_trials
            current_observer.reset(token)
        self.fakes.check_queues()

    def awaited(self, value: Any) -> Any:
        """Return a value or, if it is a coroutine, its result in a loop that runs on fake time."""
        return self._asyncio.run(value) if inspect.iscoroutine(value) else value

    def async_library(self) -> AsyncLibrary | None:
        """Return the library whose event loop this thread runs, if any; the loop may be unexplored."""
        libraries = self.async_libraries
        return next((library for library in libraries if library.is_running()), None)

    def note_clock_read(self) -> None:
        simulation = self.simulation
        if simulation is None or not simulation.script.has_steps:
            return
        if self.current_thread.role().is_explored:
            simulation.access_log.touch([READS_CLOCK])

    def simulation_and_strand(self) -> tuple[Simulation, Strand] | None:
        """Return the simulation and the strand of this thread, if it may let other strands run."""
        strand = self.current_thread.cooperating()
        return None if strand is None or self.simulation is None else (self.simulation, strand)

    def in_strands(self, original: Function, replacement: Function) -> Function:
        """Return a function that calls ``replacement(simulation, strand, …)`` in explored code only."""

        def patched(*args: Any, **kwargs: Any) -> Any:
            here = self.simulation_and_strand()
            if here is None:
                return original(*args, **kwargs)
            return replacement(*here, *args, **kwargs)

        return patched
