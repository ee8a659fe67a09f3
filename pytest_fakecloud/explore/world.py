"""Connects a cloud to a simulation, through which every call passes while the cloud is explored.

Disturbances of its fakes last for some time: rotated tokens and pending changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib.metadata
import importlib.util
import random
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..core.errors import ContractError, shown
from ..core.timers import to_datetime
from ..process_time import ProcessTime
from ..services import find
from .fake_time import MOST_TIMERS, FakeTime, clocks_follow, sleeps_follow
from .footprint import READS_CLOCK
from .schedule import Kind
from .simulation.connections import Connections
from .simulation.deliveries import Deliveries
from .simulation.loops import OwnLoop, explored_loops
from .simulation.sockets import SocketPatches
from .watching import swap, watch

if TYPE_CHECKING:
    from ..cloud import Cloud
    from ..core.timekeeper import Timekeeper
    from ..core.timers import Signal, Timer
    from ..handle import Handle
    from ..process_time.wall import Wall
    from ..queue.handle import Queue
    from ..vector.handle import VectorIndex
    from .simulation.simulation import Simulation
    from .simulation.strands import Strand


HOLD_US = 60_000_000
"""Microseconds for which vectors remain pending after a ``hold`` event."""
ROTATED_US = 10_000_000
"""Microseconds for which the code keeps using an old token after a ``rotate_token`` event."""
_Key: TypeAlias = tuple[Kind, str]
"""The kind of event that began a disturbance, and the name of the fake."""


class _Disturbance(NamedTuple):
    undo: Callable[[], None]
    timer: Timer


class _Tokens(NamedTuple):
    handle: Handle
    tokens: tuple[str, ...]

    def restore(self) -> None:
        self.handle._set_tokens(*self.tokens)


class Disturbances:
    """The disturbances of a run that have not ended yet.

    A fake has at most one disturbance of each kind. If an event repeats it, the disturbance lasts
    for its whole span from then on.
    """

    def __init__(self, clock: Timekeeper, handles: Iterable[Handle]) -> None:
        self._clock = clock
        self._baseline = [_Tokens(handle, handle._tokens()) for handle in handles]
        self._active: dict[_Key, _Disturbance] = {}
        self._rotated: dict[str, _Tokens] = {}
        """The tokens that the code still uses, by the names of the fakes that rotated them."""

    def hold(self, index: VectorIndex) -> None:
        """Keep changes of a vector index pending for a limited time."""
        from ..vector.handle import hold, release  # imported here: it needs numpy

        key: _Key = "hold", index.name
        if key not in self._active:
            hold(index)
        self._start(key, "pending changes become ready", HOLD_US, lambda: release(index))

    def rotate(self, handle: Handle) -> None:
        """Rotate a fake's token, and restore the old token after a limited time."""
        old = self._rotated.setdefault(handle.name, _Tokens(handle, handle._tokens()))
        handle.rotate_token()

        def undo() -> None:
            del self._rotated[handle.name]
            old.restore()

        key: _Key = "rotate_token", handle.name
        self._start(key, "the new token is known", ROTATED_US, undo)

    def is_rotated(self, handle: Handle) -> bool:
        return handle.name in self._rotated

    @contextlib.contextmanager
    def old_tokens(self) -> Iterator[None]:
        """Make the fakes accept the tokens from before their rotation within the block."""
        new = [_Tokens(old.handle, old.handle._tokens()) for old in self._rotated.values()]
        for old in self._rotated.values():
            old.restore()
        try:
            yield
        finally:
            for tokens in new:
                tokens.restore()

    def _start(self, key: _Key, effect: str, span_us: int, undo: Callable[[], None]) -> None:
        if key in self._active:
            self._active.pop(key).timer.cancel()
        due_us = self._clock.now_us() + span_us
        timer = self._clock.call_at(due_us, lambda _: self._end(key), label=f"{key[1]}: {effect}")
        self._active[key] = _Disturbance(undo, timer)

    def _end(self, key: _Key) -> None:
        disturbance = self._active.pop(key)
        disturbance.timer.cancel()
        disturbance.undo()

    def end(self) -> None:
        """End all disturbances, so that the promise can be checked."""
        for key in list(self._active):
            self._end(key)

    def reset(self) -> None:
        """End all disturbances, and restore the credentials of the baseline."""
        self.end()
        for tokens in self._baseline:
            tokens.restore()


class _Baseline(NamedTuple):
    """The state to which each run returns."""

    start_us: int
    data: Any
    random_state: tuple[Any, ...]


class World:
    """A cloud while it is explored.

    A context manager. Inside it, the clock is frozen, the process's time follows the clock if
    time-machine is installed, requests of this process skip the socket, sleeping moves the clock,
    and calls pass through ``simulation``. At the end everything is restored, and the cloud's data is at
    the baseline. Raises ``ContractError`` for a clock that cannot be frozen, and for a queue that
    delivers in the background.
    """

    def __init__(self, cloud: Cloud, *, process_time: bool | None = None) -> None:
        if process_time is not None and not isinstance(process_time, bool):
            raise ContractError(
                f"process_time={shown(process_time)} is not possible in explore(): pass True or "
                "False. Sleeps always move the clock"
            )
        self.cloud = cloud
        self.clock = cloud._time
        self.simulation: Simulation | None = None
        self._process_time = process_time
        self._exits = contextlib.ExitStack()
        self._handles = [handle for handle in cloud.fakes() if find(handle.fixture).in_process]
        self.connections = Connections(self._handles)
        self.time = FakeTime(self.clock, self._handles)
        self._queues: list[Queue] = [h for h in self._handles if h.fixture == "queue"]  # type: ignore[misc]
        for queue in self._queues:
            if queue.delivery != "driven":
                raise ContractError(
                    f"{queue.name} delivers in the background, but explore() must control the "
                    "order of deliveries: pass delivery='driven'"
                )
        self._owner = threading.get_ident()
        self._baseline = _Baseline(0, None, ())
        self._wall: Wall | None = None
        self.disturbances = Disturbances(self.clock, self._handles)
        self.deliveries = Deliveries(self._queues, self.clock.now_us())
        self.carriers = ThreadPoolExecutor(MOST_TIMERS, "explore")
        """Threads for requests of event loops that several strands share."""

    def __enter__(self) -> World:
        with contextlib.ExitStack() as exits:
            self._stop_time(exits)
            self._steer_process(exits)
            for handle in self._handles:
                watch(self, handle, exits)
            self._baseline = _Baseline(
                self.clock.now_us(), self.cloud.snapshot(), random.getstate()
            )
            exits.callback(self.reset)
            exits.enter_context(_no_garbage_collection())
            # redis-py reads its version from its metadata file for each new connection.
            swap(exits, importlib.metadata, "version", functools.cache(importlib.metadata.version))
            exits.enter_context(sleeps_follow(self))
            swap(exits, asyncio.events, "new_event_loop", explored_loops(self))
            if self._process_time is not False:
                exits.enter_context(clocks_follow(self))
            patches = SocketPatches(self.connections, lambda: self.simulation)
            for name, method in patches.methods().items():
                swap(exits, socket.socket, name, method)
            exits.callback(self.carriers.shutdown, wait=False)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.simulation = None
        self._exits.close()

    def _stop_time(self, exits: contextlib.ExitStack) -> None:
        clock = self.clock
        ran = clock.mode == "running"
        clock.freeze()
        swap(exits, clock, "wait_cap", 0)
        real_wait = clock.wait

        def wait(signal: Signal, poll: Callable[[], Any], deadline_us: int) -> Any:
            if self.simulation is None:
                return real_wait(signal, poll, deadline_us)
            return self.simulation.waits.wait(real_wait, signal, poll, deadline_us)

        swap(exits, clock, "wait", wait)
        if ran:
            exits.callback(clock.resume)

    def _steer_process(self, exits: contextlib.ExitStack) -> None:
        """Make the process's time follow the clock, if that is possible and wanted."""
        wanted = self._process_time
        if wanted is None:
            wanted = importlib.util.find_spec("time_machine") is not None
        if wanted and not self.clock.anchored:
            steering = ProcessTime(self.clock)
            steering.start()
            steering.wall.on_read = self.note_clock_read
            self._wall = steering.wall
            exits.callback(steering.stop)

    def note_clock_read(self) -> None:
        if self.simulation is not None and self.simulation.record.has_steps and self.is_here():
            self.simulation.record.touch([READS_CLOCK])

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

    def reset(self) -> None:
        """Return to the baseline: data, clock, randomness and credentials."""
        _collect_garbage()
        self.disturbances.reset()
        self.time.forget()
        self.connections.forget()
        start_us, data, random_state = self._baseline
        if self.clock.now_us() != start_us or self.clock.mode != "frozen":
            self.clock.rewind(to_datetime(start_us), "frozen")
        self.cloud.restore(data)
        self.cloud._reseed(self.cloud.seed)
        # Clients use ``random`` to choose how long they wait before they retry.
        random.setstate(random_state)
        if self._wall is not None:
            self._wall.forget_reads()
        self.deliveries = Deliveries(self._queues, start_us)
        # A queue limits the chain of messages that cause each other within one drive.
        self.clock.drives += 1

    def now_us(self) -> int:
        return self.clock.now_us()

    def elapsed_us(self) -> int:
        """Return the fake time since the start of the exploration."""
        return self.clock.now_us() - self._baseline.start_us

    def sleep(self, seconds: float) -> bool:
        """Sleep in fake time; return False for a thread that is not explored."""
        if self.simulation is not None:
            return self.simulation.waits.sleep(seconds)
        if threading.get_ident() != self._owner or self.clock.driving:
            return False
        # Move the clock when the check sleeps, so that it can wait for later events.
        self.clock.advance(seconds)
        return True

    def pass_time(self, seconds: float) -> bool:
        """Let the fake time of a sleep pass in an event loop that is not explored."""
        return self.simulation is not None and self.simulation.waits.pass_time(seconds)

    def idle(self, loop: OwnLoop, timeout: float | None) -> bool:
        """Called when an event loop has nothing to run; return False if nothing else can run."""
        if self.simulation is not None:
            return self.simulation.loops.idle(loop, timeout)
        return timeout is not None and self.sleep(timeout)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage only where ``_collect_garbage()`` is called, between schedules.

    A finalizer that sends a command (redis-py's Pipeline has one) would otherwise run at
    any allocation, also in code of the fakes that holds a lock, and would make the schedules differ.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    freezes = not _has_frozen_objects()
    if freezes:
        gc.freeze()  # Exclude the objects of the test session from these collections.
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        gc.enable()


@functools.cache
def _has_frozen_objects() -> bool:
    """Return whether the test session has frozen its objects, which ``gc.unfreeze()`` would undo.

    Checked once per process, because Python counts the frozen objects one by one.
    """
    return gc.get_freeze_count() > 0


def _collect_garbage() -> None:
    """Collect the oldest generation of objects that is due by the collector's own thresholds."""
    counts = zip(gc.get_count(), gc.get_threshold(), strict=True)
    due = [generation for generation, (count, limit) in enumerate(counts) if count > limit > 0]
    if due:
        gc.collect(due[-1])
