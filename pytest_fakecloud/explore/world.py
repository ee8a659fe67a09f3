"""The current trial of an exploration: which simulation and which strand a thread belongs to. Each
call, command and delivery of the fakes passes to the simulation first.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import WeakSet

from ..cloud.base import BaseCloud
from ..cloud.fake import core_of
from ..core.calls import set_faults_end
from ..core.clock import checkpoint, in_thread
from ..core.errors import ContractError, ServiceError
from ..core.exits import Exits
from ..core.registry import Registry
from ..core.timers import to_datetime
from ..core.touches import READS_CLOCK, Touch
from ..http.app import EXPLORATION
from ..http.messages import AnyResponse, Proceed, Request
from ..kv.touches import key_of_touch, touch_of_key
from ..process.inprocess import origins
from ..process.shortcut import Shortcut
from ..queue.delivery.destinations import route_context_of, route_to
from ..queue.model import DeliveryInterceptor
from .disturbances import SWITCHES
from .fakes import HORIZON_US, Fakes
from .footprint import command_line
from .programs import check_has_run, current_observer
from .randomness import Randomness
from .simulation.clock import MOST_TIMERS
from .simulation.scheduler import Simulation
from .simulation.sockets import OwnLoop, SocketHooks
from .simulation.state import Subject, TrialHistory, TrialState
from .simulation.strands import Strand, carried_source
from .simulation.turns import ABANDONED, Threads
from .trial import Effects, Plan, Trial

if TYPE_CHECKING:
    from ..cloud.fake import Fake
    from ..queue.delivery.route_context import RunWork
    from ..queue.model import Deliver, Delivery, Exchange, Message, Outcome

T = TypeVar("T")
_PATIENCE_SECONDS = 1.0
"""Maximum real seconds that a wait of a check grants threads from before the exploration."""


class World(Fakes):
    """A cloud while it is explored, with the simulation of the current trial.

    What ``patches.explored()`` replaces in the process passes through it.
    """

    def __init__(self, cloud: BaseCloud, seed: int | str) -> None:
        super().__init__(cloud)
        self.randomness = Randomness(seed, self.drawing)
        self.simulation: Simulation | None = None
        self.functions: dict[int, Callable[..., Any]] = {}
        """The sleeps and clocks of explored code, by the ID of the original function."""
        self._owner = threading.get_ident()
        self.waiting_threads = {self._owner}
        """The threads whose waits move the clock between trials: those of the checks and of
        ``setup=``.
        """
        self._earlier_threads = WeakSet(threading.enumerate())
        """The threads that were there before the exploration."""
        self._moving = threading.RLock()
        # The trials of a search repeat the same commands.
        self.command_line = lru_cache(maxsize=256)(command_line)
        self.free_locks: Sequence[Callable[[], None]] = ()
        """Free the replaced locks that were free, before each trial: a crash may leave them
        held.
        """
        self.carriers = ThreadPoolExecutor(MOST_TIMERS, "fakecloud-explore")
        """Threads for requests of event loops that several strands share."""
        self.threads = Threads()
        """Threads for strands."""
        self._setup: Strand | None = None

    def after_fork(self) -> None:
        """Let clients reach the copies of the fakes in a forked process."""
        self.carriers = ThreadPoolExecutor(MOST_TIMERS, "fakecloud-explore")
        self.connections.after_fork()

    def play(self, subject: Subject, plan: Plan) -> tuple[Trial, TrialHistory]:
        """Play one trial from the baseline of the fakes; return it, with its history for checks."""
        self.reset()
        self.randomness.begin(plan.schedule.series)
        if subject.setup is not None:
            with self.setting_up():
                check_has_run(self.awaited(subject.setup()), "setup=")
            self.randomness.mark()
        simulation = Simulation(subject, plan)
        self.run(simulation)
        log = simulation.state.log
        if "redundant" in log.flags:
            return simulation.frozen(), simulation.history
        if self.randomness.has_drawn():
            log.draws_numbers(plan.schedule.series)
        else:
            log.schedule = plan.schedule.with_series(0)
        state = (self.cloud, self.cloud.snapshot()) if plan.keeps else None
        return simulation.frozen(self._effects(simulation.state), state), simulation.history

    def run(self, simulation: Simulation) -> None:
        """Run a simulation on the present data of the fakes."""
        for free in self.free_locks:
            free()
        token = current_observer.set(simulation.observing)
        self.simulation = simulation
        try:
            simulation.play()
        finally:
            self.simulation = None
            current_observer.reset(token)
        self.check_queues()

    def _effects(self, state: TrialState) -> Effects:
        """Return what a trial has done to the data of the fakes, before a check changes them."""
        log = state.log
        # Only trials in which nothing but the order of calls differs are compared by what they leave.
        has_only_orders = all(disturbance.kind in SWITCHES for disturbance in log.fired)
        left, left_with_ttl = state.fingerprints.left() if has_only_orders else ({}, {})
        remaining: dict[Touch, bool] = {}
        pending: set[Touch] = set()
        for access in log.accesses:
            for key in access.keys:
                keyspace, name = self.keyspaces.get((key.fake, key.kind)), key_of_touch(key)
                if keyspace is not None and name in keyspace.values:
                    remaining[key] = name not in keyspace.expires
                    groups: dict[Any, Any] = getattr(keyspace.values[name], "groups", {})
                    if any(group.pending for group in groups.values()):
                        pending.add(key)
        return Effects(log.accesses, remaining, left, left_with_ttl, pending, log.acknowledged)

    def sockets(self) -> SocketHooks | None:
        return None if self.simulation is None else self.simulation.sockets

    def runs_in_fake_time(self) -> bool:
        """Return whether this thread waits in fake time: in explored code, and between trials."""
        is_between_trials = self.simulation is None and threading.get_ident() == self._owner
        return is_between_trials or self.is_here() or self.is_in_promise()

    def new_loop(self) -> OwnLoop:
        """Create an event loop that runs on fake time. Ends a trial whose threads cannot have one."""
        if (here := self.here()) is not None and threading.get_ident() not in sys._current_frames():
            self._refuse_loop(*here)
        # The loop of a promise is no part of the trial whose steps the promise checks.
        hooks = _no_hooks if self.is_in_promise() else self.sockets
        return OwnLoop(self, hooks, self.wait_in_check)

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
        if self.simulation is not None and self.simulation.state.has_steps and self.is_here():
            self.simulation.state.touch([READS_CLOCK])

    def is_here(self) -> bool:
        return self.simulation is not None and self.simulation.state.is_here()

    def shows_fake_time(self) -> bool:
        """Return whether this thread runs explored code, or the checks of the exploration."""
        return self.is_here() or threading.get_ident() == self._owner

    def is_in_promise(self) -> bool:
        """Return whether this thread runs a promise that is checked after every step."""
        is_aside = self.simulation is not None and self.simulation.state.aside_depth > 0
        return is_aside and self.is_own_thread()

    def is_own_thread(self) -> bool:
        """Return whether this thread runs explored code, promises, or the checks of the exploration."""
        is_here = self.simulation is not None and self.simulation.turns.here() is not None
        return is_here or threading.get_ident() == self._owner

    def cooperating(self) -> Strand | None:
        """Return the strand of this thread, or None if it must not let other strands run."""
        return None if self.simulation is None else self.simulation.state.cooperating()

    def drawing(self) -> Strand | None:
        """Return the strand whose random numbers this thread draws, on whatever thread or loop the
        strand's code runs; None outside of explored code.
        """
        if self.simulation is None or threading.get_ident() == self._owner:
            return None
        state = self.simulation.state
        return None if state.aside_depth or state.turns.has_ended else state.working_for()

    @contextlib.contextmanager
    def setting_up(self) -> Iterator[None]:
        """Prepare a trial in the block: locks that this thread creates are for explored code."""
        self._setup = Strand("setup", "client")
        try:
            yield
        finally:
            self._setup = None

    def creator(self) -> Strand | None:
        """Return the strand for which this thread creates locks, or None like ``cooperating()``."""
        is_setup = self._setup is not None and threading.get_ident() == self._owner
        return self._setup if is_setup else self.cooperating()

    def here(self) -> tuple[Simulation, Strand] | None:
        """Return the simulation and the strand of this thread, or None like ``cooperating()``."""
        strand = self.cooperating()
        return None if strand is None or self.simulation is None else (self.simulation, strand)

    def sleep(self, seconds: float) -> bool:
        """Sleep in fake time; return False for a thread that is not explored."""
        if self.simulation is not None:
            self._check_wait(seconds)
            clock = self.simulation.clock
            return clock.sleep(seconds) or clock.sleep_elsewhere(seconds)
        return self.wait_in_check(lambda: False, seconds)

    def wait_in_check(self, is_over: Callable[[], bool], seconds: float | None) -> bool:
        """Move the clock from event to event until ``is_over()`` is true or a time has
        passed, because a check waits; return False for other threads, and if only another thread
        can end the wait.
        """
        if self.simulation is not None:
            self._check_wait(seconds)
            return False
        if threading.get_ident() not in self.waiting_threads:
            return False
        is_limited = seconds is not None
        span_us = HORIZON_US if seconds is None else math.ceil(seconds * 1e6)
        until_us = self.now_us() + span_us
        with self._moving:
            if self.clock.driving:
                return is_limited  # A handler of a delivery, during which the time stands still.
            while not is_over():
                now, due = self.now_us(), self.clock.next_due_us()
                if due is None and not is_limited:
                    return False
                if now >= until_us:
                    return is_limited
                target = until_us if due is None else min(until_us, max(due, now + 1))
                self.clock.move_to(to_datetime(target))
        return True

    def is_waiting_check(self) -> bool:
        """Return whether the waits of this thread move the clock, because it runs a check."""
        return self.simulation is None and threading.get_ident() in self.waiting_threads

    def patience_with_threads(self, timeout: float) -> float:
        """Return for how many real seconds a wait with a time-out may still be ended by another thread:
        not by one of the fakes, nor by an abandoned one. A thread that was there before the exploration
        can be idle for good, as libraries keep some for later, so such a one gets a second (decided
        here).
        """
        me = threading.current_thread()
        others = [
            thread
            for thread in threading.enumerate()
            if thread is not me and not thread.name.startswith(("fakecloud-", ABANDONED))
        ]
        if all(thread in self._earlier_threads for thread in others):
            return min(timeout, _PATIENCE_SECONDS) if others else 0.0
        return timeout

    def _check_wait(self, seconds: float | None) -> None:
        """Raise ``ContractError`` if a promise that is checked after every step is about to wait."""
        if seconds and self.is_in_promise():
            raise ContractError(
                "a promise that is checked after every step waits, but time that passes in it would "
                "change the trial: read from the fakes, or wait in a check at the end of a trial, such "
                "as eventually()"
            )

    def run_in_check(self, run: Callable[[], object]) -> None:
        """Run the code of a thread that a check has started, whose waits move the clock, too."""
        me = threading.get_ident()
        self.waiting_threads.add(me)
        try:
            run()
        finally:
            self.waiting_threads.discard(me)

    def wait_for_poll(self, poll: Callable[[], object], until_us: int) -> object:
        """Wait like ``wait_in_check()`` until ``poll()`` returns something other than None."""
        result: object = None

        def is_over() -> bool:
            nonlocal result
            result = poll()
            return result is not None

        self.wait_in_check(is_over, max(0, until_us - self.now_us()) / 1e6)
        return result

    async def sleep_in_loop(self, seconds: float) -> bool:
        """Sleep in fake time in an event loop that is not explored; return False for other loops."""
        if self.simulation is None:
            return self.wait_in_check(lambda: False, seconds)
        self._check_wait(seconds)
        return await self.simulation.clock.sleep_in_loop(seconds)


def without_patching(library: str) -> str:
    """Return the advice for a library that has replaced parts of the standard library."""
    return (
        f"run this test in a process in which {library} replaces nothing: leave its patching out of "
        "conftest.py and of the modules that the test imports"
    )


def _no_hooks() -> None:
    return None


# -- the fakes -------------------------------------------------------------------------------------


def watch(world: World, fake: Fake, exits: Exits) -> None:
    """Connect a fake to the simulations of a world until the exits are closed."""
    core = core_of(fake)
    app: Any = core.app
    _listen(app.rejection_listeners, partial(_see_rejection, world, fake), exits)
    in_turn = partial(_serve_in_turn, world, fake)
    exits.callback(app.chain.remove, in_turn)
    app.chain.add(EXPLORATION, in_turn)
    if hasattr(app, "interruptions"):
        _listen(app.interruptions.listeners, partial(_pause_in_pipeline, world), exits)
    if fake.fixture == "kv_server":
        _listen(core.engine.listeners, partial(_record_command, world, fake.name), exits)
    origin = core.mount.origin
    shortcut = Shortcut(core.mount, lingers=True, around=partial(_around, world, fake))
    exits.callback(origins.remove, origin, shortcut)
    exits.callback(origins.leave, shortcut)
    origins.add(origin, shortcut)
    origins.enter(shortcut)
    if fake.fixture == "queue":
        queue: Any = fake
        deliveries = _ExploredDeliveries(world, queue)
        exits.callback(core.engine.deliveries.stop_intercepting, deliveries)
        core.engine.deliveries.intercept(deliveries)
        _listen(route_context_of(queue.destinations).around_work, partial(_run_work, world), exits)


def _listen(listeners: Registry[Any], listener: Callable[..., object], exits: Exits) -> None:
    """Register a listener until the exits are closed."""
    exits.callback(listeners.remove, listener)
    listeners.add(listener)


def _see_rejection(world: World, fake: Fake, request: Request, error: ServiceError) -> None:
    simulation = world.simulation
    if error.status == 401 and simulation is not None:
        with world.disturbances.old_tokens(), contextlib.suppress(ServiceError):
            core_of(fake).app.authenticate(request)
            request.call.faults = ({"kind": "rotate_token", "description": "rotate_token"},)
        simulation.calls.rejected(request)


def _serve_in_turn(world: World, fake: Fake, request: Request, proceed: Proceed) -> AnyResponse:
    """Have the simulation serve a call at its turn, with the disturbances of the schedule."""
    simulation = world.simulation
    if simulation is None:
        return proceed()
    # A connection over a socket of the system is served by a thread that serves others, too.
    core_of(fake).app.step_aside()
    try:
        return simulation.calls.at_call(fake, request, proceed)
    finally:
        if request.call.faults:
            set_faults_end(request.call, core_of(fake).recorder.reserve())


def _pause_in_pipeline(world: World) -> None:
    """Let other strands run between two commands of a pipeline; before the first is a call's point."""
    if world.simulation is not None:
        world.simulation.calls.at_gap()


def _record_command(world: World, fake: str, session: Any, spec: Any, argv: list[bytes]) -> None:
    """Record the data and the idle time of a command that an engine is about to run."""
    simulation, database = world.simulation, session.db.index
    if simulation is None:
        return
    line = world.command_line(fake, database, len(session.engine.databases), spec, tuple(argv))
    touches = line.touches
    if spec.name == "EXEC":
        watched = (touch_of_key(fake, database, key, False) for _, key, _ in session.watched)
        touches = (*touches, *watched)
    simulation.state.touch(touches)
    if session.interface == "local":
        simulation.calls.add_command_of_test(argv)
    simulation.calls.note_access(session, line)
    simulation.clock.note_data(line.times_us)
    if line.claims is not None:
        simulation.clock.note_idle_time(session.db, line.claims)


def _run_work(world: World, where: str, proceed: RunWork, work: Awaitable[Any]) -> Any:
    """Run a coroutine function of the test in its strand, and an application in the fakes' thread."""
    if where == "call" and inspect.iscoroutine(work) and world.is_here():
        return world.awaited(work)
    strand = world.cooperating()
    with contextlib.nullcontext() if strand is None else strand.waits_for_real():
        return proceed(work)


async def _around(world: World, fake: Fake, exchange: Callable[[], T]) -> T:
    simulation = world.simulation
    if simulation is None:
        await checkpoint()
        return exchange()
    if simulation.state.is_here():
        return await simulation.calls.exchange(fake, exchange)
    # Several strands share this event loop, which the request would block: use a thread.
    carried_source.set(simulation.state.sources.here())
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # trio's loop
        return await in_thread(exchange)
    return await loop.run_in_executor(world.carriers, copy_context().run, exchange)


class _ExploredDeliveries(DeliveryInterceptor):
    """The innermost interceptor of deliveries, which adds faults and losses of the schedule."""

    active = True

    def __init__(self, world: World, queue: Any) -> None:
        self._world = world
        self._queue = queue

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        simulation = self._world.simulation
        return () if simulation is None else simulation.deliveries.faults.pop(message.id, ())

    async def deliver(self, exchange: Exchange, proceed: Deliver) -> Outcome:
        simulation = self._world.simulation
        if simulation is None:
            return await proceed(exchange)
        route = route_to(self._queue.destinations, exchange.delivery.url)
        return await simulation.deliveries.perform(exchange, proceed, route)
