"""Connects a cloud to a simulation, through which every call passes while the cloud is explored."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import inspect
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.concurrency.aio import checkpoint, in_thread
from ..core.errors import ContractError, ServiceError
from ..core.journal import recorder_of
from ..core.timeparse import to_datetime
from ..http.messages import Answer, Request, Response, Serve
from ..process_time import ProcessTime
from ..services import find
from ..transport.inprocess import origins
from ..transport.shortcut import Shortcut
from .footprint import READS_CLOCK, Touch, touch_of_key, touches_of_command, touches_of_request
from .runtime.deliveries import Due
from .runtime.frames import carried_source, source_of
from .runtime.loops import OwnLoop, await_in_own_loop, loops_follow, sleeps_follow
from .runtime.wires import Wires

if TYPE_CHECKING:
    from ..cloud import Cloud
    from ..core.timers import Signal, Timer
    from ..handle import Handle
    from ..http.app import App
    from ..process_time.wall import Wall
    from ..queue.engine.schedules import Schedule, Schedules
    from ..queue.handle import Queue
    from ..queue.model import Delivery, Kind, Message, Outcome
    from .simulation.scheduler import Simulation

T = TypeVar("T")
HOLD_US = 60_000_000
"""Microseconds for which vectors remain pending after a ``hold_pending`` event."""
ROTATED_US = 10_000_000
"""Microseconds for which the code keeps using an old token after a ``rotate_token`` event."""
MOST_TIMERS = 1_000
"""Maximum number of timers that are inspected."""
_CLAIMS = frozenset((b"XAUTOCLAIM", b"XCLAIM", b"XPENDING"))
"""Commands that take the minimum idle time of pending stream entries."""
_HORIZON_US = 30 * 86_400 * 1_000_000
"""Microseconds after the start until which deliveries are made, as in ``run_until_idle``."""


class World:
    """A cloud while it is explored.

    A context manager. Inside it, the clock is frozen, the process's time follows the clock if
    time-machine is installed, requests of this process skip the socket, sleeping moves the clock,
    and calls pass through ``stage``. At the end everything is restored, and the cloud's data is at
    the baseline. Raises ``ContractError`` for a clock that cannot be frozen, and for a queue that
    delivers in the background.
    """

    def __init__(self, cloud: Cloud, *, process_time: bool | None = None) -> None:
        self.cloud = cloud
        self.clock = cloud._time
        self.stage: Simulation | None = None
        self._process_time = process_time
        self._exits = contextlib.ExitStack()
        self.handles = [handle for handle in cloud.handles if find(handle.fixture).in_process]
        self.wires = Wires(self.handles, lambda: self.stage)
        self.queues: list[Queue] = [h for h in self.handles if h.fixture == "queue"]  # type: ignore[misc]
        for queue in self.queues:
            if queue.delivery != "driven":
                raise ContractError(
                    f"{queue.name} delivers in the background, but explore() must control the "
                    "order of deliveries: pass delivery='driven'"
                )
        self.recording = False
        self._owner = threading.get_ident()
        self._start_us = 0
        self._baseline: Any = None
        self._credentials: list[tuple[object, dict[str, Any]]] = []
        self._ordinals: dict[str, int] = {}
        self._undo: list[Callable[[], object]] = []
        self._rotated: dict[str, tuple[Any, list[tuple[object, dict[str, str]]]]] = {}
        self._timers: list[Timer] = []
        self._idle_times: set[tuple[str, int, bytes, bytes, int]] = set()
        self._random = random.getstate()
        self._wall: Wall | None = None
        self._carriers = ThreadPoolExecutor(MOST_TIMERS, "explore")

    # -- coming and going ------------------------------------------------------------------------

    def __enter__(self) -> World:
        with contextlib.ExitStack() as exits:
            self._stop_time(exits)
            self._start_us = self.clock.now_us()
            for handle in self.handles:
                self._watch(handle, exits)
            self._baseline = self.cloud.snapshot()
            self._credentials = [pair for handle in self.handles for pair in _credentials(handle)]
            self._ordinals = {}
            self._random = random.getstate()
            exits.callback(self.reset)
            if gc.isenabled():
                # Collect garbage only between schedules. A finalizer that sends a command, such as
                # the one of redis-py's Pipeline, would otherwise run at any allocation, also in
                # code of the fakes that holds a lock, and would make the schedules differ.
                gc.disable()
                exits.callback(gc.enable)
                # Exclude the objects of the test session from these collections.
                gc.freeze()
                exits.callback(gc.unfreeze)
            exits.enter_context(sleeps_follow(self))
            exits.enter_context(loops_follow(self, self._is_here))
            exits.enter_context(self.wires)
            exits.callback(self._carriers.shutdown, wait=False)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.stage = None
        self._exits.close()

    def _stop_time(self, exits: contextlib.ExitStack) -> None:
        clock = self.clock
        wait_cap = clock.wait_cap
        ran = clock.mode == "running"
        clock.freeze()
        clock.wait_cap = 0
        exits.callback(setattr, clock, "wait_cap", wait_cap)
        real_wait = clock.wait

        def wait(signal: Signal, poll: Callable[[], Any], deadline_us: int) -> Any:
            if self.stage is not None:
                waited, found = self.stage.wait(signal, poll, deadline_us)
                if waited:
                    return found
            return real_wait(signal, poll, deadline_us)

        vars(clock)["wait"] = wait
        exits.callback(vars(clock).pop, "wait", None)
        if ran:
            exits.callback(clock.resume)
        wanted = self._process_time
        if wanted is None:
            wanted = importlib.util.find_spec("time_machine") is not None
        if wanted and not clock.anchored:
            steering = ProcessTime(clock)
            steering.start()
            steering.wall.on_read = self._read_clock
            self._wall = steering.wall
            exits.callback(steering.stop)

    def _read_clock(self) -> None:
        """Record that the code has read the time."""
        if self.recording and self.stage is not None and self.stage.is_here():
            self.stage.touch([READS_CLOCK])

    def _watch(self, handle: Handle, exits: contextlib.ExitStack) -> None:
        app: Any = handle._app
        _swap(exits, app, "faults", _Watched(self, handle, app.faults))
        if hasattr(app, "interruptions"):
            _swap(exits, app, "interruptions", _Interruptions(self, handle, app.interruptions))
        engine: Any = handle._engine
        if handle.fixture == "kv_server" and hasattr(engine, "run"):
            vars(engine)["run"] = self._watched(handle.name, engine.run)
            exits.callback(vars(engine).pop, "run", None)
        if hasattr(engine, "delivery_hooks"):
            _swap(exits, engine, "delivery_hooks", _ExploredDeliveries(self, engine.delivery_hooks))
        before = origins.add(handle._mount, lingers=True)
        exits.callback(origins.put_back, handle._mount.origin, before)
        shortcut = origins.find(*handle._mount.origin)
        assert isinstance(shortcut, Shortcut)
        shortcut.around = partial(self._around, handle)
        origins.enter()
        exits.callback(origins.leave)
        if handle.fixture == "queue":
            self._watch_deliveries(handle, exits)

    def _watch_deliveries(self, queue: Any, exits: contextlib.ExitStack) -> None:
        runner = queue._engine.runner
        real = runner.perform

        def perform(delivery: Delivery) -> Outcome:
            stage = self.stage
            return real(delivery) if stage is None else stage.perform_delivery(delivery, real)

        _swap(exits, runner, "perform", perform)
        for route in queue.destinations.routes:
            handler = getattr(route, "_handler", None)
            if route.where == "asgi":
                # ASGI applications run in a thread of the fakes, which is not explored.
                _swap(exits, route, "_perform", self._waits_for_real(route._perform))
            if inspect.iscoroutinefunction(handler):
                _swap(exits, route, "_handler", partial(self._awaited, handler))

    def _waits_for_real(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its strand is marked as waiting for a thread of the fakes."""

        def waiting(*args: Any, **kwargs: Any) -> Any:
            strand = None if self.stage is None else self.stage.cooperating()
            if strand is None:
                return run(*args, **kwargs)
            strand.host.real += 1
            try:
                return run(*args, **kwargs)
            finally:
                strand.host.real -= 1

        return waiting

    def _awaited(self, handler: Callable[[Any], Any], request: Any) -> Any:
        if self.stage is None or not self.stage.is_here():
            return handler(request)
        return await_in_own_loop(self, lambda: handler(request))

    async def _around(self, handle: Handle, exchange: Callable[[], T]) -> T:
        """Make an asynchronous request while other strands run."""
        stage = self.stage
        if stage is None:
            await checkpoint()
            return exchange()
        if stage.is_here():
            await stage.leaves(handle)
            answer = exchange()
            await stage.arrives(handle)
            return answer
        # Several strands share this event loop, so run the request in a thread: it would block the
        # loop.
        carried_source.set(source_of(sys._getframe()))
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # trio's loop
            return await in_thread(exchange)
        return await loop.run_in_executor(self._carriers, copy_context().run, exchange)

    def _is_here(self) -> bool:
        return self.stage is not None and self.stage.is_here()

    def record(self, wanted: bool) -> None:
        """Start or stop recording the data that each command accesses."""
        self.recording = wanted

    def _watched(self, fake: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an engine's ``run()`` so that the data and the idle times of commands are recorded."""

        def run(session: Any, spec: Any, argv: list[bytes]) -> Any:
            if self.stage is not None:
                if self.recording:
                    self.stage.touch(touches_of_command(fake, session, spec, argv))
                if argv[0].upper() in _CLAIMS:
                    self._note_idle_time(fake, session.db.index, argv)
            return real(session, spec, argv)

        return run

    def _note_idle_time(self, fake: str, database: int, argv: list[bytes]) -> None:
        """Record the idle time after which a command claims or lists pending stream entries."""
        if len(argv) <= 4 or not argv[4].isdigit():
            return
        if argv[0].upper() != b"XPENDING" or argv[3].upper() == b"IDLE":
            self._idle_times.add((fake, database, argv[1], argv[2], int(argv[4])))

    def touches_of(self, handle: Handle, request: Request) -> Iterable[Touch]:
        """Return the accesses of a request; none for the key-value engine, which reports its
        commands itself.
        """
        if handle.fixture == "kv_server" and hasattr(handle._engine, "run"):
            return ()
        return touches_of_request(handle.fixture, handle.name, request)

    # -- one schedule ----------------------------------------------------------------------------

    def reset(self) -> None:
        """Return to the baseline: data, clock, randomness and credentials."""
        _collect_garbage()
        self._undo.clear()
        self._idle_times.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.wires.forget()
        if self.clock.now_us() != self._start_us or self.clock.mode != "frozen":
            self.clock.rewind(to_datetime(self._start_us), "frozen")
        self.cloud.restore(self._baseline)
        self.cloud.reseed(self.cloud.seed)
        # Restore the state of ``random``: clients use it to choose how long they wait before they
        # retry.
        random.setstate(self._random)
        if self._wall is not None:
            self._wall.forget_reads()
        put_back(self._credentials)
        self._ordinals = {}
        for queue in self.queues:
            queue._engine.drive += 1

    def forget(self, number: int) -> None:
        """Remove the journal's entries since a number."""
        recorder_of(self.cloud.journal).forget_since(number)

    # -- time ------------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the current fake time."""
        return self.clock.now_us()

    def sleep(self, seconds: float) -> bool:
        """Sleep in fake time; return False for a thread that is not explored."""
        if self.stage is not None:
            return self.stage.sleep(seconds)
        if threading.get_ident() != self._owner or self.clock.driving:
            return False
        # Move the clock when the check sleeps, so that it can wait for later events.
        self.clock.advance(seconds)
        return True

    def pass_time(self, seconds: float) -> bool:
        """Let the fake time of a sleep pass in an event loop that is not explored."""
        return self.stage is not None and self.stage.pass_time(seconds)

    def enters_loop(self, loop: OwnLoop) -> None:
        """Called when an event loop starts in this thread."""
        if self.stage is not None:
            self.stage.enters_loop(loop)

    def leaves_loop(self, loop: OwnLoop) -> None:
        """Called after an event loop has ended in this thread."""
        if self.stage is not None:
            self.stage.leaves_loop(loop)

    def settles(self, loop: OwnLoop) -> None:
        """Called before an event loop looks for answers."""
        if self.stage is not None:
            self.stage.settles(loop)

    def idle(self, loop: OwnLoop, timeout: float | None) -> bool:
        """Called when an event loop has nothing to run; return False if nothing else can run."""
        if self.stage is not None:
            return self.stage.idle(loop, timeout)
        return timeout is not None and self.sleep(timeout)

    def unhandled(self, error: BaseException) -> None:
        """Called with an exception of a task that no code awaited."""
        if self.stage is not None:
            self.stage.unhandled(error)

    def creates_task(self, task: asyncio.Task[Any], is_inner: bool) -> None:
        """Called when a task is created. An inner task belongs to an await of its creator."""
        if self.stage is not None:
            self.stage.creates_task(task, is_inner)

    def move_to(self, instant_us: int) -> bool:
        """Move the clock, fire the engines' own timers on the way, and return whether any fired."""
        fired = False
        target = max(instant_us, self.clock.now_us())
        steps = self.clock._steps(lambda: target, ("state",))
        try:
            for timer in steps:
                timer.callback(timer.due_us)
                fired = True
        finally:
            steps.close()
        return fired

    def known_instants(self, most: int) -> list[int]:
        """Return the next times of timers, deliveries, the ends of TTLs and of idle times."""
        now = self.clock.now_us()
        _, timers = self.clock._timers.planned(most + 8)
        found = {timer.due_us for timer in timers}
        for handle in self.handles:
            for keyspace in getattr(handle._engine, "databases", ()):
                found.update(at * 1000 for at in keyspace.expires.values())
                found.update(at * 1000 for at in keyspace.volatile.values())
        found.update(at_ms * 1000 for at_ms in self._ends_of_idle_times())
        return sorted(at for at in found if at > now)[:most]

    def _ends_of_idle_times(self) -> Iterator[int]:
        """Yield the times at which pending stream entries become claimable, in milliseconds."""
        for fake, database, key, group, idle_ms in self._idle_times:
            engine: Any = next(h._engine for h in self.handles if h.name == fake)
            stream = engine.databases[database].values.get(key)
            found = getattr(stream, "groups", {}).get(group)
            if found is not None:
                for _, pending in itertools.islice(found.pending.items(), MOST_TIMERS):
                    yield pending.delivered_ms + idle_ms

    def ends_until(self, until_us: int) -> Iterable[Touch]:
        """Yield the accesses to keys that expire, or have fields that expire, by a given time."""
        for handle in self.handles:
            for keyspace in getattr(handle._engine, "databases", ()):
                ends = [*keyspace.expires.items(), *keyspace.volatile.items()]
                for key, at_ms in ends:
                    if at_ms * 1000 <= until_us:
                        yield touch_of_key(handle.name, keyspace.index, key, True)

    def fires_until(self, until_us: int) -> bool:
        """Return whether an engine has a timer that is due by a given time."""
        _, timers = self.clock._timers.planned(MOST_TIMERS)
        return any(timer.lane == "state" and timer.due_us <= until_us for timer in timers)

    def has_messages(self) -> bool:
        """Return whether a queue has a message to deliver, now or later."""
        for queue in self.queues:  # noqa: SIM110 - called at every turn
            if queue._engine.timers:
                return True
        return False

    def next_delivery_us(self, after_us: int = -1) -> int | None:
        """Return the time of the next delivery, or None."""
        end = self._start_us + _HORIZON_US
        found = [q._engine.next_due_us() for q in self.queues if q._engine.pending]
        return min((at for at in found if at is not None and after_us < at <= end), default=None)

    def next_firing_us(self) -> int | None:
        """Return the time at which the next schedule fires, or None."""
        found = [queue._engine.schedules.next_run_us() for queue in self.queues]
        return min((at for at in found if at is not None), default=None)

    def end_schedules(self) -> None:
        """Let no schedule fire until the promise is checked."""
        for queue in self.queues:
            schedules = queue._engine.schedules
            for schedule in schedules.by_id.values():
                schedules.unplan(schedule)
                self._undo.append(partial(self._plan_again, schedules, schedule))

    def _plan_again(self, schedules: Schedules, schedule: Schedule) -> None:
        if schedules.by_id.get(schedule.id) is schedule:
            schedules.plan_on(schedule)

    # -- deliveries ------------------------------------------------------------------------------

    def due(self) -> list[Due]:
        """Return the deliveries that can begin now, in the order of their due times."""
        now = self.clock.now_us()
        found = []
        for queue in self.queues:
            for message in queue._engine.messages.values():
                # Number messages in order of creation, so that names do not depend on the order of
                # delivery.
                if message.id not in self._ordinals:
                    self._ordinals[message.id] = len(self._ordinals) + 1
            for message_id, timer in queue._engine.timers.items():
                if timer.lane == "driven" and timer.due_us <= now and not timer.cancelled:
                    message = queue._engine.messages[message_id]
                    found.append(Due(queue, message, timer, self._ordinals[message_id]))
        return sorted(found, key=lambda due: (due.timer.due_us, due.timer.sequence))

    def message_names(self) -> dict[str, str]:
        """Return the names that a story uses for messages, by message ID."""
        return {
            message.public_id: f"message {self._ordinals[message.id]}"
            for queue in self.queues
            for message in queue._engine.messages.values()
            if message.id in self._ordinals
        }

    # -- what may happen to a handle -------------------------------------------------------------

    def hold(self, handle: Any) -> None:
        """Keep changes of a vector index pending for a limited time."""
        handle.hold_pending()
        self._for_a_while(
            HOLD_US, handle.release_pending, f"{handle.name}: pending changes become ready"
        )

    def rotate(self, handle: Any) -> None:
        """Rotate a fake's token, and restore the old token after a limited time."""
        kept = self._rotated.setdefault(handle.name, (handle, list(_credentials(handle))))[1]
        handle.rotate_token()

        def undo() -> None:
            put_back(kept)
            self._rotated.pop(handle.name, None)

        self._for_a_while(ROTATED_US, undo, f"{handle.name}: the new token is known")

    def use_old_tokens(self) -> list[tuple[object, Mapping[str, str]]]:
        """Make the fakes accept the tokens from before their rotation; return the new ones."""
        new: list[tuple[object, Mapping[str, str]]] = []
        for handle, kept in self._rotated.values():
            new += list(_credentials(handle))
            put_back(kept)
        return new

    def _for_a_while(self, span_us: int, undo: Callable[[], object], label: str) -> None:
        self._undo.append(undo)

        def end(_: int) -> None:
            if undo in self._undo:
                self._undo.remove(undo)
                undo()

        due_us = self.clock.now_us() + span_us
        self._timers.append(self.clock.call_at(due_us, end, label=label))

    def settle(self) -> None:
        """End all disturbances, so that the promise can be checked."""
        while self._undo:
            self._undo.pop(0)()


def refusal(handle: Handle) -> Answer:
    """Return the service's own 503 answer."""
    answer = handle._fault_table.render(ServiceError(503, "Service Unavailable"))
    if not isinstance(answer.body, bytes):
        assert handle._fault_table.dump is not None
        answer.body = handle._fault_table.dump(answer.body)
    return answer


def _collect_garbage() -> None:
    """Collect the oldest generation of objects that is due by the collector's own thresholds."""
    due = [
        count > limit > 0 for count, limit in zip(gc.get_count(), gc.get_threshold(), strict=True)
    ]
    if any(due):
        gc.collect(max(generation for generation, is_due in enumerate(due) if is_due))


def _swap(exits: contextlib.ExitStack, owner: object, name: str, value: object) -> None:
    exits.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def put_back(credentials: Iterable[tuple[object, Mapping[str, str]]]) -> None:
    """Set credentials of fakes that were replaced."""
    for owner, values in credentials:
        for name, value in values.items():
            setattr(owner, name, value)


def _credentials(handle: Any) -> Iterator[tuple[object, dict[str, str]]]:
    yield handle, {name: value for name, value in vars(handle).items() if name.endswith("token")}
    pair = getattr(handle, "_credentials", None)
    if pair is not None:
        yield pair, {"standard": pair.standard, "read_only": pair.read_only}


class _Watched:
    """A fake's faults, wrapped so that the simulation handles each request first."""

    def __init__(self, world: World, handle: Handle, plan: Any) -> None:
        self._world = world
        self._handle = handle
        self._plan = plan

    def __bool__(self) -> bool:
        # Return False if only the simulation injects faults, so that requests skip the socket.
        return bool(self._plan)

    @property
    def active(self) -> tuple[object, ...]:
        return (self,)

    def run(self, request: Request, serve: Serve) -> Response:
        if self._plan.active:
            serve = partial(self._plan.run, request, serve)
        stage = self._world.stage
        return serve() if stage is None else stage.at_call(self._handle, request, serve)

    def attach(self, app: App) -> None:
        self._plan.attach(app)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plan)


class _Interruptions:
    """Hooks between the commands of a pipeline, wrapped so that the simulation is called after the
    test's own.
    """

    def __init__(self, world: World, handle: Handle, planned: Any) -> None:
        self._world = world
        self._handle = handle
        self._planned = planned

    def __bool__(self) -> bool:
        return self._world.stage is not None or bool(self._planned)

    def begin(self, lines: list[list[bytes]]) -> Callable[[int], None]:
        planned = self._planned.begin(lines) if self._planned else None

        def at(index: int) -> None:
            if planned is not None:
                planned(index)
            if self._world.stage is not None:
                self._world.stage.at_gap(self._handle)

        return at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._planned, name)


class _ExploredDeliveries:
    """Faults of deliveries: first the faults that the test injected, then the faults of the
    schedule.
    """

    active = ("the schedule",)

    def __init__(self, world: World, planned: Any) -> None:
        self._world = world
        self._planned = planned

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        found: tuple[str, ...] = self._planned.before(message, delivery)
        stage = self._world.stage
        return found if stage is None else found + stage.faults_of(message.id)

    def callback(self, message: Message, kind: Kind, url: str) -> bool:
        lost: bool = self._planned.callback(message, kind, url)
        return lost

    def overtaken(self, message: Message) -> bool:
        overtaken: bool = self._planned.overtaken(message)
        return overtaken
