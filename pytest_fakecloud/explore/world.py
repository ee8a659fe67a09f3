"""The current run of an exploration: which simulation and which strand a thread belongs to."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ..base_cloud import BaseCloud
from .anomalies import Key
from .fakes import MOST_TIMERS, Fakes
from .footprint import ALL, KEY_OF_DB, READS_CLOCK, Touch
from .programs import current_observer
from .randomness import Randomness
from .run import Run
from .simulation.simulation import Simulation
from .simulation.sockets import OwnLoop, SocketHooks
from .simulation.strands import Strand
from .trust import Reads


class World(Fakes):
    """A cloud while it is explored, with the simulation of the current run.

    What ``patches.explored()`` replaces in the process passes through it.
    """

    def __init__(self, cloud: BaseCloud, seed: int | str) -> None:
        super().__init__(cloud)
        self.randomness = Randomness(seed, self.cooperating)
        self.simulation: Simulation | None = None
        self.functions: dict[int, Callable[..., Any]] = {}
        """The sleeps and clocks of explored code, by the ID of the original function."""
        self._owner = threading.get_ident()
        self.reads = Reads(self.handles)
        self.unwritten: set[Touch] = set()
        """The keys that a promise read, that no run has written so far, and that did not exist."""
        self.resets: list[Callable[[], None]] = []
        """Functions that reset what the exploration has replaced, before each run."""
        self.carriers = ThreadPoolExecutor(MOST_TIMERS, "explore")
        """Threads for requests of event loops that several strands share."""

    def play(self, simulation: Simulation) -> Run:
        for reset in self.resets:
            reset()
        token = current_observer.set(simulation.observing)
        self.simulation = simulation
        try:
            return simulation.play()
        finally:
            self.simulation = None
            current_observer.reset(token)

    def left_of(self, keys: Iterable[Key]) -> dict[Key, bool]:
        """Return those of the keys that exist, and whether each lives forever."""
        keyspaces = {
            (handle.name, f"{KEY_OF_DB}{keyspace.index}"): keyspace
            for handle in self.handles
            for keyspace in getattr(handle._engine, "databases", ())
        }
        left = {}
        for key in keys:
            keyspace, name = keyspaces.get((key.fake, key.kind)), key.name.encode()
            if keyspace is not None and name in keyspace.values:
                left[key] = name not in keyspace.expires
        return left

    def note_unwritten(self, run: Run) -> None:
        """Note the keys that the promise read but that neither the baseline nor a run contains."""
        self.reset()
        by_name = (one for one in self.reads.touches if one.kind[:3] == "key" and one.name != ALL)
        self.unwritten = {touch for touch in by_name if self.state_of(touch) is None}
        for step in run.steps:
            self.note_written(step.footprint.touches)

    def note_written(self, touches: Iterable[Touch]) -> None:
        if self.unwritten:
            self.unwritten.difference_update(
                replace(touch, writes=False) for touch in touches if touch.writes
            )

    def sockets(self) -> SocketHooks | None:
        return None if self.simulation is None else self.simulation.sockets

    def new_loop(self) -> OwnLoop:
        """Create an event loop that runs on fake time."""
        return OwnLoop(self, self.sockets, self.sleep)

    def awaited(self, value: Any) -> Any:
        """Return a value or, if it is a coroutine, its result in a loop that runs on fake time."""
        if not inspect.iscoroutine(value):
            return value
        with asyncio.Runner(loop_factory=self.new_loop) as runner:
            return runner.run(value)

    def note_clock_read(self) -> None:
        if self.simulation is not None and self.simulation.state.has_steps and self.is_here():
            self.simulation.state.touch([READS_CLOCK])

    def is_here(self) -> bool:
        return self.simulation is not None and self.simulation.state.is_here()

    def shows_fake_time(self) -> bool:
        """Return whether this thread runs explored code, or the checks of the exploration."""
        return self.is_here() or threading.get_ident() == self._owner

    def cooperating(self) -> Strand | None:
        """Return the strand of this thread, or None if it must not let other strands run."""
        return None if self.simulation is None else self.simulation.state.cooperating()

    def here(self) -> tuple[Simulation, Strand] | None:
        """Return the simulation and the strand of this thread, or None like ``cooperating()``."""
        strand = self.cooperating()
        return None if strand is None or self.simulation is None else (self.simulation, strand)

    def sleep(self, seconds: float) -> bool:
        """Sleep in fake time; return False for a thread that is not explored."""
        if self.simulation is not None:
            return self.simulation.clock.sleep(seconds)
        if threading.get_ident() != self._owner or self.clock.driving:
            return False
        # Move the clock when the check sleeps, so that it can wait for later events.
        self.clock.advance(seconds)
        return True

    def pass_time(self, seconds: float) -> bool:
        """Let the fake time of a sleep pass in an event loop that is not explored."""
        return self.simulation is not None and self.simulation.clock.let_pass(seconds)
