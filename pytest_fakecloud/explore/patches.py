"""The process of explored code: its time, sockets, threads and locks, which the exploration replaces."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib.metadata
import importlib.util
import logging
import math
import multiprocessing.process
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import FrameType, MemberDescriptorType, MethodType, SimpleNamespace
from typing import Any, Literal

from ..cloud.base import BaseCloud, context_of
from ..core.errors import ContractError, Crash, if_installed, shown
from ..core.exits import Exits, exiting
from ..core.frames import is_own, stack_of
from ..core.libraries import is_library
from ..core.threads import DaemonThread, start_thread
from ..process.clocks import (
    RealClock,
    clocks_of,
    is_infrastructure_module,
    keeps_originals,
    module_of,
    sleeps_of,
)
from ..process.process_time import ProcessTime
from ..process.replace import Everywhere, Function, swap
from .clients import functions_of
from .interceptors import watch
from .simulation.current_thread import carried_strand
from .simulation.scheduler import Simulation
from .simulation.sockets import SOCKET_METHODS, OwnLoop, Sockets
from .simulation.stacks import innermost
from .simulation.strands import Strand
from .trial import Program
from .world import World, without_patching

_EXIT_ADVICE = "explore() sees only this process and keeps it alive. Replace that call in the test"
# Keep the originals, because explore() replaces the names.
_allocate, _monotonic = threading.Lock, time.monotonic
_MAKERS_OF_LOCKS = ("threading", "queue", __name__)
"""Modules that create locks for their callers."""
_MAKERS_OF_THREADS = (DaemonThread.__init__.__code__, start_thread.__code__)
"""Functions that create and start the threads of this package."""
_ENDING = 0.5
"""Wall-clock seconds to wait, at the end of a trial, for a lock that another strand holds."""
_DEPTH = 3
"""Maximum number of references to follow from a program to a lock or a sleep."""
_MOST_ITEMS = 100
"""Maximum number of items of a dictionary or list that is searched."""
_WAITING_FOR_CALLERS = frozenset({"concurrent", "multiprocessing", "queue", "sched", "threading"})
"""Packages of the standard library that measure the timeouts of their callers."""
_MEASURING_REQUESTS = frozenset({
    "httpcore", "httpcore2", "httpx", "httpx2", "redis", "requests", "urllib3",
})  # fmt: skip
"""Packages that read a clock for each request, and do nothing that depends on it."""
_LOCKS = frozenset({"redis.asyncio.lock", "redis.lock"})
"""Modules of these packages whose behaviour depends on the clock."""
_Patch = tuple[object, str, object]
"""The owner and the name of an attribute, and its value while code is explored."""


@contextlib.contextmanager
def explored(
    cloud: BaseCloud,
    programs: Iterable[Program] = (),
    *,
    process_time: bool | None = None,
    seed: int | str | None = None,
) -> Iterator[World]:
    """Explore a cloud within the block.

    The clock is frozen, the process's time follows the clock if time-machine is installed, requests
    of this process skip the socket, sleeping moves the clock, and calls pass through the world's
    simulation. At the end everything is restored, and the cloud's data is at the baseline. Raises
    ``ContractError`` for a clock that cannot be frozen, for a queue that delivers in the background,
    and for sockets of another library whose methods cannot be replaced.
    """
    if process_time is not None and not isinstance(process_time, bool):
        raise ContractError(
            f"process_time={shown(process_time)} is not possible in explore(): pass True or "
            "False. Sleeps always move the clock"
        )
    _check_sockets()
    world = World(cloud, cloud.seed if seed is None else seed)
    with exiting() as exits:
        _stop_time(world, exits)
        _steer_process(world, exits, process_time)
        for fake in world.fakes:
            watch(world, fake, exits)
        world.set_baseline()
        exits.callback(world.randomness.restore)
        exits.callback(world.reset)
        _stop_garbage_collection(exits)
        # Each of thousands of trials would search the stacks of all strands at each call.
        swap(exits, context_of(cloud).recorder.shared, "find_stack", None)
        # redis-py reads its version from its metadata file for each new connection.
        swap(exits, importlib.metadata, "version", functools.cache(importlib.metadata.version))
        functions = _let_time_follow(world, exits, clocks=process_time is not False)
        new_event_loop = _new_event_loop(world)
        for module in (asyncio, asyncio.events):
            swap(exits, module, "new_event_loop", new_event_loop)
        exits.callback(world.carriers.shutdown, wait=False)
        exits.callback(world.connections.close)
        for owner, name, value in (
            *_socket_patches(world),
            *_lock_patches(world),
            *_thread_patches(world),
            *_task_patches(world),
            *_process_patches(world),
            *_signal_patches(world),
            *world.randomness.patches(),
            *_guest_patches(world),
        ):
            swap(exits, owner, name, value)
        # Silence this logger, because it would report a pool's threads that the end of the trial stops.
        swap(exits, logging.getLogger("concurrent.futures"), "disabled", True)
        replacements = _Replacements(world, exits, functions)
        for program in programs:
            for function in functions_of(program.function):
                replacements.visit(function, _DEPTH)
        locks = replacements.locks.values()
        world.free_locks = [lock.free for lock in locks if not lock.locked()]
        # Threads end before the data is restored: code that catches everything may still send requests.
        exits.callback(world.threads.close)
        yield world


def _stop_time(world: World, exits: Exits) -> None:
    clock = world.clock
    if clock.mode == "running":
        exits.callback(clock.resume)
    clock.freeze()
    swap(exits, clock, "wait_cap", 0)
    swap(exits, clock, "wait", partial(world.waits.of_command, clock.wait))


def _steer_process(world: World, exits: Exits, wanted: bool | None) -> None:
    """Make the process's time follow the clock, if that is possible and wanted."""
    if wanted is None:
        wanted = importlib.util.find_spec("time_machine") is not None
    if wanted and not world.clock.anchored:
        world.process_time = ProcessTime(world.clock)
        world.process_time.on_read = world.note_clock_read
        exits.callback(world.process_time.stop)
        world.process_time.start()


def _let_time_follow(world: World, exits: Exits, *, clocks: bool) -> dict[int, Function]:
    """Make sleeps of explored code pass fake time, and optionally ``clocks`` show it; return what
    replaces each function, by the ID of the original.
    """
    policy = _ExploredTime(world)
    everywhere = Everywhere(keeps_originals)
    exits.callback(everywhere.restore)
    pairs = [*sleeps_of(policy), *(clocks_of(policy) if clocks else ())]
    functions = {id(original): ours for original, ours in pairs}
    # Clear it first, because ``restore()`` searches all modules if anything holds a replacement.
    exits.callback(functions.clear)
    everywhere.add(pairs)
    return functions


class _ExploredTime:
    """The policy of explored code. A thread that is not explored has real time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def sleep(self, seconds: float, really: Callable[[float], None], caller: FrameType) -> None:
        is_span = isinstance(seconds, int | float) and seconds >= 0
        if not is_span or not self._world.waits.sleep(seconds):
            really(seconds)

    async def sleep_in_asyncio(
        self, delay: float, result: Any, really: Callable[..., Awaitable[Any]], caller: FrameType
    ) -> Any:
        is_own = isinstance(asyncio.get_running_loop(), OwnLoop)
        is_passed = not is_own and await self._world.waits.sleep_in_loop(delay)
        return await really(0 if is_passed else delay, result)

    def read(self, clock: RealClock, caller: FrameType) -> Any:
        world, use = self._world, _use_of_clocks(module_of(caller))
        if use == "real" or not world.current_thread.is_own():
            return clock.read()
        if use == "noted":
            world.note_clock_read()
        elapsed_us = world.elapsed_us()
        return clock.started + (elapsed_us / 1e6 if clock.per_second == 1 else elapsed_us * 1000)


@functools.lru_cache(maxsize=4096)
def _use_of_clocks(module: str) -> Literal["real", "fake", "noted"]:
    """Return which time a module reads; ``noted`` is fake time on which its steps depend."""
    package = module.partition(".")[0]
    if is_infrastructure_module(package) and package not in _WAITING_FOR_CALLERS:
        return "real"
    return "fake" if package in _MEASURING_REQUESTS and module not in _LOCKS else "noted"


def _stop_garbage_collection(exits: Exits) -> None:
    """Collect garbage only in ``Fakes.reset()``, between schedules.

    A finalizer that sends a command (redis-py's Pipeline has one) would otherwise run at
    any allocation, also in code of the fakes that holds a lock, and would make the schedules differ.
    """
    if gc.isenabled():
        exits.callback(gc.enable)
        gc.disable()
        if not _has_frozen_objects():
            exits.callback(gc.unfreeze)
            gc.freeze()  # Exclude the objects of the test session from these collections.


@functools.cache
def _has_frozen_objects() -> bool:
    """Return whether the test session has frozen its objects, which Python counts one by one."""
    return gc.get_freeze_count() > 0


def _in_strands(
    world: World, original: Callable[..., Any], replacement: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that calls ``replacement(simulation, strand, …)`` in explored code only."""

    def patched(*args: Any, **kwargs: Any) -> Any:
        here = world.here()
        return original(*args, **kwargs) if here is None else replacement(*here, *args, **kwargs)

    return patched


def _new_event_loop(world: World) -> Callable[[], asyncio.AbstractEventLoop]:
    really = asyncio.events.new_event_loop

    def new_event_loop() -> asyncio.AbstractEventLoop:
        # A loop of a fake, such as that of an ASGI application, is not explored. Its code sleeps in fake
        # time, as in a loop that has started before.
        is_explored = world.current_thread.is_own() and not _is_of_a_fake(sys._getframe(1))
        return world.new_loop() if is_explored else really()

    return new_event_loop


def _check_sockets() -> None:
    """Raise ``ContractError`` if the class of sockets lacks methods that have to be replaced."""
    kind = socket.socket
    missing = [
        name
        for name in SOCKET_METHODS
        if hasattr(socket.SocketType, name) and not hasattr(kind, name)
    ]
    if missing:
        library = kind.__module__.partition(".")[0]
        raise ContractError(
            f"{library} has replaced socket.socket by {kind.__module__}.{kind.__qualname__}, which has "
            f"no methods {', '.join(missing)}, but explore() has to replace them to connect clients to "
            f"the fakes: {without_patching(library)}"
        )


def _socket_patches(world: World) -> Iterator[_Patch]:
    sockets = Sockets(
        world.connections, world.sockets, lambda: world.current_thread.is_own(), world.waits.until
    )

    def method(name: str) -> Callable[..., Any]:
        ours, original = getattr(sockets, name), getattr(socket.socket, name)
        return lambda sock, *args, **options: ours(original, sock, *args, **options)

    for name in SOCKET_METHODS:
        if hasattr(socket.socket, name):
            yield socket.socket, name, method(name)
    with if_installed("explore.guests.polling"):
        from .guests.polling import polling_patches

        yield from polling_patches(world.connections, sockets.await_news)


def _task_patches(world: World) -> Iterator[_Patch]:
    """Note the lines that create each task, in any event loop: before Python 3.12, for example,
    ``asyncio.wait_for()`` awaits its argument in a task of its own, whose stack has none of them.
    """
    really = asyncio.BaseEventLoop.create_task

    @functools.wraps(really)
    def create_task(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = really(loop, coro, **options)
        if world.simulation is not None:
            world.simulation.state.sources.note_task(task)
        return task

    yield asyncio.BaseEventLoop, "create_task", create_task


def _is_thread_of_a_fake(thread: threading.Thread) -> bool:
    """Return whether this package starts a thread, e.g. for ASGI applications, which is not explored."""
    target = getattr(thread, "_target", None)
    return str(getattr(target, "__module__", "")).startswith("pytest_fakecloud.")


def _can_start(thread: threading.Thread) -> bool:
    """Return whether a thread is initialized and has not been started yet; ``Thread.start()`` raises an
    error for others.
    """
    return vars(thread).get("_ident", 0) is None


def _run_within(thread: threading.Thread, around: Callable[[Callable[[], None]], object]) -> None:
    """Have a thread call ``around`` with its own ``run()``, in place of that."""
    run = thread.run

    def run_within(thread: threading.Thread) -> None:
        around(run)

    # A method, because tools that wrap it, such as sentry-sdk, call the function of the method.
    thread.run = MethodType(run_within, thread)  # type: ignore[method-assign]


def _thread_patches(world: World) -> Iterator[_Patch]:
    real_start, real_join = threading.Thread.start, threading.Thread.join
    real_shutdown, real_submit = ThreadPoolExecutor.shutdown, ThreadPoolExecutor.submit

    def start(simulation: Simulation, strand: Strand, thread: threading.Thread) -> None:
        before, child = dict(vars(thread)), None
        if not _is_thread_of_a_fake(thread):
            child = simulation.new_thread(strand, thread)
            vars(thread)["_strand"] = child
            _run_within(thread, partial(simulation.turns.run_in_own_thread, child))
        # The end of the process must not wait for a thread that is abandoned.
        vars(thread)["_daemonic"] = True
        try:
            with strand.waits_for_real():
                real_start(thread)
        except Exception:
            if _can_start(thread):
                # The system allows no further thread, for example. The code may try it again.
                vars(thread).clear()
                vars(thread).update(before)
                if child is not None:
                    child.state = "ended"
            raise
        vars(thread)["_daemonic"] = before["_daemonic"]

    def start_anywhere(thread: threading.Thread) -> None:
        if not _can_start(thread):
            real_start(thread)
            return
        if (here := world.here()) is not None:
            start(*here, thread)
            return
        if world.current_thread.carried() is not None:
            # Threads that begin in one which is not explored work for the same strand.
            _run_within(thread, copy_context().run)
        if world.current_thread.is_of_check() and not _is_thread_of_a_fake(thread):
            _run_within(thread, world.waits.run_in_check)
        real_start(thread)

    def join(
        simulation: Simulation,
        strand: Strand,
        thread: threading.Thread,
        timeout: float | None = None,
    ) -> None:
        child: Strand | None = vars(thread).get("_strand")
        if child is None or thread is threading.current_thread():
            real_join(thread, timeout)
            return
        until = None
        if timeout is not None:
            until = world.now_us() + math.ceil(max(0.0, timeout) * 1e6)
        while child.state != "ended" and (until is None or world.now_us() < until):
            simulation.clock.wait_for(strand, lambda: child.state == "ended", until, "join")

    def shutdown(pool: Any, *args: Any, **options: Any) -> None:
        # Join the threads in the same order in each trial. The order of a set differs.
        pool._threads = sorted(pool._threads, key=lambda thread: thread.name)
        real_shutdown(pool, *args, **options)

    def submit(pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        # An event loop that is not explored, such as that of an ASGI application, runs functions in
        # threads whose contexts do not name the strand for which they work.
        strand = world.current_thread.carried()
        if strand is None or world.current_thread.is_explored():
            return real_submit(pool, function, *args, **kwargs)

        def work() -> Any:
            token = carried_strand.set(strand)
            try:
                return function(*args, **kwargs)
            finally:
                carried_strand.reset(token)

        return real_submit(pool, work)

    yield ThreadPoolExecutor, "submit", submit
    yield threading.Thread, "start", start_anywhere
    yield threading.Thread, "join", _in_strands(world, real_join, join)
    yield ThreadPoolExecutor, "shutdown", shutdown


def _refusing(
    world: World, what: str, advice: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that ends the trial with an error if explored code calls it."""

    def refused(simulation: Simulation, strand: Strand, *_: Any, **__: Any) -> None:
        where = innermost(sys._getframe())
        simulation.turns.fail(ContractError(f"{strand.title} calls {what} at {where}: {advice}"))

    return _in_strands(world, original, refused)


def _process_patches(world: World) -> Iterator[_Patch]:
    def notes_process(original: Callable[..., Any]) -> Callable[..., Any]:
        def started(simulation: Simulation, strand: Strand, *args: Any, **kwargs: Any) -> Any:
            modules = {frame.f_globals.get("__name__") for frame in stack_of(sys._getframe())}
            if "uuid" not in modules:  # which starts a process to find a network address
                where = innermost(sys._getframe())
                note = f"not explored: a child process that {strand.title} started at {where}"
                simulation.state.log.note(note)
            with strand.waits_for_real():
                return original(*args, **kwargs)

        return _in_strands(world, original, started)

    process = multiprocessing.process.BaseProcess
    yield os, "_exit", _refusing(world, "os._exit", _EXIT_ADVICE, os._exit)
    yield subprocess.Popen, "__init__", notes_process(subprocess.Popen.__init__)
    yield process, "start", notes_process(process.start)


def _signal_patches(world: World) -> Iterator[_Patch]:
    """Yield functions that do nothing in a strand, where the originals raise an error."""

    def skips(original: Callable[..., Any], result: object) -> Callable[..., Any]:
        def skipped(simulation: Simulation, strand: Strand, *_: Any, **__: Any) -> object:
            simulation.state.log.note("not explored: signals, and timeouts that signals end")
            return result

        return _in_strands(world, original, skipped)

    results = {
        "signal": signal.SIG_DFL, "alarm": 0, "setitimer": (0.0, 0.0), "set_wakeup_fd": -1,
    }  # fmt: skip
    for name, result in results.items():
        if hasattr(signal, name):
            yield signal, name, skips(getattr(signal, name), result)


def _guest_patches(world: World) -> Iterator[_Patch]:
    with if_installed("explore.guests.trio_runs"):
        from .guests.trio_runs import trio_patches

        yield from trio_patches(world)
    with if_installed("explore.guests.celery_workers"):
        from .guests.celery_workers import celery_patches

        yield from celery_patches(partial(_refusing, world))


_LOCK, _REENTRANT_LOCK = type(threading.Lock()), type(threading.RLock())


class _SharedLock:
    """A lock that lets other strands run during a wait. Other threads use the wrapped lock."""

    def __init__(self, world: World, name: str, real: Any = None) -> None:
        self._world = world
        self.name = name
        self._real: Any = _allocate() if real is None else real

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock like ``threading.Lock``; ``timeout`` is in fake time."""
        here = self._world.here()
        if here is None:
            return self._acquire_outside(blocking, timeout)
        simulation, strand = here
        # A thread from before may hold the lock, or be about to fulfil a future under it.
        simulation.await_outsiders()
        until = None
        if timeout != -1:
            if not blocking or timeout < 0:
                return bool(self._real.acquire(blocking, timeout))  # raises ValueError
            # A real wait lasts longer than its timeout. Code such as `as_completed()` relies on this.
            until = self._world.now_us() + math.floor(timeout * 1e6) + 1
        while not (acquired := self._real.acquire(False)):
            if not blocking or (until is not None and self._world.now_us() >= until):
                break
            simulation.clock.wait_for(strand, self._is_free, until, "lock")
        simulation.state.touch_lock(self.name)
        return bool(acquired)

    def _acquire_outside(self, blocking: bool, timeout: float) -> bool:
        """Acquire the lock in a thread that is not explored, or at the end of a trial."""
        simulation = self._world.simulation
        turns = None if simulation is None else simulation.turns
        if blocking and turns is not None and turns.has_ended and turns.here() is not None:
            if self._real.acquire(True, _ENDING):
                return True
            raise Crash
        return bool(self._real.acquire(blocking, timeout))

    def release(self) -> None:
        self._real.release()
        simulation = self._world.simulation
        # Skip a thread that just starts, because it may do so in a step of another strand. Include
        # the strands that the end of a trial stops: a strand that waited depends on their order.
        if simulation is not None and self._world.current_thread.is_explored():
            simulation.state.touch_lock(self.name)

    def locked(self) -> bool:
        return not self._is_free()

    def free(self) -> None:
        """Make the lock free, whichever thread holds it."""
        self._real._at_fork_reinit()

    def _is_free(self) -> bool:
        if not self._real.acquire(False):
            return False
        self._real.release()
        return True

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _LockOfCheck(_SharedLock):
    """A lock that a check creates, also the one on which ``Condition.wait()`` waits: Its time-outs are
    in fake time.
    """

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking or timeout <= 0 or self._real.acquire(False):
            return super().acquire(blocking, timeout)
        # Another thread that runs may end the wait, which real time alone can show.
        patience = self._world.waits.patience_with_threads(timeout)
        if patience and self._real.acquire(True, patience):
            return True
        self._world.waits.until(self._is_free, timeout)
        return bool(self._real.acquire(False))

    __enter__ = acquire


class _SharedReentrantLock(_SharedLock):
    """Like ``_SharedLock``, for a lock that its owner can acquire again."""

    def _is_free(self) -> bool:
        # The strand that the owner's thread asks for is another one, for which the lock is not free.
        return not self._real._is_owned() and super()._is_free()

    def _acquire_restore(self, state: Any) -> None:
        """Acquire the lock again after ``Condition.wait()``, as often as before."""
        self.acquire()
        self._real.release()
        self._real._acquire_restore(state)


def _lock_patches(world: World) -> Iterator[_Patch]:
    real_rlock, real_queue = threading.RLock, queue.SimpleQueue

    def in_strands(
        real: Callable[[], Any], create_explored: Callable[[Strand], Any]
    ) -> Callable[[], Any]:
        def create() -> Any:
            strand = world.current_thread.creating_for()
            return (
                real()
                if strand is None or _is_of_a_fake(sys._getframe(1))
                else create_explored(strand)
            )

        return create

    def shared_lock(strand: Strand) -> _SharedLock:
        # Choose a name that is the same in every trial, because footprints of trials are compared.
        strand.locks_created += 1
        return _SharedLock(world, f"{strand.name}#{strand.locks_created}")

    # The versions of ``threading`` and ``queue`` in Python create the locks that are replaced here.
    lock_in_strands = in_strands(_allocate, shared_lock)

    def lock() -> Any:
        if world.current_thread.is_of_check() and not _is_of_a_fake(sys._getframe(1)):
            return _LockOfCheck(world, "check")
        return lock_in_strands()

    rlock = in_strands(real_rlock, lambda _: threading._PyRLock())  # type: ignore[attr-defined]
    simple_queue = in_strands(real_queue, lambda _: queue._PySimpleQueue())  # type: ignore[attr-defined]

    class SimpleQueue:
        """A class, because code also writes ``SimpleQueue[int]()``."""

        def __new__(cls) -> Any:
            return simple_queue()

        def __class_getitem__(cls, item: Any) -> type:
            return cls

    def monotonic() -> float:
        """Return the time with which ``threading`` and ``queue`` measure their time-outs."""
        if world.current_thread.cooperating() is None and not world.current_thread.is_of_check():
            return _monotonic()
        return world.elapsed_us() / 1e6

    yield threading, "Lock", lock
    yield threading, "_allocate_lock", lock
    yield threading, "RLock", rlock
    yield threading, "_time", monotonic
    yield queue, "SimpleQueue", SimpleQueue
    yield queue, "time", monotonic


def _is_of_a_fake(frame: FrameType | None) -> bool:
    """Return whether a lock is created by this package, whose own locks are not explored."""
    # The first client that uses a port would record accesses to its locks; a later trial would not.
    while frame is not None and frame.f_globals.get("__name__") in _MAKERS_OF_LOCKS:
        frame = frame.f_back
    # A tool that wraps ``threading.Thread`` can be between ``threading`` and this package.
    return (frame is not None and is_own(frame)) or any(
        caller.f_code in _MAKERS_OF_THREADS for caller in stack_of(frame)
    )


class _Replacements:
    """Replaces the locks, sleeps and clocks to which functions referred before ``explore()``, and puts
    them back when ``exits`` is closed.
    """

    def __init__(self, world: World, exits: Exits, functions: Mapping[int, Function]) -> None:
        self._world = world
        self._exits = exits
        self._functions = functions
        self.locks: dict[int, _SharedLock] = {}
        self._seen: dict[int, int] = {}
        """The greatest depth with which each object was visited, by ``id()``."""

    def visit(self, value: Any, depth: int) -> None:
        """Replace what a value refers to, following ``depth`` further references from there."""
        if self._seen.get(id(value), -1) >= depth:
            return
        self._seen[id(value)] = depth
        if isinstance(value, partial):
            bound: Any = value
            state = bound.args, bound.keywords, vars(bound)
            self._replace(
                bound.func, depth, lambda function: bound.__setstate__((function, *state))
            )
            value = bound.func
        if isinstance(value, dict | list) and len(value) <= _MOST_ITEMS:
            pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
            for key, held in pairs:
                self._visit_held(held, depth, partial(value.__setitem__, key))
            return
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, type(sys)):
            self.visit(owner, depth)
        code = getattr(value, "__code__", None)
        if code is None:
            self._visit_attributes(value, depth)
        elif not is_library(code.co_filename):
            self._visit_closure(value, depth)
            self._visit_names(getattr(value, "__globals__", {}), code.co_names, depth)

    def _visit_attributes(self, value: Any, depth: int) -> None:
        module = sys.modules.get(type(value).__module__)
        source = getattr(module, "__file__", None)
        if not isinstance(value, SimpleNamespace) and (not source or is_library(source)):
            return
        names = getattr(value, "__dict__", None)
        if isinstance(names, dict):
            self._visit_names(names, list(names), depth)
        for name in getattr(type(value), "__slots__", ()):
            if isinstance(getattr(type(value), name, None), MemberDescriptorType):
                held = getattr(value, name, None)
                self._visit_held(held, depth, partial(setattr, value, name))

    def _visit_closure(self, function: Any, depth: int) -> None:
        for cell in getattr(function, "__closure__", None) or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # The variable has no value yet.
            self._replace(value, depth, partial(setattr, cell, "cell_contents"))

    def _visit_names(self, scope: dict[str, Any], names: Iterable[str], depth: int) -> None:
        for name in names:
            if name in scope:
                self._visit_held(scope[name], depth, partial(scope.__setitem__, name))

    def _visit_held(self, value: Any, depth: int, put: Callable[[Any], None]) -> None:
        """Replace a value that is held by another one, or visit it if ``depth`` allows that."""
        is_replaced = isinstance(value, _LOCK | _REENTRANT_LOCK)
        if depth or is_replaced or id(value) in self._functions:
            self._replace(value, depth - 1, put)

    def _replace(self, value: Any, depth: int, put: Callable[[Any], None]) -> None:
        function = self._functions.get(id(value))
        if function is not None:
            self._exits.callback(put, value)
            put(function)
        elif isinstance(value, _LOCK | _REENTRANT_LOCK):
            kind = _SharedReentrantLock if isinstance(value, _REENTRANT_LOCK) else _SharedLock
            new = kind(self._world, f"#{len(self.locks)}", value)
            shared = self.locks.setdefault(id(value), new)
            self._exits.callback(put, value)
            put(shared)
        elif value is not None:
            self.visit(value, depth)
