"""The process of explored code: its time, sockets, threads and locks, which the exploration replaces."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import importlib.util
import logging
import multiprocessing.process
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Any, Literal

from ...cloud.base import BaseCloud, context_of
from ...core.errors import ContractError, if_installed, shown
from ...core.exits import Exits, exiting
from ...core.frames import stack_of
from ...process.clocks import (
    RealClock,
    clocks_of,
    is_infrastructure_module,
    keeps_originals,
    module_of,
    sleeps_of,
)
from ...process.process_time import ProcessTime
from ...process.replace import Everywhere, Function, Patch, swap
from ..simulation.loops import AsyncLibrary
from ..simulation.simulation import Simulation
from ..simulation.stacks import innermost
from ..simulation.strand import Strand
from ..subject.options import Options
from ..subject.programs import Program
from .interceptors import watch
from .locks import StoredObjects, lock_patches
from .sockets import check_sockets, socket_patches
from .threads import thread_patches
from .world import World

_EXIT_ADVICE = "explore() sees only this process and keeps it alive. Replace that call in the test"
_WAITING_FOR_CALLERS = frozenset({"concurrent", "multiprocessing", "queue", "sched", "threading"})
"""Packages of the standard library that measure the timeouts of their callers."""
_MEASURING_REQUESTS = frozenset({
    "httpcore", "httpcore2", "httpx", "httpx2", "redis", "requests", "urllib3",
})  # fmt: skip
"""Packages that read a clock for each request, and do nothing that depends on it."""
_LOCKS = frozenset({"redis.asyncio.lock", "redis.lock"})
"""Modules of these packages whose behaviour depends on the clock."""


@contextlib.contextmanager
def explored(cloud: BaseCloud, programs: Iterable[Program], options: Options) -> Iterator[World]:
    """Explore a cloud within the block.

    The clock is frozen, the process's time follows the clock if time-machine is installed, requests
    of this process skip the socket, sleeping moves the clock, and calls pass through the world's
    simulation. At the end everything is restored, and the cloud's data is at the baseline. Raises
    ``ContractError`` for a clock that cannot be frozen, for a queue that delivers in the background,
    and for sockets of another library whose methods cannot be replaced.
    """
    process_time = options.process_time
    if process_time is not None and not isinstance(process_time, bool):
        raise ContractError(
            f"process_time={shown(process_time)} is not possible in explore(): pass True or "
            "False. Sleeps always move the clock"
        )
    check_sockets()
    seed = cloud.seed if options.seed is None else options.seed
    world = World(cloud, seed, _guest_libraries())
    # What begins later ends earlier:
    #
    # 1. The clock stops, and then the process's time follows it. Fakes set their baseline at this time,
    #    and start over at it in the end.
    # 2. The fakes are watched, and have their baseline. In the end, they return to it while they are
    #    still watched, after all that follows has ended.
    # 3. Nothing slows down or disturbs trials: garbage is collected between them only.
    # 4. Sleeps and clocks are replaced, in all modules. Their replacements are found for 6.
    # 5. Sockets, threads, locks and the rest of the process are replaced. In the end, this comes before
    #    the connections of the fakes close, so that what closes them uses the originals.
    # 6. What the code has stored is replaced: sleeps and clocks of 4, and locks with the classes of 5.
    # 7. The threads of trials end first, before anything is restored: code that catches everything may
    #    still send requests.
    with exiting() as exits:
        _stop_time(world, exits)  # 1
        _steer_process(world, exits, process_time)
        for fake in world.fakes.members:  # 2
            watch(world, fake, exits)
        world.fakes.set_baseline()
        exits.callback(world.randomness.restore)
        exits.callback(world.fakes.reset)
        _stop_garbage_collection(exits)  # 3
        # Each of thousands of trials would search the stacks of all strands at each call.
        swap(exits, context_of(cloud).recorder.shared, "note_caller", None)
        # redis-py reads its version from its metadata file for each new connection.
        swap(exits, importlib.metadata, "version", functools.cache(importlib.metadata.version))
        functions = _let_time_follow(world, exits, clocks=process_time is not False)  # 4
        exits.callback(world.request_pool.shutdown, wait=False)
        exits.callback(world.fakes.connections.close)
        for owner, name, value in (  # 5
            *socket_patches(world),
            *(patch for library in world.async_libraries for patch in library.patches()),
            *lock_patches(world),
            *thread_patches(world),
            *_process_patches(world),
            *_signal_patches(world),
            *world.randomness.patches(),
            *_guest_patches(world),
        ):
            swap(exits, owner, name, value)
        # Silence this logger, because it would report a pool's threads that the end of the trial stops.
        swap(exits, logging.getLogger("concurrent.futures"), "disabled", True)
        stored = StoredObjects(world, exits, functions)  # 6
        stored.replace_in(programs)
        exits.callback(world.threads.close)  # 7
        yield world


def _stop_time(world: World, exits: Exits) -> None:
    clock = world.fakes.clock
    if clock.mode == "running":
        exits.callback(clock.resume)
    clock.freeze()
    swap(exits, clock, "wait_cap", 0)
    swap(exits, clock, "wait", partial(world.waits.wait_in_command, clock.wait))


def _steer_process(world: World, exits: Exits, follows_clock: bool | None) -> None:
    """Make the process's time follow the clock, unless the caller or the system forbids it."""
    if follows_clock is None:
        follows_clock = importlib.util.find_spec("time_machine") is not None
    if follows_clock and not world.fakes.clock.anchored:
        world.fakes.process_time = ProcessTime(world.fakes.clock)
        world.fakes.process_time.on_read = world.note_clock_read
        exits.callback(world.fakes.process_time.stop)
        world.fakes.process_time.start()


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
    """The policy of explored code and checks. For threads without the fake time, the clocks are real
    (``Role.has_fake_time``), and so are sleeps unless the thread works for a strand.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def sleep(self, seconds: float, really: Callable[[float], None], caller: FrameType) -> None:
        is_span = isinstance(seconds, int | float) and seconds >= 0
        if not is_span or not self._world.waits.sleep(seconds):
            really(seconds)

    async def sleep_in_asyncio(
        self, delay: float, result: Any, really: Callable[..., Awaitable[Any]], caller: FrameType
    ) -> Any:
        library = self._world.async_library()
        is_passed = library is not None and await library.sleep(delay)
        return await really(0 if is_passed else delay, result)

    def read(self, clock: RealClock, caller: FrameType) -> Any:
        world, use = self._world, _use_of_clocks(module_of(caller))
        if use == "real" or not world.current_thread.role().has_fake_time:
            return clock.read()
        if use == "noted":
            world.note_clock_read()
        elapsed_us = world.fakes.elapsed_us()
        return clock.started + (elapsed_us / 1e6 if clock.per_second == 1 else elapsed_us * 1000)


@functools.lru_cache(maxsize=4096)
def _use_of_clocks(module: str) -> Literal["real", "fake", "noted"]:
    """Return which time a module reads; ``noted`` is fake time on which its steps depend."""
    package = module.partition(".")[0]
    if is_infrastructure_module(package) and package not in _WAITING_FOR_CALLERS:
        return "real"
    return "fake" if package in _MEASURING_REQUESTS and module not in _LOCKS else "noted"


def _stop_garbage_collection(exits: Exits) -> None:
    """Collect garbage only in ``Fakes.reset()``, between trials.

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


def _refusing(
    world: World, what: str, advice: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that ends the trial with an error if explored code calls it."""

    def refused(simulation: Simulation, strand: Strand, *_: Any, **__: Any) -> None:
        where = innermost(sys._getframe())
        simulation.turns.fail_trial(
            ContractError(f"{strand.name} calls {what} at {where}: {advice}")
        )

    return world.in_strands(original, refused)


def _process_patches(world: World) -> Iterator[Patch]:
    def notes_process(original: Callable[..., Any]) -> Callable[..., Any]:
        def started(simulation: Simulation, strand: Strand, *args: Any, **kwargs: Any) -> Any:
            modules = {frame.f_globals.get("__name__") for frame in stack_of(sys._getframe())}
            if "uuid" not in modules:  # which starts a process to find a network address
                where = innermost(sys._getframe())
                note = f"not explored: a child process that {strand.name} started at {where}"
                simulation.log.note(note)
            with strand.waits_for_real():
                return original(*args, **kwargs)

        return world.in_strands(original, started)

    process = multiprocessing.process.BaseProcess
    yield os, "_exit", _refusing(world, "os._exit", _EXIT_ADVICE, os._exit)
    yield subprocess.Popen, "__init__", notes_process(subprocess.Popen.__init__)
    yield process, "start", notes_process(process.start)


def _signal_patches(world: World) -> Iterator[Patch]:
    """Yield functions that do nothing in a strand, where the originals raise an error."""

    def skips(original: Callable[..., Any], result: object) -> Callable[..., Any]:
        def skipped(simulation: Simulation, strand: Strand, *_: Any, **__: Any) -> object:
            simulation.log.note("not explored: signals, and timeouts that signals end")
            return result

        return world.in_strands(original, skipped)

    results = {
        "signal": signal.SIG_DFL, "alarm": 0, "setitimer": (0.0, 0.0), "set_wakeup_fd": -1,
    }  # fmt: skip
    for name, result in results.items():
        if hasattr(signal, name):
            yield signal, name, skips(getattr(signal, name), result)


def _guest_libraries() -> Iterator[Callable[[World], AsyncLibrary]]:
    with if_installed("explore.guests.trio_runs"):
        from ..guests.trio_runs import Trio

        yield Trio


def _guest_patches(world: World) -> Iterator[Patch]:
    with if_installed("explore.guests.polling"):
        from ..guests.polling import polling_patches

        yield from polling_patches(world.fakes.connections, world.waits.wait_until)
    with if_installed("explore.guests.celery_workers"):
        from ..guests.celery_workers import celery_patches

        yield from celery_patches(partial(_refusing, world))
