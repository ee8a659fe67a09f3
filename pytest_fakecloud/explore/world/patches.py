"""The process of explored code: its time, sockets, threads and locks, which the exploration replaces."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ...cloud.base import BaseCloud, context_of
from ...core.errors import ContractError, if_installed, shown
from ...core.exits import Exits, exiting
from ...process.replace import Patch, swap
from ..simulation.loops import AsyncLibrary
from ..subject.options import Options
from ..subject.programs import Program
from .clocks import let_time_follow, steer_process, stop_time
from .interceptors import watch
from .locks import lock_patches
from .processes import process_patches, refusing, signal_patches
from .sockets import check_sockets, socket_patches
from .stored_objects import StoredObjects
from .threads import thread_patches
from .world import World


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
        stop_time(world, exits)  # 1
        steer_process(world, exits, process_time)
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
        functions = let_time_follow(world, exits, clocks=process_time is not False)  # 4
        exits.callback(world.request_pool.shutdown, wait=False)
        exits.callback(world.fakes.connections.close)
        for owner, name, value in (  # 5
            *socket_patches(world),
            *(patch for library in world.async_libraries for patch in library.patches()),
            *lock_patches(world),
            *thread_patches(world),
            *process_patches(world),
            *signal_patches(world),
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

        yield from celery_patches(partial(refusing, world))
